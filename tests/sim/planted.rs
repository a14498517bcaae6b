//! Faults planted in the simulation's own wiring, one for each promise, and the tests that show that each of them is
//! caught.
//!
//! This code only runs with a planted fault: a run of the campaign has none.

use crate::disk::SimDisk;
use crate::dispatch::{as_if_live, forger};
use crate::each::{Replicas, each};
use crate::node::Node;
use crate::planted_claims;
use crate::processes::{is_service_stop, without_waits};
use crate::setting::{Plant, Setting};
use crate::violation::{Promise, Violation};
use sexton::actors::binding::{EndNotice, ToHolder, ToProcesses, Until};
use sexton::actors::lock;
use sexton::actors::queue;
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Chance, Seq};
use sexton::persist::format::{About, Batch, FRAME_HEADER_BYTES, FrameHeader, Kind};
use sexton::persist::journal::{Reader, Record, Tail};
use sexton::persist::mark::Mark;
use sexton::spine::delivery::Stage;
use sexton::spine::effect::Tell;
use sexton::spine::ledger::{Entry, Poisoned};
use sexton::spine::machine::{
    Actor, Durability, Machine as _, Moment, Now, Observable as _, Stamp, Start,
};
use sexton::spine::recovery::{Past, Recovering as _, RecoveryError, Replica, decode_mark};

/// Changes what recovery found at the end of the log, as if part of it had been forgotten.
pub(crate) fn forget(plant: Option<Plant>, tail: &mut Tail) {
    match plant {
        Some(Plant::TokenTwice) => tail.reserved = Seq(0),
        Some(Plant::TimeGoesBack) => tail.last_at = Timestamp(0),
        _ => {}
    }
}

/// Plants the faults that are set after startup.
pub(crate) fn started(plant: Option<Plant>, node: &mut Node) {
    node.actors.queue.deaf = plant == Some(Plant::WaiterForgotten);
    if plant == Some(Plant::CancelledRunsOn) {
        node.actors.queue.swap = Some(planted_claims::as_if_touched);
    }
    if plant == Some(Plant::AckedByStaleClaim) {
        node.actors.queue.swap = Some(planted_claims::as_if_held);
    }
    if plant == Some(Plant::SavedByStale) {
        node.actors.dispatch.swap = Some(as_if_live);
    }
    if let Some(forger) = forger(plant) {
        node.actors.dispatch.host.forge(forger);
    }
    if plant == Some(Plant::AbsentFirst) {
        node.actors.lock.host.forge(Box::new(absent_first));
    }
    if plant == Some(Plant::ServiceForgotten) {
        node.actors.process.trap.set(Stage::Tick);
    }
}

/// Returns an outcome with an heir whose client is away, if a lock has one and would pass to another contender.
fn absent_first(
    machine: &lock::LockMachine,
    moment: &Moment,
    _: &lock::Message,
    outcome: &lock::Outcome,
) -> Option<lock::Outcome> {
    let lock::Outcome::Ended { gone } = outcome else {
        return None;
    };
    // Outcomes name slots, which views do not have. A decision to end an entry names its slot.
    let slot = |it: &lock::EntryView| {
        let (key, index, owner) = (it.key.clone(), Some(it.index.clone()), it.owner.clone());
        let release = lock::Message::Release { key, index, owner, token: None };
        machine.decide(moment, &release).gone().first().map(|it| it.slot)
    };
    let entries = machine.view().entries;
    let of = |wanted: lock::Removal| {
        let heir = entries.iter().find(|it| slot(it).is_some() && slot(it) == wanted.heir)?;
        let mut line = entries.iter().filter(|it| (&it.key, &it.index) == (&heir.key, &heir.index));
        let away = line.find(|it| it.away && !heir.away).and_then(slot)?;
        let ends = gone.iter().any(|gone| gone.slot == away);
        (!ends).then_some(lock::Removal { heir: Some(away), ..wanted })
    };
    let forged: Vec<_> = gone.iter().map(|it| of(*it).unwrap_or(*it)).collect();
    (forged != *gone).then_some(lock::Outcome::Ended { gone: forged })
}

/// Returns the entry up to which answers of queues are released early: with the fault, the last one; otherwise none.
pub(crate) fn released_early(plant: Option<Plant>, last: Seq) -> Seq {
    if plant == Some(Plant::QueueAnswersEarly) { last } else { Seq(0) }
}

/// Returns whether a tell (a message between actors) gets lost. Such tells are lost each time they are sent, even after a restart.
pub(crate) fn is_swallowed(plant: Option<Plant>, tell: &Tell) -> bool {
    let is_gone = || {
        let told = rmp_serde::from_slice(&tell.message);
        matches!(told, Ok(ToHolder::Gone(_)))
    };
    match (plant, tell.from, tell.to) {
        (Some(Plant::GoneLost), ActorId::PROCESS, ActorId::QUEUE)
        | (Some(Plant::LaunchLost), ActorId::LEASE, ActorId::PROCESS)
        | (Some(Plant::LaunchOfTaskLost), ActorId::DISPATCH, ActorId::PROCESS) => true,
        (Some(Plant::GoneOfPassLost), ActorId::PROCESS, ActorId::LEASE)
        | (Some(Plant::GoneOfTaskLost), ActorId::PROCESS, ActorId::DISPATCH) => is_gone(),
        (Some(Plant::LockKept), ActorId::DISPATCH, ActorId::LOCK) => {
            matches!(rmp_serde::from_slice(&tell.message), Ok(lock::Message::Yield(_)))
        }
        _ => false,
    }
}

/// Returns a false message to send in addition to this tell, or `None`.
pub(crate) fn forged(plant: Option<Plant>, tell: &Tell) -> Option<Tell> {
    let told = rmp_serde::from_slice(&tell.message);
    let (Some(Plant::FenceIsGone), ActorId::PROCESS, Ok(ToProcesses::Fence(process))) =
        (plant, tell.to, told)
    else {
        return None;
    };
    let gone = ToHolder::Gone(EndNotice { process, until: Until::Tree, exit: None, pid: None });
    Some(Tell {
        from: ActorId::PROCESS,
        to: tell.from,
        message: rmp_serde::to_vec(&gone).expect("tells encode"),
    })
}

/// Applies a planted fault to a batch before it reaches the journal.
pub(crate) fn alter(plant: Option<Plant>, batch: Batch) -> Batch {
    let is_left_out = match plant {
        Some(Plant::TickNotJournaled) => is_tick,
        Some(Plant::DeleteNotJournaled) => is_delete,
        Some(Plant::JobTickNotJournaled) => is_job_tick,
        Some(Plant::ServiceStopNotJournaled) => is_service_stop,
        Some(Plant::BackoffForgotten) => {
            return rewritten(&batch, |header, payload| Some(without_waits(header, payload)));
        }
        _ => return batch,
    };
    rewritten(&batch, |header, payload| (!is_left_out(header, payload)).then(|| payload.to_vec()))
}

/// Changes what the startup mark records.
pub(crate) fn start(plant: Option<Plant>, start: Start, batch: Batch) -> (Start, Batch) {
    let is_of_marks =
        matches!(plant, Some(Plant::NothingPassedOver | Plant::OtherChance | Plant::OtherWall));
    if !is_of_marks {
        return (start, batch);
    }
    let batch = rewritten(&batch, |header, payload| {
        let mark = (header.kind == Kind::Mark).then(|| rmp_serde::from_slice(payload));
        let Some(Ok(mut mark)) = mark else {
            return Some(payload.to_vec());
        };
        if let Mark::Start { chance, offset_ms, skipped, .. } = &mut mark {
            match plant {
                Some(Plant::OtherChance) => *chance = Chance([8; 32]),
                Some(Plant::OtherWall) => *offset_ms += 5000,
                _ => *skipped = 0,
            }
        }
        Some(rmp_serde::to_vec(&mark).expect("marks encode"))
    });
    let start = match plant {
        Some(Plant::NothingPassedOver) => Start { skipped: 0, ..start },
        _ => start,
    };
    (start, batch)
}

/// Returns a batch with each record rewritten, or left out if `anew` returns `None`.
pub(crate) fn rewritten(
    batch: &Batch,
    anew: impl Fn(&FrameHeader, &[u8]) -> Option<Vec<u8>>,
) -> Batch {
    let mut kept = Batch::default();
    let mut offset = 0;
    while let Some(header) = FrameHeader::decode(batch.bytes_from(offset)) {
        let frame = batch.bytes_from(offset).get(..header.size as usize);
        let payload = frame.and_then(|frame| frame.get(FRAME_HEADER_BYTES..));
        let payload = payload.expect("frames are whole in a batch");
        offset += header.size as usize;
        let Some(payload) = anew(&header, payload) else {
            continue;
        };
        let FrameHeader { seq, at, actor, kind, .. } = header;
        let about = About { seq, at, actor, kind };
        kept.push(about, |bytes| bytes.extend_from_slice(&payload));
    }
    if batch.is_urgent() {
        kept.make_urgent();
    }
    kept
}

fn is_tick(header: &FrameHeader, payload: &[u8]) -> bool {
    let entry: Result<Entry<lock::Message, lock::Outcome>, _> = rmp_serde::from_slice(payload);
    header.actor == ActorId::LOCK
        && header.kind == Kind::Entry
        && matches!(entry, Ok(entry) if matches!(entry.message, lock::Message::Expire { .. }))
}

fn as_queue_entry(
    header: &FrameHeader,
    payload: &[u8],
) -> Option<(queue::Message, queue::Outcome)> {
    let ours = header.actor == ActorId::QUEUE && header.kind == Kind::Entry;
    let entry: Option<Entry<queue::Message, queue::Outcome>> =
        ours.then(|| rmp_serde::from_slice(payload).ok()).flatten();
    entry.map(|entry| (entry.message, entry.outcome))
}

fn is_delete(header: &FrameHeader, payload: &[u8]) -> bool {
    let entry = as_queue_entry(header, payload);
    matches!(entry, Some((_, queue::Outcome::Deleted { .. })))
}

fn is_job_tick(header: &FrameHeader, payload: &[u8]) -> bool {
    let entry = as_queue_entry(header, payload);
    matches!(entry, Some((queue::Message::Expire { .. }, _)))
}

/// Recovers in a wrong way: decides and commits messages that panicked before.
pub(crate) fn recover_with_poison(
    disk: &SimDisk,
    replicas: &mut Replicas,
) -> Result<Past, RecoveryError> {
    let mut reader = Reader::open(disk)?;
    while let Some(record) = reader.next()? {
        each!(replica in &mut *replicas => take_with_poison(replica, &record)?);
    }
    Ok(Past { tail: reader.tail().clone(), ..Past::default() })
}

fn take_with_poison<M: Actor>(
    replica: &mut Replica<M>,
    record: &Record<'_>,
) -> Result<(), RecoveryError> {
    match record.kind {
        Kind::Mark => {
            if let Mark::Start { skipped, .. } = decode_mark(record)? {
                let stamp = stamp(record);
                replica.start(Start { stamp, skipped });
            }
            Ok(())
        }
        Kind::Entry if record.actor == M::ID => replica.apply(record),
        Kind::Poisoned if record.actor == M::ID => apply_poison(replica, record),
        Kind::Entry | Kind::Poisoned | Kind::End => Ok(()),
    }
}

fn apply_poison<M: Actor>(
    replica: &mut Replica<M>,
    record: &Record<'_>,
) -> Result<(), RecoveryError> {
    let poisoned: Poisoned<M::Message> =
        rmp_serde::from_slice(record.payload).expect("poisoned records decode");
    let moment = Moment {
        seq: record.seq,
        now: Now { at: record.at, ..Now::default() },
        ..Moment::default()
    };
    let outcome = replica.machine().decide(&moment, &poisoned.message);
    if replica.machine().durability(&poisoned.message, &outcome) != Durability::Nothing {
        let entry = Entry { message: poisoned.message, outcome, key: None };
        replica.commit(stamp(record), &entry)?;
    }
    Ok(())
}

fn stamp(record: &Record<'_>) -> Stamp {
    Stamp { seq: record.seq, at: record.at }
}

/// Runs seeds with a planted fault until a checker reports a violation, which must be of one of these promises.
pub(crate) fn caught(plant: Plant, promises: &[Promise], seeds: u64) {
    let (seed, violation) = violations(plant, seeds)
        .next()
        .unwrap_or_else(|| panic!("{plant:?} was not caught in {seeds} seeds"));
    assert!(
        promises.contains(&violation.promise),
        "seed {seed} with {plant:?} was caught, but as {violation}"
    );
}

/// Runs seeds with a planted fault until this promise is reported as broken. Earlier seeds may only report a promise in
/// `others`.
pub(crate) fn caught_as(plant: Plant, promise: Promise, others: &[Promise], seeds: u64) {
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
    caught(Plant::ReplyBeforeSync, &[Promise::Kept, Promise::ShownIsKept], 20);
}

#[test]
fn a_read_that_shows_what_is_not_yet_durable_is_caught() {
    // The change that the read showed is not in the log that survived. The check of reads or that of replies may report
    // it first.
    caught(Plant::ReadBeforeSync, &[Promise::ShownIsKept, Promise::RepliesRight], 60);
}

#[test]
fn a_waiter_that_is_away_and_goes_first_is_caught() {
    caught(Plant::AbsentFirst, &[Promise::PresentFirst], 400);
}

#[test]
fn a_token_given_twice_is_caught() {
    // For a reader, the log ends where sequence numbers decrease. The missing records, or a wrong answer that depends on
    // them, may be reported first.
    let others = [Promise::Kept, Promise::RepliesRight];
    caught_as(Plant::TokenTwice, Promise::GivenOnce, &others, 40);
}

#[test]
fn a_tick_that_is_not_journaled_is_caught() {
    // Answers that depend on the missing record are never released, so a client that is never woken may be found first.
    caught(
        Plant::TickNotJournaled,
        &[
            Promise::Woken,
            Promise::EntriesRight,
            Promise::DecidedAgain,
            Promise::RepliesRight,
            Promise::SameState,
        ],
        20,
    );
}

#[test]
fn a_poisoned_message_that_is_applied_on_replay_is_caught() {
    // The poisoned message may also make a later one fail.
    caught(Plant::PoisonApplied, &[Promise::SameState, Promise::Starts], 20);
}

#[test]
fn time_that_goes_back_is_caught() {
    caught(Plant::TimeGoesBack, &[Promise::TimeForward], 20);
}

#[test]
fn a_delete_that_is_not_journaled_is_caught() {
    caught(
        Plant::DeleteNotJournaled,
        &[Promise::Kept, Promise::RepliesRight, Promise::EntriesRight, Promise::SameState],
        20,
    );
}

#[test]
fn a_claim_that_runs_out_without_a_record_is_caught() {
    caught(
        Plant::JobTickNotJournaled,
        &[Promise::EntriesRight, Promise::DecidedAgain, Promise::RepliesRight, Promise::SameState],
        20,
    );
}

#[test]
fn answers_of_queues_that_leave_before_their_sync_are_caught() {
    caught(Plant::QueueAnswersEarly, &[Promise::Kept, Promise::ShownIsKept, Promise::Woken], 20);
}

#[test]
fn a_waiter_that_is_forgotten_is_caught() {
    caught(Plant::WaiterForgotten, &[Promise::Woken], 40);
}

#[test]
fn a_number_of_a_job_that_is_given_twice_is_caught() {
    // Only job ids are issued again: entries keep their unique sequence numbers.
    caught(Plant::NothingPassedOver, &[Promise::GivenOnce], 60);
}
