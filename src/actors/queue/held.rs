//! The jobs of a queue that are claimed, in no order that means anything: so that all of a queue's jobs
//! are found without a walk over those of others. They hang together by the links that a ready job does not need then.

use crate::actors::queue::job::Job;
use crate::ids::Slot;
use crate::lookup::slab::Slab;

/// Jobs that nobody can claim just now.
#[derive(Debug)]
pub(super) struct Held {
    first: Slot,
}

impl Default for Held {
    fn default() -> Self {
        Self { first: Slot::NONE }
    }
}

impl Held {
    /// Adds a job.
    pub(super) fn insert(&mut self, jobs: &mut Slab<Job>, slot: Slot) {
        let next = std::mem::replace(&mut self.first, slot);
        if next != Slot::NONE {
            jobs[next].previous = slot;
        }
        let job = &mut jobs[slot];
        (job.previous, job.next) = (Slot::NONE, next);
    }

    /// Takes a job out.
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

    /// The jobs.
    pub(super) fn iter<'a>(&self, jobs: &'a Slab<Job>) -> impl Iterator<Item = Slot> + 'a {
        let some = |slot: Slot| Some(slot).filter(|slot| *slot != Slot::NONE);
        std::iter::successors(some(self.first), move |slot| some(jobs[*slot].next))
    }
}
