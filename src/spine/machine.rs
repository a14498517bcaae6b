//! The contract between an actor's rules and the spine around them.
//!
//! A machine is pure: it owns state and rules, and knows no clock, no disk, no network and no randomness of its own. The
//! host calls `decide` to learn what a message does, `commit` to make it so, and journals both; recovery calls `commit`
//! alone. What a machine wants done outside itself it returns as effects (`effect.rs`). See `ARCHITECTURE.md`.
//!
//! The contract is split by concern, and an [`Actor`] is all of it: rules ([`Machine`]), time ([`Timed`]), snapshots
//! ([`Paged`]), and what people are shown ([`Shown`]). What most machines do not need has a default.

pub use crate::clock::Now;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Chance, Digest, PageId, ProcessId, Seq, Slot, Ticket};
use crate::lookup::pages::Pages;
pub use crate::persist::mark::Draining;
use crate::spine::effect;
use crate::spine::event::Happening;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::Debug;

/// What a machine wants done outside itself.
pub type Effects<M> = effect::Effects<<M as Machine>::Reply, <M as Machine>::Action>;

/// The rules of an actor.
///
/// Any function of the contract may panic. In `decide`, `keeping` and `query` that fails one request and leaves the state
/// as it was; in a function that takes `&mut self` it spends the state, which is then rebuilt from the journal.
pub trait Machine: Send + Sized + 'static {
    /// The name in commands, logs and exports.
    const NAME: &'static str;
    /// The number in journal records. Never changes once released.
    const ID: ActorId;

    /// What the configuration says: may influence decisions, and is not state. Noted in the log when it changes, so that
    /// a decision can be checked by the rules of its day.
    type Rules: Serialize + DeserializeOwned + Clone + Debug + Default + Send + 'static;
    /// What may change state. Stored in the journal: see the change rule in `persist/format.rs`.
    type Message: Serialize + DeserializeOwned + Clone + Debug + Send + 'static;
    /// What was decided about a message, as plain data. Stored with it.
    type Outcome: Serialize + DeserializeOwned + PartialEq + Debug + Send + 'static;
    /// A question that changes nothing.
    type Query: Debug + Send + 'static;
    /// An answer to a message, a query or a watch.
    type Reply: From<Refusal> + Debug + Send + 'static;
    /// Something that a request may wait for. Volatile: held by the host, stated again after every restart.
    type Watch: Clone + Debug + Send + 'static;
    /// Something to be done in the world: plain data, for the port of this actor. [`Never`] if there is nothing.
    type Action: Clone + Debug + Send + 'static;

    /// The machine with nothing in it.
    fn new(rules: Self::Rules) -> Self;
    /// Takes other rules. State stays as it is; later decisions go by these.
    fn set_rules(&mut self, rules: Self::Rules);

    /// What this message does, without doing it. Depends on state, rules, message and moment, and on nothing else.
    fn decide(&self, moment: &Moment, message: &Self::Message) -> Self::Outcome;
    /// What an outcome that is not committed yet changes, and so how it is kept.
    fn keeping(&self, message: &Self::Message, outcome: &Self::Outcome) -> Keeping;
    /// How many sequence numbers an outcome takes: one for each item it makes that needs a number of its own.
    fn numbers(_outcome: &Self::Outcome) -> u64 {
        1
    }
    /// Makes the outcome so. Total: there is nothing left to decide. Durable state depends on the entry alone, never on
    /// the rules; what is volatile may go by them.
    fn commit(
        &mut self,
        entry: Stamp,
        message: &Self::Message,
        outcome: &Self::Outcome,
        effects: &mut Effects<Self>,
    );
    /// The answer to the sender of the message, once its outcome is committed. `seq` is the entry's, zero if none was
    /// needed.
    fn reply(&self, seq: Seq, message: &Self::Message, outcome: &Self::Outcome) -> Self::Reply;
    /// A message was decided and changes nothing: for what counts such messages, and rests on nothing.
    fn unchanged(&mut self, _outcome: &Self::Outcome) {}
    /// The answer to a message that comes again, to an outcome of before. State has gone on since: what the answer
    /// shows of it may have changed, or be gone, which must be an answer too.
    fn reply_again(
        &self,
        seq: Seq,
        message: &Self::Message,
        outcome: &Self::Outcome,
    ) -> Self::Reply {
        self.reply(seq, message, outcome)
    }
    /// Whether an answer must be waited on before what follows it is done: a delivery ends there.
    fn holds_up(_reply: &Self::Reply) -> bool {
        false
    }
    /// The answer to a query. Never expires anything.
    fn query(&self, now: Now, query: &Self::Query) -> Self::Reply;
    /// What this takes, where 1 is a usual command: after much of it others have their turn.
    fn cost(_asked: Asked<'_, Self>) -> usize {
        1
    }
    /// How a message from a client or another actor bears on space that runs out. Ticks are never refused.
    fn weight(&self, _message: &Self::Message) -> Weight {
        Weight::Adds
    }

    /// Begins to wait: answers through `effects` at once if it is already due. An upsert.
    fn watch(&mut self, _ticket: Ticket, watch: &Self::Watch, _effects: &mut Effects<Self>) {
        unreachable!("nobody waits for {watch:?} here")
    }
    /// Ends a wait.
    fn unwatch(&mut self, _ticket: Ticket) {}
    /// The wait that a message acts for, if it is a tick for one: what it does then is done under the key of the wait.
    fn acts_for(_message: &Self::Message) -> Option<Ticket> {
        None
    }

    /// The server started: begins every span again in full, and ends what belonged to connections.
    fn start(&mut self, _start: Start) {}
    /// States every standing obligation again: the tells and actions that should be on their way. Called after
    /// recovery, after a rebuild, and some time after a tell or a completion was refused, so each must be an upsert.
    fn resume(&mut self, _effects: &mut Effects<Self>) {}
}

/// What a machine is asked.
#[derive(Debug)]
pub enum Asked<'a, M: Machine> {
    /// Something that may change state.
    Message(&'a M::Message),
    /// A question.
    Query(&'a M::Query),
    /// A wait.
    Watch(&'a M::Watch),
}

/// How time acts on a machine. By default it does not.
pub trait Timed: Machine {
    /// A time before which nothing is due; `None` if nothing ever will be. Dates are reckoned by the wall clock.
    fn deadline(&self, _offset: Offset) -> Option<Timestamp> {
        None
    }
    /// The item due first, in (deadline, id) order. May sort volatile indexes, changes nothing else.
    fn due(&mut self, _now: Now) -> Option<u64> {
        None
    }
    /// The message that lets time act on an item. Its outcome must be durable, or take the item out of `due`.
    fn tick(&self, item: u64) -> Self::Message {
        unreachable!("item {item} is never due")
    }
    /// Holds back what time removes for good, or no longer: the wall clock is in doubt. Volatile: a new machine holds nothing.
    fn hold(&mut self, _held: bool) {}
    /// Whether an item that was quarantined is so still: nothing has put it back. Also asked of a machine that is spent.
    fn is_quarantined(&self, _item: u64) -> bool {
        true
    }
    /// Takes an item whose tick panicked at `now` out of `due`, until something else puts it back. Not if it is no
    /// longer due then: it was put back since, or another item stands in its place.
    fn quarantine(&mut self, _item: u64, _now: Now) {}
}

/// How the durable state of a machine is kept in snapshots.
pub trait Paged: Machine {
    /// A page of durable state, decoded but not yet in its place.
    type Page: Send;

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
}

/// What people and programs are shown of a machine. Nothing rests on any of it.
pub trait Shown: Machine {
    /// The kinds of events that it publishes, beside those of any actor: a kind that is not here is not asked for, so
    /// that a word that is misspelt is not waited for.
    const KINDS: &'static [&'static str] = &[];
    /// Of these, what the program's log says, too, as a warning: what a person has to look after.
    const WARNINGS: &'static [&'static str] = &[];

    /// State, to look at.
    type View: Serialize;

    /// State, to look at: all of it.
    fn view(&self) -> Self::View {
        self.sample(usize::MAX)
    }
    /// State, to look at: of each kind of item the first `most`.
    fn sample(&self, most: usize) -> Self::View;
    /// What the status and the metrics count: names in `snake_case`, with what each counts.
    fn gauges(&self) -> Vec<Gauge> {
        Vec::new()
    }
    /// Publishes what an outcome comes to, in order; called just before the commit, and only while there are subscribers
    /// or where some of it are [`Shown::WARNINGS`].
    fn events(
        &self,
        _entry: Stamp,
        _message: &Self::Message,
        _outcome: &Self::Outcome,
        _publish: &mut dyn FnMut(Happening),
    ) {
    }
    /// The same for people who follow one item: also what changes nothing but a deadline.
    fn story(
        &self,
        entry: Stamp,
        message: &Self::Message,
        outcome: &Self::Outcome,
        publish: &mut dyn FnMut(Happening),
    ) {
        self.events(entry, message, outcome, publish);
    }
    /// How it stands with the item of this number, in no form that means anything: two are compared, to see whether an entry
    /// that names no item changed this one.
    fn glance(&self, _item: u64) -> Option<String> {
        None
    }
    /// What stands in the slots that an outcome names and its message does not, as long as it is not committed: for
    /// people who read a log.
    fn about(&self, _outcome: &Self::Outcome) -> Vec<About> {
        Vec::new()
    }
}

/// A machine with all that a host asks of it.
pub trait Actor: Machine + Timed + Paged + Shown {}

impl<M: Machine + Timed + Paged + Shown> Actor for M {}

/// Nothing: the actions of a machine that has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Never {}

/// When a message is decided, and by what chance. All of it stands in the log.
#[derive(Clone, Debug, Default)]
pub struct Moment {
    /// The sequence number that the entry gets, if there is one.
    pub seq: Seq,
    /// The time.
    pub now: Now,
    /// The chance of the start that this moment belongs to.
    pub chance: Chance,
    /// What the actor takes on no more.
    pub draining: Draining,
}

impl Moment {
    /// Order and time of the entry that is made now.
    pub const fn stamp(&self) -> Stamp {
        Stamp {
            seq: self.seq,
            at: self.now.at,
        }
    }

    /// The id of a process that is to be launched, with the `nth` random number of this moment.
    pub fn process_id(&self, nth: u64) -> ProcessId {
        ProcessId::new(self.now.date().0, self.draw(nth))
    }

    /// The `nth` random number of this moment: the same in every replay, another for every entry.
    pub fn draw(&self, nth: u64) -> u128 {
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

/// Something that is counted now, for status and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Gauge {
    /// Its name, in `snake_case`.
    pub name: &'static str,
    /// What it counts, in a few words.
    pub help: &'static str,
    /// How many.
    pub value: u64,
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
    /// it does what it would have done to it. An outcome that asks for an action is durable all the same.
    Passing,
    /// Durable state: the sender is answered when the journal has it.
    Durable,
}

/// A start of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// Its entry.
    pub stamp: Stamp,
    /// How many sequence numbers were passed over, since the process before may have handed them out: no more entries
    /// than that are lost.
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
    /// The key came before, with another request.
    KeyReused,
}

/// The reply of a machine that has nothing else to refuse.
impl<T> From<Refusal> for Result<T, Refusal> {
    fn from(refusal: Refusal) -> Self {
        Err(refusal)
    }
}
