//! Requests that wait for a lock entry to change, or until no entries are left. They are volatile: the host adds them
//! again after it has rebuilt the machine, and they do not survive a restart of the server.

use crate::ids::{Slot, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// Waiting requests, grouped by the condition that they wait for.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    until_empty: BTreeSet<Ticket>,
    /// Requests that wait until the entry in a slot is granted its lock, loses it or ends. Each contender has its own
    /// slot, so a slot usually has only one such request, even if many clients wait for the same lock.
    on_slot: BTreeMap<Slot, Vec<Ticket>>,
    slot_of: BTreeMap<Ticket, Slot>,
}

impl Waiting {
    /// Adds a request that waits until no entries are left.
    pub(super) fn until_empty(&mut self, ticket: Ticket) {
        self.until_empty.insert(ticket);
    }

    /// Adds a request that waits until the entry in this slot is granted its lock, loses it or ends.
    pub(super) fn on_slot(&mut self, ticket: Ticket, slot: Slot) {
        if self.slot_of.insert(ticket, slot).is_none() {
            self.on_slot.entry(slot).or_default().push(ticket);
        }
    }

    /// Removes a request if it is still waiting.
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

    /// Returns whether any request is waiting for an entry to change.
    pub(super) fn has_slot_waiters(&self) -> bool {
        !self.on_slot.is_empty()
    }

    /// Removes the requests that wait for the entry in this slot to change, and returns them in the order in which they
    /// were added.
    pub(super) fn take_on_slot(&mut self, slot: Slot) -> Vec<Ticket> {
        let tickets = self.on_slot.remove(&slot).unwrap_or_default();
        for ticket in &tickets {
            self.slot_of.remove(ticket);
        }
        tickets
    }

    /// Removes and returns the requests that wait until no entries are left.
    pub(super) fn take_until_empty(&mut self) -> BTreeSet<Ticket> {
        std::mem::take(&mut self.until_empty)
    }
}
