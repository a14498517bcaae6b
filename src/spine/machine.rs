//! The contract between an actor's rules and the shell around them.
//!
//! A machine is pure: it owns state and rules, and knows no clock, no disk, no network and no chance. The host calls
//! `decide` to learn what a message does, `commit` to make it so, and journals both; recovery calls `commit` alone.
//! See `ARCHITECTURE.md`, "The one idea".

use crate::clock::Timestamp;
use crate::ids::{ActorId, Digest, PageId, Seq, Slot, Ticket};
use crate::lookup::pages::Pages;
use crate::spine::event::Happening;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// The pure part of an actor.
///
/// `decide` and `query` may panic: that fails one request and leaves the state as it was. A panic in `commit` spends
/// the state, which the host then rebuilds from the journal. Nothing else may.
pub trait Machine: Send + Sized + 'static {
    /// The name in commands, logs and exports.
    const NAME: &'static str;
    /// The number in journal records. Never changes once released.
    const ID: ActorId;

    /// What the configuration says: may influence decisions, is not state, and may differ in a later run.
    type Rules: Clone + Send + 'static;
    /// What may change state. Stored in the journal: see the change rule in `persist/format.rs`.
    type Message: Serialize + DeserializeOwned + Clone + Debug + Send + 'static;
    /// What was decided about a message, as plain data. Stored beside it.
    type Outcome: Serialize + DeserializeOwned + PartialEq + Debug + Send + 'static;
    /// A question that changes nothing.
    type Query: Debug + Send + 'static;
    /// An answer to a message, a query or a watch.
    type Reply: Debug + Send + 'static;
    /// Something that a request may wait for. Volatile: held by the host, stated again after every restart.
    type Watch: Clone + Debug + Send + 'static;
    /// State as people and programs are shown it.
    type View: Serialize;
    /// A page of durable state, decoded but not yet in its place.
    type Page: Send;

    /// The machine with nothing in it.
    fn new(rules: Self::Rules) -> Self;

    /// What this message does, without doing it.
    fn decide(&self, at: Timestamp, message: &Self::Message) -> Self::Outcome;
    /// What an outcome that is not committed yet changes, and so how it is kept.
    fn keeping(&self, message: &Self::Message, outcome: &Self::Outcome) -> Keeping;
    /// How many sequence numbers an outcome takes: as many as it makes items that each need one.
    fn numbers(_outcome: &Self::Outcome) -> u64 {
        1
    }
    /// Makes the outcome so. Total: there is nothing left to decide, and nothing here depends on the rules.
    fn commit(
        &mut self,
        entry: Stamp,
        message: &Self::Message,
        outcome: &Self::Outcome,
        effects: &mut Effects<Self::Reply>,
    );
    /// The answer to whoever sent the message, once its outcome is committed. `seq` is the entry's, zero if none was
    /// needed.
    fn reply(&self, seq: Seq, message: &Self::Message, outcome: &Self::Outcome) -> Self::Reply;
    /// Whether an answer must be waited on before anything behind it is done: a delivery ends there.
    fn holds_up(_reply: &Self::Reply) -> bool {
        false
    }
    /// The answer to a query. Never expires anything.
    fn query(&self, at: Timestamp, query: &Self::Query) -> Self::Reply;

    /// How a message bears on space that runs out.
    fn weight(&self, message: &Self::Message) -> Weight;
    /// The answer to a message that the host refuses.
    fn refuse(message: &Self::Message, refusal: Refusal) -> Self::Reply;

    /// A time before which nothing is due; `None` if nothing ever will be.
    fn deadline(&self) -> Option<Timestamp>;
    /// The item due first at `at`, in (deadline, id) order. May sort volatile indexes, changes nothing else.
    fn due(&mut self, at: Timestamp) -> Option<u64>;
    /// The message that lets time act on an item. Its outcome must be durable, or take the item out of `due`.
    fn tick(&self, item: u64) -> Self::Message;
    /// Takes an item whose tick panicked at `at` out of `due`, until something else puts it back. Not if it is no
    /// longer due then: it was put back since, or another item stands in its place.
    fn quarantine(&mut self, item: u64, at: Timestamp);

    /// Begins to wait: answers through `effects` at once if it is already due. An upsert.
    fn watch(&mut self, ticket: Ticket, watch: &Self::Watch, effects: &mut Effects<Self::Reply>);
    /// Ends a wait.
    fn unwatch(&mut self, ticket: Ticket);

    /// The coordinator started: begins every span again in full, and ends what belonged to connections.
    fn start(&mut self, start: Start);
    /// States every standing obligation again, after recovery.
    fn resume(&mut self, effects: &mut Effects<Self::Reply>);

    /// Which pages have changed. `commit` and `start` call `touch` there before they change anything durable.
    fn pages(&mut self) -> &mut Pages;
    /// Writes the content of a page; nothing if it has none. See the change rule in `persist/format.rs`.
    fn encode_page(&self, page: PageId, content: &mut Vec<u8>);
    /// Reads the content of a page. Pure and independent of all others: another thread does it while state is built.
    fn decode_page(page: PageId, content: &[u8]) -> Result<Self::Page, String>;
    /// The machine with these pages in it, which come in ascending order. Indexes are built here.
    ///
    /// # Panics
    /// If the pages contradict each other: they were never a state of this machine.
    fn from_pages(rules: Self::Rules, pages: &mut dyn Iterator<Item = Self::Page>) -> Self;

    /// The digest of durable state.
    fn digest(&self) -> Digest;
    /// Durable state, to look at.
    fn view(&self) -> Self::View;
    /// Tells whoever listens what an outcome comes to, in order; called only while somebody does, just before the
    /// commit. Nothing may rest on it.
    fn events(
        &self,
        _entry: Stamp,
        _message: &Self::Message,
        _outcome: &Self::Outcome,
        _tell: &mut dyn FnMut(Happening),
    ) {
    }
    /// What stands in the slots that an outcome speaks of and its message does not, as long as it is not committed: for
    /// people who read a log.
    fn about(&self, _outcome: &Self::Outcome) -> Vec<About> {
        Vec::new()
    }
}

/// What stands in a slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct About {
    /// Which.
    pub slot: Slot,
    /// What each of its names is called, and what it is.
    #[serde(flatten)]
    pub names: BTreeMap<String, String>,
}

/// Order and time of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Its sequence number.
    pub seq: Seq,
    /// Its time.
    pub at: Timestamp,
}

/// What an outcome changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// Nothing: it is neither committed nor journaled.
    Nothing,
    /// What ends with the process anyway: it is journaled, but nobody waits until the disk has it. A crash that forgets
    /// it does what it would have done to it.
    Passing,
    /// Durable state: whoever asked learns of it when the journal has it.
    Durable,
}

/// A start of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its entry.
    pub stamp: Stamp,
    /// How many sequence numbers were passed over, since the coordinator before may have handed them out: no more
    /// entries than that are lost.
    pub skipped: u64,
}

/// How a message bears on space that runs out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It adds something that stays.
    Adds,
    /// It keeps what is there.
    Keeps,
    /// It takes something away, or must not be refused.
    Frees,
}

/// Why the host refuses a message before the machine has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The disk is full.
    DiskFull,
}

/// What a machine wants done outside itself, in order.
#[derive(Debug)]
pub struct Effects<R> {
    list: Vec<Effect<R>>,
}

/// One thing that a machine wants done.
#[derive(Debug)]
pub enum Effect<R> {
    /// Answer a request that waits.
    Wake(Ticket, R),
    /// Tell another actor something; never an ask.
    Tell(Tell),
}

/// A message from one actor to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// The other actor.
    pub to: ActorId,
    /// Its message, as rmp-serde writes it.
    pub message: Vec<u8>,
}

impl<R> Default for Effects<R> {
    fn default() -> Self {
        Self { list: Vec::new() }
    }
}

impl<R> Effects<R> {
    /// Answers a request that waits.
    pub fn wake(&mut self, ticket: Ticket, reply: R) {
        self.list.push(Effect::Wake(ticket, reply));
    }

    /// Tells another actor something.
    pub fn tell<M: Machine>(&mut self, message: &M::Message) {
        let message = rmp_serde::to_vec(message).expect("messages always encode");
        self.list.push(Effect::Tell(Tell { to: M::ID, message }));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Takes them, in order.
    pub fn take(&mut self) -> Vec<Effect<R>> {
        std::mem::take(&mut self.list)
    }
}
