//! Process trees that are hard to stop. Each is stopped until no process of it is alive, with and without control groups.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::{PROGRAM, text};
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;

/// Returns the number of processes whose environment contains this id.
fn members(id: &str) -> usize {
    let variable = format!("SEXTON_PROCESS_ID={id}");
    let processes = std::fs::read_dir("/proc").expect("the file system is mounted").flatten();
    let environments = processes.filter_map(|it| std::fs::read(it.path().join("environ")).ok());
    let has_it = |environment: &Vec<u8>| {
        let mut all = environment.split(|byte| *byte == 0);
        all.any(|it| it == variable.as_bytes())
    };
    environments.filter(has_it).count()
}

fn ended(tree: &Tree, id: &str) {
    let stopped = tree.run(&["kill", "--tree", "--grace", "200ms", "--wait", id]);
    assert_eq!(stopped.status, 0, "{stopped:?}");
    let record = tree.record(id);
    assert_eq!(record["status"], "exited", "{record}");
    assert_eq!(members(id), 0, "{record}");
}

/// Launches each script, and stops its tree once it has at least this number of processes.
fn all_are_stopped(tree: &Tree, is_contained: bool) {
    let chain = tree.data.join("chain.sh");
    let script = "sleep 0.02\nsh \"$0\" &\n";
    std::fs::write(&chain, script).expect("a writable file");
    let chain = format!("sh {} & exec sleep 1000", text(&chain));
    for (kind, script, members_min) in [
        ("escapee", "setsid sleep 1000 & exec sleep 1000", 2),
        ("double fork", "(setsid sleep 1000 &); exec sleep 1000", 2),
        ("fork chain", chain.as_str(), 2),
        ("deaf", "trap '' TERM; while :; do sleep 0.05; done", 1),
        ("stopped", "sh -c 'kill -STOP $$' & kill -STOP $$", 2),
        (
            "holder",
            // Wait, since a process that is created during a search may be missed.
            "setsid sh -c 'trap \"\" TERM; exec sleep 1000' & sleep 0.3; exit 0",
            1,
        ),
    ] {
        let id = tree.detach(script);
        until(kind, || (members(&id) >= members_min).then_some(()));
        let record = tree.record(&id);
        assert_eq!(record["contained"], is_contained, "{kind}: {record}");
        if kind == "holder" {
            // The leader has ended, and a process that it left keeps its output open. It is stopped with the tree.
            let record = until("it has ended", || {
                Some(tree.record(&id)).filter(|it| !it["ended_at"].is_null())
            });
            let held_by = &record["output_held_by"][0];
            assert!(held_by["pid"].is_u64(), "it is named: {record}");
            assert_eq!(record["left"][0]["pid"], held_by["pid"], "{record}");
        }
        ended(tree, &id);
    }
}

#[test]
fn with_control_groups_every_tree_is_stopped() {
    let tree = Tree::start();
    let id = tree.detach("exit 0");
    until("it has ended", || (tree.record(&id)["status"] == "exited").then_some(()));
    let is_contained = tree.record(&id)["contained"] == true;
    if !is_contained {
        assert!(!geteuid().is_root(), "root can make control groups");
        crate::left_out::left_out("trees with control groups: none can be made here");
    }
    all_are_stopped(&tree, is_contained);
}

#[test]
fn without_control_groups_every_tree_is_stopped() {
    if let Some(tree) = Tree::without_groups() {
        all_are_stopped(&tree, false);
    }
}

#[test]
fn an_orphan_that_nobody_can_attribute_keeps_a_tree_from_being_empty() {
    let Some(mut tree) = Tree::without_groups() else {
        return;
    };
    let mark = format!("{}", 2_000_000 + std::process::id());
    let id = tree.detach(&format!("(env -i setsid sleep {mark} &); exec sleep 1000"));
    let stray = || {
        let processes = std::fs::read_dir("/proc").expect("the file system is mounted").flatten();
        let mut pids = processes.filter_map(|it| it.file_name().to_str()?.parse::<i32>().ok());
        pids.find(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline"));
            line.is_ok_and(|line| line.starts_with(format!("sleep\0{mark}\0").as_bytes()))
        })
    };
    let stray = until("it is an orphan", stray);
    tree.well(&["kill", "--tree", "--grace", "100ms", &id]);
    let record =
        until("it is doubtful", || Some(tree.record(&id)).filter(|record| record["unknown"] == 1));
    assert_eq!(record["status"], "stopping", "{record}");
    // A process that starts later cannot have an ancestor of the orphan in its tree.
    tree.well(&["lock", "run", "later", "--", "true"]);
    assert_eq!(tree.record(&id)["status"], "stopping");
    // After a restart, the orphan is known only once the keeper is joined.
    tree.again(|| {});
    tree.well(&["run", "--", "true"]);
    assert_eq!(tree.record(&id)["status"], "stopping");
    kill_process(Pid::from_raw(stray).expect("a PID"), Signal::KILL).expect("a permitted signal");
    until("nothing is left", || (tree.record(&id)["status"] == "exited").then_some(()));
}

/// A process that was launched through sexton is a child of the keeper, but it is stopped with the tree of the process
/// that launched it.
#[test]
fn launched_processes_are_stopped_with_the_tree_of_their_parent() {
    let tree = Tree::start();
    let run = format!("{PROGRAM} run --data {} --detach --", text(&tree.data));
    // Both the child and the grandchild are launched through sexton, and the grandchild ignores the signal.
    let deaf = tree.data.join("deaf");
    let script = format!("trap \"\" TERM; : > {}; while :; do sleep 0.1; done", text(&deaf));
    let grandchild = format!("{run} sh -c '{script}'");
    let child = tree.data.join("child.sh");
    let script = format!("{grandchild}; exec sleep 1000\n");
    std::fs::write(&child, script).expect("a writable file");
    let parent = tree.detach(&format!("{run} sh {}; exec sleep 1000", text(&child)));
    let other = tree.detach("exec sleep 1000");
    let below = until("both have been launched", || {
        let page = tree.get(&format!("/v1/processes/descendants?id={parent}"));
        let below = page["processes"].as_array().expect("a list").clone();
        let running = below.iter().filter(|it| it["status"] == "running").count();
        (running == 2 && deaf.exists()).then_some(below)
    });
    let stopped = tree.run(&["kill", "--tree", "--grace", "500ms", "--wait", &parent]);
    assert_eq!(stopped.status, 0, "{stopped:?}");
    let end = |id: &str| {
        let record = tree.record(id);
        assert_eq!(record["stopped_by"], "request", "{record}");
        (record["status"].clone(), record["signal"].clone())
    };
    let exited = |signal: u8| (Value::from("exited"), Value::from(signal));
    assert_eq!(end(&parent), exited(15));
    // The wait for the end of the tree includes both.
    let [child, grandchild] = below.as_slice() else {
        panic!("two are below it: {below:?}");
    };
    assert_eq!(grandchild["parent"], child["id"], "{grandchild}");
    let id = |record: &Value| record["id"].as_str().expect("a string").to_owned();
    assert_eq!(end(&id(child)), exited(15));
    assert_eq!(end(&id(grandchild)), exited(9));
    assert_eq!(tree.record(&other)["status"], "running");
}
