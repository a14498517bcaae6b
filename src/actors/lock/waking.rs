//! Answers requests that wait for a lock to change state.

use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Removal, Reply};
use crate::ids::Slot;
use crate::spine::machine::Effects;

impl LockMachine {
    /// Answers `Absent` to all requests that wait for this entry to change, because the entry has ended or is being
    /// fenced.
    pub(super) fn wake_lost(&mut self, slot: Slot, effects: &mut Effects<Self>) {
        for ticket in self.waiting.take_on_slot(slot) {
            effects.wake(ticket, Reply::Absent);
        }
    }

    /// Answers the requests that wait for one of the removed entries in `gone`, or for the heir of one. If no entries
    /// are left, also answers all `Watch::Empty` requests.
    pub(super) fn wake(&mut self, gone: &[Removal], effects: &mut Effects<Self>) {
        if self.waiting.has_slot_waiters() {
            for Removal { slot, heir } in gone {
                self.wake_lost(*slot, effects);
                // The same outcome may have removed the heir, too.
                for slot in heir.iter().filter(|slot| self.state.entries.get(**slot).is_some()) {
                    for ticket in self.waiting.take_on_slot(*slot) {
                        effects.wake(ticket, self.position_reply(*slot));
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
