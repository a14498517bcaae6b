//! Clients waiting for a condition of a record. Volatile: the host restates the waits after a rebuild.

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
    /// Adds a wait for this record, replacing an earlier one of the same ticket.
    pub(super) fn watch(&mut self, ticket: Ticket, id: ProcessId, watch: Watch) {
        self.forget(ticket);
        self.by_id.insert((id, ticket));
        self.watches.insert(ticket, watch);
    }

    /// Ends a wait.
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

    /// Returns the waits for this record.
    pub(super) fn of(&self, id: ProcessId) -> Vec<(Ticket, Watch)> {
        let all = (id, Ticket(0))..=(id, Ticket(u64::MAX));
        let tickets = self.by_id.range(all).map(|(_, ticket)| *ticket);
        let found = tickets.filter_map(|it| Some((it, self.watches.get(&it)?.clone())));
        found.collect()
    }
}
