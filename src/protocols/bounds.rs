//! Bounds of several protocols on what all connections of a listener may hold together, in addition to those on each connection.

use crate::actors::queue::QueueName;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

/// The memory budget of a listener, in bytes, for queues that exist only because its connections wait on them or watch them.
pub const NAMED_BYTES_MAX: u64 = 256 << 20;

/// The overhead of a queue, not counting its name, in bytes.
const NAMED_BYTES: usize = 512;

/// Returns the memory cost of a queue that no other client refers to, in bytes.
pub fn bytes_to_name(queue: &QueueName) -> usize {
    NAMED_BYTES + 2 * queue.as_bytes().len()
}

/// Limits the number of tasks of one kind that run at a time. Further ones wait for their turn.
#[derive(Clone)]
pub struct Turns(Arc<Semaphore>);

impl Turns {
    /// Creates a limit of `max` tasks.
    pub fn new(max: usize) -> Self {
        Self(Arc::new(Semaphore::new(max)))
    }

    /// Waits for a turn. The turn is over when the returned permit is dropped. Never returns `None`, since the semaphore is never closed.
    pub async fn next(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.0).acquire_owned().await.ok();
        // Yields even if a permit is free, so that a task that always has more to do lets others run in between.
        yield_now().await;
        turn
    }
}
