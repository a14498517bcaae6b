//! Faults planted in the simulation's wiring, one for each promise, and the tests that show each one caught.
//!
//! Nothing here is reached without a plant: a run of the campaign has none.

use crate::counter::{CounterMachine, LEFT, RIGHT};
use crate::disk::SimDisk;
use crate::setting::{Plant, Setting};
use crate::violation::{Promise, Violation};
use sexton::actors::Machine;
use sexton::actors::ledger::Poisoned;
use sexton::actors::lock::{self, LockMachine};
use sexton::actors::machine::{Keeping, Stamp, Start};
use sexton::actors::recovery::{Past, Recovering as _, RecoveryError, Replica, decode_mark};
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Seq};
use sexton::persist::format::{About, Batch, FRAME_HEADER_BYTES, FrameHeader, Kind, Mark};
use sexton::persist::journal::{Reader, Record, Tail};

/// What a start forgets of the log's end.
pub(crate) fn forget(plant: Option<Plant>, tail: &mut Tail) {
    match plant {
        Some(Plant::TokenTwice) => tail.reserved = Seq(0),
        Some(Plant::TimeGoesBack) => tail.last_at = Timestamp(0),
        _ => {}
    }
}

/// What becomes of a batch on its way to the journal.
pub(crate) fn alter(plant: Option<Plant>, batch: Batch) -> Batch {
    if plant != Some(Plant::TickNotJournaled) {
        return batch;
    }
    let mut kept = Batch::default();
    let mut offset = 0;
    while let Some(header) = FrameHeader::decode(batch.bytes_from(offset)) {
        let frame = batch.bytes_from(offset).get(..header.size as usize);
        let payload = frame.and_then(|frame| frame.get(FRAME_HEADER_BYTES..));
        let payload = payload.expect("frames are whole in a batch");
        offset += header.size as usize;
        if is_tick(&header, payload) {
            continue;
        }
        let FrameHeader {
            seq,
            at,
            actor,
            kind,
            ..
        } = header;
        let about = About {
            seq,
            at,
            actor,
            kind,
        };
        kept.push(about, |bytes| bytes.extend_from_slice(payload));
    }
    if batch.is_urgent() {
        kept.make_urgent();
    }
    kept
}

fn is_tick(header: &FrameHeader, payload: &[u8]) -> bool {
    let entry: Result<(lock::Message, lock::Outcome), _> = rmp_serde::from_slice(payload);
    header.actor == ActorId::LOCK
        && header.kind == Kind::Entry
        && matches!(entry, Ok((lock::Message::Expire { .. }, _)))
}

type Replicas<'a> = (
    &'a mut Replica<LockMachine>,
    &'a mut Replica<CounterMachine<LEFT>>,
    &'a mut Replica<CounterMachine<RIGHT>>,
);

/// Recovery as it must not be: a message that once panicked is decided and committed after all.
pub(crate) fn recover_with_poison(
    disk: &SimDisk,
    (lock, left, right): Replicas<'_>,
) -> Result<Past, RecoveryError> {
    let mut reader = Reader::open(disk)?;
    while let Some(record) = reader.next()? {
        match (record.kind, record.actor) {
            (Kind::Mark, _) => {
                if let Mark::Start { skipped, .. } = decode_mark(&record)? {
                    let stamp = stamp(&record);
                    let start = Start { stamp, skipped };
                    lock.start(start);
                    left.start(start);
                    right.start(start);
                }
            }
            (Kind::Entry, ActorId::LOCK) => lock.apply(&record)?,
            (Kind::Entry, ActorId(LEFT)) => left.apply(&record)?,
            (Kind::Entry, _) => right.apply(&record)?,
            (Kind::Poisoned, ActorId::LOCK) => apply_poison(lock, &record)?,
            (Kind::Poisoned, ActorId(LEFT)) => apply_poison(left, &record)?,
            (Kind::Poisoned, _) => apply_poison(right, &record)?,
            (Kind::End, _) => {}
        }
    }
    Ok(Past {
        tail: reader.tail().clone(),
        ..Past::default()
    })
}

fn apply_poison<M: Machine>(
    replica: &mut Replica<M>,
    record: &Record<'_>,
) -> Result<(), RecoveryError> {
    let poisoned: Poisoned<M::Message> =
        rmp_serde::from_slice(record.payload).expect("poisoned records decode");
    let outcome = replica.machine().decide(record.at, &poisoned.message);
    if replica.machine().keeping(&poisoned.message, &outcome) != Keeping::Nothing {
        replica.commit(stamp(record), &poisoned.message, &outcome)?;
    }
    Ok(())
}

fn stamp(record: &Record<'_>) -> Stamp {
    Stamp {
        seq: record.seq,
        at: record.at,
    }
}

/// Runs seeds with a plant until a checker speaks; it must be one that stands for a promise in the list.
pub(crate) fn caught(plant: Plant, promises: &[Promise], seeds: u64) {
    let (seed, violation) = violations(plant, seeds)
        .next()
        .unwrap_or_else(|| panic!("{plant:?} was not caught in {seeds} seeds"));
    assert!(
        promises.contains(&violation.promise),
        "seed {seed} with {plant:?} was caught, but as {violation}"
    );
}

/// Runs seeds with a plant until the checker of this promise speaks; before it, only those of `others` may.
fn caught_as(plant: Plant, promise: Promise, others: &[Promise], seeds: u64) {
    for (seed, violation) in violations(plant, seeds) {
        if violation.promise == promise {
            return;
        }
        assert!(
            others.contains(&violation.promise),
            "seed {seed} with {plant:?} was caught, but as {violation}"
        );
    }
    panic!("{plant:?} was not caught as {promise:?} in {seeds} seeds");
}

fn violations(plant: Plant, seeds: u64) -> impl Iterator<Item = (u64, Violation)> {
    crate::campaign::hush();
    (0..seeds).filter_map(move |seed| {
        let (_, verdict) = crate::run::run(&Setting::planted(seed, plant), false);
        verdict.err().map(|violation| (seed, violation))
    })
}

#[test]
fn a_disk_that_lies_about_its_sync_is_caught() {
    caught(Plant::LyingSync, &[Promise::Kept, Promise::Starts], 20);
}

#[test]
fn a_reply_that_leaves_before_its_sync_is_caught() {
    caught(
        Plant::ReplyBeforeSync,
        &[Promise::Kept, Promise::ShownIsKept],
        20,
    );
}

#[test]
fn a_read_that_shows_what_is_not_yet_durable_is_caught() {
    // What the read showed is not in the log that survived: either checker may come first.
    caught(
        Plant::ReadBeforeSync,
        &[Promise::ShownIsKept, Promise::RepliesRight],
        60,
    );
}

#[test]
fn a_token_given_twice_is_caught() {
    // A log in which numbers go back ends there for whoever reads it: what stands behind may be missed first.
    caught_as(Plant::TokenTwice, Promise::GivenOnce, &[Promise::Kept], 20);
}

#[test]
fn a_tick_that_is_not_journaled_is_caught() {
    caught(
        Plant::TickNotJournaled,
        &[
            Promise::EntriesRight,
            Promise::DecidedAgain,
            Promise::RepliesRight,
        ],
        20,
    );
}

#[test]
fn a_poisoned_message_that_is_applied_on_replay_is_caught() {
    // What was poisoned may also stand in the way of what came later.
    caught(
        Plant::PoisonApplied,
        &[Promise::SameState, Promise::Starts],
        20,
    );
}

#[test]
fn time_that_goes_back_is_caught() {
    caught(Plant::TimeGoesBack, &[Promise::TimeForward], 20);
}
