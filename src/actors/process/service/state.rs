//! All services, and where they are found.

use crate::actors::process::service::item::Service;
use crate::clock::{Now, Timestamp};
use crate::ids::{ProcessId, Slot, Ticket};
use crate::lookup::kept::{Kept, Loaded};
use std::collections::{BTreeMap, BTreeSet};

/// Where the items of services begin: those of records are below.
const ITEMS: u64 = 1 << 32;

/// The item of the service in this slot.
pub(in crate::actors::process) fn item_of(slot: Slot) -> u64 {
    ITEMS + u64::from(slot.0)
}

/// The slot of the service that an item is, if it is one.
pub(in crate::actors::process) fn slot_of(item: u64) -> Option<Slot> {
    let slot = item.checked_sub(ITEMS)?;
    u32::try_from(slot).ok().map(Slot)
}

/// All services.
#[derive(Debug, Default)]
pub(in crate::actors::process) struct Services {
    pub(in crate::actors::process) kept: Kept<Service>,
    pub(super) names: BTreeMap<String, Slot>,
    /// Their processes, with the number of each.
    processes: BTreeMap<ProcessId, (Slot, usize)>,
    /// What has a next step, by when.
    pub(super) due: BTreeSet<(Timestamp, Slot)>,
    /// What time failed to act on. It does again when the service changes.
    pub(super) quarantined: BTreeSet<Slot>,
    /// Who waits until services stand still: of this name, or all.
    pub(super) waiting: BTreeMap<Ticket, Option<String>>,
}

impl Services {
    pub(super) fn get(&self, slot: Slot) -> &Service {
        let service = self.kept.get(slot);
        service.expect("indexes lead to services that are there")
    }

    /// The service of this name.
    pub(super) fn named(&self, name: &str) -> Option<(Slot, &Service)> {
        let slot = *self.names.get(name)?;
        Some((slot, self.get(slot)))
    }

    /// The service that a process belongs to, and its number there.
    pub(in crate::actors::process) fn of(&self, id: ProcessId) -> Option<(Slot, usize)> {
        self.processes.get(&id).copied()
    }

    /// The service with the earliest step, and when that is due.
    pub(in crate::actors::process) fn first(&self) -> Option<(Timestamp, Slot)> {
        self.due.first().copied()
    }

    /// The service with the earliest step, if that is due.
    pub(in crate::actors::process) fn due(&self, now: Now) -> Option<Slot> {
        let first = self.first().filter(|(at, _)| *at <= now.at);
        first.map(|(_, slot)| slot)
    }

    pub(in crate::actors::process) fn is_quarantined(&self, slot: Slot) -> bool {
        self.quarantined.contains(&slot)
    }

    /// Takes a service out of what is due, until it changes.
    pub(in crate::actors::process) fn quarantine(&mut self, slot: Slot) {
        self.due.retain(|(_, due)| *due != slot);
        self.quarantined.insert(slot);
    }

    /// Puts the services of a page after all others.
    pub(in crate::actors::process) fn load(&mut self, page: Loaded<Service>) {
        self.kept.load(page);
    }

    /// Builds every index but what is due.
    pub(in crate::actors::process) fn build(&mut self) {
        let slots: Vec<Slot> = self.kept.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.enter(slot);
        }
    }

    pub(super) fn enter(&mut self, slot: Slot) {
        let service = self.kept.get(slot).expect("it was just put there");
        self.names.insert(service.definition.name.clone(), slot);
        for (nth, instance) in service.instances.iter().enumerate() {
            if let Some(id) = instance.process {
                self.processes.insert(id, (slot, nth));
            }
        }
        self.quarantined.remove(&slot);
    }

    pub(super) fn leave(&mut self, slot: Slot) {
        let service = self.kept.get(slot).expect("it is still there");
        self.names.remove(&service.definition.name);
        for id in service.instances.iter().filter_map(|it| it.process) {
            self.processes.remove(&id);
        }
    }

    /// What is in the indexes, to be compared with a fresh build.
    #[cfg(test)]
    #[expect(clippy::type_complexity, reason = "three indexes side by side")]
    pub(in crate::actors::process) fn indexes(
        &self,
    ) -> (
        &BTreeMap<String, Slot>,
        &BTreeMap<ProcessId, (Slot, usize)>,
        &BTreeSet<(Timestamp, Slot)>,
    ) {
        (&self.names, &self.processes, &self.due)
    }
}
