//! Two actors with counters that perform actions and send tells (messages between actors) to each other, on the real runtime. Their
//! process is killed again and again between cause and effect, and the effects outside it are examined.
//!
//! `program.rs` is that process, which is this test program executed again; `world.rs` has the bells that it rings, in a file that
//! outlives it. `tests/sim/` tests the same with a simulated world; this tests it with journal, threads and signals.

mod again;
mod late;
mod live;
mod program;
mod wires;
mod world;

use crate::counter::{self, CounterMachine, LEFT, RIGHT};
use crate::past;
use sexton::spine::items::Itemized as _;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use world::{Line, RingResult, World};

/// The number of processes that are killed.
const LIVES: u64 = 24;

/// How long the first process without requests runs. Each later one runs twice as long as the one before.
const SHORTEST: Duration = Duration::from_millis(50);
/// The number of processes without requests after which no violation may remain, and the number that run with an injected fault.
const ROUNDS: u32 = 11;
const ROUNDS_PLANTED: u32 = 4;

/// A process of this program that runs counters. Killed when dropped.
struct Running {
    process: Child,
    said: Lines<BufReader<ChildStdout>>,
}

impl Running {
    /// Starts a process in which clients add to the counters of each actor this many times.
    fn start(files: &Path, plant: &str, adds: u32) -> Self {
        let program = std::env::current_exe().expect("this program is a file");
        let mut process = Command::new(program)
            .args(["--exact", "acting::program::counters", "--ignored"])
            .args(["--nocapture", "--test-threads=1"])
            .env(program::DATA, files)
            .env(program::PLANT, plant)
            .env(program::ADDS, adds.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        let stdout = process.stdout.take().expect("a pipe");
        Self { process, said: BufReader::new(stdout).lines() }
    }

    /// Reads this many answers, and one more.
    fn read(&mut self, answers: u64) {
        let lines = self.said.by_ref().map_while(Result::ok);
        let mut answered = lines.filter(|line| line.starts_with("answered"));
        let last = usize::try_from(answers).expect("a small number");
        let found = answered.nth(last);
        assert!(found.is_some(), "it ended before it was killed");
    }
}

impl Running {
    /// Kills the process with SIGKILL.
    fn kill(&mut self) {
        self.process.kill().expect("a live process");
        self.process.wait().expect("the process ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// What the journal contains about one of the two actors.
struct InstanceHistory {
    /// The strides of each of its counters, which it sends to the other actor.
    strides: BTreeMap<u32, u64>,
    /// The strides that it received from the other actor, by counter.
    heard: BTreeMap<u32, u64>,
    /// The number of counters whose bell still has to be rung.
    silent: usize,
    /// Attempts that were recorded as rung, by bell.
    done: BTreeSet<(u32, u64)>,
    /// The sequence numbers of its entries.
    entries: BTreeSet<u64>,
}

fn told<const ID: u8>(files: &Path) -> InstanceHistory {
    let past = past::read::<CounterMachine<ID>>(files);
    let counters = || past.machine().items().iter();
    let entries = past.entries.iter();
    InstanceHistory {
        strides: counters().map(|(name, it)| (name.0, it.strides)).collect(),
        heard: counters().map(|(name, it)| (name.0, it.heard)).collect(),
        silent: counters().filter(|(_, it)| it.silent).count(),
        done: entries
            .clone()
            .filter_map(|entry| match &entry.message {
                // A report that changed nothing has no entry.
                (name, counter::CounterMessage::Rung(attempt, false)) => Some((name.0, attempt.0)),
                _ => None,
            })
            .collect(),
        entries: entries.map(|entry| entry.seq.0).collect(),
    }
}

/// Returns a bell that was not rung, or a count that was not received; `None` if there is none. Nothing may be in progress.
fn wrong(files: &Path) -> Option<String> {
    for (id, it) in [(LEFT, told::<LEFT>(files)), (RIGHT, told::<RIGHT>(files))] {
        if it.silent > 0 {
            return Some(format!("{} bells of {id} were never rung", it.silent));
        }
    }
    undelivered(files)
}

/// Returns a count that one actor sent and the other never received; `None` if there is none.
fn undelivered(files: &Path) -> Option<String> {
    let (left, right) = (told::<LEFT>(files), told::<RIGHT>(files));
    for (id, it, other) in [(LEFT, &left, &right), (RIGHT, &right, &left)] {
        let unheard = it
            .strides
            .iter()
            .find(|(name, strides)| **strides > 0 && other.heard.get(name) != Some(strides));
        if let Some(unheard) = unheard {
            return Some(format!("{unheard:?} of {id} was not received"));
        }
    }
    None
}

/// Returns an action that was performed and must not have been, or is recorded as performed and was not; `None` if there is none.
fn untrue(files: &Path) -> Option<String> {
    let log = World::read(files);
    let (left, right) = (told::<LEFT>(files), told::<RIGHT>(files));
    let mut rung = BTreeSet::new();
    for Line { actor, id, attempt, what } in log {
        let it = if actor == LEFT { &left } else { &right };
        if !it.entries.contains(&attempt) {
            return Some(format!(
                "{actor} {id} was acted on by {attempt}, which is not in the log"
            ));
        }
        if what == RingResult::Rung && !rung.insert((actor, id, attempt)) {
            return Some(format!("{actor} {id} was rung twice by {attempt}"));
        }
    }
    for (actor, it) in [(LEFT, &left), (RIGHT, &right)] {
        for (id, attempt) in &it.done {
            if !rung.contains(&(actor, *id, *attempt)) {
                return Some(format!("{actor} counts {attempt} of {id} as rung"));
            }
        }
    }
    None
}

/// Runs this many processes on a new directory, each killed after some answers, and returns the directory.
fn lives(plant: &str, lives: u64) -> TempDir {
    let files = tempfile::tempdir().expect("a temporary directory");
    for life in 0..lives {
        let mut running = Running::start(files.path(), plant, u32::MAX);
        running.read(life * 17 % 60);
    }
    files
}

/// Runs processes without requests, so that only the actions and tells that are requested again at startup have an effect. Returns a
/// violation that remains after the last process; `None` if there is none.
#[expect(
    clippy::disallowed_methods,
    reason = "a journal in use is not read, so there is no event when it settles"
)]
fn at_rest(files: &Path, plant: &str, rounds: u32) -> Option<String> {
    let mut found = None;
    for round in 0..rounds {
        let running = Running::start(files, plant, 0);
        std::thread::sleep(SHORTEST * 2_u32.pow(round));
        drop(running);
        found = untrue(files).or_else(|| wrong(files));
        if found.is_none() {
            break;
        }
    }
    found
}

#[test]
fn what_acts_is_killed_between_cause_and_effect_and_nothing_is_lost_or_done_twice() {
    let files = lives("", LIVES);
    assert_eq!(at_rest(files.path(), "", ROUNDS), None);
    let count = |what| {
        let log = World::read(files.path()).into_iter();
        log.filter(|line| line.what == what).count()
    };
    let met = [RingResult::Rung, RingResult::Refused, RingResult::Again, RingResult::Unreported]
        .map(count);
    assert!(met.iter().all(|times| *times > 0), "{met:?}");
    let again = |bend| again::other::<LEFT>(files.path(), bend);
    let decided = again(|_| {});
    assert!(decided.as_ref().is_ok_and(|many| *many > 100), "{decided:?}");
    // This comparison can fail: with another random number or another clock, decisions differ.
    let by_other_chance = again(|moment| moment.chance.0[31] ^= 1);
    assert!(by_other_chance.is_err(), "{by_other_chance:?}");
    let by_another_clock = again(|moment| moment.now.offset.0 += 1);
    assert!(by_another_clock.is_err(), "{by_another_clock:?}");
}

/// Returns a violation found with this injected fault, or nothing. A kill reveals the fault only by chance, so there are a few runs.
fn caught(plant: &str) -> String {
    let found = |_| {
        let files = lives(plant, 12);
        at_rest(files.path(), plant, ROUNDS_PLANTED)
    };
    (0..6).find_map(found).unwrap_or_default()
}

#[test]
fn a_port_that_forgets_what_an_earlier_process_was_to_do_is_caught() {
    let found = caught("forgets");
    assert!(found.contains("never rung"), "{found}");
}

#[test]
fn a_port_that_does_an_attempt_again_is_caught() {
    let found = caught("repeats");
    assert!(found.contains("rung twice"), "{found}");
}

#[test]
fn a_port_that_takes_the_end_of_an_older_attempt_for_that_of_the_newest_is_caught() {
    let found = caught("mistakes");
    assert!(found.contains("as rung"), "{found}");
}

#[test]
fn an_action_that_leaves_before_its_entry_is_written_is_caught() {
    let found = caught("early");
    assert!(found.contains("which is not in the log"), "{found}");
}

#[test]
fn a_port_that_says_it_did_what_it_did_not_is_caught() {
    let found = caught("pretends");
    assert!(found.contains("as rung"), "{found}");
}
