//! What a machine wants done outside itself: answers to waits, messages to other actors, actions in the world.
//!
//! **Answers and actions** leave when the journal has what they rest on. **Tells** do not wait: the entry that a tell
//! causes stands later in the same journal, so it is never durable without its cause.
//!
//! The delivery rule of tells and actions is one: both are upserts that `Machine::resume` states again. A tell that is
//! refused by a full disk, or whose message panics, is reported to its sender, whose host calls `resume` after
//! [`RESTATE_FIRST_MS`], then after [`RESTATE_MS`], doubling up to [`RESTATE_MS_MAX`] as long as that goes on. So does a completion that is refused. Where
//! it panicked, the receiver does the same: what it could not take may have been an answer, which its sender gives only
//! when it is asked. One that a crash swallows is stated again by the `resume` of the next start.

use crate::ids::{ActorId, Seq, Ticket};
use serde::Serialize;
use std::marker::PhantomData;

/// How soon a sender states its obligations again after one was refused, in milliseconds: most panics come once.
pub const RESTATE_FIRST_MS: u64 = 10;

/// How long it waits for that if one is refused again, in milliseconds.
pub const RESTATE_MS: u64 = 1000;

/// The longest that it waits to do so, in milliseconds.
pub const RESTATE_MS_MAX: u64 = 64_000;

/// What a machine with replies `R` and actions `A` wants done outside itself, in order.
#[derive(Debug)]
pub struct Effects<R, A> {
    list: Vec<Effect<R, A>>,
    acts: bool,
}

/// One thing that a machine wants done.
#[derive(Debug)]
pub enum Effect<R, A> {
    /// Answer a request that waits.
    Wake(Ticket, R),
    /// Send another actor a message, as rmp-serde writes it; never an ask.
    Tell(ActorId, Vec<u8>),
    /// Do something in the world.
    Act(Action<A>),
}

/// A message from one actor to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// Who sends it: an actor that learns of its own action's completion sends to itself.
    pub from: ActorId,
    /// The other actor.
    pub to: ActorId,
    /// Its message, as rmp-serde writes it.
    pub message: Vec<u8>,
}

/// Something to be done in the world, once for each attempt: an upsert.
///
/// A port that has performed this attempt already does nothing but report its completion again. One that knows a later
/// attempt of the same id refuses this one: the node has lost its newest entries to a power cut, which `fsync` other than
/// `always` allows, and is to ask anew. The completion, or refusal, is a message to the actor that carries id and attempt,
/// so that the machine can tell that of an older attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action<W> {
    /// What it is about, as the machine numbers such things.
    pub id: u64,
    /// The entry that asked for it.
    pub attempt: Seq,
    /// What is to be done.
    pub what: W,
}

/// Where messages of type `T` are sent: lets a sender know a message without knowing the machine that takes it.
#[derive(Debug)]
pub struct To<T> {
    actor: ActorId,
    message: PhantomData<fn(T)>,
}

impl<T> Clone for To<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for To<T> {}

impl<T> To<T> {
    /// The actor that takes these messages.
    pub const fn actor(self) -> ActorId {
        self.actor
    }

    /// The address of the actor that takes these messages.
    pub const fn new(actor: ActorId) -> Self {
        Self {
            actor,
            message: PhantomData,
        }
    }
}

impl<R, A> Default for Effects<R, A> {
    fn default() -> Self {
        Self {
            list: Vec::new(),
            acts: false,
        }
    }
}

impl<R, A> Effects<R, A> {
    /// Answers a request that waits.
    pub fn wake(&mut self, ticket: Ticket, reply: R) {
        self.list.push(Effect::Wake(ticket, reply));
    }

    /// Sends another actor a message.
    pub fn tell<T: Serialize>(&mut self, to: To<T>, message: &T) {
        let message = rmp_serde::to_vec(message).expect("messages always encode");
        self.list.push(Effect::Tell(to.actor, message));
    }

    /// Asks for something to be done in the world.
    pub fn act(&mut self, action: Action<A>) {
        self.acts = true;
        self.list.push(Effect::Act(action));
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether an action is among them.
    pub fn has_actions(&self) -> bool {
        self.acts
    }

    /// Takes them, in order.
    pub fn take(&mut self) -> Vec<Effect<R, A>> {
        self.acts = false;
        std::mem::take(&mut self.list)
    }
}
