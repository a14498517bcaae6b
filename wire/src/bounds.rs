//! Bounds on what all connections of a listener may hold together, in addition to the bounds on each connection.

use sexton::protocols::bounds;
use sexton::spine::budget::{Budget, Reservation};
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The maximum number of large answers that a listener builds or sends at a time. Each may take tens of megabytes.
const LARGE_MAX: usize = 8;

/// The maximum number of connections of a listener that do more than a little work before all other tasks of the thread have their turn.
pub(crate) const TURNS_MAX: usize = 16;

/// The memory budget of a listener, in bytes, for answers that its clients have not read.
pub(crate) const UNREAD_BYTES_MAX: u64 = 64 << 20;

/// A limit on the number of large answers that are built or sent at a time. Further requests wait for a permit.
pub(crate) struct LargeAnswers(Arc<Semaphore>);

impl Default for LargeAnswers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(LARGE_MAX)))
    }
}

impl LargeAnswers {
    /// Waits for a permit. It must be taken before the answer is built and held until the answer is written.
    pub(crate) async fn admit(&self) -> OwnedSemaphorePermit {
        let places = Arc::clone(&self.0);
        let place = places.acquire_owned().await;
        place.expect("the semaphore should never be closed")
    }
}

/// The turns of a listener's connections.
#[derive(Clone)]
pub(crate) struct Turns(bounds::Turns);

impl Default for Turns {
    fn default() -> Self {
        Self(bounds::Turns::new(TURNS_MAX))
    }
}

impl Turns {
    /// Waits for a turn that lasts until the task waits again, for whatever.
    pub(crate) async fn pass(&self) {
        drop(self.0.next().await);
    }
}

/// The output of a connection that its client has not read yet, in a budget of all connections of the listener.
pub(crate) struct Unread(Reservation);

impl Unread {
    pub(crate) fn new(budget: &Arc<Budget>) -> Self {
        Self(Reservation::new(budget))
    }

    /// Returns whether another answer may be appended to `output` before it is written. The first one always may, so that no client is kept
    /// waiting by those that do not read.
    pub(crate) fn admits_more(&mut self, output: &Vec<u8>) -> bool {
        output.is_empty() || self.0.set(output.capacity())
    }

    /// Reserves memory for an answer of at most `bytes` bytes that is still to be given. Returns false if there is not enough.
    pub(crate) fn reserve(&mut self, bytes: usize) -> bool {
        self.0.grow(bytes)
    }

    /// Notes that all output has been written.
    pub(crate) fn written(&mut self) {
        self.0.release();
    }
}

#[cfg(test)]
mod tests {
    use super::Unread;
    use sexton::spine::budget::Budget;

    #[test]
    fn unread_output_is_bounded_but_for_one_answer_of_each_connection() {
        let budget = Budget::new(1000);
        let mut all = [(); 3].map(|()| (Unread::new(&budget), Vec::with_capacity(400)));
        let mut answered = [0; 3];
        for _ in 0..5 {
            for (place, (unread, output)) in all.iter_mut().enumerate() {
                if unread.admits_more(output) {
                    answered[place] += 1;
                    output.push(b'x');
                }
            }
        }
        assert_eq!(answered, [5, 5, 1]);
        assert_eq!(budget.held(), 800);
        let (unread, output) = &mut all[0];
        unread.written();
        output.clear();
        let (unread, output) = &mut all[2];
        assert!(unread.admits_more(output), "there is room again");
        output.reserve_exact(601);
        assert!(!unread.admits_more(output), "it counts what the output occupies");
    }
}
