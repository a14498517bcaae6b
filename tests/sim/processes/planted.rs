//! Faults planted in the port's wiring and in the kernel, and the tests that show that each of them is caught.

use crate::planted::{caught, caught_as};
use crate::setting::Plant;
use crate::violation::Promise;
use sexton::actors::process::{Consequence, Message, Outcome, ServiceMessage, ServiceStep};
use sexton::clock::Timestamp;
use sexton::ids::ActorId;
use sexton::persist::format::{FrameHeader, Kind};
use sexton::spine::ledger::Entry;

fn as_entry(header: &FrameHeader, payload: &[u8]) -> Option<Entry<Message, Outcome>> {
    let ours = header.actor == ActorId::PROCESS && header.kind == Kind::Entry;
    ours.then(|| rmp_serde::from_slice(payload).ok()).flatten()
}

/// Returns whether this record is an operator's request to stop a service.
pub(crate) fn is_service_stop(header: &FrameHeader, payload: &[u8]) -> bool {
    let entry = as_entry(header, payload);
    entry.is_some_and(|it| matches!(it.message, Message::Service(ServiceMessage::Stop(_))))
}

/// Returns the record with all waits before restarts removed.
pub(crate) fn without_waits(header: &FrameHeader, payload: &[u8]) -> Vec<u8> {
    let Some(mut entry) = as_entry(header, payload) else {
        return payload.to_vec();
    };
    let Outcome::Service(turn) = &mut entry.outcome else {
        return payload.to_vec();
    };
    for step in &mut turn.steps {
        if let ServiceStep::Ended { then, .. } = step
            && let Consequence::Again { at, .. } = then
        {
            *at = Timestamp(0);
        }
    }
    rmp_serde::to_vec(&entry).expect("entries encode")
}

#[test]
fn an_end_that_is_guessed_is_caught() {
    caught(Plant::StatusGuessed, &[Promise::EndTrue], 600);
}

#[test]
fn an_attempt_that_is_launched_twice_is_caught() {
    // The second launch may fail, and be reported as the end, while the first process is alive.
    let others = [Promise::EndTrue];
    caught_as(Plant::LaunchedTwice, Promise::LaunchedOnce, &others, 100);
}

#[test]
fn a_process_that_is_not_followed_after_a_start_is_caught() {
    caught(Plant::FollowNotRestated, &[Promise::Reconciled], 60);
}

#[test]
fn a_process_of_another_boot_that_is_taken_for_one_of_this_is_caught() {
    caught(Plant::BootIgnored, &[Promise::EndTrue, Promise::NoStranger, Promise::Reconciled], 60);
}

#[test]
fn a_process_that_is_found_by_its_pid_is_caught() {
    caught(Plant::FoundByPid, &[Promise::EndTrue, Promise::NoStranger, Promise::Reconciled], 400);
}

#[test]
fn a_tree_that_is_thought_empty_without_its_leader_is_caught() {
    // What is left of a tree that counts as gone may be signalled on behalf of another.
    let others = [Promise::GoneTrue, Promise::NoStranger];
    caught_as(Plant::TreeOfLeader, Promise::TreeEmpty, &others, 300);
}

#[test]
fn a_process_that_is_thought_ended_with_its_main_thread_is_caught() {
    // What is not seen is not killed either.
    let promises = [Promise::TreeEmpty, Promise::GoneTrue, Promise::StuckTrue, Promise::Reconciled];
    caught(Plant::ThreadsUnseen, &promises, 300);
}

#[test]
fn a_group_that_is_taken_for_the_whole_tree_is_caught() {
    let promises = [Promise::TreeEmpty, Promise::GoneTrue, Promise::StuckTrue];
    caught(Plant::GroupIsAll, &promises, 300);
}

#[test]
fn a_process_of_another_user_that_is_taken_at_its_word_is_caught() {
    let promises = [Promise::NoStranger, Promise::Reconciled, Promise::StuckTrue, Promise::KeptUp];
    caught(Plant::AnyoneNames, &promises, 400);
}

#[test]
fn a_foreign_id_that_counts_more_than_the_group_is_caught() {
    let promises = [Promise::NoStranger, Promise::Reconciled, Promise::StuckTrue];
    caught(Plant::GroupsIgnored, &promises, 400);
}

#[test]
fn a_tree_that_is_thought_empty_while_it_keeps_forking_is_caught() {
    let promises = [Promise::TreeEmpty, Promise::GoneTrue];
    caught(Plant::UnsettledIsEmpty, &promises, 300);
}

#[test]
fn a_tree_that_is_thought_empty_as_nothing_of_it_was_found_is_caught() {
    let promises = [Promise::TreeEmpty, Promise::GoneTrue, Promise::Reconciled];
    caught(Plant::DoubtIsEmpty, &promises, 300);
}

#[test]
fn a_process_that_is_thought_gone_as_it_cannot_be_looked_at_is_caught() {
    let others = [Promise::NoStranger, Promise::StuckTrue];
    caught_as(Plant::UnknownIsGone, Promise::EndTrue, &others, 400);
}

#[test]
fn an_end_that_is_taken_for_that_of_another_is_caught() {
    // A service whose process is wrongly reported as ended is started again, so two of its processes may be found first.
    caught(Plant::EndOfAnother, &[Promise::EndTrue, Promise::Reconciled, Promise::OneEach], 60);
}

#[test]
fn an_end_that_is_forgotten_before_it_is_durable_is_caught() {
    // A launch that the keeper forgot is launched again.
    caught(Plant::ForgottenEarly, &[Promise::EndTrue, Promise::LaunchedOnce], 200);
}

#[test]
fn an_attempt_that_is_forgotten_while_it_is_wanted_is_caught() {
    caught(Plant::ForgetAll, &[Promise::EndTrue, Promise::LaunchedOnce], 200);
}

#[test]
fn a_port_that_acts_on_what_is_not_durable_is_caught() {
    caught(Plant::ProcessesEarly, &[Promise::ActedOnIt, Promise::Kept, Promise::ShownIsKept], 40);
}

#[test]
fn a_pass_that_outlives_its_process_is_caught() {
    // The lost message may be about a launch that failed.
    let promises = [Promise::EndsWithOwner, Promise::Told];
    caught(Plant::GoneOfPassLost, &promises, 60);
}

#[test]
fn a_right_that_passes_on_while_its_tree_is_stopped_is_caught() {
    caught(Plant::FenceIsGone, &[Promise::GoneTrue], 200);
}

#[test]
fn a_launch_that_is_never_taken_on_is_caught() {
    caught(Plant::LaunchLost, &[Promise::Told, Promise::EndsWithOwner], 60);
}

#[test]
fn a_claim_that_outlives_its_process_is_caught() {
    caught(Plant::GoneLost, &[Promise::EndsWithOwner], 60);
}

#[test]
fn a_service_that_time_no_longer_acts_on_is_caught() {
    caught(Plant::ServiceForgotten, &[Promise::KeptUp], 300);
}

#[test]
fn a_service_that_is_not_launched_after_a_start_is_caught() {
    caught(Plant::RelaunchNotRestated, &[Promise::Reconciled, Promise::KeptUp], 60);
}

#[test]
fn a_service_that_runs_twice_is_caught() {
    caught(Plant::ServiceTwice, &[Promise::OneEach], 20);
}

#[test]
fn a_service_that_is_launched_beside_what_was_only_told_to_end_is_caught() {
    let promises = [Promise::EndTrue, Promise::OneEach, Promise::TreeEmpty, Promise::GoneTrue];
    caught(Plant::StopTakenForEnd, &promises, 60);
}

#[test]
fn a_service_that_is_said_to_be_ready_and_never_said_so_is_caught() {
    caught(Plant::ReadyGuessed, &[Promise::ReadyTrue], 20);
}

#[test]
fn a_stop_of_a_service_that_is_not_journaled_is_caught() {
    caught(
        Plant::ServiceStopNotJournaled,
        &[Promise::Kept, Promise::EntriesRight, Promise::RepliesRight, Promise::SameState],
        60,
    );
}

#[test]
fn a_wait_before_a_restart_that_is_forgotten_is_caught() {
    caught(Plant::BackoffForgotten, &[Promise::DecidedAgain], 100);
}

#[test]
fn a_process_of_a_hook_that_is_recorded_twice_is_caught() {
    caught(Plant::ChildTwice, &[Promise::ChildOnce], 200);
}

#[test]
fn a_hook_whose_output_is_never_read_is_caught() {
    caught(Plant::HookForgotten, &[Promise::ChildOnce], 200);
}

#[test]
fn a_tree_that_is_called_stuck_at_once_is_caught() {
    caught(Plant::StuckAtOnce, &[Promise::StuckTrue], 200);
}

#[test]
fn a_tree_that_survives_and_is_not_called_stuck_is_caught() {
    caught(Plant::StuckUnsaid, &[Promise::StuckTrue], 400);
}
