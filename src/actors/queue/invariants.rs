//! Visits the whole queue state and asserts the invariants of `state.rs`. Slow; for tests only.

use crate::actors::queue::job::Job;
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::phase::Counts;
use crate::actors::queue::queue::Queue;
use crate::actors::queue::right::Worker;
use crate::actors::queue::state::State;
use crate::clock::Timestamp;
use crate::ids::{Digest, Seq, Slot, Ticket};
use sexton_api::queue::Phase;
use std::collections::{BTreeMap, BTreeSet};

impl QueueMachine {
    /// Asserts that every job is in exactly the indexes that its phase requires, that every queue has a reason to
    /// exist, and that the stored counts are correct.
    pub(in crate::actors::queue) fn assert_whole(&self) {
        let state = &self.state;
        for (slot, queue) in state.queues.iter() {
            state.assert_queue(slot, queue);
            self.assert_attendance(slot, queue);
        }
        assert_eq!(
            state.names.len(),
            state.queues.len(),
            "the table of names holds exactly the existing queues"
        );
        assert_eq!(state.totals.queues as usize, state.queues.len());
        for (number, queue) in state.numbers.iter() {
            assert_eq!(
                state.queues[queue.queue].number,
                Some(number),
                "the number of a queue refers to that queue"
            );
        }
        state.assert_jobs();
        state.assert_time();
        state.assert_offers();
        state.roots.assert_whole();
        state.results.assert_whole();
        state.uniques.assert_whole();
        state.jobs.assert_whole();
        state.numbers.assert_whole();
    }

    /// Asserts that a queue has the right counts of clients that wait for it, use it and watch it.
    fn assert_attendance(&self, slot: Slot, queue: &Queue) {
        let pops = self.waiting.pops();
        let waiting: BTreeSet<Ticket> =
            pops.filter(|(_, queues)| queues.contains(&slot)).map(|(ticket, _)| ticket).collect();
        assert_eq!(queue.waiting, waiting, "a queue lists its waiting requests");
        let using = self.waiting.presences().filter(|(using, _)| *using == slot);
        assert_eq!(queue.using as usize, using.count());
        let presences = self.waiting.presences();
        let watching = presences.filter(|(_, watching)| watching.contains(&slot));
        assert_eq!(queue.watching as usize, watching.count());
    }
}

impl State {
    fn assert_queue(&self, slot: Slot, queue: &Queue) {
        assert!(queue.is_present(), "a queue has a reason to exist");
        assert_eq!(
            queue.number.is_some(),
            queue.is_durable(),
            "a queue has a number while it has jobs or a pause"
        );
        assert_eq!(self.queue_named(&queue.name).map(|(slot, _)| slot), Some(slot));
        let jobs: Vec<(Slot, &Job)> =
            self.jobs.iter().filter(|(_, job)| Some(job.queue) == queue.number).collect();
        let of = |phases: &[Phase]| -> Vec<Slot> {
            let of_phase = jobs.iter().filter(|(_, job)| phases.contains(&job.phase));
            of_phase.map(|(slot, _)| *slot).collect()
        };
        let sorted = |slots: &mut dyn Iterator<Item = Slot>| -> Vec<Slot> {
            let mut slots: Vec<Slot> = slots.collect();
            slots.sort_unstable();
            slots
        };
        assert_eq!(sorted(&mut queue.ready.iter(&self.jobs)), of(&[Phase::Ready]));
        assert_eq!(sorted(&mut queue.held.iter(&self.jobs)), of(&[Phase::Claimed]));
        let delayed = jobs.iter().filter(|(_, job)| job.phase == Phase::Delayed);
        let delayed = delayed.map(|(slot, job)| (job.details().until, job.id, *slot));
        assert_eq!(
            queue.delayed,
            delayed.collect(),
            "delayed jobs are ordered by the end of their delay"
        );
        let retrying = jobs.iter().filter(|(_, job)| job.phase == Phase::Retrying);
        assert_eq!(
            queue.retrying,
            retrying.map(|(slot, job)| (job.id, *slot)).collect(),
            "retrying jobs are ordered by age"
        );
        let aside = jobs.iter().filter(|(_, job)| job.phase == Phase::Quarantined);
        assert_eq!(
            queue.quarantined,
            aside.map(|(slot, job)| (job.id, *slot)).collect(),
            "quarantined jobs are ordered by age"
        );
        let is_aside = |job: &Job| matches!(job.phase, Phase::Buried | Phase::Abandoned);
        let by = |job: &Job| {
            let buried = Some(job.details().buried).filter(|_| job.phase == Phase::Buried);
            buried.unwrap_or(Seq(u64::MAX))
        };
        let buried = jobs.iter().filter(|(_, job)| is_aside(job));
        let buried = buried.map(|(slot, job)| (by(job), job.id, *slot));
        assert_eq!(
            queue.buried,
            buried.collect(),
            "buried jobs are ordered by when they were buried, and abandoned jobs follow, oldest first"
        );
        queue.ready.assert_whole(&self.jobs);
        let mut counts = Counts::default();
        for (_, job) in &jobs {
            counts.note(job.phase, job.priority, true);
        }
        assert_eq!(queue.counts, counts, "the stored counts are correct");
        assert_eq!(queue.counts.all() as usize, jobs.len());
        assert_eq!(queue.slots(&self.jobs), jobs.iter().map(|(slot, _)| *slot).collect::<Vec<_>>());
    }

    fn assert_jobs(&self) {
        let (mut counts, mut bytes, mut dedup) = (Counts::default(), 0, BTreeSet::new());
        let (mut bodies, mut body) = (Digest::default(), Vec::new());
        for (slot, job) in self.jobs.iter() {
            assert_eq!(
                self.find(job.id).map(|(slot, _)| slot),
                Some(slot),
                "a job is found by its id"
            );
            assert!(
                job.id < self.head.next_id,
                "every id is less than the next one to be assigned"
            );
            counts.note(job.phase, job.priority, true);
            bytes += job.bytes();
            job.canonical_body(&mut body);
            bodies.add(&body);
            if let Some(key) = job.details().dedup
                && job.phase.is_waiting()
            {
                dedup.insert((job.queue, key, job.id, slot));
            }
        }
        assert_eq!(
            self.ids.len(),
            self.jobs.len(),
            "the table of ids holds exactly the existing jobs"
        );
        assert_eq!(self.totals.jobs, counts, "the stored counts are correct");
        assert_eq!(self.totals.bytes, bytes);
        assert_eq!(self.bodies, bodies, "the stored digest of bodies is correct");
        assert_eq!(self.totals.draining, self.head.draining);
        assert_eq!(
            self.dedup, dedup,
            "the index by key contains exactly the ready, delayed and retrying jobs with a key"
        );
    }

    /// Asserts that a job has a deadline if and only if its phase ends at a known time, that claims are indexed by worker
    /// and by process, and that paused and closed queues are recorded as such.
    fn assert_time(&self) {
        let mut workers: BTreeMap<Worker, BTreeSet<(Timestamp, Slot)>> = BTreeMap::new();
        for (slot, job) in self.jobs.iter() {
            let ends = job.ends(self.head.epoch);
            let endless = job.phase == Phase::Claimed && job.details().is_endless();
            let stays = matches!(job.phase, Phase::Ready | Phase::Buried | Phase::Quarantined);
            let timed = !stays && !endless;
            assert_eq!(ends.is_some(), timed);
            let (details, deadline) = (job.details(), job.claimed_until(self.head.epoch));
            if job.phase != Phase::Claimed {
                assert_eq!((details.token.0, details.worker, details.prune.0), (0, None, 0));
                assert_eq!(details.bound, None, "only a claimed job has a binding");
            } else if let (Some(worker), Some(deadline)) = (details.worker, deadline) {
                workers.entry(worker).or_default().insert((deadline, slot));
            }
        }
        assert_eq!(self.workers, workers, "claims are indexed by worker");
        let bound = self.jobs.iter().filter_map(|(slot, job)| {
            let binding = job.details().binding()?;
            assert_eq!(
                job.details().worker,
                None,
                "a claim belongs to a worker or to a process, not to both"
            );
            Some((binding.process, binding.until, slot))
        });
        assert_eq!(self.bound, bound.collect(), "claims are indexed by process");
        for (_, queue) in self.queues.iter() {
            let slots = queue.held.iter(&self.jobs);
            let bound = slots.filter(|slot| self.jobs[*slot].details().binding().is_some());
            assert_eq!(queue.bound as usize, bound.count(), "bound claims are counted");
        }
        for (_, queue) in self.queues.iter() {
            let numbered = queue.number.and_then(|number| self.numbers.get(number));
            let pause = numbered.and_then(|numbered| numbered.pause);
            assert_eq!(
                queue.is_paused,
                pause.is_some(),
                "`is_paused` is set while a queue has a pause"
            );
        }
        let closed = self.queues.iter();
        let closed = closed.filter(|(_, queue)| queue.throttle.is_closed());
        assert_eq!(
            self.closings,
            closed.map(|(slot, queue)| (queue.throttle.opens_at(), slot)).collect(),
            "closed queues are indexed by when they open"
        );
    }

    /// Asserts that the indexes of offered queues, and of queues that clients wait for, are correct.
    fn assert_offers(&self) {
        let offered = |queue: &Queue| queue.is_poppable();
        let mut wanted = BTreeSet::new();
        for (slot, queue) in self.queues.iter() {
            let place = queue.place.and_then(|place| self.offered.get(place as usize));
            assert_eq!(
                place,
                offered(queue).then_some(&slot),
                "a queue records its index among the offered queues while it is offered"
            );
            if queue.is_poppable() && !queue.waiting.is_empty() {
                wanted.insert(slot);
            }
        }
        let queues = self.queues.iter();
        let count = queues.filter(|(_, queue)| offered(queue)).count();
        assert_eq!(self.offered.len(), count);
        assert_eq!(
            self.wanted, wanted,
            "`wanted` contains exactly the queues with claimable jobs and waiting requests"
        );
    }
}
