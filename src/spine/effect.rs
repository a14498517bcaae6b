//! Effects, which a machine requests from the code around it: answers to waits, messages to other actors (*tells*), and external actions.
//!
//! **Answers and actions** are sent once the journal has the entry that they depend on. **Tells** do not wait: the entry that a tell causes
//! comes later in the same journal, so it is never durable without its cause.
//!
//! Tells and actions share one delivery rule: both are upserts that `Machine::resume` requests again for as long as they are needed. Such a
//! request is an *obligation* of the machine, and requesting it again is called *restating* it. If the receiver of a tell refuses it
//! because the disk is full, or panics while handling it, the sender is notified. The sender's host then calls `resume` after
//! [`RESTATE_FIRST_MS`]. If refusals continue, it calls `resume` again after [`RESTATE_MS`], and doubles this delay each time, up to
//! [`RESTATE_MS_MAX`]. When a full disk has space again, a scheduled call is made immediately. A refused completion (the message that
//! reports the result of an action) has the same effect as a refused tell. After a panic, the receiver restates its own obligations, too:
//! the message that it could not process may have been the answer to one of its tells, and the other actor sends such an answer only on
//! request. A tell lost in a crash is restated when `resume` is called at the next startup.

use crate::ids::{ActorId, Seq, Ticket};
use serde::Serialize;
use std::marker::PhantomData;

/// The delay before a sender first restates its obligations after one was refused, or its receiver panicked, in milliseconds. It is short
/// because most panics do not recur.
pub const RESTATE_FIRST_MS: u64 = 10;

/// The delay before the next restatement if an obligation is refused again, in milliseconds. It doubles with each further refusal.
pub const RESTATE_MS: u64 = 1000;

/// The maximum delay before a restatement, in milliseconds.
pub const RESTATE_MS_MAX: u64 = 64_000;

/// The effects that a machine requests, in order. `R` is the type of its replies, and `A` that of its actions.
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
    /// The sender. A message that reports the completion of an action comes from the receiving actor itself.
    pub from: ActorId,
    /// The receiver.
    pub to: ActorId,
    /// The message, encoded by rmp-serde.
    pub message: Vec<u8>,
}

/// An action to be performed outside the node, once for each attempt (each journal entry that requests it). It is an upsert.
///
/// If the port (the code that performs the actions of a machine) has already performed this attempt, it only reports the completion again.
/// If it has performed a later attempt of the same id, it refuses this one: the node has lost its newest entries to a power cut, which is
/// possible unless `fsync` is `always`, and must request the action again. The completion or refusal is reported to the actor in a message
/// that contains the id and the attempt, so that the machine can recognize a report about an older attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action<W> {
    /// A number, chosen by the machine, that identifies what the action is about.
    pub id: u64,
    /// The journal entry that requested the action.
    pub attempt: Seq,
    /// What to do.
    pub what: W,
}

/// The address of the actor that receives messages of type `T`. A sender that has it depends only on the type of the message, not on the
/// receiving machine.
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
    /// Returns the id of the actor that receives these messages.
    pub const fn actor(self) -> ActorId {
        self.actor
    }

    /// Creates the address for messages of type `T` that `actor` receives.
    pub const fn new(actor: ActorId) -> Self {
        Self { actor, message: PhantomData }
    }
}

impl<R, A> Default for Effects<R, A> {
    fn default() -> Self {
        Self { list: Vec::new(), acts: false }
    }
}

impl<R, A> Effects<R, A> {
    /// Requests that `reply` be sent to the request that waits under `ticket`.
    pub fn wake(&mut self, ticket: Ticket, reply: R) {
        self.list.push(Effect::Wake(ticket, reply));
    }

    /// Requests that a message be sent to another actor.
    pub fn tell<T: Serialize>(&mut self, to: To<T>, message: &T) {
        let message = rmp_serde::to_vec(message).expect("messages should always encode");
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
