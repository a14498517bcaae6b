//! `sexton replay` of a journal whose first segments were removed. Everything that exists is shown. A state begins from a
//! snapshot, which is named, and equals that of a replay of the whole journal. The digests of checkpoints are compared.
//! What cannot be shown any more is refused with an explanation.

#![expect(clippy::indexing_slicing, reason = "a missing part fails the test")]

use crate::daemon::sexton;
use crate::directory::{copy, everything, request, settings};
use crate::node::wait;
use serde_json::Value;
use sexton::Node;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

fn replay(log: &Path, flags: &[&str]) -> Output {
    let mut command = sexton();
    command.arg("replay").arg(log).args(flags);
    command.output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// The same history twice: trimmed with its snapshots, and the whole journal without snapshots.
struct Pasts {
    _files: TempDir,
    trimmed: PathBuf,
    whole: PathBuf,
    /// The entry up to which the older snapshot has the state.
    older: u64,
    last: u64,
}

impl Pasts {
    fn make() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let (trimmed, whole) = (files.path().join("trimmed"), files.path().join("whole"));
        let keep = || copy(&trimmed.join("journal"), &whole.join("journal"));
        let node = Node::open(settings(&trimmed)).expect("the directory opens");
        let handle = node.handle();
        request(&handle, 0..600);
        keep();
        wait(handle.checkpoint()).expect("the lock is granted");
        request(&handle, 600..900);
        keep();
        let older = wait(handle.checkpoint()).expect("the lock is granted").upto.0;
        request(&handle, 900..2000);
        keep();
        node.stop().expect("the node stops");
        keep();
        assert!(!trimmed.join("journal/00000001.seg").exists(), "it is trimmed");
        let said = replay(&whole, &["--state", "--json"]);
        let said: Value = serde_json::from_slice(&said.stdout).expect("valid JSON");
        let last = said["last"].as_u64().expect("it is a number");
        Self { _files: files, trimmed, whole, older, last }
    }
}

#[test]
fn it_comes_to_the_same_states_as_a_replay_of_everything() {
    let pasts = Pasts::make();
    let before = everything(&pasts.trimmed);
    for until in [pasts.older, pasts.older + 1, 1500, pasts.last - 1, pasts.last] {
        let until = until.to_string();
        let flags = ["--state", "--json", "--until", until.as_str()];
        let (short, long) = (replay(&pasts.trimmed, &flags), replay(&pasts.whole, &flags));
        assert_eq!(short.status.code(), Some(0), "{until}: {}", text(&short.stderr));
        let said = text(&short.stderr);
        assert!(said.contains("the replay begins with snapshot"), "{until}: {said}");
        let (short, long): (Value, Value) = (
            serde_json::from_slice(&short.stdout).expect("valid JSON"),
            serde_json::from_slice(&long.stdout).expect("valid JSON"),
        );
        assert_eq!(short["actors"], long["actors"], "{until}");
        assert!(short["actors"]["lock"]["state"]["owners"].as_u64() > Some(100), "{until}");
    }
    assert_eq!(everything(&pasts.trimmed), before, "nothing was changed");
}

#[test]
fn everything_that_is_there_is_shown_and_can_be_read_elsewhere() {
    let pasts = Pasts::make();
    for _ in 0..2 {
        let node = Node::open(settings(&pasts.trimmed)).expect("the directory opens");
        request(&node.handle(), 2000..2010);
        wait(node.handle().checkpoint()).expect("the lock is granted");
        node.stop().expect("the node stops");
    }
    let there = first_there(&pasts.trimmed);
    let shown = replay(&pasts.trimmed, &[]);
    assert_eq!(shown.status.code(), Some(0), "{}", text(&shown.stderr));
    assert_eq!(numbers(&text(&shown.stdout)).first(), Some(&there));
    let older = older_snapshot(&pasts.trimmed);
    assert!(there < older, "{there} is before the snapshot");

    let early = (there + 2).to_string();
    let part = replay(&pasts.trimmed, &["--from", &there.to_string(), "--until", &early]);
    assert_eq!(part.status.code(), Some(0), "{}", text(&part.stderr));
    assert_eq!(numbers(&text(&part.stdout)), [there, there + 1, there + 2]);
    let refused = replay(&pasts.trimmed, &["--until", &early, "--state"]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused.stderr).contains("which is after --until"));

    let exported = replay(&pasts.trimmed, &["--export", "-"]);
    let log = pasts.whole.join("log.jsonl");
    std::fs::write(&log, &exported.stdout).expect("a writable file");
    let elsewhere = replay(&log, &[]);
    assert_eq!(elsewhere.status.code(), Some(0), "{}", text(&elsewhere.stderr));
    assert_eq!(text(&elsewhere.stdout), text(&shown.stdout));

    std::fs::remove_dir_all(pasts.trimmed.join("snapshots")).expect("the directory exists");
    let alone = replay(&pasts.trimmed, &[]);
    assert_eq!(alone.status.code(), Some(0), "{}", text(&alone.stderr));
    assert_eq!(numbers(&text(&alone.stdout)), numbers(&text(&shown.stdout)));
}

/// Returns the sequence numbers of the records that were shown.
fn numbers(shown: &str) -> Vec<u64> {
    let first = |line: &str| line.split_whitespace().next()?.parse().ok();
    shown.lines().filter_map(first).collect()
}

fn inspected(data: &Path) -> Value {
    let output = sexton().arg("inspect").arg(data).arg("--json").output();
    serde_json::from_slice(&output.expect("the command runs").stdout).expect("valid JSON")
}

/// Returns the first sequence number in the journal.
fn first_there(data: &Path) -> u64 {
    let found = inspected(data);
    let segments = found["journal"]["segments"].as_array();
    let mut firsts = segments.expect("it has some").iter();
    let first = firsts.find_map(|segment| segment["first"].as_u64());
    first.expect("it has records")
}

/// Returns the entry up to which the older snapshot has the state.
fn older_snapshot(data: &Path) -> u64 {
    let found = inspected(data);
    let slots = found["snapshots"].as_array().expect("there are two");
    let upto = slots.iter().filter_map(|slot| slot["sealed"]["upto"].as_u64());
    upto.min().expect("one is sealed")
}

#[test]
fn states_are_compared_with_what_checkpoints_noted() {
    let pasts = Pasts::make();
    let actors = sexton::actors::names().len();
    for (log, checkpoints) in [(&pasts.trimmed, 2), (&pasts.whole, 3)] {
        let compared = checkpoints * actors;
        let verified = replay(log, &["--verify"]);
        let said = text(&verified.stdout);
        assert_eq!(verified.status.code(), Some(0), "{said}");
        assert!(said.contains("in the same way now"), "{said}");
        assert!(said.contains(&format!("{compared} states agree with the digests")), "{said}");
    }
    let exported = text(&replay(&pasts.whole, &["--export", "-"]).stdout);
    let (before, digest) = exported.split_once(r#""digest":""#).expect("there is a checkpoint");
    let planted = if digest.starts_with('0') { "1" } else { "0" };
    let other = format!(r#"{before}"digest":"{planted}{}"#, &digest[1..]);
    let log = pasts.whole.join("log.jsonl");
    std::fs::write(&log, other).expect("a writable file");
    let verified = replay(&log, &["--verify"]);
    let said = text(&verified.stdout);
    assert_eq!(verified.status.code(), Some(1), "{said}");
    assert!(said.contains("a checkpoint has digest"), "{said}");
    let said = replay(&log, &["--verify", "--json"]);
    let said: Value = serde_json::from_slice(&said.stdout).expect("valid JSON");
    assert_eq!(said["checkpoints"]["compared"], 3 * actors);
    assert_eq!(said["checkpoints"]["differing"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_is_gone_is_refused_in_words() {
    let pasts = Pasts::make();
    for until in ["100", "2001-01-01T00:00:00Z"] {
        for wanted in ["--state", "--verify"] {
            let refused = replay(&pasts.trimmed, &["--until", until, wanted]);
            let said = text(&refused.stderr);
            assert_eq!(refused.status.code(), Some(3), "{until}: {said}");
            assert!(said.contains("the journal begins after sequence number"), "{said}");
            assert!(said.contains("which is after --until"), "{said}");
            assert!(refused.stdout.is_empty(), "nothing is shown of it");
        }
    }
    let exported = replay(&pasts.trimmed, &["--export", "-"]);
    let log = text(&exported.stdout);
    let header: Value =
        serde_json::from_str(log.lines().next().expect("it has a header")).expect("valid JSON");
    let after = first_there(&pasts.trimmed) - 1;
    assert_eq!(header["after"], after);
    assert!(text(&exported.stderr).contains("the log begins in the middle"));
    let file = pasts.whole.join("log.jsonl");
    std::fs::write(&file, log).expect("a writable file");
    let refused = replay(&file, &["--state"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains(&format!("begins after sequence number {after}")), "{said}");
    assert!(refused.stdout.is_empty(), "nothing is shown of it");
}

#[test]
fn a_damaged_snapshot_is_told_and_the_other_one_taken() {
    let pasts = Pasts::make();
    let snapshots = pasts.trimmed.join("snapshots");
    let begins_with = |said: &str| {
        let (_, after) =
            said.split_once("begins with snapshot ").expect("the message has this part");
        after[..1].to_owned()
    };
    let first = begins_with(&text(&replay(&pasts.trimmed, &["--verify"]).stderr));
    std::fs::write(snapshots.join(&first).join("conf"), "").expect("a writable file");
    let other = replay(&pasts.trimmed, &["--verify"]);
    let said = text(&other.stderr);
    assert_eq!(other.status.code(), Some(0), "{said}");
    assert_ne!(begins_with(&said), first);
    assert!(said.contains(&format!("snapshot {first} is damaged: conf has 0 bytes")), "{said}");
    std::fs::remove_dir_all(snapshots).expect("the directory exists");
    let refused = replay(&pasts.trimmed, &["--state"]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("the journal begins after sequence number"), "{said}");
}
