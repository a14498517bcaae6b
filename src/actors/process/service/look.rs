//! Queries about services, and clients waiting for services to settle. A service has settled if each of its processes is running and ready,
//! is down and will not be launched without a further request, could not be launched and waits for the next attempt, or waits for a service
//! that has failed.

use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::outcome::Refused;
use crate::actors::process::record::{Announced, Phase};
use crate::actors::process::reply::Reply;
use crate::actors::process::secret::masked;
use crate::actors::process::service::item::{Instance, Service, Verdict};
use crate::actors::process::service::view::{InstanceView, ServiceView, Status};
use crate::clock::{Now, Timestamp};
use crate::ids::Ticket;
use crate::spine::machine::{Effects, Gauge};

impl ProcessMachine {
    /// Returns the views of all services, ordered by name, or of the one with this name. Refuses a name that no service has.
    pub(in crate::actors::process) fn look_at_services(
        &self,
        now: Now,
        name: Option<&str>,
    ) -> Reply {
        let services = &self.state.services;
        let Some(name) = name else {
            let slots = services.names.values();
            let views = slots.map(|slot| self.service_view(now, services.get(*slot)));
            return Reply::Services(views.collect());
        };
        match services.named(name) {
            Some((_, service)) => Reply::Services(vec![self.service_view(now, service)]),
            None => Reply::Refused(Refused::NoService),
        }
    }

    fn service_view(&self, now: Now, service: &Service) -> ServiceView {
        let definition = &service.definition;
        let instances: Vec<_> = (0..service.instances.len())
            .filter_map(|nth| self.instance_view(now, service, nth))
            .collect();
        let statuses = instances.iter().map(|it| it.status);
        let waits_for = self.state.awaited_by(service).map(str::to_owned);
        ServiceView {
            name: definition.name.clone(),
            status: statuses.max().unwrap_or_default(),
            wanted: service.wanted && !service.held,
            listed: service.listed,
            argv: masked(&definition.spec.argv),
            restart: definition.restart,
            intensity: definition.intensity,
            after: definition.after.clone(),
            waits_for: waits_for.collect(),
            instances,
        }
    }

    fn instance_view(&self, now: Now, service: &Service, nth: usize) -> Option<InstanceView> {
        let instance = service.instances.get(nth)?;
        let record = instance.process.map(|id| self.state.record_of(id));
        let period_ms = service.definition.intensity.map_or(0, |it| it.period_ms);
        let next = instance.next.filter(|at| *at > now.at);
        Some(InstanceView {
            number: nth + 1,
            status: self.status_of(service, nth, now.at),
            process: instance.process,
            pid: record.and_then(|it| it.identity).map(|it| it.pid),
            started: record.and_then(|it| it.started),
            said: record.and_then(|it| it.rare.said.clone()),
            restarts: instance.recent(now.at, period_ms).count(),
            next: next.map(|at| now.offset.date(at)),
            last: instance.last.clone(),
            run_dir: service.definition.run_dir(nth),
        })
    }

    fn status_of(&self, service: &Service, nth: usize, now: Timestamp) -> Status {
        let Some(instance) = service.instances.get(nth) else {
            return Status::Stopped;
        };
        if let Some(id) = instance.process {
            return match self.state.record_of(id).phase {
                _ if service.is_to_end(nth) => Status::Stopping,
                Phase::Running if self.state.record_of(id).announced == Announced::Leaving => {
                    Status::Stopping
                }
                Phase::Running if self.state.record_of(id).is_ready() => Status::Running,
                Phase::Queued | Phase::Running => Status::Starting,
                Phase::Stopping | Phase::Exited => Status::Stopping,
            };
        }
        match instance.verdict {
            Some(Verdict::Finished) => Status::Finished,
            Some(Verdict::Failed) => Status::Failed,
            None if !service.is_up() => Status::Stopped,
            None if instance.next.is_some_and(|at| at > now) => Status::Backoff,
            None if !self.state.is_ready_for(service) => Status::Waiting,
            None => Status::Starting,
        }
    }

    /// Returns `Done` if all services, or the one with this name, have settled, and a refusal if no service has this name; otherwise
    /// `None`. A service that waits for a failed one has settled, too; so has one that could not be launched, because a client should learn
    /// that at once: the next attempts usually fail as well.
    fn settled_reply(&self, name: Option<&str>) -> Option<Reply> {
        let services = &self.state.services;
        if let Some(name) = name {
            let Some((_, service)) = services.named(name) else {
                return Some(Reply::Refused(Refused::NoService));
            };
            return self.is_settled(service).then_some(Reply::Done);
        }
        let mut all = services.kept.iter();
        let still = all.all(|(_, service)| self.is_settled(service));
        still.then_some(Reply::Done)
    }

    fn is_settled(&self, service: &Service) -> bool {
        let is_settled = |nth: usize, it: &Instance| match it.process {
            Some(id) => !service.is_to_end(nth) && self.state.record_of(id).is_ready(),
            None => {
                it.verdict.is_some()
                    || !service.is_up()
                    || it.could_not_be_launched()
                    || self.waits_for_failed(service)
            }
        };
        let mut places = service.instances.iter().enumerate();
        service.listed && places.all(|(nth, it)| is_settled(nth, it))
    }

    /// Returns whether the service waits for one that has failed, directly or through another. Dependencies have no cycles, so the
    /// recursion ends.
    fn waits_for_failed(&self, service: &Service) -> bool {
        let services = &self.state.services;
        let mut awaited = self.state.awaited_by(service);
        awaited.any(|name| {
            let others = services.named(name);
            others.is_some_and(|(_, other)| {
                let failed = |it: &Instance| it.verdict == Some(Verdict::Failed);
                other.instances.iter().any(failed) || self.waits_for_failed(other)
            })
        })
    }

    /// Registers a client that waits for all services, or for the one with this name, to settle. Answers it immediately if they already
    /// have.
    pub(in crate::actors::process) fn watch_services(
        &mut self,
        ticket: Ticket,
        name: Option<&str>,
        effects: &mut Effects<Self>,
    ) {
        let waiting = &mut self.state.services.waiting;
        waiting.insert(ticket, name.map(str::to_owned));
        self.wake_for_services(effects);
    }

    pub(in crate::actors::process) fn unwatch_services(&mut self, ticket: Ticket) {
        self.state.services.waiting.remove(&ticket);
    }

    /// Answers the clients that wait for services which have now settled.
    pub(in crate::actors::process) fn wake_for_services(&mut self, effects: &mut Effects<Self>) {
        let waiting = self.state.services.waiting.iter();
        let answers = waiting.filter_map(|(ticket, name)| {
            let reply = self.settled_reply(name.as_deref())?;
            Some((*ticket, reply))
        });
        for (ticket, reply) in answers.collect::<Vec<_>>() {
            self.state.services.waiting.remove(&ticket);
            effects.wake(ticket, reply);
        }
    }

    /// Returns gauges for the number of services in total and with each status. A service whose restart delay has expired still counts as
    /// `Backoff` until its process is launched.
    pub(in crate::actors::process) fn service_gauges(&self) -> Vec<Gauge> {
        let services = self.state.services.kept.iter().map(|(_, service)| service);
        let statuses = services.map(|service| {
            let places = 0..service.instances.len();
            let each = places.map(|nth| self.status_of(service, nth, Timestamp(0)));
            each.max().unwrap_or_default()
        });
        let statuses: Vec<Status> = statuses.collect();
        let many = |status| statuses.iter().filter(|it| **it == status).count() as u64;
        let gauge = |name, help, value| Gauge { name, help, value };
        let mut gauges = vec![gauge("services", "services", statuses.len() as u64)];
        let each = Status::ALL.map(|status| {
            let (name, help) = gauge_of(status);
            gauge(name, help, many(status))
        });
        gauges.extend(each);
        gauges
    }
}

/// Returns the gauge for services with this status, and its help text.
const fn gauge_of(status: Status) -> (&'static str, &'static str) {
    match status {
        Status::Stopped => ("services_stopped", "services that are stopped as intended"),
        Status::Finished => ("services_finished", "services that have finished their work"),
        Status::Running => ("services_running", "running services"),
        Status::Waiting => ("services_waiting", "services waiting for others to be ready"),
        Status::Starting => ("services_starting", "services that are not ready yet"),
        Status::Stopping => ("services_stopping", "services being stopped"),
        Status::Backoff => ("services_backoff", "services waiting to be launched again"),
        Status::Failed => {
            ("services_failed", "services that failed and are not launched again automatically")
        }
    }
}
