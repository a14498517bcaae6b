//! The node's view of services, compared with the true state of the machine.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a query about services has one kind of answer"
)]

use super::kernel::Kernel;
use super::machine::Machine;
use super::port::Port;
use crate::actor::Actor;
use crate::processes::Processes;
use crate::setting::Plant;
use crate::violation::{Promise, Violation, ensure};
use sexton::actors::process::{
    Announced, InstanceView, Phase, ProcessMachine, Query, RecordView, Reply, ServiceView, Status,
    View, Watch,
};
use sexton::clock::Now;
use sexton::ids::ProcessId;
use sexton::spine::Host;
use sexton::spine::machine::{Machine as _, Observable as _};
use std::collections::BTreeMap;

/// Checks that no instance of a service has two processes.
pub(super) fn check_one_each(machine: &Machine) -> Result<(), Violation> {
    let mut living = BTreeMap::new();
    for id in leaders(&machine.kernel) {
        let place = machine.places.get(&id);
        let Some(place) = place.filter(|_| !machine.given_up.contains(&id)) else {
            continue;
        };
        if let Some(other) = living.insert(place, id) {
            let what = format!("{place} has the processes {other} and {id}");
            return Err(Violation::new(Promise::OneEach, what));
        }
    }
    Ok(())
}

/// Returns the attempts whose own process is alive.
fn leaders(kernel: &Kernel) -> impl Iterator<Item = ProcessId> {
    kernel.processes.values().filter_map(|it| it.leads)
}

/// Checks that a service that is shown as ready has reported that it is ready.
pub(super) fn check_ready(machine: &Machine, record: &RecordView) -> Result<(), Violation> {
    let right = record.announced != Announced::Ready || machine.ready.contains(&record.id);
    ensure(right, Promise::ReadyTrue, || format!("it never reported that it is ready: {record:?}"))
}

impl Port {
    /// Checks, once everything has settled, that each service is in its intended state, or waits for an event that will
    /// happen.
    pub(crate) fn check_services(
        &self,
        actor: &Actor<Processes>,
        now: Now,
    ) -> Result<(), Violation> {
        let host = &actor.host;
        let mut room = self.room();
        let machine = &*room.machine();
        let is_stuck = !host.quarantined().is_empty();
        if host.is_spent() || is_stuck && machine.plant != Some(Plant::ServiceForgotten) {
            return Ok(());
        }
        let services = services(host, now);
        let records = host.machine().view();
        for service in &services {
            let right =
                service.instances.iter().all(|it| stands_right((service, it), &records, &services));
            ensure(right, Promise::KeptUp, || {
                format!("it is not in its intended state at {now:?}: {service:?}")
            })?;
        }
        check_strays(machine, &services)?;
        nobody_waits_in_vain(actor, &services)
    }
}

fn services(host: &Host<ProcessMachine>, now: Now) -> Vec<ServiceView> {
    match host.machine().query(now, &Query::Services(None)) {
        Reply::Services(views) => views,
        _ => unreachable!("services are shown"),
    }
}

/// Returns whether an instance is in its intended state, or changes only with time, other services or its own process.
fn stands_right(
    (service, it): (&ServiceView, &InstanceView),
    records: &View,
    all: &[ServiceView],
) -> bool {
    let is_up = service.listed && service.wanted;
    let record = it.process.and_then(|id| records.get(&id));
    match it.status {
        Status::Running => is_up && record.is_some_and(|it| it.phase == Phase::Running),
        // The process is running, but has not reported that it is ready.
        Status::Starting => is_up && record.is_some_and(|it| it.phase == Phase::Running),
        Status::Stopping => {
            let stopped = record.is_some_and(|it| it.stop.is_some());
            let leaves = record.is_some_and(|it| it.announced == Announced::Leaving);
            stopped || is_up && leaves || is_behind_another(service, all)
        }
        Status::Backoff => is_up && record.is_none() && it.next.is_some(),
        Status::Waiting => is_up && record.is_none() && !service.waits_for.is_empty(),
        Status::Finished | Status::Failed => record.is_none(),
        Status::Stopped => !is_up && record.is_none(),
    }
}

/// Returns whether a service that was started after this one is still stopping. It must end first.
fn is_behind_another(service: &ServiceView, all: &[ServiceView]) -> bool {
    let mut later = all.iter().filter(|it| it.after.contains(&service.name));
    later.any(|it| {
        let mut instances = it.instances.iter();
        instances.any(|it| it.status == Status::Stopping)
    })
}

/// Checks that each live process of a service is the one that its instance has on record.
fn check_strays(machine: &Machine, services: &[ServiceView]) -> Result<(), Violation> {
    let instances = services.iter().flat_map(|it| &it.instances);
    let known: BTreeMap<_, _> = instances.map(|it| (it.run_dir.as_str(), it.process)).collect();
    for id in leaders(&machine.kernel) {
        let place = machine.places.get(&id);
        let Some(place) = place.filter(|_| !machine.given_up.contains(&id)) else {
            continue;
        };
        let its = known.get(place.as_str()).copied().flatten();
        ensure(its == Some(id), Promise::KeptUp, || {
            format!("{id} runs for {place}, which has {its:?}")
        })?;
    }
    Ok(())
}

fn nobody_waits_in_vain(
    actor: &Actor<Processes>,
    services: &[ServiceView],
) -> Result<(), Violation> {
    let rests = |it: &InstanceView| {
        matches!(it.status, Status::Running | Status::Finished | Status::Failed | Status::Stopped)
    };
    for wait in actor.waits.values().filter(|wait| wait.answer.is_none()) {
        let Watch::Services(name) = &wait.watch else {
            continue;
        };
        let mut meant =
            services.iter().filter(|it| name.as_ref().is_none_or(|name| it.name == *name));
        let goes_on = meant.any(|it| !it.listed || !it.instances.iter().all(rests));
        ensure(goes_on, Promise::Woken, || {
            format!("{name:?} is waited for, but {services:?} make no progress")
        })?;
    }
    Ok(())
}
