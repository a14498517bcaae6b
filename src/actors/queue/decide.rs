//! Decides the outcome of a message without applying it: which job a client claims, for example, or whether a failed job
//! is retried.
//!
//! Decisions depend only on durable state and rules, never on waiting or connected clients, so that a replay can make
//! each decision again and compare it with the log.

use crate::actors::queue::job::{Details, Job, nonzero};
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{Message, Pop};
use crate::actors::queue::outcome::Outcome;
use crate::actors::queue::refused::Refused;
use crate::actors::queue::report::KeepResult;
use crate::actors::queue::right::{Claimant, Right};
use crate::actors::queue::rules::{Backoff, TypeRules};
use crate::actors::queue::state::State;
use crate::clock::{Date, Now, Timestamp};
use crate::ids::Slot;
use crate::spine::machine::{Draining, Moment};
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;

impl QueueMachine {
    pub(super) fn decision(&self, moment: &Moment, message: &Message) -> Outcome {
        let at = moment.now.at;
        match message {
            Message::Put(put) => self.decide_put(moment, put),
            Message::Batch(puts) => self.decide_batch(moment, puts),
            Message::Register(root) => self.decide_register(*root),
            Message::Forget { slot } => self.decide_forget(*slot),
            Message::Spoil => Outcome::Spoiled { id: self.state.head.next_id },
            // A claim with a ticket is a tick on behalf of a waiting request. It is not refused, because the listener
            // notifies the waiting clients of the drain.
            Message::Pop(Pop { ticket: None, .. }) | Message::PopJob { .. }
                if moment.draining == Draining::All =>
            {
                Outcome::Refused(Refused::Draining)
            }
            Message::Pop(pop) => self.decide_pop(moment, pop),
            Message::PopJob { id, by } => self.decide_pop_job(moment.now, *id, *by),
            Message::Delete { id, by } => self.decide_delete(*id, *by),
            Message::Release { id, by, delay_ms, .. } => {
                self.decide_release(after(moment.now.date(), *delay_ms), *id, *by)
            }
            Message::Bury { id, by, .. } => {
                self.of_claimed(*id, *by, |slot| Outcome::Buried { slot })
            }
            Message::Attach { id, by, ttr_ms, .. } => self.decide_attach(at, *id, (*by, *ttr_ms)),
            Message::Touch { id, by } | Message::Bind { id, by, .. } => {
                self.decide_touch(at, *id, *by)
            }
            Message::Fail { id, by, retry_after_ms, error: _, crashed: false } => {
                self.decide_fail(moment, *id, *by, *retry_after_ms)
            }
            Message::Fail { id, by, retry_after_ms, error: _, crashed: true } => {
                self.decide_crash(at, (*id, *by), *retry_after_ms)
            }
            Message::Defer { id, by, error: _, retry_after_ms, interrupted } => {
                self.decide_defer(moment, (*id, *by), (*retry_after_ms, *interrupted))
            }
            Message::Report { id, by, .. } => self.decide_report(*id, *by),
            Message::Kick { queue, count } => self.decide_kick(queue, *count),
            Message::Repush { queue, count } => match self.state.queue_named(queue) {
                Some((_, queue)) => self.kicked(Phase::Abandoned, queue.counts.abandoned, *count),
                None => Outcome::Absent,
            },
            Message::KickJob { id } => match self.state.find(*id) {
                Some((slot, job)) if !matches!(job.phase, Phase::Ready | Phase::Claimed) => {
                    Outcome::KickedJob { slot }
                }
                Some(_) | None => Outcome::Absent,
            },
            Message::Pause { queue, ms } => self.decide_pause(moment.now.date(), queue, *ms),
            Message::Unpause { queue } => self.decide_unpause(queue),
            Message::Flush { queue } => match self.state.queue_named(queue) {
                Some((_, queue)) if queue.counts.all() > 0 => self.decide_flush(queue),
                Some(_) | None => Outcome::Absent,
            },
            Message::FlushMore(more) => self.decide_flush_part(&more.queue, more.part),
            Message::KickMore(more) => self.decide_kick_part(more),
            Message::Depart { worker } => self.decide_depart(at, *worker),
            Message::Gone(gone) => self.decide_gone(at, *gone),
            Message::Expire { slot } => self.decide_expire(*slot),
            Message::Drain if self.state.head.draining => Outcome::Absent,
            Message::Drain => Outcome::Draining,
            Message::Cancel { id, .. } => self.decide_cancel(moment.now.date(), *id),
            Message::KeepResult(keep) => self.decide_keep(moment.now.date(), keep),
            Message::DropResult { slot } => self.decide_drop(*slot),
            Message::ForgetKey { slot } => self.decide_forget_key(*slot),
        }
    }

    fn decide_cancel(&self, date: Date, id: u64) -> Outcome {
        match self.state.find(id) {
            Some((slot, job)) if job.phase != Phase::Abandoned && !job.details().is_cancelled() => {
                Outcome::Cancelled { slot, prune: pruned(date, self.rules_of(job)) }
            }
            Some(_) | None => Outcome::Absent,
        }
    }

    fn decide_forget(&self, slot: Slot) -> Outcome {
        let known = self.state.roots.known.get(slot);
        known.map_or(Outcome::Absent, |_| Outcome::Forgotten { slot })
    }

    fn decide_drop(&self, slot: Slot) -> Outcome {
        let known = self.state.results.known.get(slot);
        known.map_or(Outcome::Absent, |_| Outcome::ResultDropped { slot })
    }

    fn decide_forget_key(&self, slot: Slot) -> Outcome {
        let known = self.state.uniques.known.get(slot);
        known.map_or(Outcome::Absent, |_| Outcome::KeyForgotten { slot })
    }

    fn decide_keep(&self, date: Date, keep: &KeepResult) -> Outcome {
        let State { rules, results, .. } = &self.state;
        self.of_claimed(keep.id, keep.by, |slot| Outcome::ResultKept {
            slot,
            ended: date,
            until: date.plus_ms(keep.ms),
            dropped: results.displaced(rules.across.results, keep.id, &keep.end),
        })
    }

    fn decide_pop(&self, moment: &Moment, pop: &Pop) -> Outcome {
        let now = moment.now;
        let best = |queue: &QueueName| self.state.best(queue, (now.at, || chance(moment)));
        let terms = (pop.by, pop.ttr_ms);
        if let Some(any) = &pop.any {
            let turn = self.state.turn(any, now.at);
            let job = turn.and_then(|(queue, end)| {
                let (_, _, slot) = best(&self.state.queue(queue).name)?;
                Some((slot, end))
            });
            return job
                .map_or(Outcome::Absent, |(slot, end)| self.claim(now, slot, (terms, Some(end))));
        }
        let best = if pop.weights.is_empty() {
            pop.queues.iter().filter_map(best).min()
        } else {
            let weights = pop.weights.iter().map(|weight| (*weight).max(1));
            let weights = weights.chain(std::iter::repeat(1));
            let offers = pop.queues.iter().zip(weights);
            let offers: Vec<_> =
                offers.filter_map(|(queue, weight)| Some((best(queue)?, weight))).collect();
            drawn(&offers, chance(moment))
        };
        best.map_or(Outcome::Absent, |(_, _, slot)| self.claim(now, slot, (terms, None)))
    }

    fn decide_pop_job(&self, now: Now, id: u64, by: Claimant) -> Outcome {
        match self.state.find(id) {
            Some((slot, job)) if job.phase != Phase::Claimed => {
                self.claim(now, slot, ((by, 0), None))
            }
            Some(_) | None => Outcome::Absent,
        }
    }

    fn claim(
        &self,
        now: Now,
        slot: Slot,
        (terms, turn): ((Claimant, u64), Option<u64>),
    ) -> Outcome {
        let Some(job) = self.state.job(slot) else {
            return Outcome::Absent;
        };
        let rules = self.rules_of(job);
        let most = rules.tries(job.tube);
        let last = most > 0 && job.tries() >= most - 1 && job.retries;
        Outcome::Claimed {
            slot,
            until: match terms {
                // The claim ends with its process, so it needs no time limit.
                (Claimant::Process(_), 0) => Timestamp(u64::MAX),
                (_, 0) => until(now.at, job, rules),
                (_, ms) => now.at.plus_ms(ms),
            },
            prune: if last { pruned(now.date(), rules) } else { Date(0) },
            turn,
        }
    }

    pub(super) fn rules_of(&self, job: &Job) -> &TypeRules {
        self.state.rules.of(&self.state.queue_of(job).name)
    }

    /// Returns the job with this id and its slot if `by` is a right to the job's current claim; otherwise `Err` with the
    /// outcome that refuses the request.
    pub(super) fn claimed(&self, id: u64, by: Right) -> Result<(Slot, &Job), Outcome> {
        let (slot, job) = self.state.find(id).ok_or(Outcome::Absent)?;
        let details = job.details();
        let claimed = job.phase == Phase::Claimed;
        match by {
            Right::Worker(worker) if claimed && details.worker == Some(worker) => Ok((slot, job)),
            Right::Token(token) if claimed && nonzero(details.token) == Some(token) => {
                if details.is_fencing() {
                    return Err(Outcome::Refused(Refused::Fencing));
                }
                Ok((slot, job))
            }
            Right::Token(_) => Err(Outcome::Refused(Refused::StaleToken)),
            Right::Worker(_) | Right::Unclaimed => Err(Outcome::Absent),
        }
    }

    /// Like `claimed`, but refuses a cancelled job, because its worker must stop.
    fn worked_on(&self, id: u64, by: Right) -> Result<(Slot, &Job), Outcome> {
        let (slot, job) = self.claimed(id, by)?;
        if job.details().is_cancelled() {
            return Err(Outcome::Refused(Refused::StaleToken));
        }
        Ok((slot, job))
    }

    fn of_claimed(&self, id: u64, by: Right, outcome: impl FnOnce(Slot) -> Outcome) -> Outcome {
        self.claimed(id, by).map_or_else(|refused| refused, |(slot, _)| outcome(slot))
    }

    fn decide_release(&self, until: Date, id: u64, by: Right) -> Outcome {
        match self.claimed(id, by) {
            Ok((slot, job)) if job.is_last_try() => Outcome::Abandoned { slot },
            Ok((slot, _)) => Outcome::Released { slot, until },
            Err(outcome) => outcome,
        }
    }

    fn decide_delete(&self, id: u64, by: Right) -> Outcome {
        let found = self.state.find(id);
        match (self.claimed(id, by), found, by) {
            (Ok((slot, _)), ..) => Outcome::Deleted { slot, key: None },
            (Err(_), Some((slot, job)), Right::Worker(_) | Right::Unclaimed)
                if job.phase != Phase::Claimed =>
            {
                let key = self.remembered(job);
                Outcome::Deleted { slot, key }
            }
            (Err(outcome), ..) => outcome,
        }
    }

    fn decide_touch(&self, at: Timestamp, id: u64, by: Right) -> Outcome {
        let (slot, job) = match self.worked_on(id, by) {
            Ok(claimed) => claimed,
            Err(outcome) => return outcome,
        };
        let Details { since, until, .. } = job.details();
        Outcome::Touched { slot, until: at.plus_ms(until.0.saturating_sub(since.0)) }
    }

    fn decide_report(&self, id: u64, by: Right) -> Outcome {
        let found = self.worked_on(id, by);
        found.map_or_else(|refused| refused, |(slot, _)| Outcome::Reported { slot })
    }

    fn decide_fail(&self, moment: &Moment, id: u64, by: Right, retry: Option<u64>) -> Outcome {
        match self.claimed(id, by) {
            Ok((slot, job)) if !job.retries => Outcome::Deleted { slot, key: None },
            Ok((slot, job)) if job.is_last_try() => Outcome::Abandoned { slot },
            Ok((slot, job)) => {
                let details = job.details();
                let backoff = self.rules_of(job).backoff;
                let span = |rule| span(rule, details.attempts, chance(moment));
                let until = match retry.or_else(|| backoff.map(span)) {
                    Some(ms) => moment.now.at.plus_ms(ms),
                    // Without a backoff, a job is retried when its claim would have timed out. A claim that cannot time
                    // out is treated as if it had the time limit of the job or its type.
                    None if details.is_endless() => until(moment.now.at, job, self.rules_of(job)),
                    None => self.state.claimed_until(slot).unwrap_or(details.until),
                };
                Outcome::Failed { slot, until }
            }
            Err(outcome) => outcome,
        }
    }

    /// Decides the outcome of a deferral. Unless the message gives the delay, the delay grows with each release and
    /// deferral of the job. A job that is cancelled, or too old unless its worker was interrupted, fails instead.
    fn decide_defer(
        &self,
        moment: &Moment,
        (id, by): (u64, Right),
        (retry, interrupted): (Option<u64>, bool),
    ) -> Outcome {
        let (slot, job) = match self.claimed(id, by) {
            Ok(claimed) => claimed,
            Err(outcome) => return outcome,
        };
        let at = moment.now.at;
        let is_old = at.0.saturating_sub(job.created.0) > Message::DEFERRED_MS_MAX;
        if is_old && !interrupted || job.details().is_cancelled() {
            return self.decide_fail(moment, id, by, retry);
        }
        let backoff = self.rules_of(job).backoff.unwrap_or_default();
        let times = job.details().releases.saturating_add(1);
        let ms = retry.unwrap_or_else(|| span(backoff, times, chance(moment)));
        let until = at.plus_ms(ms);
        Outcome::Deferred { slot, until }
    }

    fn decide_kick(&self, queue: &QueueName, count: u32) -> Outcome {
        let Some((_, queue)) = self.state.queue_named(queue) else {
            return Outcome::Absent;
        };
        let (buried, delayed) = (
            queue.counts.buried + queue.counts.abandoned + queue.counts.quarantined,
            queue.counts.delayed + queue.counts.retrying,
        );
        if buried > 0 {
            self.kicked(Phase::Buried, buried, count)
        } else {
            self.kicked(Phase::Delayed, delayed, count)
        }
    }

    /// Decides the outcome of a pause. A queue may be paused even if it does not exist: whether it exists depends on
    /// connected clients, and decisions must not.
    fn decide_pause(&self, date: Date, queue: &QueueName, ms: u64) -> Outcome {
        if ms > 0 && self.check_queue_limit([queue]).is_err() {
            return Outcome::Refused(Refused::QueuesFull);
        }
        Outcome::Paused { until: after(date, ms) }
    }

    fn decide_unpause(&self, queue: &QueueName) -> Outcome {
        let found = self.state.queue_named(queue);
        if found.is_none_or(|(_, queue)| !queue.is_paused) {
            return Outcome::Absent;
        }
        Outcome::Paused { until: Date(0) }
    }

    /// Returns the slot of the key that is still remembered for a job; `None` if there is none.
    pub(super) fn remembered(&self, job: &Job) -> Option<Slot> {
        let key = job.details().dedup?;
        let queue = &self.state.queue_of(job).name;
        self.state.uniques.slot_of(queue, (key, job.id))
    }

    fn decide_attach(&self, at: Timestamp, id: u64, (by, ttr_ms): (Right, u64)) -> Outcome {
        match self.worked_on(id, by) {
            Ok((slot, job)) if job.details().bound.is_some() => Outcome::Attached {
                slot,
                until: match ttr_ms {
                    0 => Timestamp(u64::MAX),
                    ms => at.plus_ms(ms),
                },
            },
            Ok(_) => Outcome::Absent,
            Err(outcome) => outcome,
        }
    }

    fn decide_expire(&self, slot: Slot) -> Outcome {
        let Some(job) = self.state.job(slot) else {
            return Outcome::Absent;
        };
        let rules = self.rules_of(job);
        let is_last = job.is_last_try();
        let bound = job.details().bound.as_deref();
        let is_fenced = bound.is_some_and(|it| it.binding.fence || it.command.is_some());
        let key = self.remembered(job);
        // If neither the job nor its type limits the length of claims, the job is pruned instead of being made ready again.
        let forever = job.ttr_ms == 0 && rules.claim_ttl_ms == 0;
        match job.phase {
            Phase::Claimed if is_fenced => Outcome::Fenced { slot },
            Phase::Claimed if !job.retries => Outcome::Pruned { slot, key: None },
            // `Retrying` with `is_last` occurs only in older logs, in which a job that failed on its last try still waited
            // for a retry.
            Phase::Claimed | Phase::Retrying if is_last => Outcome::Abandoned { slot },
            Phase::Delayed | Phase::Retrying => Outcome::Ready { slot },
            Phase::Claimed if forever => Outcome::Pruned { slot, key: None },
            Phase::Claimed => Outcome::TimedOut { slot },
            Phase::Abandoned => Outcome::Pruned { slot, key },
            Phase::Ready | Phase::Buried | Phase::Quarantined => Outcome::Absent,
        }
    }
}

/// Returns a random number for this moment: unpredictable, but the same in a replay.
fn chance(moment: &Moment) -> u64 {
    let drawn = moment.random(0);
    let [low, high] = [0, 64].map(|by| (drawn >> by) & u128::from(u64::MAX));
    u64::try_from(low ^ high).unwrap_or_default()
}

/// Returns when a claim made at `at` ends if the claim itself specifies no time limit.
fn until(at: Timestamp, job: &Job, rules: &TypeRules) -> Timestamp {
    match (job.ttr_ms, rules.claim_ttl_ms) {
        (0, 0) => at.plus_ms(rules.prune_ms).plus_ms(1),
        // The claim ends in the first millisecond after the limit, as in MediaWiki.
        (0, ttl) => at.plus_ms(ttl).plus_ms(1),
        (ttr, _) => at.plus_ms(ttr),
    }
}

/// Returns the date on which a job is removed if it is abandoned. `date` is the date of its last claim, or of its
/// cancellation.
fn pruned(date: Date, rules: &TypeRules) -> Date {
    date.plus_ms(rules.prune_ms).plus_ms(1)
}

/// Returns the delay before the retry that follows `tries` tries, in milliseconds. The random number `chance` determines the jitter.
pub(super) fn span(rule: Backoff, tries: u32, chance: u64) -> u64 {
    let factor = u64::from(rule.factor).saturating_pow(tries.saturating_sub(1));
    let ms = rule.first_ms.saturating_mul(factor).min(rule.max_ms);
    let spread = ms.saturating_mul(rule.jitter_milli.into()) / 1000;
    let by_chance = chance % spread.saturating_mul(2).saturating_add(1);
    (ms - spread).saturating_add(by_chance)
}

/// Returns the offer that the random number `chance` selects, with a probability proportional to its weight; `None` if there
/// are no offers or all weights are 0.
fn drawn<T: Copy>(offers: &[(T, u32)], chance: u64) -> Option<T> {
    let all: u64 = offers.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let mut rest = chance.checked_rem(all)?;
    for (offer, weight) in offers {
        match rest.checked_sub((*weight).into()) {
            Some(left) => rest = left,
            None => return Some(*offer),
        }
    }
    None
}

/// Returns `date` plus `ms` milliseconds, or zero if `ms` is 0: in outcomes, zero means immediately.
pub(super) fn after(date: Date, ms: u64) -> Date {
    if ms == 0 { Date(0) } else { date.plus_ms(ms) }
}

#[cfg(test)]
mod tests {
    use super::{drawn, span};
    use crate::actors::queue::index::mix;
    use crate::actors::queue::rules::Backoff;

    #[test]
    fn a_failure_waits_the_longer_the_oftener_and_by_chance() {
        let rule = Backoff { factor: 3, max_ms: 20_000, jitter_milli: 0, ..Backoff::default() };
        let spans = [0, 1, 2, 3, 4, u32::MAX].map(|tries| span(rule, tries, 7));
        assert_eq!(spans, [1000, 1000, 3000, 9000, 20_000, 20_000]);
        let rule = Backoff { jitter_milli: 250, ..rule };
        let mut counts = [0; 4];
        for number in 0..40_000 {
            let early = span(rule, 2, mix(number)) - 2250;
            assert!(early <= 1500, "the jitter is at most a quarter of the delay either way");
            counts[usize::try_from(early.min(1499) / 375).expect("the index is below 4")] += 1;
        }
        let even = |count| (9_500..10_500).contains(count);
        assert!(counts.iter().all(even), "{counts:?}");
        let ends = [0, 1500].map(|chance| span(rule, 2, chance));
        assert_eq!(ends, [2250, 3750]);
        let longest =
            Backoff { first_ms: u64::MAX, factor: u32::MAX, max_ms: u64::MAX, jitter_milli: 1000 };
        assert!(span(longest, u32::MAX, u64::MAX - 1) > 0, "the delay does not overflow");
    }

    #[test]
    fn chance_falls_on_each_as_often_as_its_weight_says() {
        let mut counts = [0; 3];
        for number in 0..60_000 {
            let place: usize =
                drawn(&[(0, 1), (1, 2), (2, 3)], mix(number)).expect("an offer is drawn");
            counts[place] += 1;
        }
        for (count, share) in counts.iter().zip([10_000, 20_000, 30_000]) {
            assert!((share - 500..share + 500).contains(count), "{counts:?}");
        }
        assert_eq!(drawn::<u8>(&[], 7), None);
    }
}
