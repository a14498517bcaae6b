//! Tasks while the coordinator's disk is low on space: no burst begins, each task shows the reason, and all continue once
//! there is space.

use crate::patience::until;
use crate::task::{add, assert_no_thread_is_taken, over, show};
use crate::tree::Tree;

/// Adds jobs until one is refused because the disk is full.
pub(crate) fn fill(tree: &Tree) {
    let daemon = tree.daemon.as_ref().expect("a server");
    // The disk has space for the first two segments of the journal, and not for the third.
    daemon.limit_files(Some(3 << 20));
    let long = "x".repeat(60_000);
    let is_full = (0..200).any(|_| {
        let done = tree.run(&["queue", "push", "filler", &long]);
        done.err.contains("disk")
    });
    assert!(is_full, "{}", daemon.log());
}

#[test]
fn no_burst_begins_while_the_disk_is_low_on_space() {
    let tree = Tree::start();
    let file = tree.data.join("go");
    let script = r#"while [ ! -e "$SEXTON_DATA/go" ]; do sleep 0.02; done"#;
    let runs = add(&tree, &["--group", "others"], script);
    until("it runs", || (show(&tree, runs)["attempt"]["stage"] == "launched").then_some(()));
    let held = add(&tree, &["--paused"], "true");
    let other = add(&tree, &["--paused"], "true");
    fill(&tree);
    for id in [held, other] {
        tree.well(&["task", "resume", &id.to_string()]);
    }
    // Neither task uses a thread or counts in its group, and each shows what it waits for.
    for id in [held, other] {
        let task = show(&tree, id);
        assert_eq!(task["status"], "not-started", "{task}");
        let why = task["why"].as_str().expect("the refusal has a detail");
        let words = "disk space is low: the journal has ";
        assert!(why.starts_with(words) && why.ends_with(" 2.0 MiB free"), "{why}");
    }
    let listed = tree.well(&["task", "list"]);
    assert_eq!(listed.matches("disk space is low").count(), 2, "{listed}");
    let group = tree.get("/v1/tasks/groups");
    let group = group.pointer("/groups").and_then(|it| it.as_array());
    let used = group.into_iter().flatten().filter(|it| it["used"] != 0);
    assert_eq!(used.count(), 1, "only that of the running task");
    tree.assert_all_agrees();
    // The running task continues, and ends.
    std::fs::write(&file, "").expect("a writable file");
    assert_eq!(over(&tree, runs)["exit"], "completed");
    tree.assert_all_agrees();

    let daemon = tree.daemon.as_ref().expect("a server");
    daemon.limit_files(None);
    for id in [held, other] {
        assert_eq!(over(&tree, id)["exit"], "completed");
    }
    assert_no_thread_is_taken(&tree);
}
