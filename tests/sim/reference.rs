//! What a checker needs to know about a machine: an independent and simpler implementation of its rules.
//!
//! A reference follows the log entry by entry, and gives the outcome that each message must have and the answer that each
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

/// Who sends a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client, which gets an answer.
    Client,
    /// Time.
    Tick,
    /// Another actor.
    Tell,
}

/// Clients of an actor in one run: a small world, so that they collide.
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
    /// How often its clients send a call, how often one begins to wait, and how often the actor has a turn, relative to other moves.
    const CALLS: u64 = 40;
    const WATCHES: u64 = 0;
    const TURNS: u64 = 60;

    /// Its clients.
    type Clients: Clients<Self>;
    /// The machine that is checked.
    type Machine: Actor
        + Machine<Message: PartialEq, Query: Clone, Reply: PartialEq + Clone, Outcome: Clone>;

    /// Returns the configuration in all runs.
    fn rules() -> <Self::Machine as Machine>::Rules;

    /// Checks promises that every history keeps, whatever the rules are. Called before the rules are checked.
    fn promised(
        &mut self,
        _: Stamp,
        _: &MessageOf<Self>,
        _: &OutcomeOf<Self>,
    ) -> Result<(), Violation> {
        Ok(())
    }
    /// Follows one entry: its outcome and its reply must be right at this position.
    fn apply(
        &mut self,
        stamp: Stamp,
        message: &MessageOf<Self>,
        outcome: (&OutcomeOf<Self>, &ReplyOf<Self>),
    ) -> Result<(), String>;
    /// Handles a mark that records how far the wall clock is ahead of node time.
    fn go_by(&mut self, _marked: &Marked) {}
    /// Handles a start of the coordinator.
    fn start(&mut self, start: Start);
    /// Handles a message that panicked and was not applied. If it was a tick, time no longer acts on its item.
    fn poisoned(&mut self, message: &MessageOf<Self>);
    /// Returns an item on which time still has to act at `at`, if there is one.
    fn due(&self, at: Timestamp) -> Option<String>;
    /// Returns the reply to a message that changes nothing here; `None` if it would change something.
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
    /// Checks that the machine shows the same state, field by field.
    fn agrees(&self, machine: &Self::Machine) -> Result<(), String>;

    /// Returns the sender of this message.
    fn origin(message: &MessageOf<Self>) -> Origin;
    /// Returns whether this reply implies that the message is in the log.
    fn changes(reply: &ReplyOf<Self>) -> bool;
    /// Returns the answer that ends this wait here, if its condition holds.
    fn wakes(&self, watch: &WatchOf<Self>) -> Option<ReplyOf<Self>>;
    /// Returns whether a crash of the process alone may lose the change that this reply reports, although it was acknowledged: a
    /// passing change. `told` are all replies of the same life, with their messages.
    fn may_pass<'a>(
        _ask: (&MessageOf<Self>, &ReplyOf<Self>),
        _told: impl Fn() -> AnsweredMessages<'a, Self>,
    ) -> bool
    where
        Self: 'a,
    {
        false
    }
    /// Returns whether a crash of the process alone may lose the change that ended a wait.
    fn may_wake_pass(_watch: &WatchOf<Self>, _reply: &ReplyOf<Self>) -> bool {
        false
    }
    /// Returns whether the reported change exists, or existed, even if the report itself was passing.
    fn has_seen(&self, _reply: &ReplyOf<Self>) -> bool {
        true
    }
    /// Counts what an entry did, if that is of interest beyond the number of entries.
    fn count(_: &MessageOf<Self>, _: &OutcomeOf<Self>, _: &mut Coverage) {}
    /// Returns whether a full disk may refuse this message, which must never release anything.
    fn may_be_refused(message: &MessageOf<Self>) -> bool;
    /// Returns whether this reply is a refusal because of a full disk.
    fn is_disk_full(reply: &ReplyOf<Self>) -> bool;
}

/// Messages and replies to them.
pub(crate) type AnsweredMessages<'a, R> =
    Box<dyn Iterator<Item = (&'a MessageOf<R>, &'a ReplyOf<R>)> + 'a>;

/// Creates an empty machine, to which the log will be applied.
pub(crate) fn replica<R: Reference>() -> Replica<R::Machine> {
    Replica::new(R::rules())
}

pub(crate) type MessageOf<R> = <<R as Reference>::Machine as Machine>::Message;
pub(crate) type OutcomeOf<R> = <<R as Reference>::Machine as Machine>::Outcome;
pub(crate) type QueryOf<R> = <<R as Reference>::Machine as Machine>::Query;
pub(crate) type ReplyOf<R> = <<R as Reference>::Machine as Machine>::Reply;
pub(crate) type WatchOf<R> = <<R as Reference>::Machine as Machine>::Watch;
