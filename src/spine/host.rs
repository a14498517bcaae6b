//! The shell around a machine, without I/O: messages in, records and held-back effects out.
//!
//! This is the one place where **order, decide, commit, append** stand in a row. Promises: a panic fails the request
//! that caused it and no other; nothing leaves before everything it rests on is durable; what is due happens before
//! the next message or query. Never here: threads, sockets, files, clocks. The runtime and the simulation drive it.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq, Ticket};
use crate::lookup::pages::Copied;
use crate::persist::format::Watermark;
use crate::persist::journal::Room;
use crate::persist::snapshots::Page;
use crate::spine::feed::Feed;
use crate::spine::ledger::{Ledger, Poisoned, Stage};
use crate::spine::machine::{
    Effect, Effects, Keeping, Machine, Refusal, Stamp, Start, Tell, Weight,
};
use crate::spine::outbox::Outbox;
use crate::spine::pages;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Ticks in a row after which others get their turn: expiring a million locks at once must not stop the node.
const TICKS_IN_A_ROW: usize = 1024;

/// How many quarantined items are remembered over a rebuild. One that is forgotten panics, and is quarantined, again.
const QUARANTINED_MAX: usize = 1024;

/// One command of a delivery.
#[derive(Debug)]
pub enum Item<M: Machine> {
    /// Something that may change state.
    Message(M::Message),
    /// A question.
    Query(M::Query),
}

/// The answer to one item.
pub type Answer<R> = Result<R, Failed>;

/// The request panicked; it was not applied, and is noted in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("internal error: the request panicked and was not applied")]
pub struct Failed;

/// Who gets the answers of a delivery. Called once, on the core.
pub type ReplyTo<R> = Box<dyn FnOnce(Vec<Answer<R>>) + Send>;

/// What one socket read brought: commands in order, answered together. Whatever stands behind an answer that must be
/// waited on is not done, and has no answer.
pub struct Delivery<M: Machine> {
    /// The commands.
    pub items: Vec<Item<M>>,
    /// Who is answered.
    pub reply_to: ReplyTo<M::Reply>,
}

/// How far the host came.
#[derive(Debug)]
pub enum Flow {
    /// Everything delivered is done.
    Done,
    /// There is more to do, after others have had their turn: call `proceed`.
    Yield,
    /// A panic: ask the Supervisor, then `proceed`, or rebuild first if the state is spent.
    Panicked(Report),
}

/// A panic, as the Supervisor and the status see it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// Whose.
    pub actor: &'static str,
    /// Where.
    pub stage: Stage,
    /// The entry that is marked as poisoned.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// The panic's words.
    pub cause: String,
    /// The item on which time acted, now quarantined.
    pub item: Option<u64>,
}

/// Makes panics, for tests: called before each decide, commit and tick with the message in question.
pub type Saboteur<M> = Box<dyn Fn(Stage, &<M as Machine>::Message) + Send>;

/// The same for queries: called before each is answered.
pub type QuerySaboteur<M> = Box<dyn Fn(&<M as Machine>::Query) + Send>;

/// A machine and what it needs to outlive its own panics.
pub struct Host<M: Machine> {
    machine: M,
    /// A commit panicked: the machine is not to be used until it is rebuilt.
    spent: bool,
    /// The newest entry of this actor.
    last: Seq,
    /// The newest that answers wait for.
    awaited: Seq,
    backlog: Option<Running<M>>,
    watches: BTreeMap<Ticket, (M::Watch, ReplyTo<M::Reply>)>,
    quarantined: Vec<Report>,
    effects: Effects<M::Reply>,
    outbox: Outbox<M::Reply>,
    tells: Vec<Tell>,
    /// Who is told what happens, if anybody is.
    feed: Option<Arc<Feed>>,
    saboteur: Option<Saboteur<M>>,
    query_saboteur: Option<QuerySaboteur<M>>,
}

/// A delivery that is being worked through.
struct Running<M: Machine> {
    items: std::vec::IntoIter<Item<M>>,
    answers: Vec<Answer<M::Reply>>,
    reply_to: ReplyTo<M::Reply>,
}

impl<M: Machine> Host<M> {
    /// A host around a recovered machine whose newest entry is `last`.
    pub fn new(machine: M, last: Seq) -> Self {
        Self {
            machine,
            spent: false,
            last,
            awaited: last,
            backlog: None,
            watches: BTreeMap::new(),
            quarantined: Vec::new(),
            effects: Effects::default(),
            outbox: Outbox::default(),
            tells: Vec::new(),
            feed: None,
            saboteur: None,
            query_saboteur: None,
        }
    }

    /// The coordinator started.
    pub fn start(&mut self, start: Start) {
        self.machine.start(start);
        self.last = start.stamp.seq;
        self.awaited = self.last;
        self.machine.resume(&mut self.effects);
        self.hold_effects();
    }

    /// Takes a delivery. The one before must be done.
    pub fn deliver(&mut self, ledger: &mut Ledger, delivery: Delivery<M>) -> Flow {
        assert!(
            self.backlog.is_none(),
            "a delivery begins when the one before is done"
        );
        self.backlog = Some(Running {
            answers: Vec::with_capacity(delivery.items.len()),
            items: delivery.items.into_iter(),
            reply_to: delivery.reply_to,
        });
        self.proceed(ledger)
    }

    /// Goes on with what was delivered, and with what is due.
    pub fn proceed(&mut self, ledger: &mut Ledger) -> Flow {
        assert!(
            !self.spent,
            "a spent machine is rebuilt before anything else"
        );
        let mut ticks = TICKS_IN_A_ROW;
        loop {
            let at = ledger.now();
            match self.advance(ledger, at, &mut ticks) {
                Flow::Done => {}
                flow @ (Flow::Yield | Flow::Panicked(_)) => return flow,
            }
            let Some(running) = &mut self.backlog else {
                return Flow::Done;
            };
            let Some(item) = running.items.next() else {
                if let Some(Running {
                    answers, reply_to, ..
                }) = self.backlog.take()
                {
                    self.outbox.hold(self.awaited, answers, reply_to);
                }
                return Flow::Done;
            };
            let answer = match item {
                Item::Message(message) => self.message(ledger, at, &message, Stage::Decide),
                Item::Query(query) => self.ask(ledger, at, &query),
            };
            let (answer, panicked) = match answer {
                Ok(reply) => (Ok(reply), None),
                Err(report) => (Err(Failed), Some(report)),
            };
            let holds_up = answer.as_ref().is_ok_and(M::holds_up);
            if let Some(running) = &mut self.backlog {
                running.answers.push(answer);
                if holds_up {
                    running.items = Vec::new().into_iter();
                }
            }
            if let Some(report) = panicked {
                return Flow::Panicked(report);
            }
        }
    }

    /// Lets time act, in (deadline, id) order, on everything due at `at`.
    fn advance(&mut self, ledger: &mut Ledger, at: Timestamp, ticks: &mut usize) -> Flow {
        while self
            .machine
            .deadline()
            .is_some_and(|deadline| deadline <= at)
        {
            if *ticks == 0 || ledger.is_short() {
                return Flow::Yield;
            }
            *ticks -= 1;
            let Some(item) = self.machine.due(at) else {
                break;
            };
            let message = self.machine.tick(item);
            if let Err(mut report) = self.message(ledger, at, &message, Stage::Tick) {
                report.item = Some(item);
                if !self.spent {
                    self.machine.quarantine(item, at);
                }
                if self.quarantined.len() == QUARANTINED_MAX {
                    self.quarantined.remove(0);
                }
                self.quarantined.push(report.clone());
                return Flow::Panicked(report);
            }
        }
        if ledger.is_short() {
            Flow::Yield
        } else {
            Flow::Done
        }
    }

    /// Order, decide, commit, append.
    fn message(
        &mut self,
        ledger: &mut Ledger,
        at: Timestamp,
        message: &M::Message,
        stage: Stage,
    ) -> Result<M::Reply, Report> {
        let room = ledger.room();
        let (machine, saboteur) = (&self.machine, &self.saboteur);
        let decided = guard(|| {
            if room != Room::Ample && refused(machine.weight(message), room) {
                return Err(M::refuse(message, Refusal::DiskFull));
            }
            if let Some(saboteur) = saboteur {
                saboteur(stage, message);
            }
            Ok(machine.decide(at, message))
        });
        let outcome = match decided {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(refusal)) => return Ok(refusal),
            Err(cause) => return Err(self.poison(ledger, at, (stage, cause), message)),
        };
        let keeping = self.machine.keeping(message, &outcome);
        if keeping == Keeping::Nothing {
            return guard(|| self.machine.reply(Seq(0), message, &outcome))
                .map_err(|cause| self.poison(ledger, at, (stage, cause), message));
        }
        let stamp = ledger.order_some(at, M::numbers(&outcome));
        let listened = self.tell_events(stamp, message, &outcome);
        let (machine, effects, saboteur) = (&mut self.machine, &mut self.effects, &self.saboteur);
        let committed = guard(|| {
            if let Some(saboteur) = saboteur {
                saboteur(Stage::Commit, message);
            }
            machine.commit(stamp, message, &outcome, effects);
            machine.reply(stamp.seq, message, &outcome)
        });
        match committed {
            Ok(reply) => {
                self.last = stamp.seq;
                if keeping == Keeping::Durable {
                    ledger.append(M::ID, stamp, &(message, &outcome));
                    self.awaited = stamp.seq;
                } else {
                    ledger.append_passing(M::ID, stamp, &(message, &outcome));
                }
                self.hold_effects();
                Ok(reply)
            }
            Err(cause) => {
                self.spent = true;
                self.effects.take();
                if let Some(feed) = self.feed.as_ref().filter(|_| listened) {
                    feed.retract(stamp.seq);
                }
                Err(self.poison(ledger, at, (Stage::Commit, cause), message))
            }
        }
    }

    /// Tells whoever listens what the outcome comes to; whether anybody does.
    fn tell_events(&self, entry: Stamp, message: &M::Message, outcome: &M::Outcome) -> bool {
        let Some(feed) = self.feed.as_ref().filter(|feed| feed.is_open()) else {
            return false;
        };
        let mut tell = |what| feed.put(entry.seq, entry.at, M::NAME, what);
        let told = guard(|| self.machine.events(entry, message, outcome, &mut tell));
        if let Err(cause) = told {
            tracing::error!(actor = M::NAME, cause, "what happened could not be told");
        }
        true
    }

    fn ask(
        &mut self,
        ledger: &Ledger,
        at: Timestamp,
        query: &M::Query,
    ) -> Result<M::Reply, Report> {
        let asked = guard(|| {
            if let Some(saboteur) = &self.query_saboteur {
                saboteur(query);
            }
            self.machine.query(at, query)
        });
        asked.map_err(|cause| Report {
            actor: M::NAME,
            stage: Stage::Query,
            seq: ledger.last(),
            at,
            cause,
            item: None,
        })
    }

    /// Notes in the journal that this message was not applied.
    fn poison(
        &mut self,
        ledger: &mut Ledger,
        at: Timestamp,
        (stage, cause): (Stage, String),
        message: &M::Message,
    ) -> Report {
        let stamp = ledger.order(at);
        ledger.poison(
            M::ID,
            stamp,
            &Poisoned {
                stage,
                cause: cause.clone(),
                message: message.clone(),
            },
        );
        self.last = stamp.seq;
        self.awaited = stamp.seq;
        Report {
            actor: M::NAME,
            stage,
            seq: stamp.seq,
            at,
            cause,
            item: None,
        }
    }

    /// Puts what the machine wants done behind what it rests on.
    fn hold_effects(&mut self) {
        if self.effects.is_empty() {
            return;
        }
        for effect in self.effects.take() {
            match effect {
                Effect::Wake(ticket, reply) => {
                    if let Some((_, reply_to)) = self.watches.remove(&ticket) {
                        self.outbox.hold(self.awaited, vec![Ok(reply)], reply_to);
                    }
                }
                Effect::Tell(tell) => self.tells.push(tell),
            }
        }
    }

    /// Waits for something on behalf of `ticket`; answered at once if it is so already.
    pub fn watch(&mut self, ticket: Ticket, watch: M::Watch, reply_to: ReplyTo<M::Reply>) {
        if let Some((watch, _)) = self.watches.get(&ticket) {
            unreachable!("a ticket is given once, and this one waits for {watch:?}");
        }
        if !self.spent {
            self.machine.watch(ticket, &watch, &mut self.effects);
        }
        self.watches.insert(ticket, (watch, reply_to));
        self.hold_effects();
    }

    /// Ends a wait without an answer.
    pub fn unwatch(&mut self, ticket: Ticket) {
        if self.watches.remove(&ticket).is_some() && !self.spent {
            self.machine.unwatch(ticket);
        }
    }

    /// Takes the spent machine out, for whoever rebuilds it to drop: there may be much of it.
    pub fn take_spent(&mut self, rules: M::Rules) -> M {
        assert!(self.spent, "a machine that is in use stays");
        std::mem::replace(&mut self.machine, M::new(rules))
    }

    /// Puts a rebuilt machine in the place of a spent one, and states again what outlived it.
    pub fn rebuilt(&mut self, mut machine: M) {
        for report in &self.quarantined {
            if let Some(item) = report.item {
                machine.quarantine(item, report.at);
            }
        }
        for (ticket, (watch, _)) in &self.watches {
            machine.watch(*ticket, watch, &mut self.effects);
        }
        machine.resume(&mut self.effects);
        self.machine = machine;
        self.spent = false;
        self.hold_effects();
    }

    /// Begins a checkpoint of what changed after `since`; what it is of. `None` while the machine is spent.
    pub fn begin_checkpoint(&mut self, since: Seq) -> Option<Watermark> {
        if self.spent {
            return None;
        }
        self.machine.pages().begin(since, self.last);
        Some(Watermark {
            actor: M::ID,
            upto: self.last,
            digest: self.machine.digest(),
        })
    }

    /// The next pages of the checkpoint that was begun, about `bytes_max` bytes of them, and whether these are the last.
    /// `None` if it was given up, or the machine lost in between.
    pub fn next_pages(&mut self, bytes_max: usize) -> Option<(Vec<Page>, bool)> {
        if self.spent || !self.machine.pages().is_running() {
            return None;
        }
        let machine = &mut self.machine;
        match guard(|| pages::slice(machine, bytes_max)) {
            Ok((copied, done)) => {
                let page = |copied: Copied| Page {
                    actor: M::ID,
                    page: copied.page,
                    changed: copied.changed,
                    content: copied.content,
                };
                Some((copied.into_iter().map(page).collect(), done))
            }
            Err(cause) => {
                tracing::error!(actor = M::NAME, cause, "a page could not be copied");
                self.abort_checkpoint();
                None
            }
        }
    }

    /// Gives up the checkpoint that was begun, if one was.
    pub fn abort_checkpoint(&mut self) {
        if !self.spent {
            self.machine.pages().abort();
        }
    }

    /// Tells what happens to whoever listens there.
    pub fn tell_to(&mut self, feed: Arc<Feed>) {
        self.feed = Some(feed);
    }

    /// Whether the machine must be rebuilt before anything else.
    pub fn is_spent(&self) -> bool {
        self.spent
    }

    /// Whether a delivery is being worked through.
    pub fn is_busy(&self) -> bool {
        self.backlog.is_some()
    }

    /// The newest entry of this actor.
    pub fn last(&self) -> Seq {
        self.last
    }

    /// The entry that answers from here on rest on: behind it there is only what passes with the process.
    pub fn awaited(&self) -> Seq {
        self.awaited
    }

    /// Which actor this is.
    pub fn actor(&self) -> ActorId {
        M::ID
    }

    /// A time before which nothing is due.
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.spent {
            None
        } else {
            self.machine.deadline()
        }
    }

    /// What waits for the journal.
    pub fn outbox(&self) -> &Outbox<M::Reply> {
        &self.outbox
    }

    /// What is to be told to other actors. Need not wait for the journal: the entry that a tell causes stands
    /// behind the one that caused it.
    pub fn take_tells(&mut self) -> Vec<Tell> {
        std::mem::take(&mut self.tells)
    }

    /// The machine, to look at. Not while it is spent.
    pub fn machine(&self) -> &M {
        assert!(!self.spent, "a spent machine shows nothing");
        &self.machine
    }

    /// Items on which time no longer acts, with the panics that were the reason.
    pub fn quarantined(&self) -> &[Report] {
        &self.quarantined
    }

    /// Forgets everything that waits for an answer. For a node that has halted.
    pub fn abandon(&mut self) {
        self.backlog = None;
        self.watches.clear();
        self.outbox.discard();
    }

    /// Plants panics, for tests.
    pub fn sabotage(&mut self, saboteur: Saboteur<M>) {
        self.saboteur = Some(saboteur);
    }

    /// Plants panics in answers to queries, for tests.
    pub fn sabotage_queries(&mut self, saboteur: QuerySaboteur<M>) {
        self.query_saboteur = Some(saboteur);
    }
}

/// Which messages a full disk refuses.
fn refused(weight: Weight, room: Room) -> bool {
    match weight {
        Weight::Adds => room >= Room::Low,
        Weight::Keeps => room >= Room::Scant,
        Weight::Frees => false,
    }
}

/// Runs pure code; a panic becomes its words.
fn guard<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| panic_words(payload.as_ref()))
}

/// The words of a panic, as far as it has any.
pub fn panic_words(payload: &(dyn std::any::Any + Send)) -> String {
    let words = payload
        .downcast_ref::<&str>()
        .map(|words| (*words).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned());
    words.unwrap_or_else(|| "a panic without words".to_owned())
}
