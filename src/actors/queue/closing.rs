//! The queues that are closed for a while because something was claimed from them, by when they open.

use crate::actors::queue::state::State;
use crate::actors::queue::throttle::Throttle;
use crate::clock::Timestamp;
use crate::ids::Slot;

impl State {
    /// Closes the queue of this job, which was claimed at `at`, if its type is throttled. A duplicate is no work.
    pub(super) fn close(&mut self, job: Slot, at: Timestamp) {
        let Some(job) = self.jobs.get(job) else {
            return;
        };
        let slot = self.slot_of_queue(job);
        let items = job.story().items.max(1);
        if !self.queue(slot).throttle.is_set() || self.is_duplicate(job) {
            return;
        }
        // In a replay it is among them still.
        let before = self.queue(slot).throttle.opens();
        self.closings.remove(&(before, slot));
        self.attend(slot, |queue| queue.throttle.close(at, items));
        let opens = self.queue(slot).throttle.opens();
        self.closings.insert((opens, slot));
        self.review(slot);
    }

    /// Opens every queue whose time has come at `at`.
    pub(super) fn open(&mut self, at: Timestamp) {
        while let Some((opens, slot)) = self.closings.first().copied()
            && opens <= at
        {
            self.open_first(slot, Throttle::open);
        }
    }

    /// Opens every queue, whatever was claimed from it.
    pub(super) fn open_all(&mut self) {
        while let Some((_, slot)) = self.closings.first().copied() {
            self.open_first(slot, Throttle::reset);
        }
    }

    fn open_first(&mut self, slot: Slot, open: impl FnOnce(&mut Throttle)) {
        self.closings.pop_first();
        self.attend(slot, |queue| open(&mut queue.throttle));
        self.review(slot);
        self.forsake(slot);
    }

    /// When the first queue is to be opened.
    pub(super) fn opens(&self) -> Option<Timestamp> {
        self.closings.first().map(|(opens, _)| *opens)
    }
}
