//! Commits the consequences of messages for services.

use crate::actors::process::insertion::Insertion;
use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::Message;
use crate::actors::process::outcome::Turn;
use crate::actors::process::service::definition::Definition;
use crate::actors::process::service::item::{Instance, Last, Service};
use crate::actors::process::service::message;
use crate::actors::process::service::step::{Consequence, Step};
use crate::clock::Timestamp;
use crate::ids::{Seq, Slot};
use crate::spine::machine::{Effects, Stamp};

impl ProcessMachine {
    pub(in crate::actors::process) fn apply_turn(
        &mut self,
        entry: Stamp,
        (message, turn): (&Message, &Turn),
        effects: &mut Effects<Self>,
    ) {
        if let Some(outcome) = &turn.process {
            self.apply(entry, (message, outcome), effects);
        }
        for step in &turn.steps {
            self.apply_step(entry, (message, step), effects);
        }
    }

    fn apply_step(
        &mut self,
        entry: Stamp,
        (message, step): (&Message, &Step),
        effects: &mut Effects<Self>,
    ) {
        match step {
            Step::Added { slot, place } => {
                let service = Service::new(defined(message, *place), entry.seq);
                self.state.add_service(entry.seq, *slot, service);
            }
            Step::Removed { slot } => self.state.remove_service(entry.seq, *slot),
            Step::Launched { slot, nth, insertion } => {
                self.counted.launches += 1;
                self.launch_instance(entry.seq, (*slot, *nth), insertion);
                self.request_attempt(insertion.slot, effects);
            }
            Step::Changed { slot, .. }
            | Step::Dropped { slot }
            | Step::Released { slot, .. }
            | Step::Started { slot, .. }
            | Step::Stopped { slot }
            | Step::Restarted { slot }
            | Step::Held { slot }
            | Step::Deferred { slot, .. }
            | Step::Ended { slot, .. } => {
                let is_restart =
                    |then: &Consequence| matches!(then, Consequence::Again { counts: true, .. });
                let restarts = matches!(step, Step::Ended { then, .. } if is_restart(then));
                self.counted.restarts += u64::from(restarts);
                self.state.change_service(entry.seq, *slot, |it| {
                    change(it, entry, (message, step));
                    it.resize();
                });
            }
        }
    }

    fn launch_instance(&mut self, entry: Seq, (slot, nth): (Slot, u8), insertion: &Insertion) {
        let service = self.state.services.get(slot);
        let launching = service.launching(nth.into());
        let profile = launching.profile(&insertion.kind);
        self.add(entry, insertion, profile, |it| it.launched = true);
        self.state.change_service(entry, slot, |it| {
            let instance = instance(it, nth);
            instance.process = Some(insertion.id);
            (instance.launched, instance.next) = (entry, None);
        });
    }
}

/// Commits a step that changes only the service itself.
fn change(service: &mut Service, entry: Stamp, (message, step): (&Message, &Step)) {
    match step {
        Step::Changed { place, replaces, .. } => {
            service.definition = defined(message, *place);
            service.listed = true;
            if *replaces {
                service.revision = entry.seq;
                service.reset();
            }
        }
        Step::Dropped { .. } => service.listed = false,
        Step::Released { replaces, .. } => {
            service.held = false;
            service.reset();
            if *replaces {
                service.revision = entry.seq;
            }
        }
        Step::Started { replaces, .. } => {
            (service.wanted, service.held) = (true, false);
            service.reset();
            if *replaces {
                service.revision = entry.seq;
            }
        }
        Step::Stopped { .. } => {
            service.wanted = false;
            service.reset();
        }
        Step::Restarted { .. } => {
            (service.wanted, service.held) = (true, false);
            service.revision = entry.seq;
            service.reset();
        }
        Step::Held { .. } => service.held = true,
        Step::Deferred { nth, until, .. } => instance(service, *nth).next = Some(*until),
        Step::Ended { nth, last, then, .. } => {
            let looks_back = service.intensity_period_ms();
            instance(service, *nth).end(last, *then, (entry.at, looks_back));
        }
        Step::Added { .. } | Step::Removed { .. } | Step::Launched { .. } => {
            unreachable!("{step:?} changes more than a service")
        }
    }
}

impl Service {
    /// Returns how long restarts are remembered, in milliseconds: the period of the intensity (the limit on restarts), or 0 without a
    /// limit.
    fn intensity_period_ms(&self) -> u64 {
        let intensity = self.definition.intensity;
        intensity.map_or(0, |intensity| intensity.period_ms)
    }
}

impl Instance {
    fn end(
        &mut self,
        last: &Last,
        then: Consequence,
        (now, intensity_period_ms): (Timestamp, u64),
    ) {
        self.process = None;
        self.last = Some(last.clone());
        self.restarts = self.recent(now, intensity_period_ms).collect();
        match then {
            Consequence::Nothing => {}
            Consequence::Again { at, series, counts } => {
                (self.next, self.series) = (Some(at), series);
                if counts && intensity_period_ms > 0 {
                    self.restarts.push(now);
                }
            }
            Consequence::Never(verdict) => self.verdict = Some(verdict),
        }
    }

    /// Returns the times of the restarts within the last `period_ms` milliseconds before `now`.
    pub(super) fn recent(&self, now: Timestamp, period_ms: u64) -> impl Iterator<Item = Timestamp> {
        let all = self.restarts.iter().copied();
        all.filter(move |at| at.plus_ms(period_ms) >= now)
    }
}

fn instance(service: &mut Service, nth: u8) -> &mut Instance {
    let instance = service.instances.get_mut(usize::from(nth));
    instance.expect("a step should name an existing instance")
}

fn defined(message: &Message, place: u32) -> Definition {
    let Message::Service(message::Message::Configure(definitions)) = message else {
        unreachable!("only a configuration defines services");
    };
    let definition = definitions.get(place as usize);
    definition.expect("the index in a step should be within the configured list").clone()
}
