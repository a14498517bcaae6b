//! What is delivered to a host, what it answers, and what it reports of a panic.

use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, RequestKey, Seq};
use crate::spine::machine::{Asked, Machine, Moment, Now};
use serde::{Deserialize, Serialize};

/// One command of a delivery.
#[derive(Debug)]
pub enum Item<M: Machine> {
    /// Something that may change state.
    Message(M::Message),
    /// The same, to be done once: if it was done under this key, it is answered again.
    Keyed(M::Message, Box<RequestKey>),
    /// A question.
    Query(M::Query),
}

impl<M: Machine> Item<M> {
    /// A message that may have a key.
    pub fn once(message: M::Message, key: Option<RequestKey>) -> Self {
        match key {
            None => Self::Message(message),
            Some(key) => Self::Keyed(message, Box::new(key)),
        }
    }

    /// What the machine is asked.
    pub fn asked(&self) -> Asked<'_, M> {
        match self {
            Self::Message(message) | Self::Keyed(message, _) => Asked::Message(message),
            Self::Query(query) => Asked::Query(query),
        }
    }
}

/// The answer to one item.
pub type Answer<R> = Result<R, Failed>;

/// The request panicked; it was not applied, and is noted in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("internal error: the request panicked and was not applied")]
pub struct Failed;

/// Who gets the answers of a delivery. Called once, on the core.
pub type ReplyTo<R> = Box<dyn FnOnce(Vec<Answer<R>>) + Send>;

/// A wait for something, and who is answered when it is so.
pub struct Wait<M: Machine> {
    /// What is waited for.
    pub watch: M::Watch,
    /// Who is answered.
    pub reply_to: ReplyTo<M::Reply>,
    /// What time does for it is done once, under this key.
    pub key: Option<Box<RequestKey>>,
}

impl<M: Machine> Wait<M> {
    /// A wait without a key.
    pub fn new(watch: M::Watch, reply_to: ReplyTo<M::Reply>) -> Self {
        Self {
            watch,
            reply_to,
            key: None,
        }
    }
}

/// What one socket read brought: commands in order, answered together. What follows an answer that must be waited on is
/// not done, and has no answer.
pub struct Delivery<M: Machine> {
    /// The commands.
    pub items: Vec<Item<M>>,
    /// Who is answered.
    pub reply_to: ReplyTo<M::Reply>,
    /// The actor that sends this, if it is no client: it is told when it was refused.
    pub teller: Option<ActorId>,
}

impl<M: Machine> Delivery<M> {
    /// What a client sends.
    pub fn new(items: Vec<Item<M>>, reply_to: ReplyTo<M::Reply>) -> Self {
        Self {
            items,
            reply_to,
            teller: None,
        }
    }

    /// What another actor sends. Nobody is answered.
    pub fn told(message: M::Message, teller: ActorId) -> Self {
        Self {
            items: vec![Item::Message(message)],
            reply_to: Box::new(drop),
            teller: Some(teller),
        }
    }
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

/// Where a panic happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// While deciding: the state is as it was.
    Decide,
    /// While finding out what a decision changes: the state is as it was.
    Keeping,
    /// While committing: the state is spent.
    Commit,
    /// While answering a query: the state is as it was.
    Query,
    /// While time acted on an item.
    Tick,
    /// While looking for what is due: the state is spent.
    Due,
    /// While a wait began or ended: the state is spent.
    Watch,
    /// While stating obligations again: the state is spent.
    Resume,
}

impl Stage {
    /// Its name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Decide => "decide",
            Self::Keeping => "keeping",
            Self::Commit => "commit",
            Self::Query => "query",
            Self::Tick => "tick",
            Self::Due => "due",
            Self::Watch => "watch",
            Self::Resume => "resume",
        }
    }

    /// Whether a panic here leaves a message that was not applied, which the journal notes.
    pub const fn has_message(self) -> bool {
        match self {
            Self::Decide | Self::Keeping | Self::Commit | Self::Tick => true,
            Self::Query | Self::Due | Self::Watch | Self::Resume => false,
        }
    }
}

/// A panic, as the Supervisor and the status see it.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Whose.
    pub actor: &'static str,
    /// Where.
    pub stage: Stage,
    /// The entry that is marked as poisoned; if none is, the newest of all.
    pub seq: Seq,
    /// When.
    pub at: Timestamp,
    /// How far the wall clock was ahead then.
    #[serde(skip)]
    pub offset: Offset,
    /// The panic's words.
    pub cause: String,
    /// The item on which time acted, now quarantined.
    pub item: Option<u64>,
}

impl Report {
    /// When, by both clocks.
    pub const fn now(&self) -> Now {
        Now {
            at: self.at,
            offset: self.offset,
        }
    }
}

/// Makes panics, for tests: called before each step in which a machine may panic, with the message if there is one.
pub type Saboteur<M> = Box<Sabotage<<M as Machine>::Message>>;

/// Makes outcomes, for tests: another than the one that was decided, or `None` if that stands.
pub type Forger<M> = Box<
    dyn Fn(
            &M,
            &Moment,
            &<M as Machine>::Message,
            &<M as Machine>::Outcome,
        ) -> Option<<M as Machine>::Outcome>
        + Send,
>;

/// What makes panics where messages are of type `T`.
pub type Sabotage<T> = dyn Fn(Stage, Option<&T>) + Send;
