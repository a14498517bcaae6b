//! Claims that are bound to processes. Such a claim ends when the process or, depending on the binding, its whole tree
//! is gone. If the claim times out and its binding has `fence` set, the process tree is killed before another client can
//! claim the job. Until the tree is gone, the claim is `fencing`: it still exists, but its token is refused.

use crate::actors::binding::{self, Binding, EndNotice, Exit, PROCESSES, ToProcesses};
use crate::actors::queue::job::{Bound, Job};
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{Message, Outcome, Pop};
use crate::actors::queue::report::ErrorText;
use crate::actors::queue::right::{Claimant, Right};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::spine::machine::{Effects, Machine as _, Stamp};
use std::collections::BTreeSet;

impl QueueMachine {
    /// Decides the outcome when a process or its tree is gone: the claims that are bound to it end.
    pub(super) fn decide_gone(&self, gone: EndNotice) -> Outcome {
        let ends = |slot: &Slot| {
            let bound = self.state.job(*slot).and_then(|job| job.story().binding());
            bound.is_some_and(|bound| gone.ends(bound.until))
        };
        let ended = || self.state.of_process(gone.process).filter(ends);
        let is_late = ended().any(|slot| self.bound_of(slot).is_some_and(|it| it.fencing));
        self.given_back(ended(), Some(end_reason(gone, is_late)))
    }

    /// Returns the outcome that ends these claims, whose workers or processes are gone. Each job becomes ready again (or is deleted if it
    /// runs at most once), or is abandoned if this was its last try or it was cancelled. `Absent` if there are no claims.
    pub(super) fn given_back(
        &self,
        claims: impl Iterator<Item = Slot>,
        error: Option<ErrorText>,
    ) -> Outcome {
        let is_last = |slot: &Slot| self.state.job(*slot).is_some_and(Job::is_last_try);
        let (abandoned, back): (Vec<Slot>, Vec<Slot>) = claims.partition(is_last);
        if back.is_empty() && abandoned.is_empty() {
            Outcome::Absent
        } else {
            Outcome::Departed {
                back,
                abandoned,
                error,
            }
        }
    }

    /// Ends a claim whose worker or process is gone. If a reason is given, stores it as the error of the job.
    pub(super) fn commit_departure(&mut self, slot: Slot, stamp: Stamp, error: Option<&ErrorText>) {
        if let Some(error) = error {
            self.state.change(slot, stamp.seq, |job| {
                let story = job.story_mut();
                // The reason for the cancellation is more informative than how the process ended.
                if !story.is_cancelled() {
                    story.error = Some(error.clone());
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
            let story = job.story_mut();
            (story.since, story.until) = (stamp.at, until);
            (story.worker, story.bound) = (None, Some(Box::new(Bound::to(to))));
        });
        self.send_binding(slot, effects);
    }

    pub(super) fn commit_fence(&mut self, slot: Slot, stamp: Stamp, effects: &mut Effects<Self>) {
        self.state.change(slot, stamp.seq, |job| {
            if let Some(bound) = &mut job.story_mut().bound {
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
        let others = self.state.of_process(process).filter(|it| *it != slot);
        let mut others = others.filter_map(|other| self.bound_of(other));
        others.any(|other| other.binding.until == until)
    }

    /// Returns whether only those who may start and end processes may send a message: it makes, changes or ends a claim that is bound to a
    /// process. The loss of such a claim ends the process, or lets others believe that it has ended.
    pub(super) fn is_forbidden(&self, message: &Message) -> bool {
        let is_bound = |id: u64| {
            let found = self.state.find(id);
            found.is_some_and(|(slot, _)| self.bound_of(slot).is_some())
        };
        match message {
            Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. } => {
                matches!(by, Claimant::Process(_))
            }
            Message::Delete {
                by: Right::Unclaimed,
                ..
            } => false,
            Message::Delete { id, .. }
            | Message::Release { id, .. }
            | Message::Bury { id, .. }
            | Message::Touch { id, .. }
            | Message::Fail { id, .. }
            | Message::Defer { id, .. }
            | Message::Report { id, .. }
            | Message::Cancel { id, .. } => is_bound(*id),
            Message::Flush { queue } => {
                let named = self.state.queue_named(queue).map(|(slot, _)| slot);
                let mut claims = self.state.bound.iter();
                claims.any(|(_, slot)| self.state.job(*slot).map(|job| job.queue) == named)
            }
            Message::Bind { .. }
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
            | Message::Repush { .. }
            | Message::KickJob { .. }
            | Message::Pause { .. }
            | Message::Depart { .. }
            | Message::KeepResult(_) => false,
        }
    }

    fn bound_of(&self, slot: Slot) -> Option<&Bound> {
        self.state.job(slot)?.story().bound.as_deref()
    }

    /// Sends the `ProcessActor` all watch and kill requests that the current claims require, each once.
    pub(super) fn send_bindings(&self, effects: &mut Effects<Self>) {
        let slots = self.state.bound.iter().map(|(_, slot)| *slot);
        let jobs = slots.filter_map(|slot| self.state.job(slot));
        let bound = jobs.filter_map(|job| job.story().bound.as_ref());
        let stated = bound.map(|it| (it.binding.process, it.binding.until, it.fencing));
        for (process, until, fencing) in stated.collect::<BTreeSet<_>>() {
            let binding = Binding {
                process,
                until,
                fence: fencing,
            };
            let bound = Bound {
                fencing,
                ..Bound::to(binding)
            };
            for said in obligations(&bound) {
                effects.tell(PROCESSES, &said);
            }
        }
    }
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
    let late = if is_late {
        " after a claim ran out"
    } else {
        ""
    };
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
    if let Message::Bind { to, .. } = message {
        Some(*to)
    } else {
        None
    }
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
        let known = Outcome::Departed {
            back: vec![Slot(3)],
            abandoned: Vec::new(),
            error: None,
        };
        let read: Outcome = crate::decode::from_slice(&old).expect("the old form decodes");
        assert_eq!(read, known);
        let written = rmp_serde::to_vec(&known).expect("an outcome encodes");
        assert_eq!(
            written, old,
            "a departure without a reason is encoded as in older versions"
        );
    }
}
