//! Signals that come here while a command runs in the foreground, and go on to it.

use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::Receiver;

/// Signals that are heard from now on.
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Hears these, by number. Needs a runtime.
    pub(crate) fn listen(numbers: &[i32]) -> io::Result<Self> {
        let listened = numbers
            .iter()
            .map(|number| Ok((*number, signal(SignalKind::from_raw(*number))?)));
        Ok(Self(listened.collect::<io::Result<_>>()?))
    }

    /// Hands each on as it comes, until the end.
    pub(crate) async fn pass_on(mut self, mut end: Receiver<()>, mut forward: impl FnMut(i32)) {
        while let Err(number) = self.until(&mut end).await {
            forward(number);
        }
    }

    /// What comes of this, or the number of a signal that comes before it.
    pub(crate) async fn until<F: Future + Unpin>(&mut self, end: &mut F) -> Result<F::Output, i32> {
        let next = std::future::poll_fn(|context| {
            let mut polled = self.0.iter_mut();
            let came = polled.find_map(|(number, signal)| {
                signal.poll_recv(context).is_ready().then_some(*number)
            });
            came.map_or(Poll::Pending, Poll::Ready)
        });
        tokio::select! {
            came = end => Ok(came),
            number = next => Err(number),
        }
    }
}
