//! Queues that are temporarily closed because a job was claimed from them, ordered by when they open.
//!
//! A queue opens without a journal entry, so a snapshot may list queues that have opened since. Loading the snapshot
//! closes these queues again, until `open` is called with the current time.

use crate::actors::queue::pages::{CLOSED, Closed, encode_closed};
use crate::actors::queue::state::State;
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::spine::machine::Stamp;

impl State {
    /// Closes the queue of a job that was just claimed, if its type is throttled. A job that a newer root job has made
    /// obsolete does not close its queue, since it is not worked on.
    pub(super) fn close(&mut self, job: Slot, Stamp { seq, at }: Stamp) {
        let Some(job) = self.jobs.get(job) else {
            return;
        };
        let slot = self.slot_of_queue(job);
        let items = job.details().items.max(1);
        if !self.queue(slot).throttle.is_set() || self.is_duplicate(job) {
            return;
        }
        let (closings, queues) = (&self.closings, &self.queues);
        let page = |content: &mut Vec<u8>| encode_closed(closings, queues, content);
        self.pages.touch(CLOSED, seq, page);
        // In a replay, the queue may still be listed with its previous opening time.
        let before = self.queue(slot).throttle.opens_at();
        self.closings.remove(&(before, slot));
        self.change_queue(slot, |queue| queue.throttle.close(at, items));
        let opens = self.queue(slot).throttle.opens_at();
        self.closings.insert((opens, slot));
        self.update_offer(slot);
    }

    /// Opens every queue whose closing ends at or before `at`.
    pub(super) fn open(&mut self, at: Timestamp) {
        while let Some((opens, slot)) = self.closings.first().copied()
            && opens <= at
        {
            self.closings.pop_first();
            self.change_queue(slot, |queue| queue.throttle.open());
            self.update_offer(slot);
            self.remove_if_unused(slot);
        }
        self.settle_turns();
    }

    /// Closes the queues that were closed when a snapshot was taken, except those whose types are no longer throttled.
    pub(super) fn load_closed(&mut self, closed: Vec<Closed>) {
        for (name, end_us) in closed {
            if self.rules.of(&name).throttle_milli == 0 {
                continue;
            }
            let slot = self.queue_for(&name);
            self.change_queue(slot, |queue| queue.throttle.close_until(end_us));
            let opens = self.queue(slot).throttle.opens_at();
            self.closings.insert((opens, slot));
            self.update_offer(slot);
        }
    }

    /// Returns when the next queue opens; `None` if no queue is closed.
    pub(super) fn opens_at(&self) -> Option<Timestamp> {
        self.closings.first().map(|(opens, _)| *opens)
    }
}
