//! Determines the next step of each service, and applies changes to services.
//!
//! The next step is derived only from the services and the records of their processes, and is not stored: when the machine has been rebuilt
//! from a snapshot and the journal, each service continues where it left off.

use crate::actors::process::record::Record;
use crate::actors::process::service::item::{Service, Verdict};
use crate::actors::process::state::State;
use crate::clock::Timestamp;
use crate::ids::{ProcessId, Seq, Slot};

/// The next step of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Next {
    /// Remove the service.
    Remove,
    /// Stop this process.
    Stop(ProcessId),
    /// Launch the process of the instance with this number, from 0.
    Launch(usize),
}

impl State {
    pub(super) fn add_service(&mut self, entry: Seq, slot: Slot, service: Service) {
        let change = self.pages.by(entry);
        self.services.kept.insert(change, slot, service);
        self.services.enter(slot);
    }

    pub(super) fn change_service(
        &mut self,
        entry: Seq,
        slot: Slot,
        make: impl FnOnce(&mut Service),
    ) {
        self.services.leave(slot);
        let change = self.pages.by(entry);
        self.services.kept.change(change, slot, make);
        self.services.enter(slot);
    }

    pub(super) fn remove_service(&mut self, entry: Seq, slot: Slot) {
        self.services.leave(slot);
        let change = self.pages.by(entry);
        self.services.kept.remove(change, slot);
        self.services.quarantined.remove(&slot);
    }

    /// Recomputes when the next step of each service is due, except for quarantined services. Called after every entry that changed a
    /// service or the process of a service.
    pub(in crate::actors::process) fn settle_services(&mut self) {
        let services = &self.services;
        let each = services.kept.iter().map(|(slot, _)| slot);
        let each = each.filter(|slot| !services.quarantined.contains(slot));
        let due = each.filter_map(|slot| Some((self.next_of(slot)?.0, slot)));
        self.services.due = due.collect();
    }

    /// Returns the next step of a service, and when it is due; `None` if there is nothing to do.
    pub(super) fn next_of(&self, slot: Slot) -> Option<(Timestamp, Next)> {
        const AT_ONCE: Timestamp = Timestamp(0);
        let service = self.services.get(slot);
        if !service.listed && service.is_empty() {
            return Some((AT_ONCE, Next::Remove));
        }
        if let Some(id) = self.first_to_stop(service) {
            return Some((AT_ONCE, Next::Stop(id)));
        }
        if !service.is_up() || !self.is_ready_for(service) {
            return None;
        }
        let places = service.instances.iter().enumerate().take(service.size());
        let idle = places.filter(|(_, it)| it.process.is_none() && it.verdict.is_none());
        let steps = idle.map(|(nth, it)| (it.next.unwrap_or(AT_ONCE), Next::Launch(nth)));
        steps.min()
    }

    /// Returns the first of a service's processes that must be stopped and is not being stopped yet; `None` if there is no such process, or
    /// if services that depend on this one must end first.
    fn first_to_stop(&self, service: &Service) -> Option<ProcessId> {
        let mut all = service.instances.iter().filter_map(|it| it.process);
        let is_left = |it: &Record| it.end.is_some() && !it.is_stopped_with_tree();
        if let Some(id) = all.find(|id| is_left(self.record_of(*id))) {
            // What an ended process left does not serve anybody.
            return Some(id);
        }
        let ending = service.instances.iter().enumerate();
        let ending = ending.filter(|(nth, _)| service.is_to_end(*nth));
        let mut ids = ending.filter_map(|(_, it)| it.process);
        let id = ids.find(|id| self.record_of(*id).rare.stop.is_none())?;
        let name = &service.definition.name;
        let others = self.services.kept.iter().map(|(_, other)| other);
        let mut later = others.filter(|other| other.definition.after.contains(name));
        // A service whose processes have all survived SIGKILL does not delay others.
        let is_ending = |other: &Service| {
            let mut ids = other.instances.iter().filter_map(|it| it.process);
            let is_stuck = |id| self.record_of(id).rare.stuck.is_some();
            other.is_ending() && !ids.all(is_stuck)
        };
        (!later.any(is_ending)).then_some(id)
    }

    /// Returns the record of a service's process.
    pub(super) fn record_of(&self, id: ProcessId) -> &Record {
        let found = self.find(id);
        found.expect("the current process of a service should have a record").1
    }

    /// Returns whether a process of a service is being stopped.
    pub(super) fn is_being_stopped(&self, service: &Service) -> bool {
        let mut ids = service.instances.iter().filter_map(|it| it.process);
        ids.any(|id| self.record_of(id).rare.stop.is_some())
    }

    /// Returns whether a service can be launched, because none of the services in its `after` list must be waited for.
    pub(super) fn is_ready_for(&self, service: &Service) -> bool {
        self.awaited_by(service).next().is_none()
    }

    /// Returns the names of the services that must be waited for: those in the `after` list that should be up, but are neither ready nor
    /// finished.
    pub(super) fn awaited_by<'a>(&'a self, service: &'a Service) -> impl Iterator<Item = &'a str> {
        let names = service.definition.after.iter();
        let found = names.filter_map(|name| self.services.named(name));
        let missing = found.filter(|(_, other)| other.is_up() && !self.has_come_up(other));
        missing.map(|(_, other)| other.definition.name.as_str())
    }

    /// Returns whether each process of a service either is ready and need not be stopped, or has finished.
    fn has_come_up(&self, service: &Service) -> bool {
        let mut places = service.instances.iter().enumerate().take(service.size());
        places.all(|(nth, it)| match it.process {
            None => it.verdict == Some(Verdict::Finished),
            Some(id) => self.record_of(id).is_ready() && !service.is_to_end(nth),
        })
    }
}
