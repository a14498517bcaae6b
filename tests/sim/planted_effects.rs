//! Faults planted between a change and its effect, and the tests that show that each of them is caught.

use crate::actor::Ask;
use crate::counter::{CounterMessage, LEFT, RIGHT, STRIDE};
use crate::coverage::Coverage;
use crate::planted::{caught, caught_as};
use crate::run::Run;
use crate::setting::{Plant, Setting};
use crate::violation::{Promise, Violation};
use sexton::actors::lock;
use sexton::ids::{ActorId, Slot};
use sexton::persist::journal::Room;
use sexton::spine::delivery::Stage;

const DAY_MS: u32 = 24 * 3600 * 1000;

#[test]
fn an_action_that_leaves_before_it_is_durable_is_caught() {
    caught(Plant::ActionBeforeSync, &[Promise::ActedOnIt, Promise::Kept, Promise::ShownIsKept], 40);
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
    caught(Plant::CompletionOfOlder, &[Promise::ActedOnIt], 1500);
}

#[test]
fn a_tell_that_is_lost_without_a_restart_is_caught() {
    caught(Plant::TellLost, &[Promise::Told], 40);
}

/// Returns a run in which one counter has passed a stride and its bell was rung. Its tell to the other actor is in
/// transit.
fn told(setting: &Setting) -> Result<Run<'_>, Violation> {
    let mut run = Run::new(setting, false);
    run.start()?;
    let by = u32::try_from(STRIDE).expect("a small number");
    let addition = (Slot(0), CounterMessage::Add(by, DAY_MS, String::new()));
    if let Some(node) = &mut run.node {
        node.actors.left.post(vec![Ask::Message(addition)]);
    }
    // The first turn requests the bell, and the second handles its completion.
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
        node.log.drain().expect("no fault is injected");
    }
    run.release()
}

fn planted(plant: Option<Plant>) -> Setting {
    Setting { plant, ..Setting::planted(0, Plant::TellLost) }
}

/// Lets the other actor refuse the tell because the disk is full. Afterwards there is space again, without a restart.
fn refused_on_a_full_disk(plant: Option<Plant>) -> Result<(), Violation> {
    let setting = planted(plant);
    let mut run = told(&setting)?;
    if let Some(node) = &mut run.node {
        node.ledger.set_room(Room::Scant);
        node.route()?;
    }
    turn(&mut run, RIGHT)?;
    if let Some(node) = &mut run.node {
        assert!(node.met.tells_refused > 0, "the full disk refuses the tell");
        node.ledger.set_room(Room::Ample);
    }
    run.come_to_rest()
}

/// Kills the process before the other actor has received the tell. Afterwards only a startup makes the sender repeat it.
fn killed_before_it_told(plant: Option<Plant>) -> Result<(), Violation> {
    let setting = planted(plant);
    let mut run = told(&setting)?;
    run.down();
    run.finish()
}

/// Checks that the scene passes without the fault, and is caught with it.
fn only_caught_with(plant: Plant, scene: fn(Option<Plant>) -> Result<(), Violation>) {
    scene(None).unwrap_or_else(|violation| panic!("without the planted fault: {violation}"));
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

type Count = fn(&Coverage) -> u64;

/// Plants a panic at this stage, and makes the node call it. Returns the number of panics.
fn panics(stage: Stage, count: Count) -> Result<u64, Violation> {
    let setting = planted(None);
    let mut run = told(&setting)?;
    let Some(node) = &mut run.node else {
        return Ok(0);
    };
    let now = node.ledger.now();
    match stage {
        Stage::Watch => {
            node.actors.lock.trap.set(stage);
            let empty = lock::Watch::Empty;
            let turn = node.actors.lock.watch(&mut node.ledger, empty);
            node.came(ActorId::LOCK, turn, &mut run.coverage);
        }
        Stage::Resume => {
            node.actors.left.trap.set(stage);
            node.actors.left.host.undelivered(now);
        }
        Stage::Decide
        | Stage::Keeping
        | Stage::Commit
        | Stage::Query
        | Stage::Tick
        | Stage::Due => {
            node.actors.left.trap.set(stage);
            let addition = (Slot(1), CounterMessage::Add(3, 0, String::new()));
            node.actors.left.post(vec![Ask::Message(addition)]);
        }
    }
    if matches!(stage, Stage::Due | Stage::Tick | Stage::Resume) {
        node.clock.advance_ms(u64::from(DAY_MS) + 1);
    }
    turn(&mut run, LEFT)?;
    turn(&mut run, LEFT)?;
    run.come_to_rest()?;
    Ok(count(&run.coverage))
}

#[test]
fn a_panic_in_any_function_is_caught_and_costs_nobody_else_anything() {
    crate::campaign::hush();
    let stages: [(Stage, Count); 7] = [
        (Stage::Decide, |met| met.panics_in_decide),
        (Stage::Keeping, |met| met.panics_in_keeping),
        (Stage::Commit, |met| met.panics_in_commit),
        (Stage::Due, |met| met.panics_in_due),
        (Stage::Tick, |met| met.panics_in_tick),
        (Stage::Watch, |met| met.panics_in_watch),
        (Stage::Resume, |met| met.panics_in_resume),
    ];
    for (stage, count) in stages {
        let times =
            panics(stage, count).unwrap_or_else(|violation| panic!("{stage:?}: {violation}"));
        assert_eq!(times, 1, "{stage:?}");
    }
}

#[test]
fn a_decision_by_other_chance_is_caught() {
    caught(Plant::OtherChance, &[Promise::DecidedAgain], 20);
}

#[test]
fn a_decision_by_another_wall_clock_is_caught() {
    // A wrong date in an entry may be found first.
    let sooner = [Promise::EntriesRight];
    caught_as(Plant::OtherWall, Promise::DecidedAgain, &sooner, 20);
}
