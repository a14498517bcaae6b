//! `sexton audit` finds nothing where all states agree, even after real faults. Where they disagree, it reports and fixes
//! that.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::init::stat;
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

fn audit(tree: &Tree) -> Value {
    let done = tree.run(&["audit", "--json"]);
    serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("no JSON: {done:?}"))
}

fn assert_all_agrees(tree: &Tree, after: &str) {
    let said = audit(tree);
    assert_eq!(said["found"].as_array().map(Vec::len), Some(0), "{after}: {said}");
    assert_eq!(said["left"], 0, "{after}: {said}");
}

/// Adds a shell script as a task, and waits until its command has written its PID to this file and is recorded as running, which the
/// keeper reports a moment later. Returns the task and the PID.
fn running(tree: &Tree, flags: &[&str], file: &str, script: &str) -> (u64, Pid) {
    let script = format!("echo $$ > \"$SEXTON_DATA/{file}\"; {script}");
    let words = [&["task", "add"], flags, &["--", "sh", "-c", &script]].concat();
    let id = tree.well(&words).trim_end().parse().expect("a number");
    let pid = until("its command runs", || {
        let pid = std::fs::read_to_string(tree.data.join(file)).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    });
    let number = pid.as_raw_nonzero().get();
    until("its process is recorded as running", || {
        let mut records = tree.all().into_iter();
        records.find(|it| it["status"] == "running" && it["pid"] == number)
    });
    (id, pid)
}

#[test]
fn nothing_is_found_while_tasks_run_and_after_each_fault() {
    let mut tree = Tree::start();
    assert_all_agrees(&tree, "nothing yet");
    let printed = tree.well(&["audit"]);
    assert_eq!(printed, "consistent: 0 tasks under way; processes alive: 0\n");
    let flags = ["--work", "site", "--cleanup", "sleep 1000", "--retry"];
    let (_, pid) = running(&tree, &flags, "first", "exec sleep 1000");
    running(&tree, &["--group", "g"], "second", "sleep 1000 & sleep 1000");
    let lock = ["lock", "run", "key", "--", "sh", "-c", "touch $0; exec sleep 1000"];
    let held = tree.data.join("held");
    let mut holder = tree.command(&[&lock[..], &[crate::daemon::text(&held)]].concat());
    let mut holder = holder.spawn().expect("the command starts");
    until("the lock is held", || held.exists().then_some(()));
    let said = audit(&tree);
    assert_eq!((&said["tasks"], &said["left"]), (&2.into(), &0.into()), "{said}");

    kill_process(pid, Signal::KILL).expect("a live process");
    assert_all_agrees(&tree, "its command was killed");
    tree.kill_keeper();
    assert_all_agrees(&tree, "the keeper was killed");
    tree.again(|| {});
    assert_all_agrees(&tree, "the coordinator was killed");
    tree.well(&["server", "remove", "local"]);
    assert_all_agrees(&tree, "its server was removed");
    holder.kill().expect("a permitted signal");
    holder.wait().expect("our child");
    assert_all_agrees(&tree, "who had asked for a lock was killed");
    let said = tree.well(&["audit", "--fix"]);
    assert!(said.starts_with("consistent: "), "{said}");
}

/// Returns the state of a process, as the letter in `/proc/PID/stat`.
fn state(pid: Pid) -> Option<char> {
    let pid = u32::try_from(pid.as_raw_nonzero().get()).expect("a PID");
    stat(pid).map(|(state, _)| state)
}

/// A stopped keeper cannot report that a process has ended, so the record shows the process as running.
#[test]
fn what_does_not_agree_is_found_told_and_put_right() {
    let tree = Tree::start();
    let (id, pid) = running(&tree, &[], "runs", "exec sleep 1000");
    let keeper = tree.keeper().expect("a keeper is running");
    kill_process(keeper, Signal::STOP).expect("a live process");
    until("the keeper is stopped", || (state(keeper)? == 'T').then_some(()));
    kill_process(pid, Signal::KILL).expect("a live process");
    until("the command is a zombie, since the keeper does not wait for it", || {
        (state(pid)? == 'Z').then_some(())
    });
    let done = tree.run(&["audit"]);
    // The fix has no effect, because the keeper still cannot report anything.
    let tried = tree.run(&["audit", "--fix"]);
    let json = tree.run(&["audit", "--fix", "--json"]);
    kill_process(keeper, Signal::CONT).expect("a live process");
    assert_eq!(tried.status, 1, "{tried:?}");
    let words = "; tried, but the disagreement remains: the process is looked for again, and the keeper is asked how it ended\n1 disagreement: ";
    assert!(tried.out.contains(words), "{tried:?}");
    let json: Value = serde_json::from_str(&json.out).expect("valid JSON");
    assert_eq!((&json["found"][0]["fixed"], &json["left"]), (&false.into(), &1.into()), "{json}");
    assert_eq!(done.status, 1, "{done:?}");
    let (first, rest) = done.out.split_once('\n').expect("lines");
    assert!(first.starts_with("gone: process "), "{done:?}");
    assert!(
        first.ends_with(
            "--fix: the process is looked for again, and the keeper is asked how it ended"
        ),
        "{done:?}"
    );
    assert!(rest.starts_with("1 disagreement: 1 task under way"), "{done:?}");
    until("it has ended", || {
        let shown = tree.well(&["task", "show", &id.to_string(), "--json"]);
        let shown: Value = serde_json::from_str(&shown).expect("valid JSON");
        (shown["status"] == "complete").then_some(())
    });
    assert_all_agrees(&tree, "the keeper continues");
}

#[test]
fn where_nobody_can_look_it_says_so() {
    let mut tree = Tree::start();
    drop(tree.daemon.take());
    let done = tree.run(&["audit"]);
    assert_eq!((done.status, done.out.as_str()), (2, ""), "{done:?}");
    assert!(!done.err.is_empty(), "{done:?}");
}
