//! Faults planted in claims of jobs, and the tests that show that each of them is caught.

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

/// Returns a former holder's deletion of a job, changed to come from the current holder, or from no holder if the job has
/// none. Returns `None` for other messages.
pub(crate) fn as_if_held(machine: &QueueMachine, message: &Message) -> Option<Message> {
    let Message::Delete { id, by: Right::Token(shown) } = message else {
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

/// Returns a touch by the holder of a job in place of the job's cancellation, so that the worker continues. Returns
/// `None` for other messages.
pub(crate) fn as_if_touched(machine: &QueueMachine, message: &Message) -> Option<Message> {
    let Message::Cancel { id, .. } = message else {
        return None;
    };
    let view = machine.view();
    let job = view.jobs.iter().find(|job| job.id == *id)?;
    let is_worked_on = job.phase == Phase::Claimed && !job.fencing && !job.cancelled;
    let token = job.token.filter(|_| is_worked_on)?;
    Some(Message::Touch { id: *id, by: Right::Token(token) })
}

/// Returns the batch with swapped messages undone: each entry has the message that was sent, and the outcome of its
/// replacement.
pub(crate) fn as_asked<R: Reference>(actor: &Actor<R>, batch: Batch) -> Batch {
    if actor.swapped.is_empty() {
        return batch;
    }
    rewritten(&batch, |header, payload| {
        let is_ours = header.actor == R::Machine::ID && header.kind == Kind::Entry;
        let entry = is_ours.then(|| rmp_serde::from_slice(payload).ok()).flatten();
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

/// Plants rules without throttles before recovery, so that claims in the log do not delay later claims.
pub(crate) fn recover(plant: Option<Plant>, replicas: &mut Replicas) {
    if plant == Some(Plant::ThrottleForgotten) {
        replicas.queue.set_rules(without_throttles(Queues::rules()));
    }
}

/// Restores the right rules after recovery.
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
    // A second machine decides differently about the cancellation. Before that is found, the worker may have been
    // answered as if it should continue, or a crash may have lost the cancellation although the client was answered.
    let others = [Promise::EntriesRight, Promise::Kept];
    caught_as(Plant::CancelledRunsOn, Promise::DecidedAgain, &others, 200);
}

#[test]
fn a_throttle_that_a_start_forgets_is_caught() {
    caught(Plant::ThrottleForgotten, &[Promise::EntriesRight], 60);
}
