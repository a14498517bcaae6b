//! Who waits for something about locks. Volatile: the host states it again after a rebuild, and nobody waits on beyond
//! the end of the process.

use crate::ids::{Slot, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// Tickets by what they wait for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    until_empty: BTreeSet<Ticket>,
    /// For the entry in a slot to own its lock, or to end. Mostly one, so that many waiters for one lock cost no more
    /// than each its own.
    on_slot: BTreeMap<Slot, Vec<Ticket>>,
    slot_of: BTreeMap<Ticket, Slot>,
}

impl Waiting {
    /// Waits until no entry is left.
    pub(super) fn until_empty(&mut self, ticket: Ticket) {
        self.until_empty.insert(ticket);
    }

    /// Waits for what becomes of an entry.
    pub(super) fn on_slot(&mut self, ticket: Ticket, slot: Slot) {
        if self.slot_of.insert(ticket, slot).is_none() {
            self.on_slot.entry(slot).or_default().push(ticket);
        }
    }

    /// Waits no longer.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        self.until_empty.remove(&ticket);
        let Some(slot) = self.slot_of.remove(&ticket) else {
            return;
        };
        if let Some(tickets) = self.on_slot.get_mut(&slot) {
            tickets.retain(|other| *other != ticket);
            if tickets.is_empty() {
                self.on_slot.remove(&slot);
            }
        }
    }

    /// Whether anybody waits for what becomes of an entry.
    pub(super) fn is_anybody_on_slots(&self) -> bool {
        !self.on_slot.is_empty()
    }

    /// Who waited for what becomes of this entry, first come first, and waits no longer.
    pub(super) fn take_on_slot(&mut self, slot: Slot) -> Vec<Ticket> {
        let tickets = self.on_slot.remove(&slot).unwrap_or_default();
        for ticket in &tickets {
            self.slot_of.remove(ticket);
        }
        tickets
    }

    /// Who waited until no entry is left, and waits no longer.
    pub(super) fn take_until_empty(&mut self) -> BTreeSet<Ticket> {
        std::mem::take(&mut self.until_empty)
    }
}
