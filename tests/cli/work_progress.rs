//! The progress of `sexton work`, on a terminal.

use crate::daemon::text;
use crate::terminal;
use crate::tree::Tree;
use crate::work::{begin, job, push, until_lines};
use serde_json::{Value, json};
use std::io::Read as _;
use std::process::Stdio;

/// Works on three jobs, each of which takes a second. Returns what the terminal showed.
fn on_terminal(tree: &Tree, words: &[&str]) -> String {
    for body in ["a", "b", "c"] {
        push(tree, "mails", body);
    }
    let (mut ours, theirs) = terminal::pair();
    let command = ["--", "sleep", "1"];
    let mut command = tree.command(&[&["work", "mails"], words, &command].concat());
    command.stdout(Stdio::null()).stderr(theirs);
    let mut running = command.spawn().expect("the command starts");
    drop(command);
    let (mut seen, mut bytes) = (Vec::new(), [0; 1024]);
    // A read fails once the last process has closed the terminal.
    while let Ok(read @ 1..) = ours.read(&mut bytes) {
        seen.extend_from_slice(bytes.get(..read).unwrap_or_default());
    }
    assert!(running.wait().expect("our child").success());
    String::from_utf8_lossy(&seen).into_owned()
}

fn assert_shows_how_far(seen: &str) {
    for words in ["1 done, 0 failed, 1 running, ", "/s, ", " ready, ", " left\x1b[K\r"] {
        assert!(seen.contains(words), "{words}: {seen:?}");
    }
    assert!(seen.contains("3 jobs done, 0 failed: no more jobs are ready"), "{seen:?}");
}

#[test]
fn a_terminal_shows_how_far_a_run_is() {
    assert_shows_how_far(&on_terminal(&Tree::start(), &[]));
}

#[test]
fn a_run_for_every_tenant_shows_what_is_ready_and_how_long_that_takes() {
    let seen = on_terminal(&Tree::start(), &["--any-ready"]);
    assert_shows_how_far(&seen);
    let tree = Tree::start();
    for _ in 0..5 {
        push(&tree, "t1:mails", "d");
    }
    let seen = on_terminal(&tree, &["--any-ready", "--max-jobs", "2"]);
    // Six of the eight jobs stay ready. The default tenant has at most three, so four or more include those of another tenant.
    let is_all = (4..=8).any(|ready| seen.contains(&format!(", {ready} ready")));
    assert!(is_all, "jobs of both tenants: {seen:?}");
}

#[test]
fn a_run_is_quiet_where_nobody_looks() {
    let tree = Tree::start();
    push(&tree, "mails", "x");
    let done = tree.run(&["work", "mails", "--", "sleep", "1.5"]);
    let line = "sexton: 1 job done, 0 failed: no more jobs are ready\n";
    assert_eq!((done.out.as_str(), done.err.as_str()), ("", line));
}

#[test]
fn who_works_on_what_since_when_and_on_which_try() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    assert_eq!(job(&tree, &id)["claimed_ms"], Value::Null);
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    let script = format!(
        "echo begin >> {}; while [ ! -e {} ]; do sleep 0.02; done",
        text(&log),
        text(&gate)
    );
    let mut running = begin(&tree, &["mails"], &script);
    until_lines(&log, 1);
    let claimed = job(&tree, &id);
    assert!(claimed["claimed_ms"].is_u64(), "{claimed}");
    let listed = tree.well(&["queue", "show", "--list"]);
    let mut lines = listed.lines();
    let heads: Vec<&str> = lines.next().unwrap_or("").split_whitespace().collect();
    assert!(heads.contains(&"SINCE"), "{listed}");
    let process = claimed["process"].as_str().expect("the claim is bound");
    assert!(lines.next().is_some_and(|it| it.contains(process)), "{listed}");
    let records = tree.all();
    let labels = json!({"job": id, "queue": "mails", "attempt": "1"});
    let is_it = |record: &&Value| record["labels"] == labels;
    assert_eq!(records.iter().filter(is_it).count(), 1, "{records:?}");
    std::fs::write(&gate, "").expect("a writable file");
    assert!(running.wait().expect("our child").success());
}
