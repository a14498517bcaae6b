//! Follows one actor through the log of one life of the node, and compares the log with the observations of the actor's
//! clients.
//!
//! Entries are the positions. A reply that reports a change must belong to the next entry of a client. A reply that
//! reports no change, and the answer to a query, must be right somewhere between the entries around it, and never while
//! something is due. The reference decides which replies are right. Deciding each message again must give the same
//! outcome.

use crate::actor::{Ask, Call, Wait};
use crate::coverage::Coverage;
use crate::reference::{MessageOf, Origin, OutcomeOf, Reference, ReplyOf, replica};
use crate::violation::{Promise, Violation, ensure};
use sexton::clock::{Offset, Timestamp};
use sexton::ids::{ActorId, Digest, Seq};
use sexton::persist::format::Kind;
use sexton::persist::mark::{Mark, Marked};
use sexton::spine::delivery::{Answer, Failed};
use sexton::spine::ledger::{Entry, Poisoned};
use sexton::spine::machine::{Machine as _, Moment, Now, Stamp, Start};
use sexton::spine::receipts;
use sexton::spine::recovery::{EntryOf, Recovering as _, Replica};
use std::collections::BTreeMap;

/// A copy of a record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) seq: Seq,
    pub(crate) at: Timestamp,
    pub(crate) actor: ActorId,
    pub(crate) kind: Kind,
    pub(crate) payload: Vec<u8>,
}

impl Kept {
    pub(crate) fn stamp(&self) -> Stamp {
        Stamp { seq: self.seq, at: self.at }
    }

    fn as_mark(&self) -> Option<Mark> {
        (self.kind == Kind::Mark).then(|| rmp_serde::from_slice(&self.payload).ok())?
    }
}

/// The reference of an actor, and a second machine that decides again.
pub(crate) struct Witness<R: Reference> {
    pub(crate) reference: R,
    /// The combined effect of the marks so far.
    marked: Marked,
    shadow: Replica<R::Machine>,
    done: Requests<R>,
    /// If the last entry was a part of a request: the message for its rest, and the request.
    partly: Option<(MessageOf<R>, MessageOf<R>)>,
}

/// The last entry under each request key, and its reply.
type Requests<R> = BTreeMap<u128, (Stamp, ReplyOf<R>)>;

impl<R: Reference> Default for Witness<R> {
    fn default() -> Self {
        Self {
            reference: R::default(),
            marked: Marked::default(),
            shadow: replica::<R>(),
            done: BTreeMap::new(),
            partly: None,
        }
    }
}

impl<R: Reference> Witness<R> {
    pub(crate) fn digest(&self) -> Digest {
        self.shadow.digest()
    }

    /// Follows the log. Calls that saw more than `survived` count as unanswered. `waits` has all answered waits; those
    /// that were rightly answered are removed.
    pub(crate) fn follow(
        &mut self,
        log: &[Kept],
        (calls, waits, survived): (&[Call<R>], &mut Vec<&Wait<R>>, Seq),
        coverage: &mut Coverage,
        mut look: impl FnMut(&MessageOf<R>, &OutcomeOf<R>),
    ) -> Result<(), Violation> {
        let mut cursor = Cursor { calls, survived, call: 0, item: 0, reads: 0, refusals: 0 };
        self.justify(waits);
        for kept in log {
            match kept.kind {
                Kind::Mark if let Some(mark) = kept.as_mark() => {
                    // An answer from before a clock step is right by the clock of that time, so it must be placed before
                    // the step is applied.
                    cursor.settle((&self.reference, &self.done), kept.seq);
                    self.marked.apply(&mark);
                    self.reference.apply_marks(&self.marked);
                    if let Mark::Start { skipped, .. } = mark {
                        let stamp = kept.stamp();
                        let start = Start { stamp, skipped };
                        cursor.end((&self.reference, &self.done))?;
                        self.partly = None;
                        self.reference.start(start);
                        self.shadow.start(start);
                    }
                }
                Kind::Poisoned if kept.actor == R::Machine::ID => {
                    let poisoned: Poisoned<MessageOf<R>> = decode(kept)?;
                    self.poisoned(kept, &poisoned.message, (&mut cursor, coverage))?;
                }
                Kind::Entry if kept.actor == R::Machine::ID => {
                    let entry = decode(kept)?;
                    self.entry(kept, &entry, &mut cursor)?;
                    coverage.decisions_verified += 1;
                    *coverage.entries.entry(R::Machine::NAME).or_default() += 1;
                    self.justify(waits);
                    look(&entry.message, &entry.outcome);
                }
                Kind::Mark | Kind::Poisoned | Kind::Entry | Kind::End => {}
            }
        }
        cursor.end((&self.reference, &self.done))?;
        coverage.reads_checked += cursor.reads;
        coverage.refusals_checked += cursor.refusals;
        Ok(())
    }

    /// Removes the waits whose answers are right in this state.
    fn justify(&self, waits: &mut Vec<&Wait<R>>) {
        waits.retain(|wait| {
            wait.answer.is_none() || self.reference.wakes(&wait.watch) != wait.answer
        });
    }

    fn entry(
        &mut self,
        kept: &Kept,
        entry: &EntryOf<R::Machine>,
        cursor: &mut Cursor<'_, R>,
    ) -> Result<(), Violation> {
        let Entry { message, outcome, key } = entry;
        let stamp = kept.stamp();
        let moment = self.moment(stamp);
        self.reference.promised(stamp, message, outcome)?;
        let again = self.shadow.machine().decide(&moment, message);
        cursor.settle((&self.reference, &self.done), stamp.seq);
        let (asked, _) = self.request_of(&moment, message, cursor.asked());
        self.shadow
            .commit(stamp, entry)
            .map_err(|error| Violation::new(Promise::SameState, error))?;
        let reply = self.shadow.machine().reply(stamp.seq, message, outcome);
        let now = (&self.reference, &self.done);
        let rest = self.shadow.machine().rest(message, outcome);
        if let Some(rest) = rest.filter(|_| R::origin(message) == Origin::Client) {
            // The answer to the last part is that to the request.
            cursor.settle(now, stamp.seq);
            self.partly = Some((rest, asked));
        } else {
            cursor.meet(now, stamp.seq, &asked, Ok(&reply))?;
        }
        let name = R::Machine::NAME;
        if let Some(key) = key {
            let before = self.done.insert(key.id, (stamp, reply.clone()));
            let twice = before.filter(|(before, _)| is_known(*before, stamp.at));
            ensure(twice.is_none(), Promise::EntriesRight, || {
                format!("entry {} of {name}, {message:?}, is done twice: {twice:?}", stamp.seq)
            })?;
        }
        self.reference.apply(stamp, message, (outcome, &reply)).map_err(|wrong| {
            let what = format!("entry {} of {name}, {message:?}: {wrong}", stamp.seq);
            Violation::new(Promise::EntriesRight, what)
        })?;
        ensure(again == *outcome, Promise::DecidedAgain, || {
            let seq = stamp.seq;
            format!("entry {seq} of {name}, {message:?}: {outcome:?}, and now {again:?}")
        })
    }
}

impl<R: Reference> Witness<R> {
    fn moment(&self, stamp: Stamp) -> Moment {
        Moment {
            seq: stamp.seq,
            now: Now { at: stamp.at, offset: Offset(self.marked.offset_ms) },
            chance: self.marked.chance,
            draining: self.marked.draining(R::Machine::ID),
        }
    }

    /// Handles a message that panicked. Nothing more is done for the request that it belongs to, and the answer states whether anything
    /// was done for it before.
    fn poisoned(
        &mut self,
        kept: &Kept,
        message: &MessageOf<R>,
        (cursor, coverage): (&mut Cursor<'_, R>, &mut Coverage),
    ) -> Result<(), Violation> {
        let stamp = kept.stamp();
        cursor.settle((&self.reference, &self.done), stamp.seq);
        let moment = self.moment(stamp);
        let (asked, is_rest) = self.request_of(&moment, message, cursor.asked());
        let failed = if is_rest {
            coverage.parts_interrupted += 1;
            Failed::Interrupted
        } else {
            Failed::Unapplied
        };
        let now = (&self.reference, &self.done);
        cursor.meet(now, stamp.seq, &asked, Err(failed))?;
        self.reference.poisoned(message);
        Ok(())
    }

    /// Returns the request that this message belongs to, and whether the message is the rest of that request, of which parts were carried
    /// out before. Usually it is the request itself. Parts that change nothing have no entry.
    fn request_of(
        &mut self,
        moment: &Moment,
        message: &MessageOf<R>,
        next: Option<&MessageOf<R>>,
    ) -> (MessageOf<R>, bool) {
        if R::origin(message) != Origin::Client {
            return (message.clone(), false);
        }
        let machine = self.shadow.machine();
        let begun = self.partly.take();
        let mut is_rest = begun.is_some();
        let next = next.map(|asked| (asked.clone(), asked.clone()));
        let mut partly = begun.or(next);
        while let Some((rest, asked)) = partly {
            if rest == *message {
                return (asked, is_rest);
            }
            let outcome = machine.decide(moment, &rest);
            let rest = machine.rest(&rest, &outcome);
            partly = rest.map(|rest| (rest, asked));
            is_rest = true;
        }
        (message.clone(), false)
    }
}

pub(crate) fn decode<T: serde::de::DeserializeOwned>(kept: &Kept) -> Result<T, Violation> {
    rmp_serde::from_slice(&kept.payload).map_err(|error| {
        let what = format!("record {} does not decode: {error}", kept.seq);
        Violation::new(Promise::SameState, what)
    })
}

/// The next item of the history that has no position yet.
struct Cursor<'a, R: Reference> {
    calls: &'a [Call<R>],
    survived: Seq,
    call: usize,
    item: usize,
    reads: u64,
    refusals: u64,
}

/// The state after the entries so far: the reference, and the entries under each request key.
type LogPosition<'r, R> = (&'r R, &'r Requests<R>);

/// Returns whether the reply to this entry is still remembered at this time, for clients that repeat the request.
fn is_known(entry: Stamp, at: Timestamp) -> bool {
    entry.at.plus_seconds(receipts::SECONDS) > at
}

/// The next item of the history.
enum Next<'a, R: Reference> {
    End,
    /// The result of this call, and of all later unanswered ones, is unknown.
    Unknown(&'a Call<R>),
    Item(&'a Call<R>, &'a Ask<R>, &'a Answer<ReplyOf<R>>),
}

impl<'a, R: Reference> Cursor<'a, R> {
    fn next(&mut self) -> Next<'a, R> {
        loop {
            let Some(call) = self.calls.get(self.call) else {
                return Next::End;
            };
            let Some(answers) = call.answers.as_ref().filter(|_| call.saw <= self.survived) else {
                return Next::Unknown(call);
            };
            if let (Some(ask), Some(answer)) = (call.asks.get(self.item), answers.get(self.item)) {
                return Next::Item(call, ask, answer);
            }
            self.call += 1;
            self.item = 0;
        }
    }

    /// Returns the message that the next item asks for, if that is known.
    fn asked(&mut self) -> Option<&'a MessageOf<R>> {
        match self.next() {
            Next::Item(_, Ask::Message(asked) | Ask::Keyed(asked, _), _) => Some(asked),
            Next::Item(..) | Next::End | Next::Unknown(_) => None,
        }
    }

    /// Handles an entry, or a poisoned message (which is answered with an error), in the log: finds the client's item that
    /// it belongs to.
    fn meet(
        &mut self,
        here: LogPosition<'_, R>,
        seq: Seq,
        message: &MessageOf<R>,
        reply: Result<&ReplyOf<R>, Failed>,
    ) -> Result<(), Violation> {
        self.settle(here, seq);
        if R::origin(message) != Origin::Client {
            return Ok(());
        }
        loop {
            match self.next() {
                Next::End => {
                    let what = format!("entry {seq}, {message:?}, was sent by no client");
                    return Err(Violation::new(Promise::EntriesRight, what));
                }
                Next::Unknown(call) if call.saw < seq => {
                    self.call += 1;
                    self.settle(here, seq);
                }
                Next::Unknown(_) => return Ok(()),
                Next::Item(_, ask, answer) => {
                    let same = matches!(ask, Ask::Message(asked) | Ask::Keyed(asked, _) if asked == message);
                    if same && answer.as_ref().map_err(|failed| *failed) == reply {
                        self.item += 1;
                        return Ok(());
                    }
                    return Err(wrong::<R>(
                        ask,
                        answer,
                        &format!("where the log has {seq}: {message:?} with {reply:?}"),
                    ));
                }
            }
        }
    }

    /// Advances over items that changed nothing, while they are right in this state.
    fn settle(&mut self, here: LogPosition<'_, R>, before: Seq) {
        while let Next::Item(call, ask, answer) = self.next() {
            if call.from >= before || !is_right(here, call.at, ask, answer) {
                return;
            }
            match ask {
                Ask::Query(_) => self.reads += 1,
                Ask::Message(_) | Ask::Keyed(..) => self.refusals += 1,
            }
            self.item += 1;
        }
    }

    /// Handles the end of the node's life, or of the log: all remaining items must be right in this state.
    fn end(&mut self, here: LogPosition<'_, R>) -> Result<(), Violation> {
        self.settle(here, Seq(u64::MAX));
        loop {
            match self.next() {
                Next::End => return Ok(()),
                Next::Unknown(_) => {
                    self.call += 1;
                    self.settle(here, Seq(u64::MAX));
                }
                Next::Item(_, ask, answer) => {
                    return Err(wrong::<R>(ask, answer, "where the log ends"));
                }
            }
        }
    }
}

/// Returns whether this answer, which reports no change, is right in this state at this time.
fn is_right<R: Reference>(
    (reference, done): LogPosition<'_, R>,
    at: Timestamp,
    ask: &Ask<R>,
    answer: &Answer<ReplyOf<R>>,
) -> bool {
    if reference.due(at).is_some() {
        return false;
    }
    match (ask, answer) {
        (Ask::Query(query), answer) => reference.is_answer(query, at, answer),
        // The log has a message that panicked as poisoned, so an error is never an item without a change.
        (Ask::Message(_) | Ask::Keyed(..), Err(_)) => false,
        (Ask::Keyed(_, key), Ok(reply))
            if let Some((entry, done)) = done.get(&key.id)
                && is_known(*entry, at) =>
        {
            done == reply
        }
        // When the disk is full, the host refuses before the machine decides.
        (Ask::Message(message) | Ask::Keyed(message, _), Ok(reply)) if R::is_disk_full(reply) => {
            R::may_be_refused(message)
        }
        (Ask::Message(message) | Ask::Keyed(message, _), Ok(reply)) => {
            reference.without_change(message).as_ref() == Some(reply)
        }
    }
}

fn wrong<R: Reference>(ask: &Ask<R>, answer: &Answer<ReplyOf<R>>, place: &str) -> Violation {
    let name = R::Machine::NAME;
    let kept = matches!(answer, Ok(reply) if R::changes(reply)) && !matches!(ask, Ask::Query(_));
    let promise = if kept { Promise::Kept } else { Promise::RepliesRight };
    let ask: &dyn std::fmt::Debug = match ask {
        Ask::Message(message) | Ask::Keyed(message, _) => message,
        Ask::Query(query) => query,
    };
    Violation::new(promise, format!("{name} answered {ask:?} with {answer:?}, {place}"))
}
