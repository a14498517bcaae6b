//! Locks that other actors hold for their own use, under keys that clients cannot lock.

use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Hold, LockState, Name, Outcome, Removal, ToHolder};
use crate::ids::Slot;
use crate::spine::effect::To;
use crate::spine::machine::Effects;

impl LockMachine {
    /// Decides another actor's request for a lock: a new entry is granted the lock or queued, and an existing entry is
    /// renewed. `entries_max` does not apply: the state of the other actor bounds the number of such locks.
    pub(super) fn decide_hold(&self, hold: &Hold) -> Outcome {
        let [key, index, owner] = [&hold.key, &hold.index, &hold.owner].map(Name::as_bytes);
        if let Some(slot) = self.state.find(key, index, owner) {
            return self.renewed(slot);
        }
        let slot = self.state.entries.next_free();
        match self.state.holder(key, index) {
            None => Outcome::Granted { slot },
            Some(holder) => {
                let place = self.state.place_of_new_contender(holder, 0, self.rules.high_first);
                Outcome::Queued { slot, place }
            }
        }
    }

    pub(super) fn decide_yield(&self, hold: &Hold) -> Outcome {
        let [key, index, owner] = [&hold.key, &hold.index, &hold.owner].map(Name::as_bytes);
        let Some(slot) = self.state.find(key, index, owner) else {
            return Outcome::Absent;
        };
        let heir = self.heirs(slot).next();
        let gone = vec![Removal { slot, heir }];
        Outcome::Ended { gone }
    }

    /// Tells the actor to which an entry is tied whether the entry owns its lock or waits for it. Does nothing for an
    /// entry that is not tied to an actor.
    pub(super) fn tell_holder(&self, slot: Slot, effects: &mut Effects<Self>) {
        let entry = self.state.entries.get(slot);
        if let Some((entry, by)) = entry.and_then(|it| Some((it, it.tie().actor()?))) {
            let name = |bytes: &[u8]| Name::new(bytes).unwrap_or_default();
            let held = LockState {
                key: name(entry.key()),
                index: name(entry.index()),
                owner: name(entry.owner()),
                granted: entry.is_owner(),
            };
            effects.tell(To::new(by), &ToHolder::Held(held));
        }
    }
}
