//! The rules of services: decides what a message or a due step changes, without changing anything.

use crate::actors::process::insertion::Insertion;
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{End, Message};
use crate::actors::process::outcome::{Outcome, Refused, Turn};
use crate::actors::process::record::{Cause, Record};
use crate::actors::process::service::definition::{Definition, Policy};
use crate::actors::process::service::item::{Instance, Last, Service, Verdict};
use crate::actors::process::service::message;
use crate::actors::process::service::next::Next;
use crate::actors::process::service::step::{Consequence, Step};
use crate::actors::process::spec::Flaw;
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Moment;
use std::collections::BTreeSet;

/// The delay before a refused launch is tried again, in milliseconds. A launch is refused, for example, at the limit on live processes or
/// while the server is draining.
const DEFERRAL_MS: u64 = 5000;

impl Turn {
    fn of(steps: Vec<Step>) -> Outcome {
        if steps.is_empty() {
            return Outcome::Unchanged;
        }
        let process = None;
        Outcome::Service(Box::new(Self { process, steps }))
    }
}

impl ProcessMachine {
    /// Decides the outcome of a message about services, or refuses it.
    pub(in crate::actors::process) fn serve(
        &self,
        moment: &Moment,
        message: &message::Message,
    ) -> Result<Outcome, Refused> {
        use message::Message as Request;
        let steps = match message {
            Request::Configure(definitions) => self.configured(definitions)?,
            Request::Start(name) => {
                self.each(name.as_deref(), |slot, it| self.started(slot, it))?
            }
            Request::Stop(name) => {
                self.each(name.as_deref(), |slot, it| it.wanted.then_some(Step::Stopped { slot }))?
            }
            // A restart of all services affects only those that should be up. A service that is named is started even if it is down.
            Request::Restart(name) => self.each(name.as_deref(), |slot, it| {
                (it.wanted || name.is_some()).then_some(Step::Restarted { slot })
            })?,
            Request::Hold => {
                self.each(None, |slot, it| (!it.held).then_some(Step::Held { slot }))?
            }
            Request::Lapse { slot } => return Ok(self.step(moment, *slot)),
        };
        Ok(Turn::of(steps))
    }

    /// Collects the steps for all configured services, or for the one with this name. Refuses a name that no configured service has.
    fn each(
        &self,
        name: Option<&str>,
        step: impl Fn(Slot, &Service) -> Option<Step>,
    ) -> Result<Vec<Step>, Refused> {
        let services = &self.state.services;
        let Some(name) = name else {
            let listed = services.kept.iter().filter(|(_, it)| it.listed);
            return Ok(listed.filter_map(|(slot, it)| step(slot, it)).collect());
        };
        let found = services.named(name).filter(|(_, it)| it.listed);
        let (slot, service) = found.ok_or(Refused::NoService)?;
        Ok(step(slot, service).into_iter().collect())
    }

    fn started(&self, slot: Slot, service: &Service) -> Option<Step> {
        let waits = |it: &Instance| it.next.is_some() || it.verdict.is_some();
        let is_new = !service.is_up() || service.instances.iter().any(waits);
        let replaces = self.state.is_being_stopped(service);
        is_new.then_some(Step::Started { slot, replaces })
    }

    /// Returns the steps that adapt the existing services to a new configuration. Refuses an invalid configuration.
    fn configured(&self, definitions: &[Definition]) -> Result<Vec<Step>, Refused> {
        if !Definition::check_all(definitions).is_empty() {
            return Err(Refused::Invalid(Flaw::Services));
        }
        let services = &self.state.services;
        let free = (0..).map(Slot);
        let mut free = free.filter(|slot| services.kept.get(*slot).is_none());
        let mut steps = Vec::new();
        for (place, definition) in (0..).zip(definitions) {
            let Some((slot, service)) = services.named(&definition.name) else {
                let slot = free.next().expect("there should be more slots than services");
                steps.push(Step::Added { slot, place });
                continue;
            };
            let replaces = self.state.is_being_stopped(service);
            if service.held {
                steps.push(Step::Released { slot, replaces });
            }
            if !service.listed || service.definition != *definition {
                let is_back = !service.listed && replaces;
                let replaces = is_back || definition.replaces(&service.definition);
                steps.push(Step::Changed { slot, place, replaces });
            }
        }
        let names: BTreeSet<&str> = definitions.iter().map(|it| it.name.as_str()).collect();
        let gone = services.kept.iter().filter(|(_, it)| it.listed);
        let gone = gone.filter(|(_, it)| !names.contains(it.definition.name.as_str()));
        steps.extend(gone.map(|(slot, _)| Step::Dropped { slot }));
        Ok(steps)
    }

    /// Decides the outcome of the step that is due for a service.
    fn step(&self, moment: &Moment, slot: Slot) -> Outcome {
        let next = self.state.next_of(slot);
        let (_, next) = next.expect("a due service should have a next step");
        match next {
            Next::Remove => Turn::of(vec![Step::Removed { slot }]),
            Next::Stop(id) => {
                let stop = Message::Stop { id, signal: None, grace_ms: None, tree: true };
                let process = self.stop(moment, &stop);
                let process = process.expect("it should be possible to stop a live process");
                let (process, steps) = (Some(process), Vec::new());
                Outcome::Service(Box::new(Turn { process, steps }))
            }
            Next::Launch(nth) => {
                let service = self.state.services.get(slot);
                let launched = self.launched(moment, service, nth);
                let nth = place(nth);
                Turn::of(vec![match launched {
                    Some(insertion) => Step::Launched { slot, nth, insertion },
                    None => Step::Deferred { slot, nth, until: moment.now.at.plus_ms(DEFERRAL_MS) },
                }])
            }
        }
    }

    fn launched(&self, moment: &Moment, service: &Service, nth: usize) -> Option<Box<Insertion>> {
        let launching = service.launching(nth);
        match self.launching(moment, (&launching, &self.below_server(&launching)), None) {
            Ok(Outcome::Launched(insertion)) => Some(insertion),
            Ok(other) => unreachable!("a launch creates a record, and does not lead to {other:?}"),
            Err(_) => None,
        }
    }

    /// Adds the consequences for a service to an outcome that ends one of its processes. A restart without delay becomes part of the same
    /// entry. Returns any other outcome unchanged.
    pub(in crate::actors::process) fn followed(
        &self,
        moment: &Moment,
        message: &Message,
        outcome: Outcome,
    ) -> Outcome {
        let Some((id, last)) = self.ended_by(message, &outcome) else {
            return outcome;
        };
        let Some((slot, nth)) = self.state.services.of(id) else {
            return outcome;
        };
        let service = self.state.services.get(slot);
        let record = self.state.record_of(id);
        let then = then(moment.now.at, (service, nth), (record, &last));
        let at_once = match then {
            Consequence::Nothing => true,
            Consequence::Again { at, .. } => at <= moment.now.at,
            Consequence::Never(_) => false,
        };
        let last = Box::new(last);
        let mut steps = vec![Step::Ended { slot, nth: place(nth), last, then }];
        let is_up = service.is_up() && nth < service.size() && self.state.is_ready_for(service);
        // If the launch is refused now, it is tried again later, as a separate step.
        let launched = || self.launched(moment, service, nth);
        if let Some(insertion) = (at_once && is_up).then(launched).flatten() {
            steps.push(Step::Launched { slot, nth: place(nth), insertion });
        }
        let process = Some(outcome);
        Outcome::Service(Box::new(Turn { process, steps }))
    }

    /// Returns the process that an outcome ends, and how it ended; `None` if the outcome ends no process. A process that left some of its
    /// tree alive counts as ended only when the whole tree has ended, which is stopped if need be: otherwise a program that puts itself
    /// into the background would run once more with each restart.
    fn ended_by(&self, message: &Message, outcome: &Outcome) -> Option<(ProcessId, Last)> {
        let record = |slot: &Slot| self.state.records.get(*slot);
        let last = |record: &Record, at: Date| Last {
            process: record.id,
            at,
            end: None,
            failure: None,
            stopped_by: record.rare.stop.map(|stop| stop.cause),
        };
        let last = match (outcome, message) {
            (Outcome::Ended { slot, end, at, tree }, _) => {
                let record = record(slot)?;
                if *tree {
                    return None;
                }
                Last { end: Some(*end), ..last(record, *at) }
            }
            (Outcome::Failed { slot, at }, Message::Failed { failure, .. }) => {
                Last { failure: Some(failure.clone()), ..last(record(slot)?, *at) }
            }
            (Outcome::Emptied { slot }, _) => {
                let record = record(slot)?;
                let end = Some(record.end?);
                Last { end, ..last(record, record.ended_at()) }
            }
            _ => return None,
        };
        Some((last.process, last))
    }
}

/// Decides the consequence of the end of a process.
fn then(
    now: Timestamp,
    (service, nth): (&Service, usize),
    (record, last): (&Record, &Last),
) -> Consequence {
    if service.is_to_end(nth) {
        return Consequence::Nothing;
    }
    let definition = &service.definition;
    let code = last.end.and_then(End::code);
    // A process that was stopped because it missed its readiness, watchdog or timeout deadline has failed, whatever its exit code.
    let fails = [Cause::NotReady, Cause::Watchdog, Cause::Timeout];
    let fails = last.stopped_by.is_some_and(|cause| fails.contains(&cause));
    let is_success = !fails && code.is_some_and(|code| definition.is_success(code));
    let is_launched = match definition.restart {
        Policy::Always => true,
        Policy::OnFailure => !is_success,
        Policy::Never => false,
    };
    if !is_launched {
        return Consequence::Never(if is_success { Verdict::Finished } else { Verdict::Failed });
    }
    // A reboot of the machine is not the service's fault: the restart is neither delayed nor counted.
    if last.end.is_some_and(End::ends_tree) {
        return Consequence::Again { at: now, series: 0, counts: false };
    }
    let Some(instance) = service.instances.get(nth) else {
        return Consequence::Nothing;
    };
    if let Some(intensity) = definition.intensity {
        let recent = instance.recent(now, intensity.period_ms).count();
        if recent >= intensity.restarts_max as usize {
            return Consequence::Never(Verdict::Failed);
        }
    }
    let ran_ms = record.started.map_or(0, |started| last.at.0.saturating_sub(started.0));
    // A run that is at least as long as the longest delay begins a new series.
    let before = if ran_ms >= definition.backoff.max_ms.max(1) { 0 } else { instance.series };
    Consequence::Again {
        at: now.plus_ms(definition.backoff.wait_ms(before)),
        series: before.saturating_add(1),
        counts: true,
    }
}

/// Converts the number of an instance to its stored form.
fn place(nth: usize) -> u8 {
    u8::try_from(nth).expect("the number of instances should be limited")
}
