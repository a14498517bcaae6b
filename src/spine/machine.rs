//! The contract between an actor's rules and the spine around them.
//!
//! A machine is pure: it owns state and rules, and has no access to a clock, a disk, a network or a source of randomness. The host calls
//! `decide` to determine what a message does and `commit` to apply this outcome, and journals the message with its outcome; recovery calls
//! `commit` alone. Whatever must happen outside a machine is requested as an effect (`effect.rs`). See `ARCHITECTURE.md`.
//!
//! The contract is split by concern, and an [`Actor`] implements all parts: rules ([`Machine`]), time ([`Timed`]), snapshots ([`Paged`]),
//! and what users are shown ([`Observable`]). Functions that most machines do not need have a default.

pub use crate::clock::Now;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Chance, Digest, PageId, ProcessId, Seq, Slot, Ticket};
use crate::lookup::pages::Pages;
pub use crate::persist::mark::Draining;
use crate::spine::effect;
use crate::spine::event::EventBody;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The effects that a machine requests from the code around it.
pub type Effects<M> = effect::Effects<<M as Machine>::Reply, <M as Machine>::Action>;

/// The rules of an actor.
///
/// Any function of the contract may panic. In `decide`, `durability`, `query` and `unchanged`, a panic fails one request and leaves the state
/// unchanged. In any other function that takes `&mut self`, it makes the state unusable (*spent*), and the state is rebuilt from the
/// journal.
pub trait Machine: Send + Sized + 'static {
    /// The name used in commands, logs and exports.
    const NAME: &'static str;
    /// The number used in journal records. It never changes once released.
    const ID: ActorId;

    /// The configuration: it may influence decisions, but is not state. Changes are recorded in the log, so that a decision can be checked
    /// against the rules in force.
    type Rules: Serialize + DeserializeOwned + Clone + Debug + Default + Send + 'static;
    /// A message, which may change state. Stored in the journal: see the change rule in `persist/format.rs`.
    type Message: Serialize + DeserializeOwned + Clone + Debug + Send + 'static;
    /// The decision about a message, as plain data. Stored with the message.
    type Outcome: Serialize + DeserializeOwned + PartialEq + Debug + Send + 'static;
    /// A query, which changes nothing.
    type Query: Debug + Send + 'static;
    /// An answer to a message, a query or a watch.
    type Reply: From<Refusal> + Debug + Send + 'static;
    /// A condition that a request may wait for. Volatile: the host holds it, and passes it to the machine again after a rebuild.
    type Watch: Clone + Debug + Send + 'static;
    /// An external action: plain data, for the port of this actor. [`Never`] if there are no actions.
    type Action: Clone + Debug + Send + 'static;

    /// Creates an empty machine.
    fn new(rules: Self::Rules) -> Self;
    /// Replaces the rules. The state is unchanged; later decisions follow the new rules.
    fn set_rules(&mut self, rules: Self::Rules);

    /// Determines what a message does, without doing it. Depends on state, rules, message and moment, and on nothing else.
    fn decide(&self, moment: &Moment, message: &Self::Message) -> Self::Outcome;
    /// Returns whether a sender of limited authority may not send a message, because in the current state it would start or end a process,
    /// or change what a process depends on. The host then refuses the message without deciding it.
    fn forbids(&self, _message: &Self::Message) -> bool {
        false
    }
    /// Determines what an outcome will change when it is committed, and therefore whether and how it is journaled.
    fn durability(&self, message: &Self::Message, outcome: &Self::Outcome) -> Durability;
    /// Returns how many sequence numbers an outcome takes: one for each item it creates that needs its own number, and at least one.
    fn numbers(_outcome: &Self::Outcome) -> u64 {
        1
    }
    /// Applies an outcome. Never fails: there is nothing left to decide. Durable state depends on the entry alone, never on the rules;
    /// volatile state may depend on them.
    fn commit(
        &mut self,
        entry: Stamp,
        message: &Self::Message,
        outcome: &Self::Outcome,
        effects: &mut Effects<Self>,
    );
    /// Returns the answer to the sender of a message. Called after the commit, with the entry's number as `seq`; or without a commit and
    /// with zero if the outcome changes nothing.
    fn reply(&self, seq: Seq, message: &Self::Message, outcome: &Self::Outcome) -> Self::Reply;
    /// Called for a decided message that changes nothing, to update counters that nothing depends on.
    fn unchanged(&mut self, _outcome: &Self::Outcome) {}
    /// Returns the answer to a repeated message from its former outcome. The state may have changed since then, so the items that the
    /// answer shows may no longer exist.
    fn reply_again(
        &self,
        seq: Seq,
        message: &Self::Message,
        outcome: &Self::Outcome,
    ) -> Self::Reply {
        self.reply(seq, message, outcome)
    }
    /// Returns whether a reply holds up its delivery, because the client has to wait for the real answer. If so, the commands after it in
    /// the delivery are dropped.
    fn holds_up(_reply: &Self::Reply) -> bool {
        false
    }
    /// Answers a query. Never expires anything.
    fn query(&self, now: Now, query: &Self::Query) -> Self::Reply;
    /// Returns the cost of a request; an ordinary command costs 1. After a certain total cost, other actors get their turn.
    fn cost(_asked: Request<'_, Self>) -> usize {
        1
    }
    /// Returns the cost of an outcome, in addition to that of its request: for outcomes that change many items.
    fn outcome_cost(_outcome: &Self::Outcome) -> usize {
        0
    }
    /// Returns the message that goes on with what a message began, if its outcome is only a part. Called after the commit. One outcome
    /// changes a bounded number of items, so that nobody waits long: other deliveries are carried out between the parts, and the answer
    /// to the last part answers the message. A crash in between leaves the rest undone.
    fn rest(&self, _message: &Self::Message, _outcome: &Self::Outcome) -> Option<Self::Message> {
        None
    }
    /// Returns the effect of a message on disk space, which determines whether it is refused when the disk is almost full. Ticks are never
    /// refused.
    fn space_effect(&self, _message: &Self::Message) -> SpaceEffect {
        SpaceEffect::Adds
    }

    /// Begins a wait; answers through `effects` immediately if the condition is already true. An upsert.
    fn watch(&mut self, _ticket: Ticket, watch: &Self::Watch, _effects: &mut Effects<Self>) {
        unreachable!("this machine has no waits such as {watch:?}")
    }
    /// Ends a wait.
    fn unwatch(&mut self, _ticket: Ticket) {}
    /// Returns the wait that a tick answers, or `None` if the message is not such a tick. The tick is carried out under the idempotency key
    /// of the wait, if it has one.
    fn acts_for(_message: &Self::Message) -> Option<Ticket> {
        None
    }

    /// Called for each start of the server, also when recovery reaches an earlier start in the log. Restarts every timeout in full, and
    /// ends what belonged to connections of the previous process.
    fn start(&mut self, _start: Start) {}
    /// Repeats every request of the machine that has not been answered: messages to other actors, and actions of ports. Called
    /// after recovery, after a rebuild, and some time after a tell or a completion was refused, so each must be an upsert.
    fn resume(&mut self, _effects: &mut Effects<Self>) {}
}

/// A request to a machine.
#[derive(Debug)]
pub enum Request<'a, M: Machine> {
    /// A message, which may change state.
    Message(&'a M::Message),
    Query(&'a M::Query),
    /// A wait.
    Watch(&'a M::Watch),
}

/// The deadlines of a machine's items. By default there are none.
pub trait Timed: Machine {
    /// Returns a time before which nothing is due, or `None` if nothing has a deadline. `offset` converts dates to node time.
    fn deadline(&self, _offset: Offset) -> Option<Timestamp> {
        None
    }
    /// Returns the first item that is due, in (deadline, id) order, or `None` if none is due. May sort volatile indexes, but changes
    /// nothing else.
    fn due(&mut self, _now: Now) -> Option<u64> {
        None
    }
    /// Returns the tick of an item: the message that is carried out when its deadline has passed. Its outcome must be durable, or at least
    /// ensure that `due` no longer returns the item.
    fn tick(&self, item: u64) -> Self::Message {
        unreachable!("item {item} is never due")
    }
    /// Holds back removals on a date while `held` is true, because the wall clock is in doubt (far ahead of its expected time). Volatile: a
    /// new machine holds nothing back.
    fn hold_removals(&mut self, _held: bool) {}
    /// Holds back work that makes other actors add state, while `held` is true: the disk is low on space, and those actors would refuse it.
    /// Volatile, like [`hold_removals`](Self::hold_removals).
    fn hold_for_space(&mut self, _held: bool) {}
    /// Returns whether a quarantined item is still quarantined, that is, no change has made it due again. Also called on a spent machine.
    fn is_quarantined(&self, _item: u64) -> bool {
        true
    }
    /// Quarantines an item whose tick panicked at `now`: `due` no longer returns it, until a change makes it due again. Does nothing if the
    /// item is not due at `now`, because it has changed since or another item has taken its slot.
    fn quarantine(&mut self, _item: u64, _now: Now) {}
}

/// How the durable state of a machine is kept in snapshots.
pub trait Paged: Machine {
    /// A page of durable state, decoded but not yet part of a machine.
    type Page: Send;

    /// Returns the tracker of changed pages. `commit` and `start` must call `touch` on it before they change anything durable.
    fn pages(&mut self) -> &mut Pages;
    /// Writes the content of a page; nothing if it has none. See the change rule in `persist/format.rs`.
    fn encode_page(&self, page: PageId, content: &mut Vec<u8>);
    /// Decodes the content of a page. Pure and independent of other pages: another thread does this while state is built.
    fn decode_page(page: PageId, content: &[u8]) -> Result<Self::Page, String>;
    /// Creates a machine from its pages, which come in ascending order. Indexes are built here.
    ///
    /// # Panics
    /// Panics if the pages contradict each other: they were never a state of this machine.
    fn from_pages(rules: Self::Rules, pages: &mut dyn Iterator<Item = Self::Page>) -> Self;
    /// Returns the digest of durable state.
    fn digest(&self) -> Digest;
    /// Returns the digest that earlier versions of the program computed, which a log or snapshot of theirs has; `None` if it is the same. It
    /// may take time in proportion to the state.
    fn former_digest(&self) -> Option<Digest> {
        None
    }
}

/// The view of a machine for users and programs. No decision depends on it.
pub trait Observable: Machine {
    /// The kinds of events that the machine publishes, in addition to those of every actor. A subscription to any other kind is refused, so
    /// that a misspelled kind is reported instead of never matching.
    const KINDS: &'static [&'static str] = &[];
    /// The kinds that are also logged as warnings, because they need a person's attention.
    const WARNINGS: &'static [&'static str] = &[];
    /// The warnings that the same subject can cause again and again. Only some of them are logged.
    const REPEATED_WARNINGS: &'static [&'static str] = &[];

    /// Whether the events of the machine are shown only to those who may start and end processes, as its items are.
    const GUARDED: bool = false;

    /// A view of the state, for inspection.
    type View: Serialize;

    /// Returns a view of the complete state.
    fn view(&self) -> Self::View {
        self.sample(usize::MAX)
    }
    /// Returns a view of the state with at most `most` items of each kind.
    fn sample(&self, most: usize) -> Self::View;
    /// Returns gauges for the status and the metrics: names in `snake_case`, with a description of each.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
    /// Publishes the events of an outcome, in order. Called just before the commit, and only while there are subscribers or if the
    /// machine has [`Observable::WARNINGS`].
    fn events(
        &self,
        _entry: Stamp,
        _message: &Self::Message,
        _outcome: &Self::Outcome,
        _publish: &mut dyn FnMut(EventBody),
    ) {
    }
    /// Like [`events`](Self::events), for users who follow a single item: also includes changes that affect only a deadline.
    fn history(
        &self,
        entry: Stamp,
        message: &Self::Message,
        outcome: &Self::Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        self.events(entry, message, outcome, publish);
    }
    /// Returns a fingerprint of the item with this number, or `None` if there is no such item. Two fingerprints are compared to find out
    /// whether an entry that does not name the item changed it; the format has no other meaning.
    fn fingerprint(&self, _item: u64) -> Option<String> {
        None
    }
    /// Describes the items in the slots that are named by an outcome but not by its message. Called before the commit, for users who read a
    /// log.
    fn about(&self, _outcome: &Self::Outcome) -> Vec<About> {
        Vec::new()
    }
}

/// A machine with everything that a host needs.
pub trait Actor: Machine + Timed + Paged + Observable {}

impl<M: Machine + Timed + Paged + Observable> Actor for M {}

/// The action type of a machine without actions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {}

/// The inputs of a decision besides the state, the rules and the message. All of them can be derived from the log.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// The sequence number of the entry, if there will be one.
    pub seq: Seq,
    /// The time.
    pub now: Now,
    /// The random bytes drawn at startup.
    pub chance: Chance,
    /// The kinds of work that the actor refuses.
    pub draining: Draining,
}

impl Moment {
    /// Returns the number and time of the entry that this decision would make.
    pub const fn stamp(&self) -> Stamp {
        Stamp { seq: self.seq, at: self.now.at }
    }

    /// Returns an id for a process that is about to be launched, made from the `nth` random number of this moment.
    pub fn process_id(&self, nth: u64) -> ProcessId {
        ProcessId::new(self.now.date().0, self.random(nth))
    }

    /// Returns the `nth` random number of this moment: the same in every replay, but different for every entry.
    pub fn random(&self, nth: u64) -> u128 {
        let words = [self.seq.0, self.now.at.0, nth];
        let mut bytes = [0; 56];
        let (chance, rest) = bytes.split_at_mut(32);
        chance.copy_from_slice(&self.chance.0);
        for (place, word) in rest.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        xxhash_rust::xxh3::xxh3_128(&bytes)
    }
}

/// A current count, for status and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Its name, in `snake_case`.
    pub name: &'static str,
    /// A short description of what is counted.
    pub help: &'static str,
    /// The count.
    pub value: u64,
}

/// A description of the item in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// The slot.
    pub slot: Slot,
    /// The item's names, by the kind of name.
    #[serde(flatten)]
    pub names: BTreeMap<String, String>,
}

/// The number and time of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The sequence number.
    pub seq: Seq,
    /// The node time.
    pub at: Timestamp,
}

/// What an outcome changes, and therefore whether and how it is journaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing: the outcome is neither committed nor journaled.
    Nothing,
    /// State that is lost anyway when the process exits. The outcome is journaled, but no answer waits until the record is on disk: a crash
    /// that loses it has the same effect as the exit. An outcome that requests an action, or whose message has an idempotency key, is
    /// treated as durable nevertheless.
    Transient,
    /// Durable state: the sender is answered once the entry is durable.
    Durable,
}

/// A start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The number and time of the start's journal record.
    pub stamp: Stamp,
    /// The number of sequence numbers skipped because the previous process may have handed them out. It is also the maximum number of
    /// entries that may have been lost.
    pub skipped: u64,
}

/// The effect of a message on disk space, which determines whether it is refused when the disk is almost full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpaceEffect {
    /// It adds something that stays.
    Adds,
    /// It updates or prolongs existing state, as a renewal does.
    Keeps,
    /// It removes something, or must not be refused.
    Frees,
}

/// The explanation of [`Refusal::DiskFull`]. Whatever is removed is freed on the disk by the next snapshot, which is taken at once while the
/// disk is low on space.
pub const DISK_FULL: &str = "the disk is full: `sexton queue flush`, `sexton ps prune`, `sexton task prune` and released locks free space; or free some on the disk of the data directory";

/// Why the host refuses a message without passing it to the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The disk is full.
    DiskFull,
    /// The idempotency key was already used for a different request.
    KeyReused,
    /// The limit on idempotency keys is reached, in total or for the caller. Keys in use are kept for their time, so a new one is refused.
    ReceiptsFull,
    /// The sender's authority is limited, and the message would start or end a process, or change what one depends on.
    Forbidden,
}

/// Lets a machine that refuses nothing else reply with a plain `Result`.
impl<T> From<Refusal> for Result<T, Refusal> {
    fn from(refusal: Refusal) -> Self {
        Err(refusal)
    }
}
