//! The effects that a machine requests outside itself: answers to waits, messages to other actors (*tells*), and external actions.
//!
//! **Answers and actions** are sent once the journal has the entry that they depend on. **Tells** do not wait: the entry that a tell
//! causes comes later in the same journal, so it is never durable without its cause.
//!
//! Tells and actions share one delivery rule: both are upserts that `Machine::resume` requests again for as long as they are needed. Such a
//! request is an *obligation* of the machine, and requesting it again is called *restating* it. If a tell is refused by a full disk, or its
//! message panics, its sender is notified. The sender's host then calls `resume` after [`RESTATE_FIRST_MS`], then after [`RESTATE_MS`],
//! doubling up to [`RESTATE_MS_MAX`] for as long as refusals continue; it does so immediately when a full disk has space again. A refused
//! completion has the same effect. After a panic, the receiver restates its obligations, too: the message that it could not process may
//! have been an answer, which its sender gives only on request. A tell lost in a crash is restated when `resume` is called at the next
//! startup.

use crate::ids::{ActorId, Seq, Ticket};
use serde::Serialize;
use std::marker::PhantomData;

/// The delay before a sender first restates its obligations after one was refused, in milliseconds. It is short because most panics occur
/// only once.
pub const RESTATE_FIRST_MS: u64 = 10;

/// The delay before the next restatement if an obligation is refused again, in milliseconds. It doubles with each further refusal.
pub const RESTATE_MS: u64 = 1000;

/// The maximum delay, in milliseconds.
pub const RESTATE_MS_MAX: u64 = 64_000;

/// The effects that a machine with replies `R` and actions `A` requests outside itself, in order.
#[derive(Debug)]
pub struct Effects<R, A> {
    list: Vec<Effect<R, A>>,
    acts: bool,
}

/// A single effect.
#[derive(Debug)]
pub enum Effect<R, A> {
    /// Answers a waiting request.
    Wake(Ticket, R),
    /// Sends another actor a message, encoded by rmp-serde; no reply is expected.
    Tell(ActorId, Vec<u8>),
    /// Performs an external action.
    Act(Action<A>),
}

/// A message from one actor to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tell {
    /// The sender. The completion of an action is sent by the actor to itself.
    pub from: ActorId,
    /// The receiver.
    pub to: ActorId,
    /// The message, encoded by rmp-serde.
    pub message: Vec<u8>,
}

/// An action to be performed outside the node, once for each attempt: an upsert.
///
/// A port that has already performed this attempt only reports its completion again. A port that has performed a later attempt of the same
/// id refuses this one: the node has lost its newest entries to a power cut, which `fsync` other than `always` allows, and must request the
/// action again. The completion, or refusal, is a message to the actor with the id and attempt, so that the machine can recognize a message
/// about an older attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action<W> {
    /// What the action is about, in the machine's own numbering.
    pub id: u64,
    /// The journal entry that requested the action.
    pub attempt: Seq,
    /// What to do.
    pub what: W,
}

/// The address for messages of type `T`, so that a sender depends only on the message, not on the receiving machine.
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
    /// Returns the actor that receives these messages.
    pub const fn actor(self) -> ActorId {
        self.actor
    }

    /// Creates the address of the actor that receives these messages.
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
    /// Answers a waiting request.
    pub fn wake(&mut self, ticket: Ticket, reply: R) {
        self.list.push(Effect::Wake(ticket, reply));
    }

    /// Sends another actor a message.
    pub fn tell<T: Serialize>(&mut self, to: To<T>, message: &T) {
        let message = rmp_serde::to_vec(message).expect("messages always encode");
        self.list.push(Effect::Tell(to.actor, message));
    }

    /// Requests an external action.
    pub fn act(&mut self, action: Action<A>) {
        self.acts = true;
        self.list.push(Effect::Act(action));
    }

    /// Returns whether there are no effects.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Returns whether there is an action among the effects.
    pub fn has_actions(&self) -> bool {
        self.acts
    }

    /// Takes the effects, in order.
    pub fn take(&mut self) -> Vec<Effect<R, A>> {
        self.acts = false;
        std::mem::take(&mut self.list)
    }
}
