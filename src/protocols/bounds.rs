//! Bounds on what all connections of a listener may hold together, in addition to the bounds on each connection.

use crate::actors::queue::QueueName;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

/// The maximum number of large answers that a listener builds or sends at a time. Each may take tens of megabytes.
const LARGE_MAX: usize = 8;

/// The memory budget of a listener, in bytes, for queues that exist only because its connections wait on them or watch them.
pub const NAMED_BYTES_MAX: u64 = 256 << 20;

/// The maximum number of connections of a listener that do more than a little work before all other tasks of the thread have their turn.
pub(super) const TURNS_MAX: usize = 16;

/// The overhead of a queue, not counting its name, in bytes.
const NAMED_BYTES: usize = 512;

/// Returns the memory cost of a queue that no other client refers to, in bytes.
pub fn bytes_to_name(queue: &QueueName) -> usize {
    NAMED_BYTES + 2 * queue.as_bytes().len()
}

/// A limit on the number of large answers that are built or sent at a time. Further requests wait for a permit.
pub struct LargeAnswers(Arc<Semaphore>);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_MAX)))
    }
}

impl LargeAnswers {
    /// Waits for a permit. It must be taken before the answer is built and held until the answer is written.
    pub async fn admit(&self) -> OwnedSemaphorePermit {
        let places = Arc::clone(&self.0);
        let place = places.acquire_owned().await;
        place.expect("the semaphore is never closed")
    }
}

/// Limits the number of tasks of one kind that run at a time. Further ones wait for their turn.
#[derive(Clone)]
pub struct Turns(Arc<Semaphore>);

impl Turns {
    /// Creates a limit of `max` tasks.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max)))
    }

    /// Creates the limit on the connections of a listener.
    pub(crate) fn of_connections() -> Self {
        Self::new(TURNS_MAX)
    }

    /// Waits for a turn. The turn is over when the returned permit is dropped. Never returns `None`, since the semaphore is never closed.
    pub async fn next(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok();
        // Yields even if a permit is free, so that a task that always has more to do lets others run in between.
        yield_now().await;
        turn
    }

    /// Waits for a turn that lasts until the task waits again, for whatever.
    pub(crate) async fn pass(&self) {
        drop(self.next().await);
    }
}
