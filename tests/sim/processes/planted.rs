//! Faults planted in the port's wiring and beneath it, and the tests that show each one caught.

use crate::planted::caught;
use crate::setting::Plant;
use crate::violation::Promise;

#[test]
fn an_end_that_is_guessed_is_caught() {
    caught(Plant::StatusGuessed, &[Promise::EndTrue], 200);
}

#[test]
fn an_attempt_that_is_launched_twice_is_caught() {
    caught(Plant::LaunchedTwice, &[Promise::LaunchedOnce], 100);
}

#[test]
fn a_process_that_is_not_followed_after_a_start_is_caught() {
    caught(Plant::FollowNotRestated, &[Promise::Reconciled], 60);
}

#[test]
fn a_process_of_another_boot_that_is_taken_for_one_of_this_is_caught() {
    caught(
        Plant::BootIgnored,
        &[Promise::EndTrue, Promise::NoStranger, Promise::Reconciled],
        60,
    );
}

#[test]
fn a_process_that_is_found_by_its_pid_is_caught() {
    caught(
        Plant::FoundByPid,
        &[Promise::EndTrue, Promise::NoStranger, Promise::Reconciled],
        400,
    );
}

#[test]
fn a_tree_that_is_thought_empty_without_its_leader_is_caught() {
    let promises = [Promise::TreeEmpty, Promise::GoneTrue];
    caught(Plant::TreeOfLeader, &promises, 300);
}

#[test]
fn a_process_that_is_thought_gone_as_it_cannot_be_looked_at_is_caught() {
    caught(Plant::UnknownIsGone, &[Promise::EndTrue], 400);
}

#[test]
fn an_end_that_is_taken_for_that_of_another_is_caught() {
    caught(
        Plant::EndOfAnother,
        &[Promise::EndTrue, Promise::Reconciled],
        60,
    );
}

#[test]
fn an_end_that_is_forgotten_before_it_is_durable_is_caught() {
    // What is forgotten of a launch is launched again.
    caught(
        Plant::ForgottenEarly,
        &[Promise::EndTrue, Promise::LaunchedOnce],
        200,
    );
}

#[test]
fn a_census_that_forgets_what_is_wanted_is_caught() {
    caught(
        Plant::CensusOfNothing,
        &[Promise::EndTrue, Promise::LaunchedOnce],
        200,
    );
}

#[test]
fn a_port_that_acts_on_what_is_not_durable_is_caught() {
    caught(
        Plant::ProcessesEarly,
        &[Promise::ActedOnIt, Promise::Kept, Promise::ShownIsKept],
        40,
    );
}

#[test]
fn a_pass_that_outlives_its_process_is_caught() {
    caught(Plant::GoneOfPassLost, &[Promise::EndsWithOwner], 60);
}

#[test]
fn a_right_that_passes_on_while_its_tree_is_stopped_is_caught() {
    caught(Plant::FenceIsGone, &[Promise::GoneTrue], 200);
}

#[test]
fn a_launch_that_is_never_taken_on_is_caught() {
    caught(
        Plant::LaunchLost,
        &[Promise::Told, Promise::EndsWithOwner],
        60,
    );
}

#[test]
fn a_claim_that_outlives_its_process_is_caught() {
    caught(Plant::GoneLost, &[Promise::EndsWithOwner], 60);
}
