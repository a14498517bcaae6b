//! The claimed jobs of a queue, unordered, so that all jobs of a queue can be found without visiting the jobs of other
//! queues. The list uses the same link fields of a job as `ready.rs`, since a job is never both ready and claimed.

use crate::actors::queue::job::Job;
use crate::ids::Slot;
use crate::lookup::slab::Slab;

/// A linked list of claimed jobs.
#[derive(Debug)]
pub(super) struct ClaimedList {
    first: Slot,
}

impl Default for ClaimedList {
    fn default() -> Self {
        Self { first: Slot::NONE }
    }
}

impl ClaimedList {
    /// Adds a job.
    pub(super) fn insert(&mut self, jobs: &mut Slab<Job>, slot: Slot) {
        let next = std::mem::replace(&mut self.first, slot);
        if next != Slot::NONE {
            jobs[next].previous = slot;
        }
        let job = &mut jobs[slot];
        (job.previous, job.next) = (Slot::NONE, next);
    }

    /// Removes a job.
    pub(super) fn remove(&mut self, jobs: &mut Slab<Job>, slot: Slot) {
        let Job { previous, next, .. } = jobs[slot];
        if next != Slot::NONE {
            jobs[next].previous = previous;
        }
        if previous == Slot::NONE {
            self.first = next;
        } else {
            jobs[previous].next = next;
        }
    }

    /// Returns the slots of all jobs in the list.
    pub(super) fn iter<'a>(&self, jobs: &'a Slab<Job>) -> impl Iterator<Item = Slot> + 'a {
        let some = |slot: Slot| Some(slot).filter(|slot| *slot != Slot::NONE);
        std::iter::successors(some(self.first), move |slot| some(jobs[*slot].next))
    }
}
