//! Requests that wait for a change of lock state. Volatile: the host adds them again after a rebuild, and they do not
//! survive a restart of the server.

use crate::ids::{Slot, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// Waiting requests, by their condition.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    until_empty: BTreeSet<Ticket>,
    /// Requests that wait until the entry in a slot is granted its lock, loses it or ends. Each contender has its own
    /// slot, so a slot usually has only one such request, even if many clients wait for the same lock.
    on_slot: BTreeMap<Slot, Vec<Ticket>>,
    slot_of: BTreeMap<Ticket, Slot>,
}

impl Waiting {
    /// Adds a request that waits until no entry is left.
    pub(super) fn until_empty(&mut self, ticket: Ticket) {
        self.until_empty.insert(ticket);
    }

    /// Adds a request that waits until an entry is granted its lock, loses it or ends.
    pub(super) fn on_slot(&mut self, ticket: Ticket, slot: Slot) {
        if self.slot_of.insert(ticket, slot).is_none() {
            self.on_slot.entry(slot).or_default().push(ticket);
        }
    }

    /// Removes a request, if it still waits.
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

    /// Returns whether any request waits for an entry.
    pub(super) fn is_anybody_on_slots(&self) -> bool {
        !self.on_slot.is_empty()
    }

    /// Removes the requests that wait for this entry and returns them in the order in which they were added.
    pub(super) fn take_on_slot(&mut self, slot: Slot) -> Vec<Ticket> {
        let tickets = self.on_slot.remove(&slot).unwrap_or_default();
        for ticket in &tickets {
            self.slot_of.remove(ticket);
        }
        tickets
    }

    /// Removes the requests that wait until no entry is left and returns them.
    pub(super) fn take_until_empty(&mut self) -> BTreeSet<Ticket> {
        std::mem::take(&mut self.until_empty)
    }
}
