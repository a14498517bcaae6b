//! Entries that are bound to processes, and end with them.

use crate::actors::binding::{self, Binding, EndNotice, PROCESSES, ToProcesses, Until};
use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Outcome, Removal};
use crate::actors::lock::state::State;
use crate::ids::Slot;
use crate::spine::machine::{Effects, Machine as _};
use std::collections::BTreeSet;

impl State {
    /// Returns the contenders and the owners that end with a process, at most `most` of them, contenders first.
    pub(super) fn ended_by(&self, notice: EndNotice, most: usize) -> (BTreeSet<Slot>, Vec<Slot>) {
        let of = |is_owner: bool| {
            let untils = [Until::Process, Until::Tree].into_iter();
            let untils = untils.filter(|until| notice.ends(*until));
            untils.flat_map(move |until| {
                let first = (notice.process, until, is_owner, Slot(0));
                let last = (notice.process, until, is_owner, Slot(u32::MAX));
                self.bound.range(first..=last).map(|(.., slot)| *slot)
            })
        };
        let waiting: BTreeSet<Slot> = of(false).take(most).collect();
        let mut owners: Vec<Slot> = of(true).take(most - waiting.len()).collect();
        owners.sort_unstable();
        (waiting, owners)
    }

    /// Returns the entries bound to processes, by process and slot.
    pub(super) fn all_bound(&self) -> impl Iterator<Item = Slot> + '_ {
        let mut all: Vec<_> = self.bound.iter().map(|(of, .., slot)| (*of, *slot)).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, slot)| slot)
    }
}

impl LockMachine {
    /// Decides to end the entries bound to a process that has ended. Contenders end first, so that none of them inherits a lock.
    pub(super) fn decide_gone(&self, departed: EndNotice) -> Outcome {
        let part = self.rules.part.max(1) as usize;
        let (waiting, owners) = self.state.ended_by(departed, part);
        // An owner ends only with the last contenders of the process, so that these do not inherit its lock.
        let heir = |slot| self.heirs(slot).find(|heir| !waiting.contains(heir));
        let owners = owners.into_iter().map(|slot| Removal { slot, heir: heir(slot) });
        let contenders = waiting.iter().map(|slot| Removal { slot: *slot, heir: None });
        let gone: Vec<Removal> = contenders.chain(owners).collect();
        if gone.is_empty() { Outcome::Absent } else { Outcome::Ended { gone } }
    }

    /// Sends the `ProcessActor` a request to report the end of the process that an entry is bound to and, if the entry
    /// is being fenced, a request to kill the process tree.
    pub(super) fn send_binding(&self, slot: Slot, effects: &mut Effects<Self>) {
        let Some(entry) = self.state.entries.get(slot) else {
            return;
        };
        if let Some(Binding { process, until, .. }) = entry.bound() {
            let by = Self::ID;
            let watch = binding::Watch { by, process, until };
            effects.tell(PROCESSES, &ToProcesses::Watch(watch));
            if entry.is_fencing() {
                effects.tell(PROCESSES, &ToProcesses::Fence(process));
            }
        }
    }
}
