//! Receives signals while a command runs in the foreground, to forward them to it.

use std::io;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot::Receiver;

/// Listeners for signals, each with the number of its signal.
pub(crate) struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Listens for the signals with these `numbers`. Must be called within a runtime.
    pub(crate) fn listen(numbers: &[i32]) -> io::Result<Self> {
        let listened =
            numbers.iter().map(|number| Ok((*number, signal(SignalKind::from_raw(*number))?)));
        Ok(Self(listened.collect::<io::Result<_>>()?))
    }

    /// Calls `forward` with the number of each signal that arrives, until a value is sent to `end` or its sender is dropped.
    pub(crate) async fn pass_on(mut self, mut end: Receiver<()>, mut forward: impl FnMut(i32)) {
        while let Err(number) = self.until(&mut end).await {
            forward(number);
        }
    }

    /// Waits for `end`, and returns its output. If one of the signals arrives first, returns the number of the signal as an error.
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
