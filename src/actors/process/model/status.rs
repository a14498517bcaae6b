//! The views of services in the model, and whether services have settled.

use super::Model;
use super::service::Served;
use sexton::actors::process::{
    Announced, InstanceView, Phase, Refused, Reply, ServiceView, Status, Verdict, masked,
};
use sexton::clock::Now;

impl Model {
    /// Returns the views of all services, ordered by name.
    pub(crate) fn services_as_shown(&self, now: Now) -> Vec<ServiceView> {
        let views = self.services.iter().map(|it| self.service_as_shown(it, now));
        let mut views: Vec<_> = views.collect();
        views.sort_by(|one, other| one.name.cmp(&other.name));
        views
    }

    fn service_as_shown(&self, it: &Served, now: Now) -> ServiceView {
        let places = 0..it.places.len();
        let instances: Vec<_> = places.map(|nth| self.instance(it, nth, now)).collect();
        let statuses = instances.iter().map(|it| it.status);
        let definition = &it.definition;
        let awaited = self.awaited(it);
        ServiceView {
            name: definition.name.clone(),
            status: statuses.max().unwrap_or_default(),
            wanted: it.wanted && !it.held,
            listed: it.listed,
            argv: masked(&definition.spec.argv),
            restart: definition.restart,
            intensity: definition.intensity,
            after: definition.after.clone(),
            waits_for: awaited.map(|it| it.definition.name.clone()).collect(),
            instances,
        }
    }

    fn instance(&self, it: &Served, nth: usize, now: Now) -> InstanceView {
        let place = it.place(nth);
        let record = place.process.and_then(|id| self.find(id));
        let view = record.map(|it| &it.view);
        let period_ms = it.definition.intensity.map_or(0, |it| it.period_ms);
        let restarts = place.restarts.iter();
        let run_dir = it.launching(nth).spec.run_dir.expect("a service has a run directory");
        InstanceView {
            number: nth + 1,
            status: self.status(it, nth, now),
            process: place.process,
            pid: view.and_then(|it| it.identity).map(|it| it.pid),
            started: view.and_then(|it| it.started),
            said: view.and_then(|it| it.said.clone()),
            restarts: restarts.filter(|at| at.0 + period_ms >= now.at.0).count(),
            next: place.next.filter(|at| *at > now.at).map(|at| now.offset.date(at)),
            last: place.last.clone(),
            run_dir: String::from_utf8_lossy(run_dir.as_bytes()).into_owned(),
        }
    }

    fn status(&self, it: &Served, nth: usize, now: Now) -> Status {
        let place = it.place(nth);
        if let Some(id) = place.process {
            let view = &self.find(id).expect("the process of a service has a record").view;
            let leaves = view.announced == Announced::Leaving;
            return match view.phase {
                Phase::Queued if !it.must_stop(nth) => Status::Starting,
                Phase::Running if !it.must_stop(nth) && !leaves => {
                    if self.is_ready(id) {
                        Status::Running
                    } else {
                        Status::Starting
                    }
                }
                Phase::Queued | Phase::Running | Phase::Stopping | Phase::Exited => {
                    Status::Stopping
                }
            };
        }
        match place.verdict {
            Some(Verdict::Finished) => Status::Finished,
            Some(Verdict::Failed) => Status::Failed,
            None if !it.is_up() => Status::Stopped,
            None if place.next.is_some_and(|at| at > now.at) => Status::Backoff,
            None if self.awaited(it).next().is_some() => Status::Waiting,
            None => Status::Starting,
        }
    }

    /// Returns the reply for a client that waits for all services, or for the one with this name, to settle: `Done` if they have settled, a
    /// refusal if no service has this name, and `None` if the client must keep waiting. A service has settled if it is configured and each
    /// of its processes is running and ready, or is down and will not be launched without a further request. A service that waits for a
    /// failed one has settled, too, and so has one that could not be launched and waits for the next attempt.
    pub(super) fn settled_reply(&self, name: Option<&str>) -> Option<Reply> {
        let all = self.services.iter();
        let mut meant = all.filter(|it| name.is_none_or(|name| it.definition.name == name));
        if name.is_some() && meant.clone().next().is_none() {
            return Some(Reply::Refused(Refused::NoService));
        }
        meant.all(|it| self.is_settled(it)).then_some(Reply::Done)
    }

    fn is_settled(&self, it: &Served) -> bool {
        let mut places = it.places.iter().enumerate();
        it.listed
            && places.all(|(nth, place)| match place.process {
                Some(id) => !it.must_stop(nth) && self.is_ready(id),
                None => {
                    let failed = place.last.as_ref().is_some_and(|it| it.failure.is_some());
                    place.verdict.is_some()
                        || !it.is_up()
                        || failed && place.next.is_some()
                        || self.waits_for_failed(it)
                }
            })
    }

    fn waits_for_failed(&self, it: &Served) -> bool {
        self.awaited(it).any(|other| {
            let mut places = other.places.iter();
            places.any(|place| place.verdict == Some(Verdict::Failed))
                || self.waits_for_failed(other)
        })
    }
}
