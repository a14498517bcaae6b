//! What the connections of a listener may hold together, beside what each may hold alone.

use crate::actors::queue::QueueName;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Large answers of a listener at a time: one may have tens of megabytes.
const LARGE_MAX: usize = 8;

/// What the queues may cost that connections of a listener name to wait or watch: they are there for nothing else.
pub(crate) const NAMED_BYTES_MAX: u64 = 256 << 20;

/// What it costs to have a queue there, with its name.
const NAMED_BYTES: usize = 512;

/// What it costs to name a queue that nobody else does.
pub(crate) fn bytes_to_name(queue: &QueueName) -> usize {
    NAMED_BYTES + 2 * queue.as_bytes().len()
}

/// Large answers: few of them are gathered, or lie unread, at a time. Whoever asks for one more waits for a place.
pub(crate) struct LargeAnswers(Arc<Semaphore>);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_MAX)))
    }
}

impl LargeAnswers {
    /// Waits for a place: taken before the answer is gathered, and kept until it is written.
    pub(crate) async fn admit(&self) -> OwnedSemaphorePermit {
        let places = Arc::clone(&self.0);
        let place = places.acquire_owned().await;
        place.expect("the semaphore is never closed")
    }
}
