//! The indexes over jobs and queues: every job is in the index of its phase, and every queue from which clients can
//! claim without naming it is in the index of offered queues. The indexes are rebuilt from durable state, and are never
//! part of it.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: a slot without an item is an impossible state"
)]

use crate::actors::queue::job::{Details, Job};
use crate::actors::queue::message::DedupKey;
use crate::actors::queue::queue::buried_key;
use crate::actors::queue::right::Worker;
use crate::actors::queue::rules::Order;
use crate::actors::queue::state::State;
use crate::clock::Timestamp;
use crate::ids::Slot;
use sexton_api::queue::Phase;

impl State {
    /// Adds a job to the indexes of its phase, and to the counts.
    pub(super) fn enter(&mut self, slot: Slot) {
        let job = &self.jobs[slot];
        let id = job.id;
        let Details { until, worker, buried, dedup, .. } = *job.details();
        let binding = job.details().binding();
        let queue = &mut self.queues[self.numbers[job.queue].queue];
        match job.phase {
            Phase::Ready => {
                let rank = rank(queue.order, job);
                queue.ready.insert(self.jobs.volatile(), slot, rank);
            }
            Phase::Delayed => drop(queue.delayed.insert((until, id, slot))),
            Phase::Claimed => {
                queue.held.insert(self.jobs.volatile(), slot);
                queue.bound += u32::from(binding.is_some());
                if let Some(worker) = worker {
                    let claim = (self.claimed_until(slot).unwrap_or_default(), slot);
                    self.workers.entry(worker).or_default().insert(claim);
                }
                if let Some(binding) = binding {
                    self.bound.insert((binding.process, binding.until, slot));
                }
            }
            phase @ (Phase::Buried | Phase::Abandoned) => {
                queue.buried.insert(buried_key(phase, (buried, id, slot)));
            }
            Phase::Retrying => drop(queue.retrying.insert((id, slot))),
            Phase::Quarantined => drop(queue.quarantined.insert((id, slot))),
        }
        self.index_twin(slot, dedup, true);
        self.count(slot, true);
    }

    /// Removes a job from the indexes of its phase, and from the counts.
    pub(super) fn leave(&mut self, slot: Slot) {
        self.count(slot, false);
        let job = &self.jobs[slot];
        let id = job.id;
        let Details { until, worker, buried, dedup, .. } = *job.details();
        let binding = job.details().binding();
        let queue = &mut self.queues[self.numbers[job.queue].queue];
        match job.phase {
            Phase::Ready => {
                let rank = rank(queue.order, job);
                queue.ready.remove(self.jobs.volatile(), slot, rank);
            }
            Phase::Delayed => drop(queue.delayed.remove(&(until, id, slot))),
            Phase::Claimed => {
                queue.held.remove(self.jobs.volatile(), slot);
                queue.bound -= u32::from(binding.is_some());
                if let Some(worker) = worker {
                    let deadline = self.claimed_until(slot);
                    self.unclaim(worker, deadline.unwrap_or_default(), slot);
                }
                if let Some(binding) = binding {
                    self.bound.remove(&(binding.process, binding.until, slot));
                }
            }
            phase @ (Phase::Buried | Phase::Abandoned) => {
                queue.buried.remove(&buried_key(phase, (buried, id, slot)));
            }
            Phase::Retrying => drop(queue.retrying.remove(&(id, slot))),
            Phase::Quarantined => drop(queue.quarantined.remove(&(id, slot))),
        }
        self.index_twin(slot, dedup, false);
    }

    fn unclaim(&mut self, worker: Worker, deadline: Timestamp, slot: Slot) {
        if let Some(claims) = self.workers.get_mut(&worker) {
            claims.remove(&(deadline, slot));
            if claims.is_empty() {
                self.workers.remove(&worker);
            }
        }
    }

    fn index_twin(&mut self, slot: Slot, key: Option<DedupKey>, present: bool) {
        let Some(key) = key else { return };
        let job = &self.jobs[slot];
        if !job.phase.is_waiting() {
            return;
        }
        let twin = (job.queue, key, job.id, slot);
        if present {
            self.dedup.insert(twin);
        } else {
            self.dedup.remove(&twin);
        }
    }

    /// Adds a job to the counts if `present` is true, and otherwise subtracts it. `leave` calls this first, and `enter`
    /// calls it last, so that the job is in its indexes whenever this runs.
    fn count(&mut self, slot: Slot, present: bool) {
        let job = &self.jobs[slot];
        let (phase, priority, queue) = (job.phase, job.priority, self.slot_of_queue(job));
        self.queues[queue].counts.note(phase, priority, present);
        self.totals.jobs.note(phase, priority, present);
        if phase == Phase::Ready {
            self.update_offer(queue);
        }
    }

    /// Updates whether a queue is in the indexes of queues with claimable jobs: in `offered`, and in `wanted` if clients wait for it. Also notes what changes for the turns of tenants.
    pub(super) fn update_offer(&mut self, slot: Slot) {
        let queue = &mut self.queues[slot];
        let can = queue.is_poppable();
        match (can, queue.place) {
            (true, None) => {
                queue.place = Some(
                    u32::try_from(self.offered.len())
                        .expect("the number of queues should be limited"),
                );
                self.offered.push(slot);
            }
            (false, Some(place)) => {
                queue.place = None;
                self.offered.swap_remove(place as usize);
                if let Some(moved) = self.offered.get(place as usize) {
                    self.queues[*moved].place = Some(place);
                }
            }
            (true, Some(_)) | (false, None) => {}
        }
        if can && !self.queues[slot].waiting.is_empty() {
            self.wanted.insert(slot);
        } else {
            self.wanted.remove(&slot);
        }
        self.note_turn(slot);
    }
}

/// Returns the key by which ready jobs are sorted in a queue with this order, lowest first.
fn rank(order: Order, job: &Job) -> u64 {
    match order {
        Order::Priority => job.priority.into(),
        Order::Fifo => 0,
        Order::Timestamp => job.created.0,
        Order::Random => mix(job.id),
    }
}

/// Maps similar numbers to evenly distributed ones: one step of `SplitMix64` (Steele, Lea, Flood 2014).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
