//! The events that a journal entry causes, for subscribers. They are published before the commit, while records are still unchanged.

use crate::actors::process::machine::ProcessMachine;
use crate::actors::process::message::{End, Message, Notice};
use crate::actors::process::outcome::{Insertion, Outcome};
use crate::actors::process::record::{Record, Stop};
use crate::clock::Timestamp;
use crate::ids::{ProcessId, Slot};
use crate::spine::event::EventBody;
use crate::spine::machine::About;

/// The function that receives the events.
type Publish<'a> = &'a mut dyn FnMut(EventBody);

impl ProcessMachine {
    /// The kinds of events that this actor publishes.
    pub(super) const EVENTS: &'static [&'static str] = &[
        "cancelled",
        "deferred",
        "exited",
        "failed",
        "launched",
        "lost",
        "pruned",
        "ready",
        "registered",
        "service-added",
        "service-changed",
        "service-ended",
        "service-failed",
        "service-finished",
        "service-launched",
        "service-removed",
        "service-starting",
        "service-stopped",
        "service-stopping",
        "started",
        "stopping",
        "stuck",
    ];

    /// Publishes the events of an outcome, in order.
    pub(super) fn publish(
        &self,
        now: Timestamp,
        (message, outcome): (&Message, &Outcome),
        publish: Publish<'_>,
    ) {
        for (slot, stop) in outcome.stops() {
            self.publish_stop(*slot, stop, publish);
        }
        match (outcome, message) {
            (Outcome::Launched(insertion), _) => {
                self.publish_launch((message, insertion), publish);
            }
            (Outcome::Begun { slot }, _) => self.publish_beginning(*slot, publish),
            (Outcome::Cancelled { slot, .. }, _) => {
                self.of("cancelled", *slot, publish, |it, _| it);
            }
            (Outcome::Child(insertion), _) => self.publish_gone(&insertion.evicted, publish),
            (Outcome::Registered(insertion), Message::Register(registering))
            | (Outcome::Serving(insertion), Message::Serve(registering)) => {
                self.publish_gone(&insertion.evicted, publish);
                let pid = registering.identity.pid;
                publish(added("registered", insertion).number("pid", pid));
            }
            (Outcome::Renewed { slot, .. }, Message::Serve(registering)) => {
                self.publish_renewal(*slot, registering.identity.pid, publish);
            }
            (Outcome::Started { slot, .. }, Message::Started { identity, .. }) => {
                self.of("started", *slot, publish, |it, _| it.number("pid", identity.pid));
            }
            (Outcome::Failed { slot, .. }, Message::Failed { failure, .. }) => {
                self.of("failed", *slot, publish, |it, _| {
                    let errno = u64::from(failure.errno.unsigned_abs());
                    it.text("step", failure.step.name()).number("errno", errno)
                });
            }
            (Outcome::Ended { slot, end, tree, .. }, _) if !tree => {
                self.of(kind_of_end(*end), *slot, publish, |it, _| with_end(it, *end));
            }
            // The process ended before its tree did, and its end is published only now.
            (Outcome::Emptied { slot }, _) => {
                let end = self.state.records.get(*slot).and_then(|it| it.end);
                if let Some(end) = end {
                    self.of(kind_of_end(end), *slot, publish, |it, _| with_end(it, end));
                }
            }
            (Outcome::Stopping { slot, stop }, _) => self.publish_stop(*slot, stop, publish),
            (Outcome::Killing { slot }, _) => self.publish_kill(*slot, publish),
            (Outcome::Stuck { slot }, Message::Stuck { unkillable, unknown, .. }) => {
                self.publish_stuck(*slot, (*unkillable, *unknown), publish);
            }
            (Outcome::Noticed { slot }, _) if reports_ready(message) => {
                self.of("ready", *slot, publish, |it, _| it);
            }
            (Outcome::Service(turn), _) => self.publish_turn(now, (message, turn), publish),
            (Outcome::Pruned { slots, .. }, _) => self.publish_gone(slots, publish),
            _ => {}
        }
    }

    /// Returns the ids of the records that an outcome refers to by slot. Empty for outcomes whose messages always contain the id.
    pub(super) fn named(&self, outcome: &Outcome) -> Vec<About> {
        let fenced: Vec<Slot>;
        let slots: &[Slot] = match outcome {
            Outcome::Service(turn) => {
                return turn.process.iter().flat_map(|it| self.named(it)).collect();
            }
            Outcome::Fenced { stops }
            | Outcome::StoppingTree { stops }
            | Outcome::StoppingPart { stops } => {
                fenced = stops.iter().map(|(slot, _)| *slot).collect();
                &fenced
            }
            Outcome::Launched(insertion)
            | Outcome::Registered(insertion)
            | Outcome::Serving(insertion)
            | Outcome::Child(insertion) => &insertion.evicted,
            Outcome::Pruned { slots, .. } => slots,
            Outcome::Stopping { slot, .. }
            | Outcome::Killing { slot }
            | Outcome::Cancelled { slot, .. } => std::slice::from_ref(slot),
            Outcome::Known { .. }
            | Outcome::Begun { .. }
            | Outcome::Renewed { .. }
            | Outcome::Started { .. }
            | Outcome::Failed { .. }
            | Outcome::Ended { .. }
            | Outcome::Emptied { .. }
            | Outcome::Stuck { .. }
            | Outcome::Signalling { .. }
            | Outcome::Signalled { .. }
            | Outcome::Watched { .. }
            | Outcome::Gone
            | Outcome::Taken
            | Outcome::Declined(_)
            | Outcome::Noticed { .. }
            | Outcome::Found { .. }
            | Outcome::Unchanged
            | Outcome::Contradicted
            | Outcome::Refused(_) => &[],
        };
        let about = |slot: &Slot| {
            let record = self.state.records.get(*slot)?;
            let names = [("process".to_owned(), record.id.to_string())];
            Some(About { slot: *slot, names: names.into() })
        };
        slots.iter().filter_map(about).collect()
    }

    fn publish_launch(&self, (message, insertion): (&Message, &Insertion), publish: Publish<'_>) {
        self.publish_gone(&insertion.evicted, publish);
        let is_deferred = matches!(message, Message::Launch(launching) if launching.deferred);
        let kind = if is_deferred { "deferred" } else { "launched" };
        publish(added(kind, insertion));
    }

    fn publish_beginning(&self, slot: Slot, publish: Publish<'_>) {
        self.of("launched", slot, publish, |it, record| {
            with_parent(it.number("number", record.number), record.parent)
        });
    }

    fn publish_renewal(&self, slot: Slot, pid: u32, publish: Publish<'_>) {
        self.of("registered", slot, publish, |it, record| {
            it.number("number", record.number).number("pid", pid)
        });
    }

    fn publish_stuck(&self, slot: Slot, (unkillable, unknown): (u32, u32), publish: Publish<'_>) {
        self.of("stuck", slot, publish, |it, _| {
            it.number("unkillable", unkillable).number("unknown", unknown)
        });
    }

    fn publish_kill(&self, slot: Slot, publish: Publish<'_>) {
        self.of("stopping", slot, publish, |it, record| {
            let killed = record.rare.stop.map(|stop| Stop { killed: true, ..stop });
            killed.map_or(it.clone(), |stop| with_stop(it, &stop))
        });
    }

    fn publish_stop(&self, slot: Slot, stop: &Stop, publish: Publish<'_>) {
        self.of("stopping", slot, publish, |it, _| with_stop(it, stop));
    }

    pub(super) fn publish_gone(&self, slots: &[Slot], publish: Publish<'_>) {
        for slot in slots {
            self.of("pruned", *slot, publish, |it, _| it);
        }
    }

    fn of(
        &self,
        kind: &'static str,
        slot: Slot,
        publish: Publish<'_>,
        with: impl FnOnce(EventBody, &Record) -> EventBody,
    ) {
        if let Some(record) = self.state.records.get(slot) {
            let tags = &record.profile.tags;
            publish(with(event_body(kind, record.id, &tags.kind), record));
        }
    }
}

fn reports_ready(message: &Message) -> bool {
    let ready = Notice::Ready;
    matches!(message, Message::Notice { notice, .. } if *notice == ready)
}

fn event_body(kind: &'static str, id: ProcessId, of_kind: &str) -> EventBody {
    let event_body = EventBody::new(kind).name("process", id.to_string().as_bytes());
    event_body.text("type", of_kind)
}

fn added(kind: &'static str, insertion: &Insertion) -> EventBody {
    let event_body = event_body(kind, insertion.id, &insertion.kind);
    let event_body = event_body.number("number", insertion.number);
    with_parent(event_body, insertion.parent)
}

fn with_parent(event_body: EventBody, parent: Option<ProcessId>) -> EventBody {
    match parent {
        Some(parent) => event_body.text("parent", parent.to_string()),
        None => event_body,
    }
}

const fn kind_of_end(end: End) -> &'static str {
    match end {
        End::Code(_) | End::Signal { .. } => "exited",
        End::Lost(_) => "lost",
    }
}

fn with_end(event_body: EventBody, end: End) -> EventBody {
    match end {
        End::Code(code) => event_body.number("code", code),
        End::Signal { signal, .. } => event_body.number("signal", signal),
        End::Lost(why) => event_body.text("reason", why.name()),
    }
}

fn with_stop(event_body: EventBody, stop: &Stop) -> EventBody {
    // A killed process gets SIGKILL, whatever signal was tried before.
    let signal = if stop.killed { 9 } else { stop.signal };
    let event_body = event_body.text("cause", stop.cause.name()).number("signal", signal);
    event_body.number("grace_ms", stop.grace_ms)
}
