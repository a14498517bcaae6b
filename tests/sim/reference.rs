//! The interface of a second, simpler implementation of a machine's rules, which the checkers use.
//!
//! A reference follows the log entry by entry. It gives the outcome that each message must have, and the answer that each
//! query must have at that position. It shares no code with the machine that it checks, only the types of its messages.

use crate::actor::{Ask, Call};
use crate::chance::Chance;
use crate::coverage::Coverage;
use crate::setting::Setting;
use crate::violation::Violation;
use sexton::clock::Timestamp;
use sexton::persist::mark::Marked;
use sexton::spine::delivery::Answer;
use sexton::spine::machine::{Actor, Machine, Stamp, Start};
use sexton::spine::recovery::Replica;

/// The sender of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, which gets an answer.
    Client,
    /// Time.
    Tick,
    /// Another actor.
    Tell,
}

/// The clients of an actor in one run. They use few names, so that their requests often concern the same thing.
pub(crate) trait Clients<R: Reference> {
    fn new(setting: &Setting) -> Self;
    /// Returns the commands in one read of a socket.
    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<R>>;
    /// Returns the condition of a new wait.
    fn watch(&self, _: &mut Chance) -> WatchOf<R> {
        unreachable!("clients of this actor do not wait")
    }
    /// Called when a command was answered.
    fn note(&mut self, _: &Call<R>) {}
}

/// The clients of an actor without clients.
pub(crate) struct Nobody;

impl<R: Reference> Clients<R> for Nobody {
    fn new(_: &Setting) -> Self {
        Self
    }

    fn call(&mut self, _: &mut Chance) -> Vec<Ask<R>> {
        unreachable!("this actor has no clients")
    }
}

/// A second implementation of the rules of a machine.
pub(crate) trait Reference: Clone + Default {
    /// The weights, relative to other moves, of its clients' calls, its clients' waits, and its turns.
    const CALLS: u64 = 40;
    const WATCHES: u64 = 0;
    const TURNS: u64 = 60;

    type Clients: Clients<Self>;
    /// The machine that is checked.
    type Machine: Actor
        + Machine<Message: PartialEq, Query: Clone, Reply: PartialEq + Clone, Outcome: Clone>;

    /// Returns the configuration that all runs use.
    fn rules() -> <Self::Machine as Machine>::Rules;

    /// Checks the promises that every history keeps, whatever the rules are. Called before the rules are checked.
    fn promised(
        &mut self,
        _: Stamp,
        _: &MessageOf<Self>,
        _: &OutcomeOf<Self>,
    ) -> Result<(), Violation> {
        Ok(())
    }
    /// Applies one entry. Returns an error unless its outcome and its reply are right at this position.
    fn apply(
        &mut self,
        stamp: Stamp,
        message: &MessageOf<Self>,
        outcome: (&OutcomeOf<Self>, &ReplyOf<Self>),
    ) -> Result<(), String>;
    /// Handles a mark. Marks record how far the wall clock is ahead of node time.
    fn apply_marks(&mut self, _marked: &Marked) {}
    /// Handles a startup of the node.
    fn start(&mut self, start: Start);
    /// Handles a message that panicked and was not applied. If it was a tick, time no longer acts on its item.
    fn poisoned(&mut self, message: &MessageOf<Self>);
    /// Returns the first item on which time should have acted by `at`, or `None`.
    fn due(&self, at: Timestamp) -> Option<String>;
    /// Returns the reply to a message that changes nothing in this state, or `None` if it would change something.
    fn without_change(&self, message: &MessageOf<Self>) -> Option<ReplyOf<Self>>;
    /// Returns the answer to a query.
    fn answer(&self, query: &QueryOf<Self>) -> Answer<ReplyOf<Self>>;
    /// Returns whether this is a right answer to a query that was sent at `at`, and may have been answered later.
    fn is_answer(
        &self,
        query: &QueryOf<Self>,
        _at: Timestamp,
        answer: &Answer<ReplyOf<Self>>,
    ) -> bool {
        self.answer(query) == *answer
    }
    /// Returns an error unless the machine has the same state, field by field.
    fn agrees(&self, machine: &Self::Machine) -> Result<(), String>;

    /// Returns who sent this message.
    fn origin(message: &MessageOf<Self>) -> Origin;
    /// Returns whether this reply is only given for a change, which is in the log.
    fn changes(reply: &ReplyOf<Self>) -> bool;
    /// Returns the answer that ends this wait in this state, or `None` if its condition does not hold.
    fn wakes(&self, watch: &WatchOf<Self>) -> Option<ReplyOf<Self>>;
    /// Returns whether the change that this reply reports is a passing one: a crash of the process may lose it although
    /// it was acknowledged. `told` returns all messages and replies of the same life of the node.
    fn may_pass<'a>(
        _ask: (&MessageOf<Self>, &ReplyOf<Self>),
        _told: impl Fn() -> AnsweredMessages<'a, Self>,
    ) -> bool
    where
        Self: 'a,
    {
        false
    }
    /// Returns whether the change that ended a wait is a passing one.
    fn may_wake_pass(_watch: &WatchOf<Self>, _reply: &ReplyOf<Self>) -> bool {
        false
    }
    /// Returns whether the state that this reply shows exists or existed, even if a crash may have lost the change that
    /// it reports.
    fn has_seen(&self, _reply: &ReplyOf<Self>) -> bool {
        true
    }
    /// Counts the effects of an entry for the coverage.
    fn count(_: &MessageOf<Self>, _: &OutcomeOf<Self>, _: &mut Coverage) {}
    /// Adds what was counted while entries were applied.
    fn tally(&mut self, _: &mut Coverage) {}
    /// Returns whether this message may be refused when the disk is full. A message that releases anything must never be.
    fn may_be_refused(message: &MessageOf<Self>) -> bool;
    /// Returns whether this reply is a refusal because of a full disk.
    fn is_disk_full(reply: &ReplyOf<Self>) -> bool;
}

/// Pairs of a message and its reply.
pub(crate) type AnsweredMessages<'a, R> =
    Box<dyn Iterator<Item = (&'a MessageOf<R>, &'a ReplyOf<R>)> + 'a>;

/// Creates an empty machine to which a log can be applied.
pub(crate) fn replica<R: Reference>() -> Replica<R::Machine> {
    Replica::new(R::rules())
}

pub(crate) type MessageOf<R> = <<R as Reference>::Machine as Machine>::Message;
pub(crate) type OutcomeOf<R> = <<R as Reference>::Machine as Machine>::Outcome;
pub(crate) type QueryOf<R> = <<R as Reference>::Machine as Machine>::Query;
pub(crate) type ReplyOf<R> = <<R as Reference>::Machine as Machine>::Reply;
pub(crate) type WatchOf<R> = <<R as Reference>::Machine as Machine>::Watch;
