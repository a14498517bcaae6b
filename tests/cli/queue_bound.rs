//! Claims that are bound to processes, with the real program and real processes.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const LIVES: &str = "while :; do sleep 0.05; done";

fn pid(tree: &Tree, id: &str) -> Pid {
    let pid = until("it runs", || tree.record(id)["pid"].as_i64());
    Pid::from_raw(i32::try_from(pid).expect("a PID fits")).expect("a PID")
}

fn kill(tree: &Tree, id: &str) {
    kill_process(pid(tree, id), Signal::KILL).expect("a live process");
}

fn job(tree: &Tree, id: &str) -> Value {
    tree.get(&format!("/v1/queues/job?id={id}"))
}

/// Claims a job of `mails`. Returns its id and token.
fn pop(tree: &Tree, words: &[&str]) -> (String, String) {
    let printed = tree.well(&[&["queue", "pop", "mails"], words].concat());
    let mut words = printed.split_whitespace().map(str::to_owned);
    let mut word = || words.next().expect("the line has a number");
    (word(), word())
}

fn until_ready(tree: &Tree, id: &str) {
    until("it is ready again", || (job(tree, id)["phase"] == "ready").then_some(()));
}

#[test]
fn a_claim_ends_with_its_process_and_with_nothing_else() {
    let mut tree = Tree::start();
    let worker = tree.detach(LIVES);
    pid(&tree, &worker);
    tree.well(&["queue", "push", "mails", "a"]);
    let (id, _) = pop(&tree, &["--process", &worker]);
    let shown = job(&tree, &id);
    assert_eq!(shown["process"], Value::from(worker.as_str()), "{shown}");
    assert_eq!((&shown["release"], &shown["remaining_ms"]), (&Value::from("tree"), &Value::Null));
    let peeked = tree.well(&["queue", "peek", &id]);
    assert!(peeked.contains(&format!("process {worker}")), "{peeked}");
    let listed = tree.well(&["queue", "show", "--list"]);
    assert!(listed.contains(&worker), "{listed}");
    // A crash of the coordinator does not end the claim either.
    tree.again(|| {});
    assert_eq!(job(&tree, &id)["phase"], "claimed");
    kill(&tree, &worker);
    until_ready(&tree, &id);
    let back = job(&tree, &id);
    assert_eq!((&back["attempts"], &back["process"]), (&Value::from(1), &Value::Null));
}

#[test]
fn a_claim_whose_process_ends_while_the_coordinator_is_down_ends_at_its_next_start() {
    let mut tree = Tree::start();
    let worker = tree.detach(LIVES);
    let process = pid(&tree, &worker);
    tree.well(&["queue", "push", "mails", "a"]);
    let (id, _) = pop(&tree, &["--process", &worker]);
    tree.again(|| kill_process(process, Signal::KILL).expect("a live process"));
    until_ready(&tree, &id);
}

#[test]
fn who_has_the_token_binds_the_claim_to_another_process() {
    let tree = Tree::start();
    let (one, two) = (tree.detach(LIVES), tree.detach(LIVES));
    for id in [&one, &two] {
        pid(&tree, id);
    }
    tree.well(&["queue", "push", "mails", "a"]);
    let (id, token) = pop(&tree, &["--process", &one, "--release", "process"]);
    tree.well(&["queue", "touch", &id, &token, "--process", &two]);
    kill(&tree, &one);
    tree.run(&["wait", &one, "--timeout", "30"]);
    let shown = job(&tree, &id);
    assert_eq!(
        (&shown["phase"], &shown["process"]),
        (&Value::from("claimed"), &Value::from(two.as_str()))
    );
    kill(&tree, &two);
    until_ready(&tree, &id);
}

#[test]
fn a_claim_whose_time_is_over_is_given_on_when_its_tree_has_been_killed() {
    let tree = Tree::start();
    // Neither the worker nor its child would ever end.
    let worker = tree.detach(
        "trap '' TERM; (trap '' TERM; while :; do sleep 0.05; done) & while :; do sleep 0.05; done",
    );
    pid(&tree, &worker);
    tree.well(&["queue", "push", "mails", "a"]);
    let terms = ["--process", &worker, "--kill-before-grant", "--claim", "0.2"];
    let (id, token) = pop(&tree, &terms);
    until("its tree is being killed", || (job(&tree, &id)["fencing"] == true).then_some(()));
    let refused = tree.run(&["queue", "ack", &id, &token]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("is being killed"), "{refused:?}");
    let early = tree.run(&["queue", "pop", "mails"]);
    assert_eq!(early.status, 1, "no other worker has it: {early:?}");
    tree.well(&["kill", &worker, "--now", "--tree"]);
    until_ready(&tree, &id);
    assert_eq!(tree.record(&worker)["status"], "exited");
}

#[test]
fn a_claim_for_what_has_ended_is_refused() {
    let tree = Tree::start();
    let gone = tree.detach("true");
    tree.run(&["wait", &gone, "--timeout", "30"]);
    tree.well(&["queue", "push", "mails", "a"]);
    let refused = tree.run(&["queue", "pop", "mails", "--process", &gone]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("ended"), "{refused:?}");
    assert_eq!(job(&tree, "1")["attempts"], 0, "nothing was claimed");
    for words in [
        &["queue", "pop", "mails", "--kill-before-grant"][..],
        &["queue", "pop", "mails", "--release", "tree"],
    ] {
        assert_eq!(tree.run(words).status, 2, "{words:?}");
    }
}
