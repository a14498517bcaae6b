//! The events about services, published before the commit, while the services are still unchanged.

use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::Message;
use crate::actors::process::outcome::Turn;
use crate::actors::process::service::item::{Last, Verdict};
use crate::actors::process::service::message;
use crate::actors::process::service::step::{Consequence, Step};
use crate::ids::Slot;
use crate::spine::event::EventBody;

impl ProcessMachine {
    pub(in crate::actors::process) fn publish_turn(
        &self,
        (message, turn): (&Message, &Turn),
        publish: &mut dyn FnMut(EventBody),
    ) {
        if let Some(outcome) = &turn.process {
            self.publish((message, outcome), publish);
        }
        for step in &turn.steps {
            self.publish_step((message, step), publish);
        }
    }

    fn publish_step(&self, (message, step): (&Message, &Step), publish: &mut dyn FnMut(EventBody)) {
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
            Step::Launched {
                slot,
                nth,
                insertion,
            } => {
                self.publish_gone(&insertion.evicted, publish);
                let event = of("service-launched", slot).number("instance", number(nth));
                publish(event.name("process", insertion.id.to_string().as_bytes()));
            }
            Step::Ended {
                slot,
                nth,
                last,
                then,
            } => {
                let kind = match then {
                    Consequence::Nothing => "service-stopped",
                    Consequence::Again { .. } => "service-ended",
                    Consequence::Never(Verdict::Finished) => "service-finished",
                    Consequence::Never(Verdict::Failed) => "service-failed",
                };
                let event = of(kind, slot).number("instance", number(nth));
                publish(with_last(event, last));
            }
            Step::Deferred { .. } => {}
        }
    }
}

fn stopping(event: EventBody, cause: &str) -> EventBody {
    event.text("cause", cause)
}

fn with_last(event: EventBody, last: &Last) -> EventBody {
    let event = event.name("process", last.process.to_string().as_bytes());
    match last
        .end
        .and_then(crate::actors::process::message::End::code)
    {
        Some(code) => event.number("code", code),
        None => event,
    }
}
