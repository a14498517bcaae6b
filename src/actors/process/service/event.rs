//! The events about services, published before the commit, while the services are still unchanged.

use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{End, Message};
use crate::actors::process::outcome::Turn;
use crate::actors::process::service::definition::Policy;
use crate::actors::process::service::item::{Last, Verdict};
use crate::actors::process::service::message;
use crate::actors::process::service::step::{Consequence, Step};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::spine::event::EventBody;

impl ProcessMachine {
    pub(in crate::actors::process) fn publish_turn(
        &self,
        now: Timestamp,
        (message, turn): (&Message, &Turn),
        publish: &mut dyn FnMut(EventBody),
    ) {
        if let Some(outcome) = &turn.process {
            self.publish(now, (message, outcome), publish);
        }
        for step in &turn.steps {
            self.publish_step(now, (message, step), publish);
        }
    }

    fn publish_step(
        &self,
        now: Timestamp,
        (message, step): (&Message, &Step),
        publish: &mut dyn FnMut(EventBody),
    ) {
        let of = |kind, slot: &Slot| {
            let service = self.state.services.kept.get(*slot);
            let name = service.map_or("", |it| it.definition.name.as_str());
            EventBody::new(kind).name("service", name.as_bytes())
        };
        let number = |nth: &u8| u64::from(*nth) + 1;
        match step {
            Step::Added { place, .. } => {
                if let Message::Service(message::Message::Configure(list)) = message
                    && let Some(it) = list.get(*place as usize)
                {
                    publish(EventBody::new("service-added").name("service", it.name.as_bytes()));
                }
            }
            Step::Changed { slot, replaces, .. } => {
                let replaces = if *replaces { "yes" } else { "no" };
                publish(of("service-changed", slot).text("replaces", replaces));
            }
            Step::Dropped { slot } => publish(stopping(of("service-stopping", slot), "dropped")),
            Step::Stopped { slot } => publish(stopping(of("service-stopping", slot), "request")),
            Step::Held { slot } => publish(stopping(of("service-stopping", slot), "server")),
            Step::Restarted { slot } => publish(stopping(of("service-stopping", slot), "restart")),
            Step::Removed { slot } => publish(of("service-removed", slot)),
            Step::Started { slot, .. } | Step::Released { slot, .. } => {
                publish(of("service-starting", slot));
            }
            Step::Launched { slot, nth, insertion } => {
                self.publish_gone(&insertion.evicted, publish);
                let event = of("service-launched", slot).number("instance", number(nth));
                publish(event.name("process", insertion.id.to_string().as_bytes()));
            }
            Step::Ended { slot, nth, last, then } => {
                let kind = match then {
                    Consequence::Nothing => "service-stopped",
                    Consequence::Again { .. } => "service-ended",
                    Consequence::Never(Verdict::Finished) => "service-finished",
                    Consequence::Never(Verdict::Failed) => "service-failed",
                };
                let event = of(kind, slot).number("instance", number(nth));
                publish(self.with_next(with_last(event, last), now, (*slot, then)));
            }
            Step::Deferred { .. } => {}
        }
    }
    /// Adds what follows the end of a process: how long it takes until the next is launched, or the limit on restarts that was reached.
    fn with_next(
        &self,
        event: EventBody,
        now: Timestamp,
        (slot, then): (Slot, &Consequence),
    ) -> EventBody {
        match then {
            Consequence::Again { at, .. } => {
                event.number("restart_in_ms", at.0.saturating_sub(now.0))
            }
            Consequence::Never(Verdict::Failed) => {
                let definition = &self.state.services.get(slot).definition;
                let is_restarted = definition.restart != Policy::Never;
                match definition.intensity.filter(|_| is_restarted) {
                    Some(intensity) => event
                        .number("restarts", intensity.restarts_max)
                        .number("period_ms", intensity.period_ms),
                    None => event,
                }
            }
            Consequence::Nothing | Consequence::Never(Verdict::Finished) => event,
        }
    }
}

fn stopping(event: EventBody, cause: &str) -> EventBody {
    event.text("cause", cause)
}

/// Adds how a process ended: its exit code, and the signal that ended it; why that is unknown; why it could not be started. If it was
/// stopped for missing a deadline, also adds that cause.
fn with_last(event: EventBody, last: &Last) -> EventBody {
    let mut event = event.name("process", last.process.to_string().as_bytes());
    if let Some(code) = last.end.and_then(End::code) {
        event = event.number("code", code);
    }
    event = match last.end {
        Some(End::Signal { signal, .. }) => event.number("signal", signal),
        Some(End::Lost(why)) => event.text("reason", why.name()),
        Some(End::Code(_)) | None => event,
    };
    if let Some(failure) = &last.failure {
        let errno = u64::from(failure.errno.unsigned_abs());
        event = event.text("step", failure.step.name()).number("errno", errno);
    }
    match last.stopped_by {
        Some(cause) => event.text("cause", cause.name()),
        None => event,
    }
}
