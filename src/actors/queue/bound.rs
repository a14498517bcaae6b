//! Claims that are bound to processes. Such a claim ends when the process or, depending on the binding, its whole tree
//! is gone. If the claim times out and its binding has `fence` set, the process tree is killed before another client can
//! claim the job. Until the tree is gone, the claim is `fencing`: it still exists, but its token is refused.
//!
//! A claimant that works through another process, such as `sexton work` through its commands, names that process ([`Message::Attach`]).
//! When the claimant is gone, each of its claims is handed over to its own process: one that hangs holds only its own job, and the exit
//! status of the others is the result of theirs.

use crate::actors::binding::{self, Binding, EndNotice, Exit, PROCESSES, ToProcesses, Until};
use crate::actors::queue::decide::span;
use crate::actors::queue::job::{Bound, Job};
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{Message, Pop};
use crate::actors::queue::outcome::{ClaimEnd, Outcome};
use crate::actors::queue::part::FlushMore;
use crate::actors::queue::report::ErrorText;
use crate::actors::queue::right::{Claimant, Right, Worker};
use crate::actors::queue::rules::Backoff;
use crate::actors::queue::state::{State, end_claim};
use crate::clock::Timestamp;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::{Effects, Machine as _, Stamp};
use sexton_api::queue::Phase;
use std::collections::BTreeSet;

impl State {
    /// Returns the slots, from this one on, of the jobs whose claims are bound to a process.
    pub(super) fn of_process(
        &self,
        process: ProcessId,
        from: Slot,
    ) -> impl Iterator<Item = Slot> + '_ {
        let of = |until| {
            let all = (process, until, from)..=(process, until, Slot::NONE);
            let slots = self.bound.range(all).map(|(.., slot)| *slot);
            slots.peekable()
        };
        let (mut own, mut tree) = (of(Until::Process), of(Until::Tree));
        std::iter::from_fn(move || match (own.peek(), tree.peek()) {
            (Some(of_own), Some(of_tree)) if of_own > of_tree => tree.next(),
            (Some(_), _) => own.next(),
            (None, _) => tree.next(),
        })
    }

    /// Returns the slots of the jobs whose claims are bound to a process in this way.
    pub(super) fn of_binding(
        &self,
        process: ProcessId,
        until: Until,
    ) -> impl Iterator<Item = Slot> + '_ {
        let all = (process, until, Slot(0))..=(process, until, Slot::NONE);
        self.bound.range(all).map(|(.., slot)| *slot)
    }
}

impl QueueMachine {
    /// Decides the outcome when a process or its tree is gone: the claims that are bound to it end.
    pub(super) fn decide_gone(&self, at: Timestamp, gone: EndNotice) -> Outcome {
        let untils = [Until::Process, Until::Tree].into_iter();
        let untils = untils.filter(|until| gone.ends(*until));
        let ended = untils.flat_map(|until| self.state.of_binding(gone.process, until));
        let mut ended: Vec<Slot> = ended.take(self.part() as usize).collect();
        ended.sort_unstable();
        let is_fencing = |slot: &Slot| self.bound_of(*slot).is_some_and(|it| it.fencing);
        let is_late = ended.iter().any(is_fencing);
        let ends = ended.iter().map(|slot| (*slot, self.end_of(at, *slot, gone)));
        claims_ended(ends.collect(), Some(end_reason(gone, is_late)))
    }

    /// Decides what becomes of a claim whose process is gone.
    fn end_of(&self, at: Timestamp, slot: Slot, gone: EndNotice) -> ClaimEnd {
        let job = self.state.job(slot).expect("a bound job should exist");
        let bound = self.bound_of(slot).expect("the claim should be bound");
        match (bound.command, gone.exit) {
            (Some(_), _) if !bound.is_orphaned() => ClaimEnd::HandedOver,
            // The job took too long.
            (Some(_), _) if bound.fencing => self.failed(at, job),
            (None, _) if bound.fencing => ClaimEnd::Returned,
            (Some(command), Some(Exit::Code(0))) if command.completes && !bound.cancelled => {
                ClaimEnd::Done
            }
            (Some(command), Some(Exit::Code(_))) if command.completes => self.failed(at, job),
            _ => self.crashed(at, job),
        }
    }

    /// Decides what becomes of a claimed job that has failed, as was found without a report of its worker.
    fn failed(&self, at: Timestamp, job: &Job) -> ClaimEnd {
        if !job.retries || job.is_last_try() {
            return ClaimEnd::Returned;
        }
        ClaimEnd::Retried {
            until: at.plus_ms(self.pause(job, job.details().attempts)),
            crashed: false,
        }
    }

    /// Decides what becomes of a claimed job if the work on it ended with a crash.
    fn crashed(&self, at: Timestamp, job: &Job) -> ClaimEnd {
        let rules = self.rules_of(job);
        let most = match job.details().worker {
            Some(_) => rules.tube_crash_tries,
            None => rules.crash_tries,
        };
        let crashes = job.details().crashes.saturating_add(1);
        if !job.retries || job.details().is_cancelled() {
            return ClaimEnd::Returned;
        }
        if most > 0 && crashes >= most {
            return ClaimEnd::Quarantined;
        }
        if job.is_last_try() {
            return ClaimEnd::Returned;
        }
        ClaimEnd::Retried { until: at.plus_ms(self.pause(job, crashes)), crashed: true }
    }

    /// Returns the milliseconds until a job is tried again after it went wrong `times` times. Not random: jobs that crashed together were
    /// worked on together before.
    fn pause(&self, job: &Job, times: u32) -> u64 {
        let backoff = self.rules_of(job).backoff.unwrap_or_default();
        let steady = Backoff { jitter_milli: 0, ..backoff };
        span(steady, times, 0)
    }

    /// Decides the outcome if a worker reports that the work on its job crashed.
    pub(super) fn decide_crash(
        &self,
        at: Timestamp,
        (id, by): (u64, Right),
        retry: Option<u64>,
    ) -> Outcome {
        let (slot, job) = match self.claimed(id, by) {
            Ok(claimed) => claimed,
            Err(outcome) => return outcome,
        };
        match self.crashed(at, job) {
            ClaimEnd::Quarantined => Outcome::Quarantined { slot },
            ClaimEnd::Retried { until, .. } => {
                Outcome::Failed { slot, until: retry.map_or(until, |ms| at.plus_ms(ms)) }
            }
            ClaimEnd::Returned | ClaimEnd::HandedOver | ClaimEnd::Done if job.retries => {
                Outcome::Abandoned { slot }
            }
            ClaimEnd::Returned | ClaimEnd::HandedOver | ClaimEnd::Done => {
                Outcome::Deleted { slot, key: None }
            }
        }
    }

    /// Decides the outcome when the connection of a worker has closed: its claims end. As in beanstalkd, their jobs are ready again, unless
    /// a limit is set on how often this may happen in a row.
    pub(super) fn decide_depart(&self, at: Timestamp, worker: Worker) -> Outcome {
        let is_limited = |job: &Job| self.rules_of(job).tube_crash_tries > 0;
        let job = |slot: Slot| self.state.job(slot).expect("a claimed job should exist");
        let claims = || self.state.claims(worker).take(self.part() as usize);
        if !claims().any(|slot| is_limited(job(slot))) {
            return self.given_back(claims());
        }
        let end = |slot: Slot| match job(slot) {
            it if is_limited(it) => (slot, self.crashed(at, it)),
            _ => (slot, ClaimEnd::Returned),
        };
        let ends = claims().map(end).collect();
        claims_ended(ends, Some("its claim ended: its client disconnected".to_owned().into()))
    }

    /// Returns the outcome that ends these claims, whose connection is gone. Each job becomes ready again (or is deleted if it
    /// runs at most once), or is abandoned if this was its last try or it was cancelled. `Absent` if there are no claims.
    fn given_back(&self, claims: impl Iterator<Item = Slot>) -> Outcome {
        let is_last = |slot: &Slot| self.state.job(*slot).is_some_and(Job::is_last_try);
        let (abandoned, back): (Vec<Slot>, Vec<Slot>) = claims.partition(is_last);
        if back.is_empty() && abandoned.is_empty() {
            Outcome::Absent
        } else {
            Outcome::Departed { back, abandoned, error: None }
        }
    }

    /// Ends a claim, or hands it over, because its worker or process is gone.
    pub(super) fn commit_claim_end(
        &mut self,
        (slot, end): (Slot, ClaimEnd),
        stamp: Stamp,
        error: Option<&ErrorText>,
        effects: &mut Effects<Self>,
    ) {
        match end {
            ClaimEnd::Returned => self.commit_departure(slot, stamp, error),
            ClaimEnd::Done => self.state.delete(slot, stamp.seq),
            ClaimEnd::HandedOver => {
                self.state.change(slot, stamp.seq, |job| {
                    if let Some(bound) = &mut job.details_mut().bound {
                        bound.hand_over();
                        // Its worker is no longer there to notice that the job was cancelled.
                        bound.fencing |= bound.cancelled;
                    }
                });
                self.send_binding(slot, effects);
            }
            ClaimEnd::Retried { until, crashed } => {
                self.state.change(slot, stamp.seq, |job| {
                    let details = job.details_mut();
                    end_claim(details, stamp.at);
                    details.until = until;
                    details.error = error.cloned();
                    details.crashes = if crashed { details.crashes.saturating_add(1) } else { 0 };
                    job.phase = Phase::Retrying;
                });
            }
            ClaimEnd::Quarantined => self.set_aside(slot, stamp, error),
        }
    }

    /// Ends a claim whose worker or process is gone. If a reason is given, stores it as the error of the job.
    pub(super) fn commit_departure(&mut self, slot: Slot, stamp: Stamp, error: Option<&ErrorText>) {
        if let Some(error) = error {
            self.state.change(slot, stamp.seq, |job| {
                let details = job.details_mut();
                // The reason for the cancellation is more informative than how the process ended.
                if !details.is_cancelled() {
                    details.error = Some(error.clone());
                }
            });
        }
        self.state.give_back(slot, stamp);
    }

    pub(super) fn commit_bind(
        &mut self,
        (slot, to): (Slot, Binding),
        stamp: Stamp,
        until: Timestamp,
        effects: &mut Effects<Self>,
    ) {
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            (details.since, details.until) = (stamp.at, until);
            (details.worker, details.bound) = (None, Some(Box::new(Bound::to(to))));
        });
        self.send_binding(slot, effects);
    }

    /// Sets a claimed job aside because of its crashes: it is neither tried again nor removed until it is kicked.
    pub(super) fn set_aside(&mut self, slot: Slot, stamp: Stamp, error: Option<&ErrorText>) {
        let id = self.state.job(slot).map(|job| job.id);
        self.state.note_finished(id.expect("a claimed job should exist"));
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            end_claim(details, stamp.at);
            details.crashes = details.crashes.saturating_add(1);
            details.error = error.cloned();
            job.phase = Phase::Quarantined;
        });
    }

    /// Notes which process works on a job. From now on its claim lasts until the claimant itself is gone, and then as long as that process.
    pub(super) fn commit_attach(
        &mut self,
        (slot, until): (Slot, Timestamp),
        stamp: Stamp,
        message: &Message,
        effects: &mut Effects<Self>,
    ) {
        let Message::Attach { command, .. } = message else {
            unreachable!("only an `Attach` names a process")
        };
        self.state.change(slot, stamp.seq, |job| {
            let details = job.details_mut();
            (details.since, details.until) = (stamp.at, until);
            if let Some(bound) = &mut details.bound {
                bound.command = Some(*command);
                if !bound.is_orphaned() {
                    bound.binding.until = Until::Process;
                }
            }
        });
        self.send_binding(slot, effects);
    }

    pub(super) fn commit_fence(&mut self, slot: Slot, stamp: Stamp, effects: &mut Effects<Self>) {
        self.state.change(slot, stamp.seq, |job| {
            if let Some(bound) = &mut job.details_mut().bound {
                bound.hand_over();
                bound.fencing = true;
            }
        });
        self.send_binding(slot, effects);
    }

    /// Requests that the `ProcessActor` report when the process of a claim is gone, and kill its tree if the claim is
    /// fencing. Sends nothing if the claim is not bound, or if the watch for another claim covers it.
    pub(super) fn send_binding(&self, slot: Slot, effects: &mut Effects<Self>) {
        let bound = self.bound_of(slot).filter(|_| !self.is_watched(slot));
        for request in bound.into_iter().flat_map(obligations) {
            effects.tell(PROCESSES, &request);
        }
    }

    /// Returns whether another claim is bound to the same process in the same way, so that its watch covers this claim
    /// as well. False for a fencing claim, which also requires a kill.
    fn is_watched(&self, slot: Slot) -> bool {
        let Some(bound) = self.bound_of(slot).filter(|bound| !bound.fencing) else {
            return false;
        };
        let Binding { process, until, .. } = bound.binding;
        let mut others = self.state.of_binding(process, until);
        others.any(|other| other != slot)
    }

    /// Returns whether only those who may start and end processes may send a message: it makes, changes or ends a claim that is bound to a
    /// process. The loss of such a claim ends the process, or lets others believe that it has ended.
    #[expect(clippy::match_same_arms, reason = "the first arm is an exception to the second")]
    pub(super) fn is_forbidden(&self, message: &Message) -> bool {
        let is_bound = |id: u64| {
            let found = self.state.find(id);
            found.is_some_and(|(slot, _)| self.bound_of(slot).is_some())
        };
        match message {
            Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. } => {
                matches!(by, Claimant::Process(_))
            }
            Message::Delete { by: Right::Unclaimed, .. } => false,
            Message::Delete { id, .. }
            | Message::Release { id, .. }
            | Message::Bury { id, .. }
            | Message::Touch { id, .. }
            | Message::Fail { id, .. }
            | Message::Defer { id, .. }
            | Message::Report { id, .. }
            | Message::Cancel { id, .. } => is_bound(*id),
            Message::KeepResult(keep) => is_bound(keep.id),
            Message::Flush { queue } | Message::FlushMore(FlushMore { queue, .. }) => {
                let found = self.state.queue_named(queue);
                found.is_some_and(|(_, queue)| queue.bound > 0)
            }
            Message::Bind { .. }
            | Message::Attach { .. }
            | Message::Gone(_)
            | Message::Expire { .. }
            | Message::Unpause { .. }
            | Message::Forget { .. }
            | Message::DropResult { .. }
            | Message::ForgetKey { .. }
            | Message::Drain => true,
            Message::Put(_)
            | Message::Batch(_)
            | Message::Spoil
            | Message::Register(_)
            | Message::Kick { .. }
            | Message::KickMore(_)
            | Message::Repush { .. }
            | Message::KickJob { .. }
            | Message::Pause { .. }
            | Message::Depart { .. } => false,
        }
    }

    fn bound_of(&self, slot: Slot) -> Option<&Bound> {
        self.state.job(slot)?.details().bound.as_deref()
    }

    /// Sends the `ProcessActor` all watch and kill requests that the current claims require, each once.
    pub(super) fn send_bindings(&self, effects: &mut Effects<Self>) {
        let slots = self.state.bound.iter().map(|(.., slot)| *slot);
        let jobs = slots.filter_map(|slot| self.state.job(slot));
        let bound = jobs.filter_map(|job| job.details().bound.as_ref());
        let stated = bound.map(|it| (it.binding.process, it.binding.until, it.fencing));
        for (process, until, fencing) in stated.collect::<BTreeSet<_>>() {
            let binding = Binding { process, until, fence: fencing };
            let bound = Bound { fencing, ..Bound::to(binding) };
            for said in obligations(&bound) {
                effects.tell(PROCESSES, &said);
            }
        }
    }
}

/// Returns the outcome of these ends; `Absent` if there are none.
fn claims_ended(ends: Vec<(Slot, ClaimEnd)>, error: Option<ErrorText>) -> Outcome {
    if ends.is_empty() {
        return Outcome::Absent;
    }
    Outcome::ClaimsEnded { ends, error }
}

/// Returns the reason for ending the claims bound to a process that is gone. `is_late` means that the process
/// was being killed because one of these claims had timed out.
fn end_reason(gone: EndNotice, is_late: bool) -> ErrorText {
    let process = match gone.pid {
        Some(pid) => pid.to_string(),
        None => gone.process.to_string(),
    };
    let end = match gone.exit {
        Some(Exit::Code(code)) => format!("exited with status {code}"),
        Some(Exit::Signal(signal)) => format!("was killed by signal {signal}"),
        Some(Exit::Failed) => "could not be started".to_owned(),
        Some(Exit::Lost) | None => "is gone".to_owned(),
    };
    let late = if is_late { " after a claim ran out" } else { "" };
    format!("its claim ended: process {process} {end}{late}").into()
}

/// Returns the messages to send to the `ProcessActor` about a claim.
fn obligations(bound: &Bound) -> impl Iterator<Item = ToProcesses> + use<> {
    let Binding { process, until, .. } = bound.binding;
    let by = QueueMachine::ID;
    let watch = ToProcesses::Watch(binding::Watch { by, process, until });
    let fence = bound.fencing.then_some(ToProcesses::Fence(process));
    std::iter::once(watch).chain(fence)
}

/// Returns the process that a `Bind` message binds a claim to; `None` for other messages.
pub(super) const fn bound_by(message: &Message) -> Option<Binding> {
    if let Message::Bind { to, .. } = message { Some(*to) } else { None }
}

#[cfg(test)]
mod tests {
    use super::Outcome;
    use crate::ids::Slot;

    /// Older logs do not contain the reason for a departure: it must be read as `None`.
    #[test]
    fn a_departure_of_an_older_log_has_no_reason() {
        let old = (vec![Slot(3)], Vec::<Slot>::new());
        let old = rmp_serde::to_vec(&std::collections::BTreeMap::from([("departed", old)]));
        let old = old.expect("an outcome encodes");
        let known = Outcome::Departed { back: vec![Slot(3)], abandoned: Vec::new(), error: None };
        let read: Outcome = crate::decode::from_slice(&old).expect("the old form decodes");
        assert_eq!(read, known);
        let written = rmp_serde::to_vec(&known).expect("an outcome encodes");
        assert_eq!(written, old, "a departure without a reason is encoded as in older versions");
    }
}
