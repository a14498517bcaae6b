//! Who waits for something of a record. Volatile: the host states it again after a rebuild.

use crate::actors::process::reply::Watch;
use crate::ids::{ProcessId, Ticket};
use std::collections::{BTreeMap, BTreeSet};

/// Tickets, by record.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    watches: BTreeMap<Ticket, Watch>,
    by_id: BTreeSet<(ProcessId, Ticket)>,
}

impl Waiting {
    /// Begins to wait for something of this record, in the place of what the ticket stood for.
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

    /// Everything that is waited for.
    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = &Watch> {
        self.watches.values()
    }

    /// Those who wait for something of this record.
    pub(super) fn of(&self, id: ProcessId) -> Vec<(Ticket, Watch)> {
        let all = (id, Ticket(0))..=(id, Ticket(u64::MAX));
        let tickets = self.by_id.range(all).map(|(_, ticket)| *ticket);
        let found = tickets.filter_map(|it| Some((it, self.watches.get(&it)?.clone())));
        found.collect()
    }
}
