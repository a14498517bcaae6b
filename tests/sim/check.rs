//! Checks the node after every startup: the state that it recovered, against what was promised to clients before.
//!
//! Reads the log independently, follows it with the witnesses from the previous startup on, and compares answers,
//! digests, state and the tells (messages) between actors. Records that were in the log at the previous startup must not have
//! changed.

use crate::actor::{Actor, Ask, Call, Wait};
use crate::counters::Counters;
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::each::{Each, Witnesses, each};
use crate::jobs::IssuedNumbers;
use crate::locks::Locks;
use crate::node::Node;
use crate::reference::{AnsweredMessages, MessageOf, OutcomeOf, Reference, ReplyOf};
use crate::setting::Policy;
use crate::violation::{Promise, Violation, ensure};
use crate::witness::{Kept, Witness, decode};
use sexton::actors::lock;
use sexton::ids::{Digest, Seq, Token};
use sexton::persist::PersistError;
use sexton::persist::format::Kind;
use sexton::persist::journal::segment::{self, Opening};
use sexton::persist::journal::{Begin, Reader, Tail};
use sexton::spine::machine::Machine as _;
use std::collections::BTreeMap;
use std::ops::Bound;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Everything known about the history of the disk.
#[derive(Default)]
pub(crate) struct Checker {
    pub(crate) witnesses: Witnesses,
    /// The start mark (the record of a startup) up to which the log has been followed.
    upto: Seq,
    /// Checksums of the records that a power cut cannot remove, including records of segments that were removed since.
    known: BTreeMap<Seq, u64>,
    /// Records after `upto` that were read and known to be durable before the node that wrote them ended.
    banked: Vec<Kept>,
    /// Which client received which token of which lock.
    tokens: BTreeMap<(Token, lock::Name, lock::Name), lock::Name>,
    /// Ids and tokens that clients of queues received, which must not be issued again.
    pub(crate) given: IssuedNumbers,
}

/// What the crash before a startup may have removed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peril {
    pub(crate) policy: Policy,
    /// Whether there was a power cut since the previous startup.
    pub(crate) power_cut: bool,
    /// The number up to which the log was synced before the crash.
    pub(crate) synced: Seq,
}

impl Peril {
    /// Returns whether this entry must have survived the crash.
    pub(crate) fn promises(&self, rests: Seq) -> bool {
        self.policy == Policy::Always || !self.power_cut || rests <= self.synced
    }
}

/// The readable part of the log.
pub(crate) struct Read {
    /// The sequence number with which the first segment begins, or zero if it is the first segment of all. The record
    /// with that number may have begun in a segment that was removed.
    pub(crate) opening: Seq,
    /// The records that could be read.
    pub(crate) log: Vec<Kept>,
    pub(crate) tail: Result<Tail, PersistError>,
}

/// Reads the log on the disk.
pub(crate) fn read(disk: &SimDisk) -> Read {
    let mut read = Read { opening: Seq(0), log: Vec::new(), tail: Ok(Tail::default()) };
    read.tail = read_into(disk, &mut read.opening, &mut read.log);
    read
}

fn read_into(disk: &SimDisk, opening: &mut Seq, log: &mut Vec<Kept>) -> Result<Tail, PersistError> {
    if let Some(first) = segment::ordinals(disk)?.first().filter(|first| **first > 1)
        && let Opening::Record(seq) | Opening::Rest(seq) = segment::opening(disk, *first)?
    {
        *opening = seq;
    }
    let begin = Begin { after: *opening, ..Begin::default() };
    let mut reader = Reader::open_after(disk, begin)?;
    while let Some(record) = reader.next()? {
        log.push(Kept {
            seq: record.seq,
            at: record.at,
            actor: record.actor,
            kind: record.kind,
            payload: record.payload.to_vec(),
        });
    }
    Ok(reader.tail().clone())
}

impl Checker {
    /// Checks a node that has just started. `past` is the previous node, if there is one.
    pub(crate) fn start(
        &mut self,
        (disk, node): (&SimDisk, &Node),
        past: Option<&Node>,
        peril: Peril,
        coverage: &mut Coverage,
    ) -> Result<(), Violation> {
        let log = self.read(disk)?;
        let past = past.map(|past| Past { node: past, survived: self.survived(past, &log), peril });
        if let Some(past) = &past {
            past.check_digests(node, coverage)?;
            past.check_rests()?;
        }
        self.follow(&log, past.as_ref(), coverage)?;
        self.agree(node)?;
        coverage.digests_compared += node.actors.ids().len() as u64;
        self.known.extend(log.iter().map(|kept| (kept.seq, sum(kept))));
        self.banked.clear();
        self.upto = node.found.start;
        Ok(())
    }

    /// Records, before a slot is sealed and segments are removed, that everything up to the slot's mark is durable.
    pub(crate) fn bank(&mut self, disk: &SimDisk, mark: Seq) -> Result<(), Violation> {
        let mut log = self.read(disk)?;
        log.retain(|kept| kept.seq <= mark);
        self.known.extend(log.iter().map(|kept| (kept.seq, sum(kept))));
        self.banked = log;
        Ok(())
    }

    /// Reads the log, and checks that known records are unchanged unless their segment was removed. Returns the records
    /// after the last start mark.
    fn read(&self, disk: &SimDisk) -> Result<Vec<Kept>, Violation> {
        let Read { opening, log, tail } = read(disk);
        tail.map_err(|error| Violation::new(Promise::Starts, error))?;
        ensure(opening == Seq(0) || self.known.contains_key(&opening), Promise::Kept, || {
            format!("the log begins with {opening}, which is not a known record")
        })?;
        let known = self.known.range((Bound::Excluded(opening), Bound::Unbounded));
        let mut found = log.iter().map(|kept| (kept.seq, sum(kept)));
        for (seq, was) in known {
            let is = found.next();
            ensure(is == Some((*seq, *was)), Promise::Kept, || {
                format!("record {seq} of the log has changed: {is:?}")
            })?;
        }
        let last = self.banked.last().map_or(self.upto, |kept| kept.seq);
        let fresh = log.into_iter().filter(|kept| kept.seq > last);
        Ok(self.banked.iter().cloned().chain(fresh).collect())
    }

    /// Checks a log with which a node failed to start. Returns the broken promise that explains the failure, if one was
    /// found.
    pub(crate) fn explain(
        &mut self,
        disk: &SimDisk,
        past: Option<&Node>,
        peril: Peril,
    ) -> Result<(), Violation> {
        let log = self.read(disk)?;
        let past = past.map(|past| Past { node: past, survived: self.survived(past, &log), peril });
        self.follow(&log, past.as_ref(), &mut Coverage::default())
    }

    /// Returns the last record of that node that still exists. Later records belong to startups that were cut short.
    fn survived(&self, past: &Node, log: &[Kept]) -> Seq {
        let its = log.iter().map(|kept| kept.seq);
        its.filter(|seq| *seq <= past.ledger.last()).max().unwrap_or(self.upto)
    }

    fn follow(
        &mut self,
        log: &[Kept],
        past: Option<&Past<'_>>,
        coverage: &mut Coverage,
    ) -> Result<(), Violation> {
        let mut counted = Coverage::default();
        if let Some(past) = past {
            let actors = &past.node.actors;
            each!(witness in &mut self.witnesses, actor in &actors => {
                follow(witness, log, Some((actor, past)), coverage, &mut counted)?;
            });
        } else {
            each!(witness in &mut self.witnesses => follow(witness, log, None, coverage, &mut counted)?);
        }
        coverage.add(&counted);
        let Each { left, right, .. } = &self.witnesses;
        is_told(&left.reference, &right.reference)?;
        is_told(&right.reference, &left.reference)
    }

    /// Returns whether the log was observed to contain this record.
    pub(crate) fn is_known(&self, seq: Seq) -> bool {
        self.known.contains_key(&seq)
    }

    /// Checks that each machine of the node has the state that follows from the log: the same digest, and the same
    /// fields.
    pub(crate) fn agree(&self, node: &Node) -> Result<(), Violation> {
        each!(witness in &self.witnesses, actor in &node.actors => agrees(witness, actor)?);
        Ok(())
    }

    /// Records every token in the answers to a call, and checks that no token of a lock was issued to two owners.
    pub(crate) fn note_tokens(&mut self, call: &Call<Locks>) -> Result<(), Violation> {
        use sexton::actors::lock::{Message, Query, Reply};
        let answers = call.answers.as_deref().unwrap_or(&[]);
        for (ask, answer) in call.asks.iter().zip(answers) {
            match (ask, answer) {
                (
                    Ask::Message(
                        Message::Request { key, index, owner, .. }
                        | Message::Acquire { key, index, owner, .. }
                        | Message::Renew { key, index, owner, .. },
                    )
                    | Ask::Query(Query::Place { key, index, owner }),
                    Ok(Reply::LinePosition(standing)),
                ) => {
                    // In a request with only a token, the owner is empty.
                    let named = !owner.as_bytes().is_empty();
                    if let Some(token) = standing.token.filter(|_| named) {
                        self.note_token((token, key, index), owner)?;
                    }
                }
                (Ask::Query(_), Ok(Reply::List(list))) => {
                    for listed in list {
                        if let Some(token) = listed.token {
                            self.note_token((token, &listed.key, &listed.index), &listed.owner)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn note_token(
        &mut self,
        (token, key, index): (Token, &lock::Name, &lock::Name),
        owner: &lock::Name,
    ) -> Result<(), Violation> {
        let lock = (token, key.clone(), index.clone());
        let first = self.tokens.entry(lock).or_insert_with(|| owner.clone());
        ensure(first == owner, Promise::GivenOnce, || {
            format!("token {token} of {key:?} {index:?} for {owner:?}, and before for {first:?}")
        })
    }
}

/// The previous node, and the part of its log that exists.
struct Past<'a> {
    node: &'a Node,
    survived: Seq,
    peril: Peril,
}

impl Past<'_> {
    /// Checks that every answer depends only on entries that exist, unless these could be lost.
    fn check_rests(&self) -> Result<(), Violation> {
        each!(actor in &self.node.actors => self.check_calls(actor)?);
        Ok(())
    }

    fn check_calls<R: Reference>(&self, actor: &Actor<R>) -> Result<(), Violation> {
        for call in &actor.calls {
            let lost = call.answers.is_some() && call.rests > self.survived;
            if lost && self.peril.promises(call.rests) {
                let answers = call.answers.iter().flatten();
                let changed = call.asks.iter().zip(answers).any(|(ask, answer)| {
                    matches!((ask, answer), (Ask::Message(_) | Ask::Keyed(..), Ok(reply)) if R::changes(reply))
                });
                let promise = if changed { Promise::Kept } else { Promise::ShownIsKept };
                let (rests, survived) = (call.rests, self.survived);
                let (asks, answers) = (&call.asks, &call.answers);
                return Err(Violation::new(
                    promise,
                    format!(
                        "{asks:?} was answered {answers:?}, which depends on {rests}; the log ends at {survived}"
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Checks answers that showed entries which are now lost, although none of them had to be durable. Only passing
    /// changes (those that a crash of the process may lose) may be missing; every other change in such an answer has an
    /// entry, and everything that it showed had happened.
    fn check_torn<R: Reference>(
        &self,
        reference: &R,
        (actor, log): (&Actor<R>, &[Kept]),
        coverage: &mut Coverage,
    ) -> Result<(), Violation> {
        let told = || -> AnsweredMessages<'_, R> { Box::new(actor.calls.iter().flat_map(told)) };
        let torn = |call: &&Call<R>| {
            call.answers.is_some()
                && call.saw > self.survived
                && self.peril.promises(call.rests.max(call.saw))
        };
        for call in actor.calls.iter().filter(torn) {
            coverage.answers_passed_with_the_process += 1;
            for (message, reply) in self::told(call) {
                ensure(reference.has_seen(reply), Promise::ShownIsKept, || {
                    format!("{message:?} was answered {reply:?}, which never happened")
                })?;
                if !R::changes(reply) || R::may_pass((message, reply), told) {
                    continue;
                }
                let is_its = |kept: &&Kept| {
                    let entry = kept.seq > call.from
                        && kept.actor == R::Machine::ID
                        && kept.kind == Kind::Entry;
                    let entry = entry.then(|| decode::<(MessageOf<R>, OutcomeOf<R>)>(kept));
                    matches!(entry, Some(Ok((found, _))) if found == *message)
                };
                ensure(log.iter().any(|kept| is_its(&kept)), Promise::Kept, || {
                    format!("{message:?} was answered {reply:?}, which has no entry")
                })?;
            }
        }
        Ok(())
    }

    fn check_digests(&self, node: &Node, coverage: &mut Coverage) -> Result<(), Violation> {
        let before = each!(actor in &self.node.actors => &actor.digests);
        for (before, (last, digest)) in before.into_iter().zip(node.found.digests.iter().copied()) {
            let Some(expected) = before.get(&last) else {
                continue;
            };
            coverage.digests_equal_across_a_crash += 1;
            ensure(*expected == digest, Promise::SameState, || {
                format!("after {last} the digest was {expected} before the crash, and is {digest}")
            })?;
        }
        Ok(())
    }
}

/// Follows the log with one witness, and compares it with the observations of the actor's clients.
fn follow<R: Reference>(
    witness: &mut Witness<R>,
    log: &[Kept],
    before: Option<(&Actor<R>, &Past<'_>)>,
    coverage: &mut Coverage,
    counted: &mut Coverage,
) -> Result<(), Violation> {
    let look = |message: &MessageOf<R>, outcome: &OutcomeOf<R>| {
        R::count(message, outcome, counted);
    };
    let Some((actor, past)) = before else {
        witness.follow(log, (&[], &mut Vec::new(), Seq(0)), coverage, look)?;
        witness.reference.tally(counted);
        return Ok(());
    };
    let waits = actor.waits.values();
    let mut waits: Vec<_> = waits.filter(|wait| wait.answer.is_some()).collect();
    witness.follow(log, (&actor.calls, &mut waits, past.survived), coverage, look)?;
    witness.reference.tally(counted);
    past.check_torn(&witness.reference, (actor, log), coverage)?;
    // A power cut may have removed the entries that the answer to a wait depends on, unless the policy forbids it; or
    // they were passing changes.
    let passes = |wait: &Wait<R>| {
        let answer = wait.answer.as_ref();
        answer.is_some_and(|answer| {
            R::may_wake_pass(&wait.watch, answer) && witness.reference.has_seen(answer)
        })
    };
    waits.retain(|wait| past.peril.promises(Seq(u64::MAX)) && !passes(wait));
    match waits.first() {
        None => Ok(()),
        Some(wait) => {
            let (name, watch, answer) = (R::Machine::NAME, &wait.watch, &wait.answer);
            let what = format!("{name}: {watch:?} was woken with {answer:?}, which was never true");
            Err(Violation::new(Promise::Woken, what))
        }
    }
}

/// Returns the messages of a call without request keys, with their replies.
fn told<R: Reference>(call: &Call<R>) -> impl Iterator<Item = (&MessageOf<R>, &ReplyOf<R>)> {
    let answers = call.answers.iter().flatten();
    call.asks.iter().zip(answers).filter_map(|told| match told {
        (Ask::Message(message), Ok(reply)) => Some((message, reply)),
        _ => None,
    })
}

fn sum(kept: &Kept) -> u64 {
    xxh3_64_with_seed(&kept.payload, kept.seq.0)
}

fn agrees<R: Reference>(witness: &Witness<R>, actor: &Actor<R>) -> Result<(), Violation> {
    let name = R::Machine::NAME;
    let (mine, theirs): (Digest, Option<Digest>) = (witness.digest(), actor.host.digest());
    ensure(Some(mine) == theirs, Promise::SameState, || {
        format!("{name} has digest {theirs:?}, a second replay {mine}")
    })?;
    witness
        .reference
        .agrees(actor.host.machine())
        .map_err(|wrong| Violation::new(Promise::SameState, format!("{name}: {wrong}")))
}

/// Checks that no actor has received tells that were not sent.
fn is_told<const A: u8, const B: u8>(
    teller: &Counters<A>,
    hearer: &Counters<B>,
) -> Result<(), Violation> {
    let strides = teller.counted(|counter| counter.strides);
    for (name, heard) in hearer.counted(|counter| counter.heard) {
        let told = strides.get(&name).copied().unwrap_or(0);
        ensure(heard <= told, Promise::Told, || {
            format!("{B} received {heard} strides of counter {name:?}, {A} sent {told}")
        })?;
    }
    Ok(())
}
