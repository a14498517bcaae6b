//! What a message does, without doing it: which job goes to whom, and what becomes of it.
//!
//! Rests on durable state and the rules alone, never on who waits or is present: a replay decides again, and compares.

use crate::actors::queue::job::{Job, Phase};
use crate::actors::queue::machine::{QueueMachine, shown};
use crate::actors::queue::message::{Claimant, Message, Outcome, Pop, Put, Refused, Right, Worker};
use crate::actors::queue::name::QueueName;
use crate::actors::queue::pages;
use crate::actors::queue::queue::Queue;
use crate::actors::queue::rules::TypeRules;
use crate::clock::Timestamp;
use crate::ids::Slot;

impl QueueMachine {
    pub(super) fn decision(&self, at: Timestamp, message: &Message) -> Outcome {
        match message {
            Message::Put(put) => self.decide_put(at, put),
            Message::Spoil => Outcome::Spoiled {
                id: self.state.head.next_id,
            },
            Message::Pop(pop) => self.decide_pop(at, pop),
            Message::PopJob { id, by } => self.decide_pop_job(at, *id, *by),
            Message::Delete { id, by } => self.decide_delete(*id, *by),
            Message::Release {
                id, by, delay_ms, ..
            } => match self.claimed(*id, *by) {
                Ok((slot, job)) if job.story().prune != Timestamp(0) => Outcome::Abandoned { slot },
                Ok((slot, _)) => Outcome::Released {
                    slot,
                    until: after(at, *delay_ms),
                },
                Err(outcome) => outcome,
            },
            Message::Bury { id, by, .. } => match self.claimed(*id, *by) {
                Ok((slot, _)) => Outcome::Buried { slot },
                Err(outcome) => outcome,
            },
            Message::Touch { id, by } => self.decide_touch(at, *id, *by),
            Message::Fail {
                id,
                by,
                retry_after_ms,
            } => self.decide_fail(at, *id, *by, *retry_after_ms),
            Message::Kick { queue, count } => self.decide_kick(queue, *count),
            Message::KickJob { id } => match self.state.find(*id) {
                Some((slot, job))
                    if matches!(job.phase, Phase::Buried | Phase::Abandoned | Phase::Delayed) =>
                {
                    Outcome::KickedJob { slot }
                }
                Some(_) | None => Outcome::Absent,
            },
            Message::Pause { queue, ms } => self.decide_pause(at, queue, *ms),
            Message::Unpause { queue } => self.decide_unpause(queue),
            Message::Flush { queue } => match self.state.queue_named(queue) {
                Some((_, queue)) if queue.counts.all() > 0 => Outcome::Flushed {
                    count: queue.counts.all(),
                },
                Some(_) | None => Outcome::Absent,
            },
            Message::Depart { worker } => self.decide_depart(*worker),
            Message::Expire { slot } => self.decide_expire(*slot),
            Message::Drain if self.state.head.draining => Outcome::Absent,
            Message::Drain => Outcome::Draining,
        }
    }

    fn decide_put(&self, at: Timestamp, put: &Put) -> Outcome {
        let totals = &self.state.totals;
        let len = put.body.as_bytes().len();
        let rules = &self.state.rules;
        if len > rules.body_bytes_max as usize {
            return Outcome::Refused(Refused::TooBig);
        }
        if self.state.head.draining {
            return Outcome::Refused(Refused::Draining);
        }
        if rules.of(&put.queue).read_only.is_some() {
            return Outcome::Refused(Refused::ReadOnly);
        }
        if let Some(slot) = put.dedup.and_then(|key| self.state.twin(&put.queue, key)) {
            return Outcome::Duplicate { slot };
        }
        let most = rules.jobs_max.min(pages::NUMBERS_MAX);
        if totals.jobs.all() >= most || totals.bytes + len as u64 > rules.bytes_max {
            return Outcome::Refused(Refused::Full);
        }
        if self.is_one_too_many(&put.queue) {
            return Outcome::Refused(Refused::QueuesFull);
        }
        Outcome::Put {
            id: self.state.head.next_id,
            slot: self.state.jobs.next_free(),
            until: after(at, put.delay_ms),
        }
    }

    fn decide_pop(&self, at: Timestamp, pop: &Pop) -> Outcome {
        let chance = self.state.head.next_id ^ at.0.rotate_left(32);
        let best = |queue: &QueueName| self.state.best(queue, chance);
        let best = pop.queues.iter().filter_map(best).min();
        best.map_or(Outcome::Absent, |(_, _, slot)| self.claim(at, slot, pop.by))
    }

    fn decide_pop_job(&self, at: Timestamp, id: u64, by: Claimant) -> Outcome {
        match self.state.find(id) {
            Some((slot, job)) if job.phase != Phase::Claimed => self.claim(at, slot, by),
            Some(_) | None => Outcome::Absent,
        }
    }

    fn claim(&self, at: Timestamp, slot: Slot, by: Claimant) -> Outcome {
        let Some(job) = self.state.job(slot) else {
            return Outcome::Absent;
        };
        let rules = self.rules_of(job);
        let last = rules.max_tries > 0 && job.tries() >= rules.max_tries - 1;
        Outcome::Claimed {
            slot,
            until: until(at, job, rules),
            prune: if last {
                pruned(at, rules)
            } else {
                Timestamp(0)
            },
            passing: is_passing(by, rules),
        }
    }

    fn rules_of(&self, job: &Job) -> &TypeRules {
        self.state.rules.of(&self.state.queue(job.queue).name)
    }

    /// The job that is claimed by this right.
    fn claimed(&self, id: u64, by: Right) -> Result<(Slot, &Job), Outcome> {
        let (slot, job) = self.state.find(id).ok_or(Outcome::Absent)?;
        let story = job.story();
        let claimed = job.phase == Phase::Claimed;
        match by {
            Right::Worker(worker) if claimed && story.worker == Some(worker) => Ok((slot, job)),
            Right::Token(token) if claimed && shown(story.token) == Some(token) => Ok((slot, job)),
            Right::Token(_) => Err(Outcome::Refused(Refused::StaleToken)),
            Right::Worker(_) | Right::Unclaimed => Err(Outcome::Absent),
        }
    }

    fn decide_delete(&self, id: u64, by: Right) -> Outcome {
        let found = self.state.find(id);
        match (self.claimed(id, by), found, by) {
            (Ok((slot, _)), ..) => Outcome::Deleted { slot },
            (Err(_), Some((slot, job)), Right::Worker(_) | Right::Unclaimed)
                if job.phase != Phase::Claimed =>
            {
                Outcome::Deleted { slot }
            }
            (Err(outcome), ..) => outcome,
        }
    }

    fn decide_touch(&self, at: Timestamp, id: u64, by: Right) -> Outcome {
        let (slot, job) = match self.claimed(id, by) {
            Ok(claimed) => claimed,
            Err(outcome) => return outcome,
        };
        let worker = job.story().worker;
        let by = worker.map_or(Claimant::Bearer, Claimant::Worker);
        let rules = self.rules_of(job);
        Outcome::Touched {
            slot,
            until: until(at, job, rules),
            passing: is_passing(by, rules),
        }
    }

    fn decide_fail(&self, at: Timestamp, id: u64, by: Right, retry: Option<u64>) -> Outcome {
        match self.claimed(id, by) {
            Ok((slot, job)) => {
                let left = self.state.deadline_of(slot).unwrap_or(job.story().until);
                let until = retry.map_or(left, |ms| at.plus_ms(ms));
                Outcome::Failed { slot, until }
            }
            Err(outcome) => outcome,
        }
    }

    fn decide_kick(&self, queue: &QueueName, count: u32) -> Outcome {
        let Some((_, queue)) = self.state.queue_named(queue) else {
            return Outcome::Absent;
        };
        let (buried, delayed) = (queue.buried.len(), queue.delayed.len());
        let there = if buried > 0 { buried } else { delayed };
        let count = count.min(u32::try_from(there).unwrap_or(u32::MAX));
        if count == 0 {
            return Outcome::Absent;
        }
        Outcome::Kicked {
            buried: buried > 0,
            count,
        }
    }

    /// Any queue may be paused: whether anybody has to do with it is no durable state.
    fn decide_pause(&self, at: Timestamp, queue: &QueueName, ms: u64) -> Outcome {
        if ms > 0 && self.is_one_too_many(queue) {
            return Outcome::Refused(Refused::QueuesFull);
        }
        Outcome::Paused {
            until: after(at, ms),
        }
    }

    fn decide_unpause(&self, queue: &QueueName) -> Outcome {
        let found = self.state.queue_named(queue);
        if found.is_none_or(|(_, queue)| queue.pause.is_none()) {
            return Outcome::Absent;
        }
        Outcome::Paused {
            until: Timestamp(0),
        }
    }

    /// Whether this queue would be a new one among those that last, and there is no room for it.
    fn is_one_too_many(&self, queue: &QueueName) -> bool {
        let lasts = |(_, queue): (Slot, &Queue)| queue.number.is_some();
        let most = self.state.rules.queues_max.min(pages::NUMBERS_MAX) as usize;
        self.state.numbers.len() >= most && !self.state.queue_named(queue).is_some_and(lasts)
    }

    fn decide_depart(&self, worker: Worker) -> Outcome {
        let (mut back, mut abandoned) = (Vec::new(), Vec::new());
        for slot in self.state.claims(worker) {
            let last = self
                .state
                .job(slot)
                .is_some_and(|job| job.story().prune != Timestamp(0));
            if last { &mut abandoned } else { &mut back }.push(slot);
        }
        if back.is_empty() && abandoned.is_empty() {
            Outcome::Absent
        } else {
            Outcome::Departed { back, abandoned }
        }
    }

    fn decide_expire(&self, slot: Slot) -> Outcome {
        let Some(job) = self.state.job(slot) else {
            return Outcome::Absent;
        };
        let rules = self.rules_of(job);
        let story = job.story();
        // A claim for ever has nothing to come back to; a failure has its own time.
        let forever = job.ttr_ms == 0 && rules.claim_ttl_ms == 0 && shown(story.token).is_some();
        match job.phase {
            Phase::Delayed => Outcome::Ready { slot },
            Phase::Claimed if story.prune != Timestamp(0) => Outcome::Abandoned { slot },
            Phase::Claimed if forever => Outcome::Pruned { slot },
            Phase::Claimed => Outcome::TimedOut { slot },
            Phase::Abandoned => Outcome::Pruned { slot },
            Phase::Ready | Phase::Buried => Outcome::Absent,
        }
    }
}

/// When a claim that is made, or touched, at `at` ends.
fn until(at: Timestamp, job: &Job, rules: &TypeRules) -> Timestamp {
    match (job.ttr_ms, rules.claim_ttl_ms) {
        (0, 0) => pruned(at, rules),
        // Due at the first instant later than that, as MediaWiki has it.
        (0, ttl) => at.plus_ms(ttl).plus_ms(1),
        (ttr, _) => at.plus_ms(ttr),
    }
}

/// When a job is pruned that was claimed at `at` and not since.
fn pruned(at: Timestamp, rules: &TypeRules) -> Timestamp {
    at.plus_ms(rules.prune_ms).plus_ms(1)
}

/// Whether a claim ends with the process, and nothing of it is kept.
fn is_passing(by: Claimant, rules: &TypeRules) -> bool {
    rules.max_tries == 0 && matches!(by, Claimant::Worker(_))
}

/// The moment so much later; zero if that is at once.
fn after(at: Timestamp, ms: u64) -> Timestamp {
    if ms == 0 {
        Timestamp(0)
    } else {
        at.plus_ms(ms)
    }
}
