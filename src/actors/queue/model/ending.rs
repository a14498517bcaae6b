//! The model of messages from claimants, of cancellation, and of claims whose process is gone.

use super::{Entry, Model, Moment};
use sexton::actors::binding::{Binding, Until};
use sexton::actors::queue::{ErrorText, JobView, Message, Phase, Progress, Refused, Reply, Right};
use sexton::clock::Timestamp;

impl Entry {
    /// Restarts the time limit of the claim. If the message is a `Bind`, also binds the claim to the given process.
    fn touch(&mut self, message: &Message, at: Timestamp) {
        self.view.until = self.view.until.map(|_| at.plus_ms(self.span));
        self.quarantined = false;
        let Message::Bind { to, .. } = message else {
            return;
        };
        (self.view.bound, self.worker, self.view.command) = (Some(*to), None, None);
        // In the view, a claim that ends only with its process has no deadline.
        self.view.until = self.view.until.filter(|at| *at != Timestamp(u64::MAX));
    }

    /// Records a progress report. Like every change, this lifts a quarantine.
    fn report(&mut self, newer: &Progress) {
        self.quarantined = false;
        let known = self.view.progress.take().unwrap_or_default();
        self.view.progress = Some(Progress {
            percent: newer.percent.or(known.percent),
            text: newer.text.clone().or(known.text),
        });
    }

    /// Defers the job without counting a try.
    fn defer(&mut self, at: Timestamp, until: Timestamp) {
        self.view.attempts -= 1;
        self.view.releases += 1;
        self.view.crashes = 0;
        self.go(Phase::Retrying, Some(until));
        self.span = until.0 - at.0;
    }
}

/// Returns the delay before the retry, in milliseconds; `None` if the message does not specify one.
fn retry_of(message: &Message) -> Option<u64> {
    match message {
        Message::Fail { retry_after_ms, .. } | Message::Defer { retry_after_ms, .. } => {
            *retry_after_ms
        }
        _ => None,
    }
}

impl Model {
    /// Abandons a job or, if its claim is bound to a process, marks it to be abandoned when the process has ended.
    pub(super) fn cancel(&mut self, id: u64, why: Option<&ErrorText>, at: Timestamp) -> Reply {
        let date = self.date(at);
        let Some(queue) = self.job(id).map(|job| job.view.queue.clone()) else {
            return Reply::Absent;
        };
        let prune = date.plus_ms(self.rules_of(&queue).prune_ms + 1);
        let job = self.job(id).expect("the job exists");
        if job.view.phase == Phase::Abandoned || job.view.cancelled {
            return Reply::Absent;
        }
        job.view.error = why.cloned();
        job.last = Some(prune);
        if job.view.bound.is_some() {
            job.view.cancelled = true;
            job.quarantined = false;
            let process = job.view.bound.map(|it| it.process);
            if job.view.command.is_some_and(|it| Some(it.process) == process) {
                (job.view.fencing, job.view.until) = (true, None);
            }
            if job.view.fencing {
                let told = job.obligations();
                self.told.extend(told);
            }
        } else {
            job.give_back();
            self.jobs.retain(|job| !job.is_gone);
        }
        Reply::Done
    }

    /// Applies a message from the claimant of a job.
    #[expect(clippy::too_many_lines, reason = "one arm for each kind")]
    pub(super) fn end(
        &mut self,
        message: &Message,
        (id, by): (u64, Right),
        (seq, at): Moment,
    ) -> Reply {
        if let Some(refused) = self.refused(message, (id, by)) {
            return refused;
        }
        let view = self.job(id).expect("the job exists").view.clone();
        let is_wanted = !view.cancelled;
        let is_young = at.0.saturating_sub(view.created.0) <= Message::DEFERRED_MS_MAX;
        let goes_back = |it: &Message| match it {
            Message::Defer { interrupted, .. } => is_young || *interrupted,
            _ => false,
        };
        let is_deferred = is_wanted && goes_back(message);
        if let Message::Fail { crashed: true, .. } = message {
            return self.crash(message, view.id, at);
        }
        let asked = retry_of(message).map(|ms| at.plus_ms(ms));
        let backed_off = match asked {
            Some(_) => None,
            None => self.back_off(&view, is_deferred, at),
        };
        let usual = at.plus_ms(self.span(&view));
        let date = self.date(at);
        let job = self.job(id).expect("the job exists");
        match message {
            Message::Release { priority, delay_ms, .. } => {
                job.view.priority = priority.unwrap_or(job.view.priority);
                job.view.releases += 1;
                if job.last.is_some() {
                    job.give_back();
                    self.jobs.retain(|job| !job.is_gone);
                    return Reply::Abandoned;
                }
                job.view.delay_ms = *delay_ms;
                job.view.crashes = 0;
                match delay_ms {
                    0 => job.go(Phase::Ready, None),
                    ms => job.go(Phase::Delayed, Some(date.plus_ms(*ms))),
                }
            }
            Message::Bury { priority, .. } => {
                job.view.priority = priority.unwrap_or(job.view.priority);
                job.view.buries += 1;
                job.view.crashes = 0;
                job.buried = seq;
                job.go(Phase::Buried, None);
            }
            Message::Touch { .. } => job.touch(message, at),
            Message::Attach { command, ttr_ms, .. } => {
                let Some(Binding { process, until, .. }) = &mut job.view.bound else {
                    return Reply::Absent;
                };
                job.quarantined = false;
                if *process != command.process {
                    *until = Until::Process;
                }
                job.view.command = Some(*command);
                job.span = if *ttr_ms == 0 { u64::MAX } else { *ttr_ms };
                job.view.until = (*ttr_ms > 0).then(|| at.plus_ms(*ttr_ms));
                self.watch(view.id);
            }
            Message::Bind { .. } => {
                job.touch(message, at);
                self.watch(view.id);
            }
            Message::Defer { error, .. } if is_deferred => {
                job.view.error.clone_from(error);
                // The simulation also applies messages to a copy of the model, only to see whether they change anything.
                // In that case, there is no retry time from the machine, and any time will do.
                job.defer(at, asked.or(backed_off).unwrap_or(at));
            }
            Message::Report { progress, .. } => job.report(progress),
            Message::Fail { .. } | Message::Defer { .. } if !view.retries => {
                self.jobs.retain(|job| job.view.id != id);
            }
            Message::Fail { error, .. } | Message::Defer { error, .. } if job.last.is_some() => {
                if is_wanted {
                    job.view.error.clone_from(error);
                }
                job.give_back();
                return Reply::Abandoned;
            }
            Message::Fail { error, .. } | Message::Defer { error, .. } => {
                job.view.error.clone_from(error);
                job.view.crashes = 0;
                let until = asked.or(backed_off);
                job.go(Phase::Retrying, until.or(job.view.until).or(Some(usual)));
                // A quarantined job keeps a claim that has timed out, so `until` may be before `at`.
                let until = job.view.until.expect("a failed job has a retry time");
                job.span = until.0.saturating_sub(at.0);
            }
            Message::Delete { .. } => {
                if view.phase != Phase::Claimed {
                    self.forget_keys_of(&[id]);
                }
                self.jobs.retain(|job| job.view.id != id);
            }
            other => unreachable!("{other:?} is not a message from a claimant"),
        }
        Reply::Done
    }

    /// Returns the refusal if the sender has no right to send this message, and otherwise `None`.
    pub(super) fn refused(&mut self, message: &Message, (id, by): (u64, Right)) -> Option<Reply> {
        let job = self.job(id);
        let claimed = job.as_ref().map(|job| job.view.phase == Phase::Claimed);
        let allowed = job.as_ref().is_some_and(|job| match by {
            Right::Worker(worker) => job.worker == Some(worker),
            Right::Token(token) => job.view.token == Some(token),
            Right::Unclaimed => false,
        });
        let free = claimed == Some(false) && matches!(message, Message::Delete { .. });
        let goes_on = matches!(
            message,
            Message::Touch { .. }
                | Message::Bind { .. }
                | Message::Attach { .. }
                | Message::Report { .. }
        );
        match (by, allowed) {
            _ if job.is_none() => Some(Reply::Absent),
            (Right::Token(_), false) => Some(Reply::Refused(Refused::StaleToken)),
            (_, false) if !free => Some(Reply::Absent),
            _ if job.as_ref().is_some_and(|job| job.view.fencing) => {
                Some(Reply::Refused(Refused::Fencing))
            }
            (Right::Token(_), true) if goes_on && job.is_some_and(|job| job.view.cancelled) => {
                Some(Reply::Refused(Refused::StaleToken))
            }
            _ => None,
        }
    }

    /// Returns when a failed or deferred job is retried according to its backoff: the random time that the machine
    /// chose, after asserting that it is within the limits. `None` if the job has no backoff, or the machine chose no
    /// time.
    fn back_off(&mut self, job: &JobView, is_deferred: bool, at: Timestamp) -> Option<Timestamp> {
        let backoff = self.rules_of(&job.queue).backoff;
        let (backoff, times) = if is_deferred {
            (backoff.unwrap_or_default(), job.releases + 1)
        } else {
            (backoff?, job.attempts)
        };
        let longer = |ms: u64, _| (ms * u64::from(backoff.factor)).min(backoff.max_ms);
        let ms = (1..times).fold(backoff.first_ms, longer);
        let spread = ms * u64::from(backoff.jitter_milli) / 1000;
        let until = self.parked?;
        let parked = until.0 - at.0;
        assert!((ms - spread..=ms + spread).contains(&parked), "{parked} ms");
        self.backed_off += 1;
        Some(until)
    }
}
