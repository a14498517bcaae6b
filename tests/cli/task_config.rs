//! `[tasks]` in the configuration: the defaults of tasks, and a reload, after which new tasks get the new defaults.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::{Daemon, sexton, text};
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Adds a task. Returns its view.
fn add(tree: &Tree, words: &[&str]) -> Value {
    let words = [&["task", "add", "--json"], words].concat();
    serde_json::from_str(&tree.well(&words)).expect("valid JSON")
}

fn terms(task: &Value) -> Value {
    let keys = ["abort_on_failure", "burst_ms", "fail_after_ms", "progress_ms"];
    keys.map(|key| task[key].clone()).into_iter().collect()
}

fn show(tree: &Tree, task: &Value) -> Value {
    let id = task["id"].to_string();
    serde_json::from_str(&tree.well(&["task", "show", &id, "--json"])).expect("valid JSON")
}

/// Returns the number of complete tasks.
fn over(tree: &Tree) -> usize {
    let listed = tree.well(&["task", "list", "--status", "complete", "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("valid JSON");
    listed["tasks"].as_array().map_or(0, Vec::len)
}

#[test]
fn a_table_says_what_holds_for_tasks_and_a_reload_holds_from_then_on() {
    let mut tree = Tree::start();
    drop(tree.daemon.take());
    let file = tree.data.join("sexton.toml");
    let write = |words: &str| std::fs::write(&file, words).expect("a writable file");
    write("[tasks]\nabort_on_failure = false\nburst = \"7s\"\nfail_after = 90\ngroup_limit = 1\n");
    let config = ["--data", text(&tree.data), "--config", text(&file)];
    tree.daemon = Some(Daemon::serve(&config));

    let waits = r#"while [ ! -e "$SEXTON_DATA/go" ]; do sleep 0.02; done"#;
    let first = add(&tree, &["--", "sh", "-c", waits]);
    assert_eq!(terms(&first), json!([false, 7000, 90_000, 1000]), "{first}");
    let own = ["--retry=false", "--burst", "3s", "--progress", "2s", "--paused"];
    let own = add(&tree, &[&own[..], &["--", "true"]].concat());
    assert_eq!(terms(&own), json!([true, 3000, 90_000, 2000]), "{own}");
    until("the first is in progress", || {
        (show(&tree, &first)["status"] == "processing").then_some(())
    });
    // Pausing and resuming a group does not change its limit.
    tree.well(&["task", "pause", "--group", "default"]);
    tree.well(&["task", "resume", "--group", "default"]);
    let second = add(&tree, &["--", "sh", "-c", waits]);
    assert_eq!(show(&tree, &second)["why"], "group default is full: 1 of 1");

    write("[tasks]\nprogress = \"4s\"\ngroup_limit = 2\nkeep_max = 1\n");
    let daemon = tree.daemon.as_ref().expect("a server");
    daemon.signal(Signal::HUP);
    daemon.until_logged("the table [tasks] changed and is in force");
    until("the second is in progress, too", || {
        (show(&tree, &second)["status"] == "processing").then_some(())
    });
    let third = add(&tree, &["--", "true"]);
    assert_eq!(terms(&third), json!([true, 30_000, 300_000, 4000]), "{third}");
    assert_eq!(terms(&show(&tree, &first)), terms(&first), "it keeps its settings");
    assert_eq!(show(&tree, &third)["why"], "group default is full: 2 of 2");
    std::fs::write(tree.data.join("go"), "").expect("a writable file");
    until("one finished task is kept", || {
        let all = tree.well(&["task", "list", "--json"]);
        let all: Value = serde_json::from_str(&all).expect("valid JSON");
        let left = all["tasks"].as_array().map(Vec::len);
        (left == Some(2) && over(&tree) == 1).then_some(())
    });
    assert_eq!(show(&tree, &own)["why"], "it is paused");

    // An invalid configuration changes nothing.
    write("[tasks]\nkeep_max = 0\n");
    let daemon = tree.daemon.as_ref().expect("a server");
    daemon.signal(Signal::HUP);
    daemon.until_logged("failed to reload; the old settings stay in force");
    let fourth = add(&tree, &["--paused", "--", "true"]);
    assert_eq!(terms(&fourth), terms(&third));

    // A replay decides each message again, with the rules that applied at that time.
    tree.daemon.take().expect("it is running").kill();
    let verified = sexton().args(["replay", "--verify"]).arg(&tree.data).output();
    let verified = verified.expect("the command runs");
    assert!(verified.status.success(), "{verified:?}");
    tree.daemon = Some(Daemon::serve(&["--data", text(&tree.data)]));
}

/// The coordinator sets ten variables itself. A command with other variables that leave no room for these could never be
/// launched.
#[test]
fn a_command_without_room_for_the_variables_of_a_burst_is_refused() {
    let tree = Tree::start();
    let with = |count: usize| {
        let variables: Vec<String> = (0..count).map(|nth| format!("--env=V{nth}=1")).collect();
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        let words = [&["task", "add", "--wait", "60s"], &variables[..], &["--", "true"]].concat();
        tree.run(&words)
    };
    let fits = with(1014);
    assert_eq!(fits.status, 0, "{fits:?}");
    let many = with(1015);
    assert_eq!((many.status, many.out.as_str()), (2, ""), "{many:?}");
    assert!(many.err.contains("an environment has at most 1024 variables"), "{many:?}");
}

#[test]
fn tasks_are_forgotten_by_how_long_they_have_been_over() {
    let tree = Tree::start();
    let prune = |words: &[&str]| tree.well(&[&["task", "prune"], words].concat());
    assert_eq!(prune(&["--older-than", "0s"]), "0\n", "there is none");
    for _ in 0..3 {
        tree.well(&["task", "add", "--wait", "60s", "--", "true"]);
    }
    assert_eq!(prune(&["--older-than", "1h"]), "0\n");
    assert_eq!(over(&tree), 3);
    assert_eq!(prune(&["--older-than", "1ms", "--keep", "1"]), "2\n");
    assert_eq!(prune(&[]), "1\n");
}
