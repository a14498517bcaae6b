//! Earlier states of a directory: each state is the same as that of a replay from the beginning, whatever waypoints
//! (copies of states on the way) exist.

use crate::daemon;
use crate::directory::{make, request, settings};
use serde_json::Value;
use sexton::Node;
use sexton::ids::{Digest, Seq};
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::journal::Reader;
use sexton::persist::snapshots::{CopiedStores, SledStores, Slots};
use sexton::replay::{AROUND, Bounds, Line, Replay, StateAt, Timeline, TimelineError};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use tempfile::TempDir;

/// Waypoints that are close to each other.
const CLOSE: Bounds =
    Bounds { records: 16, record_bytes: 1 << 20, state_bytes: 64 << 20, kept_bytes: 64 << 20 };

type Digests = BTreeMap<String, String>;

/// Opens a timeline of a directory. Also returns the directory into which it copies snapshots.
fn timeline(data: &Path, bounds: Bounds) -> (Timeline, TempDir) {
    let scratch = tempfile::tempdir().expect("a temporary directory");
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(data));
    let copies = CopiedStores::new(
        Arc::clone(&disk),
        Arc::new(RealDisk::new(scratch.path())),
        Arc::new(SledStores::new(scratch.path())),
    );
    let slots = Slots::new(Arc::clone(&disk), Arc::new(copies));
    (Timeline::new(disk, slots, bounds), scratch)
}

/// Returns the state after each record of a replay from the beginning.
fn replayed(data: &Path) -> Vec<(Seq, Digests)> {
    let disk = RealDisk::new(data);
    let mut reader = Reader::open(&disk).expect("the journal is intact");
    let (mut replay, mut states) = (Replay::default(), Vec::new());
    while let Some(record) = reader.next().expect("the record is readable") {
        replay.record(&record).expect("it replays");
        let state = replay.states();
        let digests = state.map(|(name, digest, _)| named(name, digest));
        states.push((record.seq, digests.collect()));
    }
    states
}

fn named(name: &str, digest: Digest) -> (String, String) {
    (name.to_owned(), digest.to_string())
}

fn digests(state: &StateAt) -> Digests {
    let actors = state.actors.iter();
    actors.map(|actor| named(actor.name, actor.digest)).collect()
}

fn numbers(lines: &[Line]) -> Vec<Seq> {
    lines.iter().filter_map(|line| line.seq).collect()
}

/// Returns every position once, in an order that goes back and forth.
fn scattered(count: usize) -> impl Iterator<Item = usize> {
    // A prime number, so that all positions are visited if their number is not a multiple of it.
    (0..count).map(move |nth| nth * 7919 % count)
}

fn look(timeline: &mut Timeline, at: Seq, last: Seq) -> StateAt {
    let state = timeline.state_at(Some(at), last, &mut |_| true);
    state.expect("the state is known")
}

#[test]
fn every_moment_is_that_of_a_replay_from_the_beginning() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let node = Node::open(settings(files.path())).expect("the directory opens");
    request(&node.handle(), 0..400);
    let states = replayed(files.path());
    let (last, _) = states.last().cloned().expect("there are entries");
    let thin = Bounds { kept_bytes: 20_000, ..CLOSE };
    for bounds in [CLOSE, thin, Bounds::default()] {
        let (mut timeline, _scratch) = timeline(files.path(), bounds);
        for place in scattered(states.len()) {
            let (seq, expected) = &states[place];
            let state = look(&mut timeline, *seq, last);
            assert_eq!((state.seq, state.last), (*seq, last));
            assert_eq!(digests(&state), *expected, "after {seq}");
            let all: Vec<Seq> = states.iter().map(|(seq, _)| *seq).collect();
            let (before, after) = all.split_at(place + 1);
            let begin = before.len().saturating_sub(AROUND);
            assert_eq!(numbers(&state.before), before[begin..], "before {seq}");
            let end = after.len().min(AROUND);
            assert_eq!(numbers(&state.after), after[..end], "after {seq}");
        }
    }
    node.stop().expect("the node stops");
}

#[test]
fn what_is_written_meanwhile_is_seen_and_what_is_not_durable_is_not() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let node = Node::open(settings(files.path())).expect("the directory opens");
    request(&node.handle(), 0..100);
    let early = replayed(files.path()).last().cloned().expect("entries");
    let (mut timeline, _scratch) = timeline(files.path(), CLOSE);
    assert_eq!(digests(&look(&mut timeline, early.0, early.0)), early.1);
    request(&node.handle(), 100..200);
    let late = replayed(files.path()).last().cloned().expect("entries");
    assert!(late.0 > early.0);
    let state = look(&mut timeline, late.0, early.0);
    assert_eq!((state.seq, digests(&state)), early, "no later than allowed");
    assert!(state.after.is_empty(), "{:?}", state.after);
    let state = look(&mut timeline, late.0, late.0);
    assert_eq!((state.seq, digests(&state)), late);
    node.stop().expect("the node stops");
}

#[test]
fn a_state_that_is_too_large_is_refused_and_one_that_nobody_wants_given_up() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let node = Node::open(settings(files.path())).expect("the directory opens");
    request(&node.handle(), 0..2000);
    let states = replayed(files.path());
    let (last, expected) = states.last().expect("there are entries");
    let small = Bounds { state_bytes: 1000, ..CLOSE };
    let (mut refused, _scratch) = timeline(files.path(), small);
    let error = refused.state_at(None, *last, &mut |_| true);
    let error = error.expect_err("it is too large");
    assert!(matches!(error, TimelineError::TooLarge { most: 1000, .. }), "{error}");
    let (mut timeline, _other) = timeline(files.path(), CLOSE);
    let error = timeline.state_at(None, *last, &mut |_| false);
    assert!(matches!(error, Err(TimelineError::Abandoned)), "{error:?}");
    assert_eq!(digests(&look(&mut timeline, *last, *last)), *expected);
    node.stop().expect("the node stops");
}

/// Returns the output of `sexton replay` for a directory, up to a sequence number.
fn replay(data: &Path, until: Seq) -> Output {
    let mut command = daemon::sexton();
    command.arg("replay").arg(data);
    command.args(["--until", &until.to_string(), "--state", "--json"]);
    command.output().expect("the command runs")
}

#[test]
fn a_journal_without_its_beginning_begins_with_the_older_snapshot() {
    let files = tempfile::tempdir().expect("a temporary directory");
    make(files.path());
    let disk = RealDisk::new(files.path());
    let mut reader = Reader::open_present(&disk).expect("the journal is intact");
    assert!(reader.after() > Seq(0), "it was trimmed");
    while reader.next().expect("the record is readable").is_some() {}
    let last = reader.tail().last;
    let (mut timeline, _scratch) = timeline(files.path(), CLOSE);
    let first = look(&mut timeline, Seq(0), last);
    assert_eq!(first.seq, first.known, "it is the earliest known state");
    assert!(first.known > Seq(0) && first.begins > Seq(1), "{first:?}");
    let before = replay(files.path(), Seq(first.begins.0 - 2));
    assert_eq!(before.status.code(), Some(3), "{before:?}");
    for at in [first.known, Seq(first.known.0 + 1), Seq(u64::midpoint(first.known.0, last.0)), last]
    {
        let state = look(&mut timeline, at, last);
        let said = replay(files.path(), at);
        let said: Value = serde_json::from_slice(&said.stdout).expect("a state in JSON");
        for actor in &state.actors {
            let its = said.pointer(&format!("/actors/{}/digest", actor.name));
            let digest = actor.digest.to_string();
            assert_eq!(its.and_then(Value::as_str), Some(&*digest), "{} at {at}", actor.name);
        }
    }
}
