//! Who waited for what has become of locks, and is told.

use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Gone, Reply};
use crate::ids::Slot;
use crate::spine::machine::Effects;

impl LockMachine {
    /// Who waits for what becomes of this entry is told that it does not own its lock.
    pub(super) fn wake_lost(&mut self, slot: Slot, effects: &mut Effects<Self>) {
        for ticket in self.waiting.take_on_slot(slot) {
            effects.wake(ticket, Reply::Absent);
        }
    }

    /// Entries have ended, and others own their locks now.
    pub(super) fn wake(&mut self, gone: &[Gone], effects: &mut Effects<Self>) {
        if self.waiting.is_anybody_on_slots() {
            for Gone { slot, heir } in gone {
                self.wake_lost(*slot, effects);
                // An heir may have ended in its turn.
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
