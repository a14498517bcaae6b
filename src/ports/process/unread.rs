//! How many notices the actor has yet to handle. A process may send as many as it likes, also while the actor waits for the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of notices on their way to the actor. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Unread(Arc<AtomicUsize>);

/// A notice on its way; it counts until this is dropped.
#[derive(Debug)]
pub struct OnItsWay(Unread);

impl Unread {
    /// The maximum number. Further ones are postponed, and only the latest of each process is kept.
    pub(super) const MAX: usize = 1024;

    /// Counts one more.
    #[must_use]
    pub fn one(&self) -> OnItsWay {
        self.0.fetch_add(1, Ordering::Relaxed);
        OnItsWay(self.clone())
    }

    /// Returns how many more there may be.
    pub(super) fn room(&self) -> usize {
        Self::MAX.saturating_sub(self.0.load(Ordering::Relaxed))
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
