//! Deliveries to a host, its answers, and its reports of panics.

use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, RequestKey, Seq};
use crate::spine::machine::{Machine, Moment, Now, Request};
use serde::{Deserialize, Serialize};

/// What the sender of a delivery may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Authority {
    /// Everything. Actors, the program that embeds a node, root, the coordinator's own user, and clients with the scope `run` have it.
    #[default]
    Full,
    /// What neither starts nor ends a process, directly or as a consequence: the host refuses what [`Machine::forbids`] names.
    Limited,
}

/// One command of a delivery.
#[derive(Debug)]
pub enum Item<M: Machine> {
    /// A message, which may change state.
    Message(M::Message),
    /// A message that must be carried out only once: if it was already carried out under this key, it gets the earlier answer again.
    Keyed(M::Message, Box<RequestKey>),
    /// A query, which changes nothing.
    Query(M::Query),
}

impl<M: Machine> Item<M> {
    /// Creates an item for a message that may have a key.
    pub fn once(message: M::Message, key: Option<RequestKey>) -> Self {
        match key {
            None => Self::Message(message),
            Some(key) => Self::Keyed(message, Box::new(key)),
        }
    }

    /// Returns this item as a request to the machine.
    pub fn request(&self) -> Request<'_, M> {
        match self {
            Self::Message(message) | Self::Keyed(message, _) => Request::Message(message),
            Self::Query(query) => Request::Query(query),
        }
    }
}

/// The answer to one item.
pub type Answer<R> = Result<R, Failed>;

/// The error for a request that was not carried out, or not to its end. If it was a message that panicked, the panic is recorded in the
/// journal. When this is the answer, nothing more is done for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failed {
    /// It panicked. Nothing of it was applied.
    #[error("internal error: the request panicked and was not applied")]
    Unapplied,
    /// It is carried out in parts (see [`Machine::rest`]), and a part after the first panicked or was refused. The parts before it stay.
    #[error(
        "the request was interrupted: a part of it was carried out and stays, the rest was not"
    )]
    Interrupted,
}

/// The function that receives the answers to a delivery. It is called once, on the core thread.
pub type ReplyTo<R> = Box<dyn FnOnce(Vec<Answer<R>>) + Send>;

/// A wait for a condition, with the function that receives the answer.
pub struct Wait<M: Machine> {
    /// The condition to wait for.
    pub watch: M::Watch,
    /// Receives the answer.
    pub reply_to: ReplyTo<M::Reply>,
    /// The idempotency key of the request, under which the tick that answers this wait is carried out only once.
    pub key: Option<Box<RequestKey>>,
}

impl<M: Machine> Wait<M> {
    /// Creates a wait without a key.
    pub fn new(watch: M::Watch, reply_to: ReplyTo<M::Reply>) -> Self {
        Self { watch, reply_to, key: None }
    }
}

/// Commands that are carried out in order and answered together, such as those from one read of a socket. If a command has to wait for its
/// answer (see [`Machine::holds_up`]), the commands after it are not carried out, and get no answer.
pub struct Delivery<M: Machine> {
    /// The commands.
    pub items: Vec<Item<M>>,
    /// Receives the answers.
    pub reply_to: ReplyTo<M::Reply>,
    /// The sending actor, if the sender is not a client: it is notified if the message is refused or panics.
    pub sender: Option<ActorId>,
    /// What the sender may do.
    pub authority: Authority,
}

impl<M: Machine> Delivery<M> {
    /// Creates a delivery from a client.
    pub fn new(items: Vec<Item<M>>, reply_to: ReplyTo<M::Reply>) -> Self {
        Self { items, reply_to, sender: None, authority: Authority::Full }
    }

    /// Creates a delivery from another actor. The answer is dropped.
    pub fn from_actor(message: M::Message, sender: ActorId) -> Self {
        Self {
            items: vec![Item::Message(message)],
            reply_to: Box::new(drop),
            sender: Some(sender),
            authority: Authority::Full,
        }
    }
}

/// How far the host got with a delivery.
#[derive(Debug)]
pub enum Flow {
    /// Everything delivered was carried out.
    Done,
    /// There is more to do: call `proceed` once other actors have had their turn.
    Yield,
    /// A panic occurred: wait for the Supervisor's verdict, rebuild the state if it is spent, then call `proceed`.
    Panicked(Report),
}

/// The function of a machine in which a panic occurred. If the panic may have left the state inconsistent, the state is *spent*: it is not
/// used again, and is rebuilt from the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// `decide`: the state is unchanged.
    Decide,
    /// `durability`, which determines what a decision changes: the state is unchanged.
    Keeping,
    /// `commit`: the state is spent.
    Commit,
    /// `query`: the state is unchanged.
    Query,
    /// `tick`, or `decide` or `durability` for the message that `tick` returned for a due item: the state is unchanged.
    Tick,
    /// `due`, which looks for due items: the state is spent.
    Due,
    /// `watch` or `unwatch`: the state is spent.
    Watch,
    /// `resume`, which repeats the machine's requests to other actors and ports: the state is spent.
    Resume,
}

impl Stage {
    /// Returns the name used in events.
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

    /// Returns whether a panic here leaves an unapplied message, which is recorded in the journal.
    pub const fn has_message(self) -> bool {
        match self {
            Self::Decide | Self::Keeping | Self::Commit | Self::Tick => true,
            Self::Query | Self::Due | Self::Watch | Self::Resume => false,
        }
    }
}

/// A panic, as reported to the Supervisor and in the status.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The name of the actor that panicked.
    pub actor: &'static str,
    /// Where it panicked.
    pub stage: Stage,
    /// The entry that records the message as poisoned (its handling panicked); if there is none, the newest entry of all.
    pub seq: Seq,
    /// The node time of the panic.
    pub at: Timestamp,
    /// How far the wall clock was ahead of node time.
    #[serde(skip)]
    pub offset: Offset,
    /// The panic message.
    pub cause: String,
    /// The item whose tick panicked, if the panic was in a tick. The item is now quarantined: its deadline is ignored until it changes.
    pub item: Option<u64>,
}

impl Report {
    /// Returns the time of the panic by both clocks.
    pub const fn now(&self) -> Now {
        Now { at: self.at, offset: self.offset }
    }
}

/// A hook that provokes panics, for tests and for faults that tasks request. It is called before each step in which a machine may panic,
/// with the message if there is one.
pub type PanicInjector<M> = Box<InjectorFn<<M as Machine>::Message>>;

/// A hook that replaces outcomes in tests. It returns the outcome to use, or `None` to keep the decided one.
pub type Forger<M> = Box<
    dyn Fn(
            &M,
            &Moment,
            &<M as Machine>::Message,
            &<M as Machine>::Outcome,
        ) -> Option<<M as Machine>::Outcome>
        + Send,
>;

/// A function that provokes panics for messages of type `T`.
pub type InjectorFn<T> = dyn Fn(Stage, Option<&T>) + Send;
