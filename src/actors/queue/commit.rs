//! Applies an outcome. Nothing is decided here, and no state in the digest depends on the rules.

use crate::actors::queue::bound::bound_by;
use crate::actors::queue::job::Bound;
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::Message;
use crate::actors::queue::outcome::{Outcome, Placed};
use crate::actors::queue::part::KickMore;
use crate::actors::queue::queue::{ABANDONED, Pause};
use crate::actors::queue::report::ErrorText;
use crate::actors::queue::right::Claimant;
use crate::actors::queue::state::end_claim;
use crate::clock::{Date, Timestamp};
use crate::ids::{Seq, Slot};
use crate::spine::machine::Effects;
use crate::spine::machine::Stamp;
use sexton_api::queue::Phase;

impl QueueMachine {
    #[expect(clippy::too_many_lines, reason = "one arm for each kind")]
    pub(super) fn apply(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        match outcome {
            Outcome::Put { slot, job } => {
                let Message::Put(put) = message else {
                    unreachable!("only a `Put` adds a single job")
                };
                self.state.put(*slot, entry, put, job);
            }
            Outcome::Batch { placed } => self.commit_batch(entry, message, placed),
            Outcome::Registered { .. } => {
                let Message::Register(root) = message else {
                    unreachable!("only a `Register` registers a root job")
                };
                self.state.register(*root, entry);
            }
            Outcome::Forgotten { slot } => self.state.forget_root(*slot, entry.seq),
            Outcome::Spoiled { id } => self.state.skip_ids(entry.seq, *id),
            Outcome::Claimed { .. } => self.commit_pop(entry, message, outcome, effects),
            Outcome::Touched { slot, until, .. } => match bound_by(message) {
                Some(to) => self.commit_bind((*slot, to), entry, *until, effects),
                None => self.commit_touch(*slot, entry, *until),
            },
            Outcome::Reported { slot } => self.commit_report(*slot, entry, message),
            Outcome::Fenced { slot } => self.commit_fence(*slot, entry, effects),
            Outcome::Attached { slot, until } => {
                self.commit_attach((*slot, *until), entry, message, effects);
            }
            Outcome::Deleted { slot, key } => {
                self.state.delete(*slot, entry.seq);
                self.forget_keys(key.iter(), entry.seq);
            }
            Outcome::Pruned { slot, key } => {
                self.commit_prune(*slot, entry);
                self.forget_keys(key.iter(), entry.seq);
            }
            Outcome::Released { slot, until } => self.commit_release(*slot, entry, *until, message),
            Outcome::Buried { slot } => self.commit_bury(*slot, entry, message),
            Outcome::Deferred { slot, until } => self.commit_defer(*slot, entry, *until, message),
            Outcome::Failed { slot, until } => self.commit_fail(*slot, entry, *until, message),
            Outcome::Kicked { phase, count } | Outcome::KickedPart { phase, count, .. } => {
                self.commit_kick(entry, message, *phase, *count);
            }
            Outcome::KickedJob { slot } => self.kick(*slot, entry),
            Outcome::Paused { until } => self.commit_pause(entry, message, *until),
            Outcome::Flushed { keys, .. } => {
                self.commit_flush(entry, message);
                self.forget_keys(keys.iter(), entry.seq);
            }
            Outcome::FlushedPart { slots, keys, .. } => {
                for slot in slots {
                    self.state.delete(*slot, entry.seq);
                }
                self.forget_keys(keys.iter(), entry.seq);
            }
            Outcome::ClaimsEnded { ends, error } => {
                for (slot, end) in ends {
                    self.commit_claim_end((*slot, *end), entry, error.as_ref(), effects);
                }
            }
            Outcome::Quarantined { slot } => {
                let error = error_of(message).and_then(Option::as_ref);
                self.set_aside(*slot, entry, error);
            }
            Outcome::Departed { back, abandoned, error } => {
                for slot in back.iter().chain(abandoned) {
                    self.commit_departure(*slot, entry, error.as_ref());
                }
            }
            Outcome::Ready { slot } => self.commit_ready(*slot, entry),
            Outcome::TimedOut { slot } => {
                self.state.totals.recycled += 1;
                self.commit_time_out(*slot, entry);
            }
            Outcome::Abandoned { slot } => self.commit_last(*slot, entry, message),
            Outcome::Cancelled { slot, prune } => {
                self.cancel((*slot, *prune), entry, message, effects);
            }
            Outcome::ResultKept { slot, .. } => {
                self.commit_keep(*slot, entry, (message, outcome));
            }
            Outcome::ResultDropped { slot } => self.state.drop_result(*slot, entry.seq),
            Outcome::KeyForgotten { slot } => self.state.forget_key(*slot, entry.seq),
            Outcome::Draining => {
                self.state.change_head(entry.seq, |head| head.draining = true);
            }
            Outcome::Duplicate { .. }
            | Outcome::Remembered { .. }
            | Outcome::Absent
            | Outcome::Refused(_) => {}
        }
    }

    /// Forgets the remembered keys of jobs that were deleted.
    fn forget_keys<'a>(&mut self, slots: impl Iterator<Item = &'a Slot>, seq: Seq) {
        for slot in slots {
            self.state.forget_key(*slot, seq);
        }
    }

    fn commit_pop(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        let Outcome::Claimed { slot, turn, .. } = *outcome else {
            unreachable!("the outcome is a claim")
        };
        let (by, pop) = if let Message::Pop(pop) = message {
            (pop.by, Some(pop))
        } else if let Message::PopJob { by, .. } = message {
            (*by, None)
        } else {
            unreachable!("only a `Pop` or a `PopJob` claims a job")
        };
        if let (Some(any), Some(end)) = (pop.and_then(|pop| pop.any.as_deref()), turn) {
            let job = self.state.job(slot).expect("a claimed job should exist");
            self.state.take_turn(self.state.slot_of_queue(job), any, end);
        }
        self.commit_claim(slot, entry, by, outcome);
        self.send_binding(slot, effects);
        if pop.is_some() {
            self.state.close(slot, entry);
        }
        if let Some(ticket) = pop.and_then(|pop| pop.ticket)
            && self.waiting.pop(ticket).is_some()
        {
            self.waiting.forget(&mut self.state, ticket);
            effects.wake(ticket, self.claim_reply(slot));
        }
    }

    fn commit_batch(&mut self, stamp: Stamp, message: &Message, placed: &[Placed]) {
        let Message::Batch(puts) = message else {
            unreachable!("only a `Batch` adds several jobs")
        };
        for (put, placed) in puts.iter().zip(placed) {
            if let Placed::New(job) = placed {
                let slot = self.state.jobs.next_free();
                self.state.put(slot, stamp, put, job);
            } else {
                self.state.totals.duplicates += 1;
            }
        }
    }

    fn commit_claim(&mut self, slot: Slot, stamp: Stamp, by: Claimant, outcome: &Outcome) {
        let Outcome::Claimed { until, prune, .. } = *outcome else {
            unreachable!("the outcome is a claim")
        };
        self.state.change(slot, stamp.seq, |job| {
            let tries = job.tries();
            let is_anew = job.phase == Phase::Quarantined;
            job.phase = Phase::Claimed;
            let details = job.details_mut();
            if is_anew {
                details.crashes = 0;
            }
            details.since = stamp.at;
            details.claimed = stamp.at;
            details.until = until;
            details.prune = prune;
            details.token = stamp.seq.into();
            (details.worker, details.bound) = match by {
                Claimant::Worker(worker) => (Some(worker), None),
                Claimant::Process(binding) => (None, Some(Box::new(Bound::to(binding)))),
                Claimant::Bearer => (None, None),
            };
            details.progress = None;
            details.attempts = tries.saturating_add(1);
            details.reserves = details.reserves.saturating_add(1);
        });
    }

    fn commit_release(&mut self, slot: Slot, stamp: Stamp, until: Date, message: &Message) {
        let Message::Release { priority, delay_ms, .. } = message else {
            unreachable!("only a `Release` releases a job")
        };
        self.state.change(slot, stamp.seq, |job| {
            job.priority = priority.unwrap_or(job.priority);
            let details = job.details_mut();
            end_claim(details, stamp.at);
            details.releases = details.releases.saturating_add(1);
            details.delay_ms = *delay_ms;
            details.crashes = 0;
            details.until = Timestamp(until.0);
            job.phase = if until == Date(0) { Phase::Ready } else { Phase::Delayed };
        });
    }

    /// Abandons a job: its last try, or the claim during which it was cancelled, has failed, timed out or been released.
    fn commit_last(&mut self, slot: Slot, stamp: Stamp, message: &Message) {
        if let Message::Release { priority, .. } = message {
            self.state.change(slot, stamp.seq, |job| {
                job.priority = priority.unwrap_or(job.priority);
                let details = job.details_mut();
                details.releases = details.releases.saturating_add(1);
            });
        } else if let Some(error) = error_of(message) {
            self.state.change(slot, stamp.seq, |job| {
                let details = job.details_mut();
                // The reason for the cancellation is more informative than how the command was stopped.
                if !details.is_cancelled() {
                    details.error.clone_from(error);
                }
            });
        } else {
            return self.commit_time_out(slot, stamp);
        }
        self.state.give_back(slot, stamp);
    }

    /// Cancels a job: abandons it as after a last try or, if its claim is bound to a process, marks it to be abandoned when that claim
    /// ends. If the claimant is gone, the process that works on the job is stopped.
    fn cancel(
        &mut self,
        (slot, prune): (Slot, Date),
        stamp: Stamp,
        message: &Message,
        effects: &mut Effects<Self>,
    ) {
        let Message::Cancel { error, .. } = message else {
            unreachable!("only a `Cancel` cancels a job")
        };
        let (mut is_bound, mut is_fencing) = (false, false);
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            details.error.clone_from(error);
            details.prune = prune;
            if let Some(bound) = &mut details.bound {
                (bound.cancelled, is_bound) = (true, true);
                // Without its worker, nobody else stops the process.
                bound.fencing |= bound.is_orphaned();
                is_fencing = bound.fencing;
            }
        });
        if is_fencing {
            self.send_binding(slot, effects);
        } else if !is_bound {
            self.state.give_back(slot, stamp);
        }
    }

    fn commit_prune(&mut self, slot: Slot, stamp: Stamp) {
        let retries = self.state.job(slot).is_some_and(|job| job.retries);
        self.state.totals.pruned += u64::from(retries);
        self.state.delete(slot, stamp.seq);
    }

    fn commit_bury(&mut self, slot: Slot, stamp: Stamp, message: &Message) {
        let Message::Bury { priority, .. } = message else {
            unreachable!("only a `Bury` buries a job")
        };
        self.state.change(slot, stamp.seq, |job| {
            job.priority = priority.unwrap_or(job.priority);
            let details = job.details_mut();
            end_claim(details, stamp.at);
            details.buries = details.buries.saturating_add(1);
            details.buried = stamp.seq;
            details.crashes = 0;
            job.phase = Phase::Buried;
        });
    }

    fn commit_kick(&mut self, stamp: Stamp, message: &Message, phase: Phase, count: u32) {
        let (Message::Kick { queue, .. }
        | Message::Repush { queue, .. }
        | Message::KickMore(KickMore { queue, .. })) = message
        else {
            unreachable!("only a `Kick` or a `Repush` kicks jobs")
        };
        let Some((_, queue)) = self.state.queue_named(queue) else {
            unreachable!("a queue with jobs exists")
        };
        let count = count as usize;
        let slots: Vec<Slot> = match phase {
            Phase::Buried => {
                let buried = queue.buried.iter().map(|(_, _, slot)| *slot);
                let aside = queue.quarantined.iter().map(|(_, slot)| *slot);
                buried.chain(aside).take(count).collect()
            }
            Phase::Delayed => {
                let delayed = queue.delayed.iter().map(|(_, _, slot)| *slot);
                let retrying = queue.retrying.iter().map(|(_, slot)| *slot);
                delayed.chain(retrying).take(count).collect()
            }
            Phase::Abandoned => {
                let abandoned = queue.buried.range(ABANDONED..).take(count);
                abandoned.map(|(_, _, slot)| *slot).collect()
            }
            Phase::Ready | Phase::Claimed | Phase::Retrying | Phase::Quarantined => {
                unreachable!("jobs in these phases are not kicked")
            }
        };
        for slot in slots {
            self.kick(slot, stamp);
        }
    }

    fn kick(&mut self, slot: Slot, stamp: Stamp) {
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            end_claim(details, stamp.at);
            details.kicks = details.kicks.saturating_add(1);
            details.attempts = 0;
            details.crashes = 0;
            job.phase = Phase::Ready;
        });
    }

    fn commit_touch(&mut self, slot: Slot, stamp: Stamp, until: Timestamp) {
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            details.since = stamp.at;
            details.until = until;
        });
    }

    fn commit_report(&mut self, slot: Slot, stamp: Stamp, message: &Message) {
        let Message::Report { progress, .. } = message else {
            unreachable!("only a `Report` reports progress")
        };
        self.state.change(slot, stamp.seq, |job| {
            let known = &mut job.details_mut().progress;
            known.get_or_insert_default().update(progress);
        });
    }

    /// Ends a claim whose job failed. The job waits for its retry. The new error replaces the previous one, even if the new
    /// one is `None`.
    fn commit_fail(&mut self, slot: Slot, stamp: Stamp, until: Timestamp, message: &Message) {
        let error = error_of(message).expect("the message should be a `Fail` or a `Defer`");
        let is_crash = matches!(message, Message::Fail { crashed: true, .. });
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            let prune = details.prune;
            end_claim(details, stamp.at);
            (details.until, details.prune) = (until, prune);
            details.crashes = if is_crash { details.crashes.saturating_add(1) } else { 0 };
            details.error.clone_from(error);
            job.phase = Phase::Retrying;
        });
    }

    /// Ends a claim whose job is deferred. The job waits like a failed one, but the claim does not count as a try.
    fn commit_defer(&mut self, slot: Slot, stamp: Stamp, until: Timestamp, message: &Message) {
        let error = error_of(message).expect("the message should be a `Fail` or a `Defer`");
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            end_claim(details, stamp.at);
            details.until = until;
            details.attempts = details.attempts.saturating_sub(1);
            details.releases = details.releases.saturating_add(1);
            details.crashes = 0;
            details.error.clone_from(error);
            job.phase = Phase::Retrying;
        });
    }

    fn commit_ready(&mut self, slot: Slot, stamp: Stamp) {
        self.state.change(slot, stamp.seq, |job| {
            job.phase = Phase::Ready;
            end_claim(job.details_mut(), stamp.at);
        });
    }

    fn commit_time_out(&mut self, slot: Slot, stamp: Stamp) {
        self.state.totals.timeouts += 1;
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            details.timeouts = details.timeouts.saturating_add(1);
        });
        self.state.give_back(slot, stamp);
    }

    fn commit_keep(&mut self, slot: Slot, stamp: Stamp, of: (&Message, &Outcome)) {
        let (Message::KeepResult(keep), Outcome::ResultKept { ended, until, dropped, .. }) = of
        else {
            unreachable!("only a `KeepResult` stores a result")
        };
        for slot in dropped {
            self.state.drop_result(*slot, stamp.seq);
        }
        self.state.keep_result(slot, stamp, (keep, *ended, *until));
    }

    fn commit_pause(&mut self, stamp: Stamp, message: &Message, until: Date) {
        let (Message::Pause { queue, .. } | Message::Unpause { queue }) = message else {
            unreachable!("only a `Pause` or an `Unpause` changes a pause")
        };
        let ms = if let Message::Pause { ms, .. } = message { *ms } else { 0 };
        let pause =
            (until != Date(0)).then_some(Pause { since: Date(until.0.saturating_sub(ms)), until });
        if matches!(message, Message::Pause { .. }) {
            let slot = self.state.queue_for(queue);
            self.state.change_queue(slot, |queue| queue.pauses += 1);
        }
        self.state.pause(queue, stamp, pause);
    }

    fn commit_flush(&mut self, stamp: Stamp, message: &Message) {
        let Message::Flush { queue } = message else {
            unreachable!("only a `Flush` flushes a queue")
        };
        let Some((_, queue)) = self.state.queue_named(queue) else {
            unreachable!("a queue with jobs exists")
        };
        for slot in queue.slots(&self.state.jobs) {
            self.state.delete(slot, stamp.seq);
        }
    }
}

/// Returns the error in a `Fail` or `Defer` message: `Some(None)` if it reports no error, and `None` for other messages.
const fn error_of(message: &Message) -> Option<&Option<ErrorText>> {
    if let Message::Fail { error, .. } | Message::Defer { error, .. } = message {
        Some(error)
    } else {
        None
    }
}
