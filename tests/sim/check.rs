//! Judges every start of the node: what it found against what was promised before.
//!
//! Reads the log itself, follows it with the witnesses from where the last start left them, and compares answers,
//! digests, state and what the actors told each other. What stood in the log at the last start may never change.

use crate::actor::{Actor, Ask, Call};
use crate::counter::{self, LEFT, RIGHT};
use crate::counters::Counters;
use crate::coverage::Coverage;
use crate::disk::SimDisk;
use crate::locks::Locks;
use crate::node::Node;
use crate::reference::{MessageOf, OutcomeOf, Reference};
use crate::setting::Policy;
use crate::violation::{Promise, Violation, ensure};
use crate::witness::{Kept, Witness};
use sexton::actors::Machine as _;
use sexton::actors::lock;
use sexton::ids::{Digest, Seq, Token};
use sexton::persist::PersistError;
use sexton::persist::journal::segment::{self, Opening};
use sexton::persist::journal::{Begin, Reader, Tail};
use std::collections::BTreeMap;
use std::ops::Bound;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// All that is known of the disk's past.
#[derive(Default)]
pub(crate) struct Checker {
    pub(crate) lock: Witness<Locks>,
    pub(crate) left: Witness<Counters<LEFT>>,
    pub(crate) right: Witness<Counters<RIGHT>>,
    /// The start mark up to which all has been followed.
    upto: Seq,
    /// Sums of the records that a power cut cannot take, also of those that are no longer kept.
    known: BTreeMap<Seq, u64>,
    /// Those behind `upto` that were known before the node that wrote them went down.
    banked: Vec<Kept>,
    /// Who was told which token of which lock.
    tokens: BTreeMap<(Token, lock::Name, lock::Name), lock::Name>,
}

/// What the crash before a start could take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peril {
    pub(crate) policy: Policy,
    /// The power went since the last start.
    pub(crate) power_cut: bool,
    /// Synced up to here before it did.
    pub(crate) synced: Seq,
}

impl Peril {
    /// Whether what rests on this entry must be there.
    fn promises(&self, rests: Seq) -> bool {
        self.policy == Policy::Always || !self.power_cut || rests <= self.synced
    }
}

/// The log as it can be read.
pub(crate) struct Read {
    /// The number of the record that the first segment opens with, if that is not the very first one. That record may
    /// have begun in a segment that is gone.
    pub(crate) opening: Seq,
    /// What stands behind it.
    pub(crate) log: Vec<Kept>,
    pub(crate) tail: Result<Tail, PersistError>,
}

/// Reads what is there of the log.
pub(crate) fn read(disk: &SimDisk) -> Read {
    let mut read = Read {
        opening: Seq(0),
        log: Vec::new(),
        tail: Ok(Tail::default()),
    };
    read.tail = read_into(disk, &mut read.opening, &mut read.log);
    read
}

fn read_into(disk: &SimDisk, opening: &mut Seq, log: &mut Vec<Kept>) -> Result<Tail, PersistError> {
    if let Some(first) = segment::ordinals(disk)?.first().filter(|first| **first > 1)
        && let Opening::Record(seq) | Opening::Rest(seq) = segment::opening(disk, *first)?
    {
        *opening = seq;
    }
    let begin = Begin {
        after: *opening,
        ..Begin::default()
    };
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
    /// A node has started. `past` is the one before it, if this is not the first.
    pub(crate) fn start(
        &mut self,
        (disk, node): (&SimDisk, &Node),
        past: Option<&Node>,
        peril: Peril,
        coverage: &mut Coverage,
    ) -> Result<(), Violation> {
        let log = self.read(disk)?;
        let past = past.map(|past| Past {
            node: past,
            survived: self.survived(past, &log),
            peril,
        });
        if let Some(past) = &past {
            past.check_digests(node, coverage)?;
            past.check_rests()?;
        }
        self.follow(&log, past.as_ref(), coverage)?;
        self.agree(node)?;
        coverage.digests_compared += 3;
        self.known
            .extend(log.iter().map(|kept| (kept.seq, sum(kept))));
        self.banked.clear();
        self.upto = node.found.start;
        Ok(())
    }

    /// A slot is about to be sealed, and segments to be dropped: everything up to its mark is durable.
    pub(crate) fn bank(&mut self, disk: &SimDisk, mark: Seq) -> Result<(), Violation> {
        let mut log = self.read(disk)?;
        log.retain(|kept| kept.seq <= mark);
        self.known
            .extend(log.iter().map(|kept| (kept.seq, sum(kept))));
        self.banked = log;
        Ok(())
    }

    /// The log behind the last start mark. What was known of it before stands there unchanged, or is no longer kept.
    fn read(&self, disk: &SimDisk) -> Result<Vec<Kept>, Violation> {
        let Read { opening, log, tail } = read(disk);
        tail.map_err(|error| Violation::new(Promise::Starts, error))?;
        ensure(
            opening == Seq(0) || self.known.contains_key(&opening),
            Promise::Kept,
            || format!("the log begins with {opening}, and what came before is unknown"),
        )?;
        let known = self
            .known
            .range((Bound::Excluded(opening), Bound::Unbounded));
        let mut found = log.iter().map(|kept| (kept.seq, sum(kept)));
        for (seq, was) in known {
            let is = found.next();
            ensure(is == Some((*seq, *was)), Promise::Kept, || {
                format!("record {seq} of the log is not what it was: {is:?}")
            })?;
        }
        let last = self.banked.last().map_or(self.upto, |kept| kept.seq);
        let fresh = log.into_iter().filter(|kept| kept.seq > last);
        Ok(self.banked.iter().cloned().chain(fresh).collect())
    }

    /// A node cannot start on this log: says what is wrong with it, if anything is.
    pub(crate) fn explain(
        &mut self,
        disk: &SimDisk,
        past: Option<&Node>,
        peril: Peril,
    ) -> Result<(), Violation> {
        let log = self.read(disk)?;
        let past = past.map(|past| Past {
            node: past,
            survived: self.survived(past, &log),
            peril,
        });
        self.follow(&log, past.as_ref(), &mut Coverage::default())
    }

    /// The newest record of that node that is still there. What is newer is from starts that were cut short.
    fn survived(&self, past: &Node, log: &[Kept]) -> Seq {
        let its = log.iter().map(|kept| kept.seq);
        its.filter(|seq| *seq <= past.ledger.last())
            .max()
            .unwrap_or(self.upto)
    }

    fn follow(
        &mut self,
        log: &[Kept],
        past: Option<&Past<'_>>,
        coverage: &mut Coverage,
    ) -> Result<(), Violation> {
        let mut counted = Coverage::default();
        let node = past.map(|past| past.node);
        let lock = node.map(|node| &node.lock);
        follow(
            &mut self.lock,
            log,
            (lock, past),
            coverage,
            |message, outcome| {
                count_lock(message, outcome, &mut counted);
            },
        )?;
        let left = node.map(|node| &node.left);
        follow(
            &mut self.left,
            log,
            (left, past),
            coverage,
            |message, outcome| {
                count_counter(message, outcome, &mut counted);
            },
        )?;
        let right = node.map(|node| &node.right);
        follow(
            &mut self.right,
            log,
            (right, past),
            coverage,
            |message, outcome| {
                count_counter(message, outcome, &mut counted);
            },
        )?;
        coverage.add(&counted);
        is_told(&self.left.reference, &self.right.reference)?;
        is_told(&self.right.reference, &self.left.reference)
    }

    /// The machines of the node are where the log leads, by digest and field by field.
    pub(crate) fn agree(&self, node: &Node) -> Result<(), Violation> {
        agrees(&self.lock, &node.lock)?;
        agrees(&self.left, &node.left)?;
        agrees(&self.right, &node.right)
    }

    /// Notes every token that an answer shows.
    pub(crate) fn note_tokens(&mut self, call: &Call<Locks>) -> Result<(), Violation> {
        use sexton::actors::lock::{Message, Query, Reply};
        let answers = call.answers.as_deref().unwrap_or(&[]);
        for (ask, answer) in call.asks.iter().zip(answers) {
            match (ask, answer) {
                (
                    Ask::Message(
                        Message::Request {
                            key, index, owner, ..
                        }
                        | Message::Renew {
                            key, index, owner, ..
                        },
                    )
                    | Ask::Query(Query::Place { key, index, owner }),
                    Ok(Reply::Standing(standing)),
                ) => {
                    if let Some(token) = standing.token {
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

/// The node before, and what of its log is there.
struct Past<'a> {
    node: &'a Node,
    survived: Seq,
    peril: Peril,
}

impl Past<'_> {
    /// Every answer rests on what is still there, unless it could be lost.
    fn check_rests(&self) -> Result<(), Violation> {
        self.check_calls(&self.node.lock)?;
        self.check_calls(&self.node.left)?;
        self.check_calls(&self.node.right)
    }

    fn check_calls<R: Reference>(&self, actor: &Actor<R>) -> Result<(), Violation> {
        for call in &actor.calls {
            let lost = call.answers.is_some() && call.rests > self.survived;
            if lost && self.peril.promises(call.rests) {
                let answers = call.answers.iter().flatten();
                let changed = call.asks.iter().zip(answers).any(|(ask, answer)| {
                    matches!((ask, answer), (Ask::Message(_), Ok(reply)) if R::changes(reply))
                });
                let promise = if changed {
                    Promise::Kept
                } else {
                    Promise::ShownIsKept
                };
                let (rests, survived) = (call.rests, self.survived);
                let (asks, answers) = (&call.asks, &call.answers);
                return Err(Violation::new(
                    promise,
                    format!(
                        "{asks:?} was answered {answers:?}, resting on {rests}; the log ends at {survived}"
                    ),
                ));
            }
        }
        Ok(())
    }

    fn check_digests(&self, node: &Node, coverage: &mut Coverage) -> Result<(), Violation> {
        let before = [
            &self.node.lock.digests,
            &self.node.left.digests,
            &self.node.right.digests,
        ];
        for (before, (last, digest)) in before.into_iter().zip(node.found.digests) {
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

/// Follows the log with one witness, beside what the clients of its actor saw.
fn follow<R: Reference>(
    witness: &mut Witness<R>,
    log: &[Kept],
    (actor, past): (Option<&Actor<R>>, Option<&Past<'_>>),
    coverage: &mut Coverage,
    look: impl FnMut(&MessageOf<R>, &OutcomeOf<R>),
) -> Result<(), Violation> {
    let (Some(actor), Some(past)) = (actor, past) else {
        return witness.follow(log, (&[], &mut Vec::new(), Seq(0)), coverage, look);
    };
    let waits = actor.waits.values();
    let mut waits: Vec<_> = waits.filter(|wait| wait.answer.is_some()).collect();
    witness.follow(
        log,
        (&actor.calls, &mut waits, past.survived),
        coverage,
        look,
    )?;
    // What such a wait rests on may be lost with the power, unless nothing may.
    match waits.first().filter(|_| past.peril.promises(Seq(u64::MAX))) {
        None => Ok(()),
        Some(wait) => {
            let (name, watch, answer) = (R::Machine::NAME, &wait.watch, &wait.answer);
            let what = format!("{name}: {watch:?} was woken with {answer:?}, which never was so");
            Err(Violation::new(Promise::Woken, what))
        }
    }
}

fn sum(kept: &Kept) -> u64 {
    xxh3_64_with_seed(&kept.payload, kept.seq.0)
}

fn agrees<R: Reference>(witness: &Witness<R>, actor: &Actor<R>) -> Result<(), Violation> {
    let name = R::Machine::NAME;
    let (mine, theirs): (Digest, Digest) = (witness.digest(), actor.host.machine().digest());
    ensure(mine == theirs, Promise::SameState, || {
        format!("{name} has digest {theirs}, a second replay {mine}")
    })?;
    witness
        .reference
        .agrees(actor.host.machine())
        .map_err(|wrong| Violation::new(Promise::SameState, format!("{name}: {wrong}")))
}

/// Nobody has heard more than was there to tell.
fn is_told<const A: u8, const B: u8>(
    teller: &Counters<A>,
    hearer: &Counters<B>,
) -> Result<(), Violation> {
    let strides = teller.strides();
    for (name, heard) in hearer.heard() {
        let told = strides.get(&name).copied().unwrap_or(0);
        ensure(heard <= told, Promise::Told, || {
            format!("{B} heard of {heard} strides of counter {name}, {A} made {told}")
        })?;
    }
    Ok(())
}

fn count_lock(message: &lock::Message, outcome: &lock::Outcome, counted: &mut Coverage) {
    match outcome {
        lock::Outcome::Granted { .. } => counted.grants += 1,
        lock::Outcome::Queued { .. } => counted.queued += 1,
        lock::Outcome::Renewed { .. } => counted.renewals += 1,
        lock::Outcome::Ended { gone } => {
            let heirs = gone.iter().filter(|gone| gone.heir.is_some()).count() as u64;
            counted.promotions += heirs;
            if matches!(message, lock::Message::Expire { .. }) {
                counted.expiries += 1;
            } else {
                counted.releases += 1;
            }
        }
        lock::Outcome::Draining => counted.drains += 1,
        lock::Outcome::Absent | lock::Outcome::Refused(_) => {}
    }
}

fn count_counter(message: &counter::Message, outcome: &counter::Outcome, counted: &mut Coverage) {
    use counter::{Message, Outcome};
    match (message, outcome) {
        (Message::Lapse { .. }, _) => counted.counter_lapses += 1,
        (_, Outcome::Heard) => counted.tells += 1,
        _ => counted.counter_changes += 1,
    }
}
