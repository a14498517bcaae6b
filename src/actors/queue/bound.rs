//! Claims that are bound to processes: they end when the process is gone, or its tree. One whose time runs out may have its
//! tree killed before the job is given on: it is `fencing` until then, and nobody's.

use crate::actors::binding::{self, Binding, Gone, PROCESSES, ToProcesses};
use crate::actors::queue::job::{Bound, Job};
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{Message, Outcome};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::spine::machine::{Effects, Machine as _, Stamp};
use std::collections::BTreeSet;

impl QueueMachine {
    /// A process is gone, and its claims with it.
    pub(super) fn decide_gone(&self, gone: Gone) -> Outcome {
        let ends = |slot: &Slot| {
            let bound = self.state.job(*slot).and_then(|job| job.story().binding());
            bound.is_some_and(|bound| gone.ends(bound.until))
        };
        self.given_back(self.state.of_process(gone.process).filter(ends))
    }

    /// Claims end without a word.
    pub(super) fn given_back(&self, claims: impl Iterator<Item = Slot>) -> Outcome {
        let is_last = |slot: &Slot| self.state.job(*slot).is_some_and(Job::is_last_try);
        let (abandoned, back): (Vec<Slot>, Vec<Slot>) = claims.partition(is_last);
        if back.is_empty() && abandoned.is_empty() {
            Outcome::Absent
        } else {
            Outcome::Departed { back, abandoned }
        }
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
        self.state_binding(slot, effects);
    }

    pub(super) fn commit_fence(&mut self, slot: Slot, stamp: Stamp, effects: &mut Effects<Self>) {
        self.state.change(slot, stamp.seq, |job| {
            if let Some(bound) = &mut job.story_mut().bound {
                bound.fencing = true;
            }
        });
        self.state_binding(slot, effects);
    }

    /// Asks to be told when the process of a claim is gone.
    pub(super) fn state_binding(&self, slot: Slot, effects: &mut Effects<Self>) {
        let story = self.state.job(slot).map(Job::story);
        let bound = story.and_then(|story| story.bound.as_ref());
        for said in bound.into_iter().flat_map(|bound| obligations(bound)) {
            effects.tell(PROCESSES, &said);
        }
    }

    /// States all that is to be watched, and killed, once each.
    pub(super) fn state_bindings(&self, effects: &mut Effects<Self>) {
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

/// What the `ProcessActor` is to do for a claim.
fn obligations(bound: &Bound) -> impl Iterator<Item = ToProcesses> + use<> {
    let Binding { process, until, .. } = bound.binding;
    let by = QueueMachine::ID;
    let watch = ToProcesses::Watch(binding::Watch { by, process, until });
    let fence = bound.fencing.then_some(ToProcesses::Fence(process));
    std::iter::once(watch).chain(fence)
}

/// The process that a message binds a claim to.
pub(super) const fn bound_by(message: &Message) -> Option<Binding> {
    if let Message::Bind { to, .. } = message {
        Some(*to)
    } else {
        None
    }
}
