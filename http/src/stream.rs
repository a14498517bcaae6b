//! Answer bodies that are streams. Each part is requested only once the previous one is written.

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The interval between heartbeats of a stream.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// A comment in a server-sent event stream, sent first and as the heartbeat.
pub(crate) const ALIVE: &str = ":\n\n";

/// The source of a stream.
pub(crate) trait Parts: Sized + 'static {
    /// Returns the next part, or `None` at the end of the stream.
    async fn part(&mut self) -> Option<Bytes>;
}

/// A future that resolves to the source and its next part. It owns the source until then.
type Turn<P> = Pin<Box<dyn Future<Output = (P, Option<Bytes>)>>>;

/// A stream as the body of an answer.
pub(crate) struct Stream<P> {
    turn: Option<Turn<P>>,
}

impl<P: Parts> Stream<P> {
    pub(crate) fn new(parts: P) -> Self {
        Self { turn: Some(turn(parts)) }
    }

    /// Creates a stream without parts.
    pub(crate) const fn empty() -> Self {
        Self { turn: None }
    }
}

fn turn<P: Parts>(mut parts: P) -> Turn<P> {
    Box::pin(async move {
        let part = parts.part().await;
        (parts, part)
    })
}

impl<P: Parts> MessageBody for Stream<P> {
    type Error = Infallible;

    fn size(&self) -> BodySize {
        BodySize::Stream
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Infallible>>> {
        let Some(next) = &mut self.turn else {
            return Poll::Ready(None);
        };
        let (parts, part) = ready!(next.as_mut().poll(context));
        self.turn = part.is_some().then(|| turn(parts));
        Poll::Ready(part.map(Ok))
    }
}
