//! What a checker needs to know of a machine: rules of its own, written a second time and more simply.
//!
//! A reference follows the log entry by entry and says what each message had to come to and what each query had to
//! show at that place. It shares no code with the machine that it judges, only the types of its messages.

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
    /// A client, which is answered.
    Client,
    /// Time.
    Tick,
    /// Another actor.
    Tell,
}

/// Clients of an actor in one run: a small world, so that they get in each other's way.
pub(crate) trait Clients<R: Reference> {
    fn new(setting: &Setting) -> Self;
    /// What one read of a socket brings.
    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<R>>;
    /// Something that one waits for.
    fn watch(&self, _: &mut Chance) -> WatchOf<R> {
        unreachable!("nobody waits here")
    }
    /// One was answered.
    fn note(&mut self, _: &Call<R>) {}
}

/// The clients of an actor that has none.
pub(crate) struct Nobody;

impl<R: Reference> Clients<R> for Nobody {
    fn new(_: &Setting) -> Self {
        Self
    }

    fn call(&mut self, _: &mut Chance) -> Vec<Ask<R>> {
        unreachable!("nobody calls")
    }
}

/// The rules of a machine, a second time.
pub(crate) trait Reference: Clone + Default {
    /// How often its clients call, how often one begins to wait, and how often it has its turn, beside other moves.
    const CALLS: u64 = 40;
    const WATCHES: u64 = 0;
    const TURNS: u64 = 60;

    /// Who asks.
    type Clients: Clients<Self>;
    /// The machine that is judged.
    type Machine: Actor
        + Machine<Message: PartialEq, Query: Clone, Reply: PartialEq + Clone, Outcome: Clone>;

    /// The configuration in all runs.
    fn rules() -> <Self::Machine as Machine>::Rules;

    /// What holds of every history, whatever the rules are: followed before the rules have their say.
    fn promised(
        &mut self,
        _: Stamp,
        _: &MessageOf<Self>,
        _: &OutcomeOf<Self>,
    ) -> Result<(), Violation> {
        Ok(())
    }
    /// Follows one entry: its outcome, and the reply to it, must be the right ones here.
    fn apply(
        &mut self,
        stamp: Stamp,
        message: &MessageOf<Self>,
        outcome: (&OutcomeOf<Self>, &ReplyOf<Self>),
    ) -> Result<(), String>;
    /// The wall clock was noted to be so far ahead of node time.
    fn go_by(&mut self, _marked: &Marked) {}
    /// The coordinator started.
    fn start(&mut self, start: Start);
    /// A message panicked and was not applied; if time sent it, its item no longer acts.
    fn poisoned(&mut self, message: &MessageOf<Self>);
    /// An item on which time has still to act at `at`, if there is one.
    fn due(&self, at: Timestamp) -> Option<String>;
    /// The reply to a message that changes nothing here; `None` if it would change something.
    fn without_change(&self, message: &MessageOf<Self>) -> Option<ReplyOf<Self>>;
    /// The answer to a query.
    fn answer(&self, query: &QueryOf<Self>) -> Answer<ReplyOf<Self>>;
    /// Whether this is the answer to a query that was asked at `at`, and may have come to its turn later.
    fn is_answer(
        &self,
        query: &QueryOf<Self>,
        _at: Timestamp,
        answer: &Answer<ReplyOf<Self>>,
    ) -> bool {
        self.answer(query) == *answer
    }
    /// Whether the machine shows the same state, field by field.
    fn agrees(&self, machine: &Self::Machine) -> Result<(), String>;

    /// Who sends this message.
    fn origin(message: &MessageOf<Self>) -> Origin;
    /// Whether this reply says that the message stands in the log.
    fn changes(reply: &ReplyOf<Self>) -> bool;
    /// What somebody who waits for this is woken with here, if it is so.
    fn wakes(&self, watch: &WatchOf<Self>) -> Option<ReplyOf<Self>>;
    /// Whether a crash of the process alone may take what this reply tells of, though it was told: what passes with the
    /// process. `told` are all replies of the same life, with what they are to.
    fn may_pass<'a>(
        _ask: (&MessageOf<Self>, &ReplyOf<Self>),
        _told: impl Fn() -> AnsweredMessages<'a, Self>,
    ) -> bool
    where
        Self: 'a,
    {
        false
    }
    /// Whether a crash of the process alone may take what somebody was woken with.
    fn may_wake_pass(_watch: &WatchOf<Self>, _reply: &ReplyOf<Self>) -> bool {
        false
    }
    /// What was told of is there, or was, even if the telling itself passed with the process.
    fn has_seen(&self, _reply: &ReplyOf<Self>) -> bool {
        true
    }
    /// Counts what an entry comes to, if there is more to see than that there is one.
    fn count(_: &MessageOf<Self>, _: &OutcomeOf<Self>, _: &mut Coverage) {}
    /// Whether a full disk may refuse this message: never what takes something away.
    fn may_be_refused(message: &MessageOf<Self>) -> bool;
    /// Whether this reply is a refusal for want of space.
    fn is_disk_full(reply: &ReplyOf<Self>) -> bool;
}

/// Messages and replies to them.
pub(crate) type AnsweredMessages<'a, R> =
    Box<dyn Iterator<Item = (&'a MessageOf<R>, &'a ReplyOf<R>)> + 'a>;

/// A machine with nothing in it, to be brought to where a log ends.
pub(crate) fn replica<R: Reference>() -> Replica<R::Machine> {
    Replica::new(R::rules())
}

pub(crate) type MessageOf<R> = <<R as Reference>::Machine as Machine>::Message;
pub(crate) type OutcomeOf<R> = <<R as Reference>::Machine as Machine>::Outcome;
pub(crate) type QueryOf<R> = <<R as Reference>::Machine as Machine>::Query;
pub(crate) type ReplyOf<R> = <<R as Reference>::Machine as Machine>::Reply;
pub(crate) type WatchOf<R> = <<R as Reference>::Machine as Machine>::Watch;
