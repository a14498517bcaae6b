//! Faults planted between cause and effect, and the tests that show each one caught.

use crate::planted::caught;
use crate::setting::Plant;
use crate::violation::Promise;

#[test]
fn an_action_that_leaves_before_it_is_durable_is_caught() {
    caught(
        Plant::ActionBeforeSync,
        &[Promise::ActedOnIt, Promise::Kept, Promise::ShownIsKept],
        40,
    );
}

#[test]
fn an_action_lost_in_a_crash_and_never_stated_again_is_caught() {
    caught(Plant::ActionNotRestated, &[Promise::ActedOnIt], 40);
}

#[test]
fn an_action_performed_twice_is_caught() {
    caught(Plant::ActedTwice, &[Promise::ActedOnce], 40);
}

#[test]
fn a_completion_of_an_older_attempt_is_caught() {
    caught(Plant::CompletionOfOlder, &[Promise::ActedOnIt], 100);
}

#[test]
fn a_tell_that_is_lost_without_a_restart_is_caught() {
    caught(Plant::TellLost, &[Promise::Told], 40);
}

#[test]
fn a_refused_tell_that_is_forgotten_is_caught() {
    caught(Plant::RefusedTellForgotten, &[Promise::Told], 200);
}

#[test]
fn obligations_that_a_start_does_not_let_out_are_caught() {
    caught(Plant::ResumeNotDrained, &[Promise::Told], 200);
}

#[test]
fn a_decision_by_other_chance_is_caught() {
    caught(Plant::OtherChance, &[Promise::DecidedAgain], 20);
}

#[test]
fn a_decision_by_another_wall_clock_is_caught() {
    caught(Plant::OtherWall, &[Promise::DecidedAgain], 20);
}
