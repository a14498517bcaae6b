//! The host of a machine, without I/O: it takes messages, and produces journal records and effects that wait for them.
//!
//! This is the only place that performs **order, decide, commit, append** in sequence. Guarantees: a panic fails only the request that
//! caused it; an answer or action is released only once every entry it depends on is durable; due items are handled before the next message
//! or query. There are no threads, sockets, files or clocks here: the runtime and the simulation drive the host.

mod checkpoint;
mod governed;
mod inspection;
mod once;
mod parts;
mod planted;
mod publishing;
mod rebuild;
mod restate;
mod waits;

use self::parts::{Parked, result_of};
use self::planted::{call_injector, decided};
use self::publishing::Repeated;
use self::restate::Restate;
use crate::clock::Timestamp;
use crate::ids::{ActorId, RequestKey, Seq, Ticket};
use crate::persist::journal::Room;
use crate::spine::delivery::{
    Answer, Authority, Delivery, Failed, Flow, Forger, Item, PanicInjector, ReplyTo, Report, Stage,
    Wait,
};
use crate::spine::effect::{Effect, Tell};
use crate::spine::feed::Feed;
use crate::spine::guard::guard;
use crate::spine::ledger::{Entry, Ledger, Poisoned};
use crate::spine::machine::{
    Actor, Durability, Effects, Machine, Moment, Now, Refusal, SpaceEffect, Start,
};
use crate::spine::outbox::Outbox;
use crate::spine::receipts::Receipts;
use crate::spine::recovery::Recovered;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The number of ticks (messages of due items) in a row after which other actors get their turn: expiring a million locks at once must not
/// stall the node.
const TICKS_IN_A_ROW: usize = 1024;

/// The cost of the work done in a row, in ordinary commands, after which other actors get their turn. Without this limit, an actor would
/// never yield if other threads kept its mailbox filled.
const COST_IN_A_ROW: usize = 4096;

/// The maximum number of quarantined items remembered across a rebuild. A forgotten item panics again, and is quarantined again.
const QUARANTINED_MAX: usize = 1024;

/// A machine, with everything needed to survive its panics.
pub struct Host<M: Machine> {
    machine: M,
    /// What the machine did under each idempotency key.
    receipts: Receipts,
    /// Whether a function that changes the state panicked: the machine must be rebuilt before it is used again.
    spent: bool,
    /// The item whose tick panicked and left the machine spent, if it was a tick that did so.
    spent_by: Option<u64>,
    /// Whether removals on a date are held back.
    held: bool,
    /// Whether the disk was low on space when the machine was last informed.
    disk_low: bool,
    /// The newest entry of this actor.
    last: Seq,
    /// The newest entry that answers and actions wait for.
    awaited: Seq,
    backlog: Option<Running<M>>,
    /// Deliveries that go on after others, in order.
    parked: VecDeque<Parked<M>>,
    /// The cost of the work done since other actors last had their turn.
    spent_in_a_row: usize,
    watches: BTreeMap<Ticket, Wait<M>>,
    quarantined: Vec<Report>,
    effects: Effects<M>,
    outbox: Outbox<M>,
    tells: Vec<Tell>,
    /// Actors to notify because one of their tells was refused here, or handling it panicked.
    undelivered: Vec<ActorId>,
    restate: Restate,
    /// The feed to which events are published.
    feed: Option<Arc<Feed>>,
    /// How often warnings that may repeat were logged.
    repeated: RefCell<Repeated>,
    injector: Option<PanicInjector<M>>,
    forger: Option<Forger<M>>,
}

/// A delivery that is being carried out.
struct Running<M: Machine> {
    items: std::vec::IntoIter<Item<M>>,
    /// The rest of the item that was begun last, if it is not done.
    rest: Option<Item<M>>,
    /// Whether the current item is such a rest: parts of its message were carried out before.
    continues: bool,
    /// Whether it goes on before all other parked deliveries.
    goes_first: bool,
    answers: Vec<Answer<M::Reply>>,
    reply_to: ReplyTo<M::Reply>,
    sender: Option<ActorId>,
    authority: Authority,
    /// Whether the delivery repeats an earlier one. If so, messages without a receipt are skipped: they were not carried out then, either.
    is_repetition: bool,
}

enum MessageResult<M: Machine> {
    Answered(M::Reply),
    /// The host refused the message without passing it to the machine.
    Refused(Refusal),
    /// A part of the message was carried out. This message goes on with it.
    Part(M::Message),
}

impl<M: Actor> Host<M> {
    /// Creates a host from a recovered actor.
    pub fn new(recovered: Recovered<M>) -> Self {
        let Recovered { machine, receipts, last } = recovered;
        Self {
            machine,
            receipts,
            spent: false,
            spent_by: None,
            held: false,
            disk_low: false,
            last,
            awaited: last,
            backlog: None,
            parked: VecDeque::new(),
            spent_in_a_row: 0,
            watches: BTreeMap::new(),
            quarantined: Vec::new(),
            effects: Effects::<M>::default(),
            outbox: Outbox::default(),
            tells: Vec::new(),
            undelivered: Vec::new(),
            restate: Restate::default(),
            feed: None,
            repeated: RefCell::default(),
            injector: None,
            forger: None,
        }
    }

    /// Applies the start of the server to the machine, and restates its obligations. Returns the panic message if the machine panics.
    pub fn start(&mut self, start: Start) -> Result<(), String> {
        let (machine, effects) = (&mut self.machine, &mut self.effects);
        guard(|| {
            machine.start(start);
            machine.resume(effects);
        })?;
        self.last = start.stamp.seq;
        self.awaited = self.last;
        self.hold_effects();
        Ok(())
    }

    /// Accepts a delivery, and carries it out until it is done or other actors must have their turn. The previous delivery must be done.
    pub fn deliver(&mut self, ledger: &mut Ledger, delivery: Delivery<M>) -> Flow {
        assert!(self.backlog.is_none(), "a delivery begins only when the previous one is done");
        if self.repeats_parked(&delivery.items) {
            self.parked.push_back(Parked::Waiting(delivery));
        } else {
            self.backlog = Some(self.begin(ledger, delivery));
        }
        self.proceed(ledger)
    }

    /// Carries out the items that are due, and continues with the delivery under way, if there is one.
    pub fn proceed(&mut self, ledger: &mut Ledger) -> Flow {
        assert!(!self.spent, "a spent machine is rebuilt before anything else");
        let mut ticks = TICKS_IN_A_ROW;
        // Everything that is carried out in one call happens at the same time.
        let now = ledger.both();
        self.update_holds(ledger, now);
        loop {
            match self.advance(ledger, now, &mut ticks) {
                Flow::Done => {}
                flow @ (Flow::Yield | Flow::Panicked(_)) => return flow,
            }
            if self.spent_in_a_row >= COST_IN_A_ROW {
                self.spent_in_a_row = 0;
                return Flow::Yield;
            }
            let Some(running) = &mut self.backlog else {
                return Flow::Done;
            };
            let rest = running.rest.take();
            running.continues = rest.is_some();
            let Some(item) = rest.or_else(|| running.items.next()) else {
                if let Some(Running { answers, reply_to, .. }) = self.backlog.take() {
                    self.outbox.hold(self.awaited, answers, reply_to);
                }
                return Flow::Done;
            };
            self.spent_in_a_row += M::cost(item.request());
            let (done, key) = match item {
                Item::Message(message) => {
                    let done = self.message(ledger, now, (&message, None), Stage::Decide);
                    (done, None)
                }
                Item::Keyed(_, key)
                    if running.is_repetition && self.receipts.find(&key, now.at).is_none() =>
                {
                    continue;
                }
                Item::Keyed(message, key) => {
                    let done = self.once(ledger, now, (&message, &key), Stage::Decide);
                    (done, Some(key))
                }
                Item::Query(query) => {
                    let asked = self.ask(ledger, now, &query);
                    (asked.map(MessageResult::Answered), None)
                }
            };
            let Some(done) = self.parked(done, key) else {
                return Flow::Done;
            };
            if let Some(report) = self.done(done) {
                return Flow::Panicked(report);
            }
        }
    }

    /// Records the result of an item of the delivery, and which actors to notify. If the reply holds up the delivery, drops the commands
    /// after it. Returns the report of the panic if the item panicked.
    fn done(&mut self, done: Result<MessageResult<M>, Report>) -> Option<Report> {
        let running = self.backlog.as_mut()?;
        let continues = running.continues;
        let (answer, delivered, panicked) = match done {
            Ok(MessageResult::Answered(reply)) => (Ok(reply), true, None),
            Ok(MessageResult::Refused(_)) if continues => (Err(Failed::Interrupted), false, None),
            Ok(MessageResult::Refused(refusal)) => (Ok(M::Reply::from(refusal)), false, None),
            Ok(MessageResult::Part(_)) => unreachable!("a delivery with a rest was parked"),
            Err(report) if continues => (Err(Failed::Interrupted), false, Some(report)),
            Err(report) => (Err(Failed::Unapplied), false, Some(report)),
        };
        if let Some(sender) = running.sender.filter(|_| !delivered) {
            self.undelivered.push(sender);
            if panicked.is_some() {
                self.undelivered.push(M::ID);
            }
        }
        if answer.as_ref().is_ok_and(M::holds_up) {
            running.items = Vec::new().into_iter();
        }
        running.answers.push(answer);
        panicked
    }

    /// Restates obligations if that is due, then carries out the ticks of all due items, in (deadline, id) order. Returns [`Flow::Yield`]
    /// when `ticks` reaches zero, or when the ledger is short of numbers or space.
    fn advance(&mut self, ledger: &mut Ledger, now: Now, ticks: &mut usize) -> Flow {
        if self.restate.take_due(now.at)
            && let Err(cause) = self.resume()
        {
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        loop {
            let (machine, injector) = (&mut self.machine, &self.injector);
            let deadline = guard(|| machine.deadline(now.offset));
            if deadline.is_ok_and(|deadline| deadline.is_none_or(|deadline| deadline > now.at)) {
                break;
            }
            if *ticks == 0 || ledger.is_short() {
                return Flow::Yield;
            }
            *ticks -= 1;
            let due = guard(|| {
                call_injector(injector.as_deref(), Stage::Due, None);
                // If `deadline` panicked above, it panics again here, inside the guard that returns the message.
                machine.deadline(now.offset);
                machine.due(now)
            });
            let item = match due {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(cause) => {
                    return Flow::Panicked(self.spend(ledger, now, (Stage::Due, cause)));
                }
            };
            if let Err(report) = self.tick(ledger, now, item) {
                return Flow::Panicked(report);
            }
        }
        if ledger.is_short() { Flow::Yield } else { Flow::Done }
    }

    /// Carries out the tick of one item. If that panics, quarantines the item and returns the report of the panic.
    fn tick(&mut self, ledger: &mut Ledger, now: Now, item: u64) -> Result<(), Report> {
        let machine = &self.machine;
        let ticked = match guard(|| machine.tick(item)) {
            Ok(message) => match self.wait_with_key(&message) {
                None => self.message(ledger, now, (&message, None), Stage::Tick).map(drop),
                Some((ticket, key)) => self.tick_once(ledger, now, ticket, (&message, &key)),
            },
            Err(cause) => Err(Self::report(ledger, now, Stage::Tick, cause)),
        };
        let Err(mut report) = ticked else {
            return Ok(());
        };
        report.item = Some(item);
        if self.spent {
            self.spent_by = Some(item);
        } else {
            let machine = &mut self.machine;
            self.spent = guard(|| machine.quarantine(item, now)).is_err();
        }
        if self.quarantined.len() == QUARANTINED_MAX {
            self.quarantined.remove(0);
        }
        self.quarantined.push(report.clone());
        Err(report)
    }

    /// Decides a message. An outcome that changes something is ordered, committed and appended; if there is a key, it gets a receipt.
    fn message(
        &mut self,
        ledger: &mut Ledger,
        now: Now,
        (message, key): (&M::Message, Option<&RequestKey>),
        stage: Stage,
    ) -> Result<MessageResult<M>, Report> {
        let moment = ledger.moment(M::ID, now);
        let (outcome, durability) = match self.decide(ledger.room(), &moment, message, stage) {
            Ok(Ok(decided)) => decided,
            Ok(Err(refusal)) => return Ok(MessageResult::Refused(refusal)),
            Err((stage, cause)) => return Err(self.poison(ledger, now, (stage, cause), message)),
        };
        if durability == Durability::Nothing {
            let machine = &mut self.machine;
            return guard(|| {
                machine.unchanged(&outcome);
                result_of(machine, Seq(0), message, &outcome)
            })
            .map_err(|cause| self.poison(ledger, now, (stage, cause), message));
        }
        let stamp = ledger.order_some(now.at, M::numbers(&outcome));
        let published = self.publish(stamp, message, &outcome);
        let (machine, effects, injector) = (&mut self.machine, &mut self.effects, &self.injector);
        let committed = guard(|| {
            call_injector(injector.as_deref(), Stage::Commit, Some(message));
            machine.commit(stamp, message, &outcome, effects);
            result_of(machine, stamp.seq, message, &outcome)
        });
        self.spent_in_a_row += M::outcome_cost(&outcome);
        match committed {
            Ok(result) => {
                self.last = stamp.seq;
                // Under its key, a message has the outcome of its last part.
                let key = key.filter(|_| !matches!(result, MessageResult::Part(_)));
                if let Some(key) = key {
                    let pages = self.machine.pages();
                    self.receipts.note(pages, stamp, (*key, &outcome));
                }
                let entry = Entry { message, outcome: &outcome, key: key.copied() };
                // An answer under an idempotency key must be durable, because a repetition of the request has to get the same answer.
                let awaited = durability == Durability::Durable || key.is_some();
                if awaited || self.effects.has_actions() {
                    ledger.append(M::ID, stamp, &entry);
                    self.awaited = stamp.seq;
                } else {
                    ledger.append_transient(M::ID, stamp, &entry);
                }
                self.hold_effects();
                Ok(result)
            }
            Err(cause) => {
                self.spent = true;
                self.effects.take();
                if let Some(feed) = self.feed.as_ref().filter(|_| published) {
                    feed.retract(stamp.seq);
                }
                Err(self.poison(ledger, now, (Stage::Commit, cause), message))
            }
        }
    }

    /// Decides a message, and determines whether and how its outcome is journaled. The outer error is a panic of the machine: its stage and
    /// message. The inner error is the refusal of a message for which the disk is too full, or which its sender may not send; ticks are never refused.
    #[expect(clippy::type_complexity, reason = "the type is used only here, and fits on one line")]
    fn decide(
        &self,
        room: Room,
        moment: &Moment,
        message: &M::Message,
        stage: Stage,
    ) -> Result<Result<(M::Outcome, Durability), Refusal>, (Stage, String)> {
        let (machine, injector) = (&self.machine, self.injector.as_deref());
        let forger = self.forger.as_ref();
        let running = self.backlog.as_ref();
        let is_limited =
            stage == Stage::Decide && running.is_some_and(|it| it.authority == Authority::Limited);
        let at = Cell::new(stage);
        let decided = guard(|| {
            let may_refuse = stage != Stage::Tick && room != Room::Ample;
            if may_refuse && refused(machine.space_effect(message), room) {
                return Err(Refusal::DiskFull);
            }
            call_injector(injector, stage, Some(message));
            if is_limited && machine.forbids(message) {
                return Err(Refusal::Forbidden);
            }
            let outcome = decided((machine, forger), moment, message);
            // If `durability` panics in a tick, the stage is still `Tick`, because the item is quarantined as if `decide` had panicked.
            if stage != Stage::Tick {
                at.set(Stage::Keeping);
            }
            call_injector(injector, Stage::Keeping, Some(message));
            let durability = machine.durability(message, &outcome);
            Ok((outcome, durability))
        });
        decided.map_err(|cause| (at.get(), cause))
    }

    fn ask(&mut self, ledger: &Ledger, now: Now, query: &M::Query) -> Result<M::Reply, Report> {
        let asked = guard(|| {
            call_injector(self.injector.as_deref(), Stage::Query, None);
            self.machine.query(now, query)
        });
        asked.map_err(|cause| Self::report(ledger, now, Stage::Query, cause))
    }

    /// Records in the journal that this message was not applied, and returns the report of its panic.
    fn poison(
        &mut self,
        ledger: &mut Ledger,
        now: Now,
        (stage, cause): (Stage, String),
        message: &M::Message,
    ) -> Report {
        let stamp = ledger.order(now.at);
        let poisoned = Poisoned { stage, cause: cause.clone(), message: message.clone() };
        ledger.poison(M::ID, stamp, &poisoned);
        self.last = stamp.seq;
        self.awaited = stamp.seq;
        Self::report(ledger, now, stage, cause)
    }

    /// Marks the state as spent after a panic that no message caused, and returns the report.
    fn spend(&mut self, ledger: &Ledger, now: Now, (stage, cause): (Stage, String)) -> Report {
        self.spent = true;
        self.effects.take();
        Self::report(ledger, now, stage, cause)
    }

    fn report(ledger: &Ledger, now: Now, stage: Stage, cause: String) -> Report {
        Report {
            actor: M::NAME,
            stage,
            seq: ledger.last(),
            at: now.at,
            offset: now.offset,
            cause,
            item: None,
        }
    }

    /// Restates every obligation of the machine. Returns the panic message if the machine panics.
    fn resume(&mut self) -> Result<(), String> {
        let (machine, effects, injector) = (&mut self.machine, &mut self.effects, &self.injector);
        guard(|| {
            call_injector(injector.as_deref(), Stage::Resume, None);
            machine.resume(effects);
        })?;
        self.hold_effects();
        Ok(())
    }

    /// Holds answers and actions back until the entries that they depend on are durable; collects tells, which need not wait.
    fn hold_effects(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        for effect in self.effects.take() {
            match effect {
                Effect::Wake(ticket, reply) => {
                    if let Some(wait) = self.watches.remove(&ticket) {
                        self.outbox.hold(self.awaited, vec![Ok(reply)], wait.reply_to);
                    }
                }
                Effect::Tell(to, message) => self.tells.push(Tell { from: M::ID, to, message }),
                Effect::Act(action) => self.outbox.hold_action(self.awaited, action),
            }
        }
    }

    /// Schedules a restatement of obligations, because another actor refused one of this actor's tells or panicked while handling it. Also
    /// called when the completion of one of this actor's actions was refused here, and after this actor panicked while handling a tell.
    pub fn undelivered(&mut self, at: Timestamp) {
        self.restate.refused(at);
    }

    /// Sets the feed to which events are published.
    pub fn publish_to(&mut self, feed: Arc<Feed>) {
        self.feed = Some(feed);
    }

    /// Takes the messages for other actors. They need not wait for the journal: the entry that a tell causes comes after the sender's
    /// entry.
    pub fn take_tells(&mut self) -> Vec<Tell> {
        std::mem::take(&mut self.tells)
    }

    /// Takes the actors to notify: the senders of tells that were refused here or caused a panic, and after a panic, this actor, too.
    pub fn take_undelivered(&mut self) -> Vec<ActorId> {
        std::mem::take(&mut self.undelivered)
    }

    /// Drops the delivery under way, all waits, and the answers and actions in the outbox, because the node has halted.
    pub fn abandon(&mut self) {
        self.backlog = None;
        self.parked.clear();
        self.watches.clear();
        self.outbox.discard();
    }

    /// Sets a hook that provokes panics, for tests and for faults that tasks request.
    pub fn inject_panics(&mut self, injector: PanicInjector<M>) {
        self.injector = Some(injector);
    }

    /// Sets a hook that replaces outcomes with others, which the rules would never produce, for tests.
    pub fn forge(&mut self, forger: Forger<M>) {
        self.forger = Some(forger);
    }
}

/// Returns whether a message of this weight is refused when the disk has this much room.
fn refused(space_effect: SpaceEffect, room: Room) -> bool {
    match space_effect {
        SpaceEffect::Adds => room >= Room::Low,
        SpaceEffect::Keeps => room >= Room::Scant,
        SpaceEffect::Frees => false,
    }
}
