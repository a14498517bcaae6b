//! Answers requests that wait for a change of lock state.

use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Removal, Reply};
use crate::ids::Slot;
use crate::spine::machine::Effects;

impl LockMachine {
    /// Answers the requests that wait for this entry with `Absent`: it has ended, or it is being fenced.
    pub(super) fn wake_lost(&mut self, slot: Slot, effects: &mut Effects<Self>) {
        for ticket in self.waiting.take_on_slot(slot) {
            effects.wake(ticket, Reply::Absent);
        }
    }

    /// Answers the requests that wait for entries that ended or inherited a lock and, if no entry is left, those that wait for that.
    pub(super) fn wake(&mut self, gone: &[Removal], effects: &mut Effects<Self>) {
        if self.waiting.is_anybody_on_slots() {
            for Removal { slot, heir } in gone {
                self.wake_lost(*slot, effects);
                // The heir itself may have ended in the same outcome.
                for slot in heir
                    .iter()
                    .filter(|slot| self.state.entries.get(**slot).is_some())
                {
                    for ticket in self.waiting.take_on_slot(*slot) {
                        effects.wake(ticket, self.standing(*slot));
                    }
                }
            }
        }
        self.wake_if_empty(effects);
    }

    pub(super) fn wake_if_empty(&mut self, effects: &mut Effects<Self>) {
        if self.state.entries.is_empty() {
            for ticket in self.waiting.take_until_empty() {
                effects.wake(ticket, Reply::Due);
            }
        }
    }
}
