//! Streams as bodies of answers: one part after the other, and none is asked for before the one before it is written.

use actix_web::body::{BodySize, MessageBody};
use actix_web::web::Bytes;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// How often a stream shows that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(15);

/// A comment of server-sent events: sent then, and first of all.
pub(crate) const ALIVE: &str = ":\n\n";

/// What a stream is made of.
pub(crate) trait Parts: Sized + 'static {
    /// The next part; none at the end.
    async fn part(&mut self) -> Option<Bytes>;
}

/// The next part on its way, and what it comes from.
type Turn<P> = Pin<Box<dyn Future<Output = (P, Option<Bytes>)>>>;

/// A stream as the body of an answer.
pub(crate) struct Stream<P> {
    turn: Option<Turn<P>>,
}

impl<P: Parts> Stream<P> {
    pub(crate) fn new(parts: P) -> Self {
        Self {
            turn: Some(turn(parts)),
        }
    }

    /// A stream without parts.
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
