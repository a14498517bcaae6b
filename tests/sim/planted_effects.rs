//! Faults planted between cause and effect, and the tests that show each one caught.

use crate::actor::Ask;
use crate::counter::{LEFT, RIGHT, STRIDE, What};
use crate::planted::caught;
use crate::run::Run;
use crate::setting::{Plant, Setting};
use crate::violation::{Promise, Violation};
use sexton::ids::{ActorId, Slot};
use sexton::persist::journal::Room;

const DAY_MS: u32 = 24 * 3600 * 1000;

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

/// A run in which one counter has passed a stride and its bell was rung; what it tells is on its way.
fn told(setting: &Setting) -> Result<Run<'_>, Violation> {
    let mut run = Run::new(setting, false);
    run.start()?;
    let by = u32::try_from(STRIDE).expect("a small number");
    let addition = (Slot(0), What::Add(by, DAY_MS, String::new()));
    if let Some(node) = &mut run.node {
        node.actors.left.post(vec![Ask::Message(addition)]);
    }
    // Asked for, and rung.
    for _ in 0..2 {
        turn(&mut run, LEFT)?;
        run.world.ring_all()?;
        if let Some(node) = &mut run.node {
            node.complete(None);
        }
    }
    Ok(run)
}

fn turn(run: &mut Run<'_>, id: u8) -> Result<(), Violation> {
    if let Some(node) = &mut run.node {
        node.turn(ActorId(id), &mut run.coverage);
        node.hand(&mut run.tap)?;
        node.log.drain().expect("nothing fails here");
    }
    run.release()
}

fn planted(plant: Option<Plant>) -> Setting {
    Setting {
        plant,
        ..Setting::planted(0, Plant::TellLost)
    }
}

/// The other actor is told while the disk is full, and refuses; there is space again, and nothing restarts.
fn refused_on_a_full_disk(plant: Option<Plant>) -> Result<(), Violation> {
    let setting = planted(plant);
    let mut run = told(&setting)?;
    if let Some(node) = &mut run.node {
        node.ledger.set_room(Room::Scant);
        node.route();
    }
    turn(&mut run, RIGHT)?;
    if let Some(node) = &mut run.node {
        assert!(node.met.tells_refused > 0, "a full disk refuses it");
        node.ledger.set_room(Room::Ample);
    }
    run.come_to_rest()
}

/// The process is killed before the other actor has heard: from then on nothing moves this actor but what a start does.
fn killed_before_it_told(plant: Option<Plant>) -> Result<(), Violation> {
    let setting = planted(plant);
    let mut run = told(&setting)?;
    run.down();
    run.finish()
}

/// What is right without the plant is caught with it.
fn only_caught_with(plant: Plant, scene: fn(Option<Plant>) -> Result<(), Violation>) {
    scene(None).unwrap_or_else(|violation| panic!("without the plant: {violation}"));
    let caught = scene(Some(plant)).err();
    let promise = caught.map(|violation| violation.promise);
    assert_eq!(promise, Some(Promise::Told));
}

#[test]
fn a_refused_tell_that_is_forgotten_is_caught() {
    only_caught_with(Plant::RefusedTellForgotten, refused_on_a_full_disk);
}

#[test]
fn obligations_that_a_start_does_not_let_out_are_caught() {
    only_caught_with(Plant::ResumeNotDrained, killed_before_it_told);
}

#[test]
fn a_decision_by_other_chance_is_caught() {
    caught(Plant::OtherChance, &[Promise::DecidedAgain], 20);
}

#[test]
fn a_decision_by_another_wall_clock_is_caught() {
    caught(Plant::OtherWall, &[Promise::DecidedAgain], 20);
}
