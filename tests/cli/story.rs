//! The history of one item: the events of a job, a queue or a key, found by its name, from a directory and live.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::{Daemon, ended, sexton};
use crate::patience::until;
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

/// Runs a command with this data directory, which must exit with this status. Returns its output.
fn run(data: &Path, words: &[&str], status: i32) -> String {
    let mut command = sexton();
    command.args(words).arg("--data").arg(data);
    let [out, err] = ended(command.output().expect("the command runs"), status);
    format!("{out}{err}")
}

fn json(data: &Path, words: &[&str]) -> Value {
    let out = run(data, &[words, &["--json"]].concat(), 0);
    serde_json::from_str(&out).expect("valid JSON")
}

/// Runs a command that reads a directory, which must exit with this status. Returns its output.
fn read(command: &str, data: &Path, words: &[&str], status: i32) -> String {
    let mut reading = sexton();
    reading.arg(command).arg(data).args(words);
    let [out, err] = ended(reading.output().expect("the command runs"), status);
    format!("{out}{err}")
}

/// Returns the kind of each event, which follows the number, the time and the actor in its line.
fn kinds(story: &str) -> Vec<&str> {
    assert!(!story.contains("slot"), "names instead of slots: {story}");
    let words = story.lines().map(|line| line.split_whitespace().nth(3));
    words.map(|word| word.unwrap_or("-")).collect()
}

fn push(data: &Path, queue: &str, ttr: &str) -> String {
    let told = json(data, &["queue", "push", queue, "work", "--ttr", ttr]);
    told["id"].as_u64().expect("a number").to_string()
}

/// Claims a job. Returns its id and its token.
fn pop(data: &Path, queue: &str) -> (String, String) {
    let told = json(data, &["queue", "pop", queue, "--wait", "30"]);
    let part = |name: &str| {
        let part = told["jobs"][0][name].as_u64();
        part.expect("a number").to_string()
    };
    (part("id"), part("token"))
}

#[test]
fn the_story_of_a_job_is_everything_that_happened_to_it() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let _daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    let (job, other) = (push(&data, "mails", "600"), push(&data, "mails", "600"));
    let (claimed, first) = pop(&data, "mails");
    assert_eq!(claimed, job);
    run(&data, &["queue", "touch", &job, &first], 0);
    run(&data, &["queue", "release", &job, &first], 0);
    let (claimed, second) = pop(&data, "mails");
    assert_eq!(claimed, job);
    run(&data, &["queue", "ack", &job, &first], 1);
    run(&data, &["queue", "bury", &job, &second], 0);
    run(&data, &["queue", "kick", "mails"], 0);
    run(&data, &["queue", "flush", "mails"], 0);
    let story = read("replay", &data, &["--job", &job], 0);
    let expected =
        ["added", "claimed", "touched", "released", "claimed", "buried", "kicked", "flushed"];
    assert_eq!(kinds(&story), expected, "{story}");
    for words in [format!("token={second}  attempt=2"), format!("job={job}")] {
        assert!(story.contains(&words), "no {words:?} in\n{story}");
    }
    let place = |line: &str| line.find("queue=mails").expect("it is named");
    let places: Vec<usize> = story.lines().map(place).collect();
    assert!(places.iter().all(|at| *at == places[0]), "they align:\n{story}");
    assert!(!story.contains(&format!("job={other}")), "{story}");
    let all = read("replay", &data, &["--queue", "mails"], 0);
    assert!(all.contains(&format!("job={other}")), "{all}");
    assert!(story.lines().all(|line| all.contains(line)), "{all}");
    let none = read("replay", &data, &["--queue", "purges"], 0);
    assert!(none.contains("nothing about queue purges"), "{none}");
    let told = read("replay", &data, &["--job", &job, "--json"], 0);
    let told: Value =
        serde_json::from_str(told.lines().next().expect("a line")).expect("valid JSON");
    assert_eq!(told["events"][0]["kind"], "added");
    assert_eq!(told["events"][0]["queue"], "mails");
    let found = read("inspect", &data, &["--job", &job], 0);
    assert!(found.contains("does not exist"), "{found}");
    assert!(found.contains("flushed"), "{found}");
}

#[test]
fn a_claim_that_runs_out_is_told_by_name() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let _daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    let job = push(&data, "slow", "1");
    assert_eq!(pop(&data, "slow").0, job);
    until("the end of its claim", || {
        let told = json(&data, &["queue", "peek", &job]);
        (told["timeouts"] == 1).then_some(())
    });
    let story = read("replay", &data, &["--job", &job], 0);
    assert_eq!(kinds(&story), ["added", "claimed", "expired"], "{story}");
    let last = story.lines().last().expect("a line");
    assert!(last.contains(&format!("queue=slow  job={job}")), "{story}");
    let found = read("inspect", &data, &["--queue", "slow"], 0);
    assert!(found.contains("ready") && found.contains("expired"), "{found}");
}

#[test]
fn the_story_of_a_key_tells_of_all_its_locks() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let _daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    for (key, owner) in [("acct", "ann"), ("other", "ann"), ("acct", "ann")] {
        run(&data, &["lock", "acquire", key, "--owner", owner], 0);
    }
    run(&data, &["lock", "release-all", "--owner", "ann"], 0);
    let story = read("replay", &data, &["--key", "acct"], 0);
    assert_eq!(kinds(&story), ["granted", "renewed", "released"], "{story}");
    assert!(story.lines().all(|line| line.contains("key=acct  owner=ann")), "{story}");
    assert!(!story.contains("other"), "{story}");
    let conflict = read("inspect", &data, &["--key", "acct", "--actor", "queue"], 2);
    assert!(conflict.contains("--actor"), "{conflict}");
    let found = read("inspect", &data, &["--key", "acct"], 0);
    assert!(found.contains("released"), "{found}");
}

#[test]
fn events_align_carry_their_position_and_are_of_one_item() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    let mut events = sexton();
    events.args(["events", "--after", "999999999999", "--data"]).arg(&data);
    let mut events = events.stdout(Stdio::piped()).spawn().expect("the command starts");
    let mut lines = BufReader::new(events.stdout.take().expect("a pipe")).lines();
    let mut line = || lines.next().expect("a line").expect("UTF-8");
    let first = line();
    assert!(first.contains("999999999999 does not exist yet"), "{first}");
    assert!(!first.contains("lost"), "{first}");
    push(&data, "mails", "600");
    run(&data, &["lock", "acquire", "acct", "--owner", "ann"], 0);
    run(&data, &["checkpoint"], 0);
    let lines = [line(), line(), line()];
    let kinds = ["added", "granted", "checkpoint"].map(|kind| format!(" {kind} "));
    let places = lines.iter().zip(&kinds).map(|(line, kind)| line.find(kind.as_str()));
    let places: Vec<usize> = places.map(|at| at.expect("the client is notified")).collect();
    assert!(places.iter().all(|at| *at == places[0]), "the columns align: {lines:#?}");
    let position = lines[0].split_whitespace().next().expect("a word");
    let behind = |words: &[&str]| {
        let words = [&["events", "--json", "--after", position], words].concat();
        let mut command = sexton();
        command.args(words).arg("--data").arg(&data);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the command starts");
        let mut line = String::new();
        let mut out = BufReader::new(child.stdout.take().expect("a pipe"));
        out.read_line(&mut line).expect("UTF-8");
        child.kill().expect("a live process");
        child.wait().expect("our child");
        let told: Value = serde_json::from_str(&line).expect("valid JSON");
        told["kind"].as_str().expect("a kind").to_owned()
    };
    assert_eq!(behind(&[]), "granted", "--after accepts the position");
    let (job, _) = pop(&data, "mails");
    assert_eq!(behind(&["--job", &job]), "claimed");
    assert_eq!(behind(&["--queue", "mails"]), "claimed");
    assert_eq!(behind(&["--key", "acct"]), "granted");
    daemon.kill();
    drop(events.wait());
}

/// The id of a process is too large for a number in JSON.
#[test]
fn a_log_of_processes_is_replayed_exported_and_read_again() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    let mut running = sexton();
    running.args(["run", "--data", data.to_str().expect("UTF-8"), "--", "true"]);
    ended(running.output().expect("the command runs"), 0);
    daemon.kill();
    let log = read("replay", &data, &[], 0);
    assert!(log.contains(r#""ended""#), "{log}");
    let export = files.path().join("log.jsonl");
    let export = export.to_str().expect("UTF-8");
    read("replay", &data, &["--export", export], 0);
    let verified = read("replay", Path::new(export), &["--verify"], 0);
    assert!(!verified.contains("otherwise"), "{verified}");
}
