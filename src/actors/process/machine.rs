//! The machine of the `ProcessActor`: the interface through which the host applies the rules for processes and handles their deadlines.
//!
//! It decides without changing anything (`decide.rs`, `adding.rs`), and commits without deciding anything (`commit.rs`).

use crate::actors::binding::{self, ToHolder};
use crate::actors::process::message::{Action, Message};
use crate::actors::process::outcome::{Outcome, Refused};
use crate::actors::process::pages::{Page, SERVICES, profile_slot, write};
use crate::actors::process::reply::{Query, RecordView, Reply, View, Watch};
use crate::actors::process::rules::Rules;
use crate::actors::process::service;
use crate::actors::process::state::State;
use crate::actors::process::waiting::Waiting;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, PageId, Seq, Slot, Ticket};
use crate::lookup::pages::Pages;
use crate::spine::event::EventBody;
use crate::spine::machine::{
    About, Durability, Effects, Gauge, Machine, Moment, Now, Observable, Paged, Request,
    SpaceEffect, Stamp, Start, Timed,
};

/// The process machine: all records, and the rules that change them.
#[derive(Debug)]
pub struct ProcessMachine {
    pub(super) state: State,
    pub(super) waiting: Waiting,
    /// The number of reports that contradicted an earlier one: a different process was reported for the same launch, or a launch was
    /// reported as failed after it had succeeded.
    pub(super) contradictions: u64,
    pub(super) counted: Counted,
}

/// Counts since this machine was built. Entries that were replayed to build it are included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counted {
    /// Launches requested.
    pub(super) launches: u64,
    /// Launches that failed.
    pub(super) failures: u64,
    /// Restarts of service processes, except those that follow a reboot or a requested stop.
    pub(super) restarts: u64,
}

impl ProcessMachine {
    fn with_state(state: State) -> Self {
        Self { state, waiting: Waiting::default(), contradictions: 0, counted: Counted::default() }
    }

    /// Returns whether an outcome concerns services, or the process of a service.
    fn concerns_services(&self, outcome: &Outcome) -> bool {
        let slot = match outcome {
            Outcome::Service(_) => return true,
            Outcome::Started { slot, .. }
            | Outcome::Noticed { slot }
            | Outcome::Stopping { slot, .. }
            | Outcome::Stuck { slot }
            | Outcome::Ended { slot, .. } => *slot,
            Outcome::Launched(_)
            | Outcome::Begun { .. }
            | Outcome::Cancelled { .. }
            | Outcome::Child(_)
            | Outcome::Found { .. }
            | Outcome::Registered(_)
            | Outcome::Serving(_)
            | Outcome::Renewed { .. }
            | Outcome::Known { .. }
            | Outcome::Failed { .. }
            | Outcome::Emptied { .. }
            | Outcome::Killing { .. }
            | Outcome::Signalling { .. }
            | Outcome::Signalled { .. }
            | Outcome::Pruned { .. }
            | Outcome::Watched { .. }
            | Outcome::Gone
            | Outcome::Taken
            | Outcome::Declined(_)
            | Outcome::Unchanged
            | Outcome::Contradicted
            | Outcome::Refused(_) => return false,
            Outcome::Fenced { stops }
            | Outcome::StoppingTree { stops }
            | Outcome::StoppingPart { stops } => {
                let mut slots = stops.iter().map(|(slot, _)| *slot);
                return slots.any(|slot| self.is_of_service(slot));
            }
        };
        self.is_of_service(slot)
    }

    fn is_of_service(&self, slot: Slot) -> bool {
        let record = self.state.records.get(slot);
        record.is_some_and(|it| self.state.services.of(it.id).is_some())
    }

    /// Returns the reply that shows this record; if the record was removed, the request is refused as unknown.
    fn shown_in(
        &self,
        id: crate::ids::ProcessId,
        reply: impl FnOnce(Box<RecordView>) -> Reply,
    ) -> Reply {
        let view = self.view_by_id(id);
        view.map_or(Reply::Refused(Refused::Unknown), reply)
    }
}

impl Machine for ProcessMachine {
    const NAME: &'static str = "process";
    const ID: ActorId = ActorId::PROCESS;

    type Rules = Rules;
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Watch;
    type Action = Action;

    fn new(rules: Rules) -> Self {
        Self::with_state(State::new(rules))
    }

    fn set_rules(&mut self, rules: Rules) {
        self.state.rules = rules;
    }

    fn decide(&self, moment: &Moment, message: &Message) -> Outcome {
        let outcome = self.decision(moment, message);
        self.followed(moment, message, outcome)
    }

    fn durability(&self, _message: &Message, outcome: &Outcome) -> Durability {
        match outcome {
            Outcome::Known { .. }
            | Outcome::Unchanged
            | Outcome::Contradicted
            | Outcome::Refused(_) => Durability::Nothing,
            Outcome::Pruned { slots, .. } if slots.is_empty() => Durability::Nothing,
            // It does no harm if a crash loses this outcome: the keeper has the start in its log, and reports it again to the next server.
            Outcome::Started { .. } => Durability::Transient,
            Outcome::Launched(_)
            | Outcome::Begun { .. }
            | Outcome::Cancelled { .. }
            | Outcome::Registered(_)
            | Outcome::Serving(_)
            | Outcome::Renewed { .. }
            | Outcome::Failed { .. }
            | Outcome::Ended { .. }
            | Outcome::Emptied { .. }
            | Outcome::Stopping { .. }
            | Outcome::Killing { .. }
            | Outcome::Stuck { .. }
            | Outcome::Signalling { .. }
            | Outcome::Signalled { .. }
            | Outcome::Watched { .. }
            | Outcome::Gone
            | Outcome::Taken
            | Outcome::Declined(_)
            | Outcome::Fenced { .. }
            | Outcome::StoppingTree { .. }
            | Outcome::StoppingPart { .. }
            | Outcome::Noticed { .. }
            | Outcome::Child(_)
            | Outcome::Found { .. }
            | Outcome::Service(_)
            | Outcome::Pruned { .. } => Durability::Durable,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        let concerns_services = self.concerns_services(outcome);
        self.apply(entry, (message, outcome), effects);
        for (by, gone) in self.state.take_notifications() {
            effects.tell(binding::holder(by), &ToHolder::Gone(gone));
        }
        if concerns_services {
            self.state.settle_services();
            self.wake_for_services(effects);
        }
    }

    fn unchanged(&mut self, outcome: &Outcome) {
        if *outcome == Outcome::Contradicted {
            self.contradictions += 1;
        }
    }

    /// Looks up records by id rather than by slot: by the time a reply is repeated, the slot may have been reused for another record.
    fn reply(&self, seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Launched(insertion) => self.shown_in(insertion.id, Reply::Launched),
            Outcome::Registered(insertion) | Outcome::Serving(insertion) => {
                self.shown_in(insertion.id, |record| {
                    let known = false;
                    Reply::Registered { record, known }
                })
            }
            Outcome::Known { id } | Outcome::Renewed { id, .. } => self.shown_in(*id, |record| {
                let known = true;
                Reply::Registered { record, known }
            }),
            Outcome::Stopping { .. }
            | Outcome::StoppingTree { .. }
            | Outcome::StoppingPart { .. }
            | Outcome::Unchanged => {
                if let Message::Stop { id, .. } = message {
                    self.shown_in(*id, Reply::Stopping)
                } else {
                    Reply::Done
                }
            }
            Outcome::Ended { .. } => {
                if let Message::Finish { id, .. } = message {
                    self.shown_in(*id, Reply::Record)
                } else {
                    Reply::Done
                }
            }
            Outcome::Begun { .. } => {
                let id = message.id();
                id.map_or(Reply::Done, |id| self.shown_in(id, Reply::Launched))
            }
            Outcome::Signalling { .. } => Reply::Signalling(seq),
            Outcome::Pruned { slots, more } => {
                Reply::Pruned { count: u32::try_from(slots.len()).unwrap_or(u32::MAX), more: *more }
            }
            Outcome::Started { .. }
            | Outcome::Failed { .. }
            | Outcome::Cancelled { .. }
            | Outcome::Emptied { .. }
            | Outcome::Killing { .. }
            | Outcome::Stuck { .. }
            | Outcome::Signalled { .. }
            | Outcome::Watched { .. }
            | Outcome::Gone
            | Outcome::Taken
            | Outcome::Fenced { .. }
            | Outcome::Noticed { .. }
            | Outcome::Child(_)
            | Outcome::Found { .. }
            | Outcome::Contradicted => Reply::Done,
            Outcome::Service(turn) => match &turn.process {
                Some(outcome) => self.reply(seq, message, outcome),
                None => Reply::Done,
            },
            Outcome::Refused(refused) | Outcome::Declined(refused) => Reply::Refused(*refused),
        }
    }

    fn query(&self, now: Now, query: &Query) -> Reply {
        self.look(now, query)
    }

    fn cost(asked: Request<'_, Self>) -> usize {
        Self::cost_of(&asked)
    }

    fn outcome_cost(outcome: &Outcome) -> usize {
        Self::weight_of(outcome)
    }

    fn rest(&self, message: &Message, outcome: &Outcome) -> Option<Message> {
        Self::rest_of(message, outcome)
    }

    /// Reports from the port are facts, so all of them except `Child`, which adds a record, are accepted even if the disk is low on space.
    /// Messages that end a process are never refused.
    fn space_effect(&self, message: &Message) -> SpaceEffect {
        match message {
            Message::Launch(_)
            | Message::Begin { .. }
            | Message::LaunchAs(_)
            | Message::Register(_)
            | Message::Child { .. } => SpaceEffect::Adds,
            Message::Service(service::Message::Configure(_))
            | Message::Signal { .. }
            | Message::Watch(_) => SpaceEffect::Keeps,
            Message::Service(_)
            | Message::Serve(_)
            | Message::Finish { .. }
            | Message::Stop { .. }
            | Message::Settle { .. }
            | Message::Prune { .. }
            | Message::Started { .. }
            | Message::Failed { .. }
            | Message::Ended { .. }
            | Message::Empty { .. }
            | Message::Stuck { .. }
            | Message::Notice { .. }
            | Message::Found { .. }
            | Message::Signalled { .. }
            | Message::Fence(_)
            | Message::Lapse { .. } => SpaceEffect::Frees,
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, effects: &mut Effects<Self>) {
        let Some(id) = watch.id() else {
            if let Watch::Services(name) = watch {
                self.watch_services(ticket, name.as_deref(), effects);
            }
            return;
        };
        match self.answer(watch) {
            Some(reply) => {
                self.waiting.forget(ticket);
                effects.wake(ticket, reply);
            }
            None => self.waiting.watch(ticket, id, watch.clone()),
        }
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.waiting.forget(ticket);
        self.unwatch_services(ticket);
    }

    /// Processes keep running while the server is down, so a startup marks none of them as ended. The grace period of a stop begins again,
    /// since its signal is sent again.
    fn start(&mut self, start: Start) {
        self.state.start(start);
    }

    fn resume(&mut self, effects: &mut Effects<Self>) {
        self.request_all(effects);
    }
}

impl Timed for ProcessMachine {
    fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        let service = self.state.services.first().map(|(at, _)| at);
        let record = self.state.deadline(offset);
        [service, record].into_iter().flatten().min()
    }

    fn due(&mut self, now: Now) -> Option<u64> {
        // Steps of services take precedence, since they are usually due immediately.
        let service = self.state.services.due(now).map(service::item_of);
        service.or_else(|| self.state.due(now).map(|slot| slot.0.into()))
    }

    fn tick(&self, item: u64) -> Message {
        match service::slot_of(item) {
            Some(slot) => Message::Service(service::Message::Lapse { slot }),
            None => Message::Lapse { slot: slot_of(item) },
        }
    }

    fn hold_removals(&mut self, held: bool) {
        self.state.hold_removals(held);
    }

    fn is_quarantined(&self, item: u64) -> bool {
        match service::slot_of(item) {
            Some(slot) => self.state.services.is_quarantined(slot),
            None => self.state.is_quarantined(slot_of(item)),
        }
    }

    fn quarantine(&mut self, item: u64, now: Now) {
        match service::slot_of(item) {
            Some(slot) => self.state.services.quarantine(slot),
            None => self.state.quarantine(slot_of(item), now),
        }
    }
}

impl Paged for ProcessMachine {
    type Page = Page;

    fn pages(&mut self) -> &mut Pages {
        &mut self.state.pages
    }

    fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        if page == PageId::HEAD {
            return self.state.head.encode(content);
        }
        match profile_slot(page) {
            Some(slot) => {
                if let Some(record) = self.state.records.get(slot) {
                    write(&*record.profile, content);
                }
            }
            None if page.kind() == SERVICES => self.state.services.kept.encode(page, content),
            None => self.state.records.encode(page, content),
        }
    }

    fn decode_page(page: PageId, content: &[u8]) -> Result<Page, String> {
        Page::decode(page, content)
    }

    fn from_pages(rules: Rules, pages: &mut dyn Iterator<Item = Page>) -> Self {
        Self::with_state(State::from_pages(rules, pages))
    }

    fn digest(&self) -> Digest {
        self.state.digest()
    }
}

impl Observable for ProcessMachine {
    const KINDS: &'static [&'static str] = Self::EVENTS;
    const WARNINGS: &'static [&'static str] = &["service-ended", "service-failed"];
    const REPEATED_WARNINGS: &'static [&'static str] = &["service-ended"];
    const GUARDED: bool = true;

    type View = View;

    fn sample(&self, most: usize) -> View {
        self.show(most)
    }

    fn gauges(&self) -> Vec<Gauge> {
        let totals = self.totals();
        let gauge = |name, help, value| Gauge { name, help, value };
        let mut gauges = vec![
            gauge("queued", "processes waiting to be launched", totals.queued.into()),
            gauge("deferred", "queued processes whose launch is deferred", totals.deferred.into()),
            gauge("running", "running processes", totals.running.into()),
            gauge("stopping", "processes being stopped", totals.stopping.into()),
            gauge("exited", "records of ended processes", totals.exited.into()),
            gauge("lost", "records of processes that ended in an unknown way", totals.lost.into()),
            gauge("failed", "records of processes that could not be started", totals.failed.into()),
            gauge(
                "stuck",
                "processes whose trees have members that survived SIGKILL",
                totals.stuck.into(),
            ),
            gauge("bytes", "size of all records in bytes", totals.bytes),
            gauge("launches", "launches requested since startup", self.counted.launches),
            gauge("launch_failures", "failed launches since startup", self.counted.failures),
            gauge(
                "service_restarts",
                "restarts of service processes since startup",
                self.counted.restarts,
            ),
            gauge(
                "contradictions",
                "reports that contradict earlier reports",
                totals.contradictions,
            ),
        ];
        gauges.extend(self.service_gauges());
        gauges
    }

    fn events(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        self.publish(entry.at, (message, outcome), publish);
    }

    fn about(&self, outcome: &Outcome) -> Vec<About> {
        self.named(outcome)
    }
}

fn slot_of(item: u64) -> Slot {
    Slot(u32::try_from(item).expect("timer items of records should be slots"))
}
