//! Clients that wait until a record meets a condition. The host identifies each wait by a ticket. Waits are volatile: the host registers
//! them again after the machine has been rebuilt.

use crate::actors::process::reply::Watch;
use crate::ids::{ProcessId, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// The waits, by record.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    watches: BTreeMap<Ticket, Watch>,
    by_id: BTreeSet<(ProcessId, Ticket)>,
}

impl Waiting {
    /// Adds a wait for a condition of this record, replacing an earlier wait with the same ticket.
    pub(super) fn watch(&mut self, ticket: Ticket, id: ProcessId, watch: Watch) {
        self.forget(ticket);
        self.by_id.insert((id, ticket));
        self.watches.insert(ticket, watch);
    }

    /// Ends the wait with this ticket, if there is one.
    pub(super) fn forget(&mut self, ticket: Ticket) {
        if let Some(id) = self.watches.remove(&ticket).and_then(|it| it.id()) {
            self.by_id.remove(&(id, ticket));
        }
    }

    /// Returns all waits.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Watch> {
        self.watches.values()
    }

    /// Returns the waits for a condition of this record.
    pub(super) fn of(&self, id: ProcessId) -> Vec<(Ticket, Watch)> {
        let all = (id, Ticket(0))..=(id, Ticket(u64::MAX));
        let tickets = self.by_id.range(all).map(|(_, ticket)| *ticket);
        let found = tickets.filter_map(|it| Some((it, self.watches.get(&it)?.clone())));
        found.collect()
    }
}
