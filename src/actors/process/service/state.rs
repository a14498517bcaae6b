//! All services, and their indexes.

use crate::actors::process::service::item::Service;
use crate::clock::{Now, Timestamp};
use crate::ids::{ProcessId, Slot, Ticket};
use crate::lookup::durable::{DurableSlab, Loaded};
use std::collections::{BTreeMap, BTreeSet};

/// The lowest timer item that belongs to a service; lower ones are the slots of process records. A timer item is the number by which the
/// host identifies the owner of a deadline.
const ITEMS: u64 = 1 << 32;

/// Returns the timer item of the service in this slot.
pub(in crate::actors::process) fn item_of(slot: Slot) -> u64 {
    ITEMS + u64::from(slot.0)
}

/// Returns the slot of the service with this timer item; `None` if the item belongs to a record.
pub(in crate::actors::process) fn slot_of(item: u64) -> Option<Slot> {
    let slot = item.checked_sub(ITEMS)?;
    u32::try_from(slot).ok().map(Slot)
}

#[derive(Debug, Default)]
pub(in crate::actors::process) struct Services {
    pub(in crate::actors::process) kept: DurableSlab<Service>,
    pub(super) names: BTreeMap<String, Slot>,
    /// For each process of a service: the slot of that service, and the instance number, from 0.
    processes: BTreeMap<ProcessId, (Slot, usize)>,
    /// The services that have a next step, ordered by when that step is due.
    pub(super) due: BTreeSet<(Timestamp, Slot)>,
    /// The services whose due step panicked. They are exempt from further steps until they change.
    pub(super) quarantined: BTreeSet<Slot>,
    /// Clients waiting for a service to settle, each with the name of that service; `None` if for all services.
    pub(super) waiting: BTreeMap<Ticket, Option<String>>,
}

impl Services {
    pub(super) fn get(&self, slot: Slot) -> &Service {
        let service = self.kept.get(slot);
        service.expect("the indexes should contain only existing services")
    }

    /// Returns the service with this name, and its slot; `None` if there is none.
    pub(super) fn named(&self, name: &str) -> Option<(Slot, &Service)> {
        let slot = *self.names.get(name)?;
        Some((slot, self.get(slot)))
    }

    /// Returns the slot of the service that a process belongs to, and the instance number of the process, from 0; `None` if it belongs to
    /// no service.
    pub(in crate::actors::process) fn of(&self, id: ProcessId) -> Option<(Slot, usize)> {
        self.processes.get(&id).copied()
    }

    /// Returns the slot of the service whose next step is due first, and the time at which it is due; `None` if no service has one.
    pub(in crate::actors::process) fn first(&self) -> Option<(Timestamp, Slot)> {
        self.due.first().copied()
    }

    /// Returns the service whose next step is due first; `None` if no step is due yet.
    pub(in crate::actors::process) fn due(&self, now: Now) -> Option<Slot> {
        let first = self.first().filter(|(at, _)| *at <= now.at);
        first.map(|(_, slot)| slot)
    }

    pub(in crate::actors::process) fn is_quarantined(&self, slot: Slot) -> bool {
        self.quarantined.contains(&slot)
    }

    /// Exempts a service whose due step panicked from further steps until the service changes.
    pub(in crate::actors::process) fn quarantine(&mut self, slot: Slot) {
        self.due.retain(|(_, due)| *due != slot);
        self.quarantined.insert(slot);
    }

    /// Adds the services of a page. Pages must be added in ascending order.
    pub(in crate::actors::process) fn load(&mut self, page: Loaded<Service>) {
        self.kept.load(page);
    }

    /// Builds all indexes except that of due steps.
    pub(in crate::actors::process) fn build(&mut self) {
        let slots: Vec<Slot> = self.kept.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.enter(slot);
        }
    }

    pub(super) fn enter(&mut self, slot: Slot) {
        let service = self.kept.get(slot).expect("the slot should contain a service");
        self.names.insert(service.definition.name.clone(), slot);
        for (nth, instance) in service.instances.iter().enumerate() {
            if let Some(id) = instance.process {
                self.processes.insert(id, (slot, nth));
            }
        }
        self.quarantined.remove(&slot);
    }

    pub(super) fn leave(&mut self, slot: Slot) {
        let service = self.kept.get(slot).expect("the service should not have been removed yet");
        self.names.remove(&service.definition.name);
        for id in service.instances.iter().filter_map(|it| it.process) {
            self.processes.remove(&id);
        }
    }

    /// Returns the contents of the indexes, for comparison with a fresh build.
    #[cfg(test)]
    #[expect(clippy::type_complexity, reason = "a tuple of three indexes, used only by tests")]
    pub(in crate::actors::process) fn indexes(
        &self,
    ) -> (&BTreeMap<String, Slot>, &BTreeMap<ProcessId, (Slot, usize)>, &BTreeSet<(Timestamp, Slot)>)
    {
        (&self.names, &self.processes, &self.due)
    }
}
