//! Faults planted in claims of jobs, and the tests that show each one caught.

use crate::actor::Actor;
use crate::each::Replicas;
use crate::planted::{caught, caught_as, rewritten};
use crate::queues::{Queues, without_throttles};
use crate::reference::Reference;
use crate::setting::Plant;
use crate::violation::Promise;
use sexton::actors::queue::{Message, Phase, QueueMachine, Right};
use sexton::persist::format::{Batch, Kind};
use sexton::spine::machine::{Machine as _, Observable as _};
use sexton::spine::recovery::EntryOf;

/// The delete of a job by whoever had it once, as it would be by who has it now, or of one that nobody has.
pub(crate) fn as_if_held(machine: &QueueMachine, message: &Message) -> Option<Message> {
    let Message::Delete {
        id,
        by: Right::Token(shown),
    } = message
    else {
        return None;
    };
    let view = machine.view();
    let job = view.jobs.iter().find(|job| job.id == *id)?;
    let by = match job.token {
        Some(token) if token == *shown => return None,
        Some(token) => Right::Token(token),
        None => Right::Unclaimed,
    };
    Some(Message::Delete { id: *id, by })
}

/// The cancellation of a job that is claimed, as it would be if its worker had begun its span again: that is told to go on.
pub(crate) fn as_if_touched(machine: &QueueMachine, message: &Message) -> Option<Message> {
    let Message::Cancel { id, .. } = message else {
        return None;
    };
    let view = machine.view();
    let job = view.jobs.iter().find(|job| job.id == *id)?;
    let is_worked_on = job.phase == Phase::Claimed && !job.fencing && !job.cancelled;
    let token = job.token.filter(|_| is_worked_on)?;
    Some(Message::Touch {
        id: *id,
        by: Right::Token(token),
    })
}

/// The log of a machine that took the one for the other: it has what was asked, and what came of it.
pub(crate) fn as_asked<R: Reference>(actor: &Actor<R>, batch: Batch) -> Batch {
    if actor.swapped.is_empty() {
        return batch;
    }
    rewritten(&batch, |header, payload| {
        let is_ours = header.actor == R::Machine::ID && header.kind == Kind::Entry;
        let entry = is_ours
            .then(|| rmp_serde::from_slice(payload).ok())
            .flatten();
        let Some(mut entry): Option<EntryOf<R::Machine>> = entry else {
            return Some(payload.to_vec());
        };
        let mut swapped = actor.swapped.iter();
        if let Some((asked, _)) = swapped.find(|(_, done)| *done == entry.message) {
            entry.message = asked.clone();
        }
        Some(rmp_serde::to_vec(&entry).expect("entries encode"))
    })
}

/// Recovers with rules by which nothing is throttled, so that no claim before the start closes its queue.
pub(crate) fn recover(plant: Option<Plant>, replicas: &mut Replicas) {
    if plant == Some(Plant::ThrottleForgotten) {
        replicas.queue.set_rules(without_throttles(Queues::rules()));
    }
}

/// The node goes by the right ones.
pub(crate) fn recovered(plant: Option<Plant>, replicas: &mut Replicas) {
    if plant == Some(Plant::ThrottleForgotten) {
        replicas.queue.set_rules(Queues::rules());
    }
}

#[test]
fn a_job_that_is_acked_by_a_stale_claim_is_caught() {
    caught(Plant::AckedByStaleClaim, &[Promise::EntriesRight], 60);
}

#[test]
fn a_cancelled_job_that_runs_on_is_caught() {
    // Deciding the cancellation again has another outcome. Before that its worker may have been let go on, or the client was told of a
    // cancellation that a crash leaves without an entry.
    let others = [Promise::EntriesRight, Promise::Kept];
    caught_as(Plant::CancelledRunsOn, Promise::DecidedAgain, &others, 200);
}

#[test]
fn a_throttle_that_a_start_forgets_is_caught() {
    caught(Plant::ThrottleForgotten, &[Promise::EntriesRight], 60);
}
