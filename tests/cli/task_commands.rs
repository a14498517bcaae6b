//! The arguments of task commands, and what the commands print about results.

use crate::task::{add, over};
use crate::tree::Tree;

#[test]
fn a_list_takes_the_states_that_it_shows() {
    let tree = Tree::start();
    let ids = ["true", "exit 3", r#""$0" task done --warning half"#].map(|it| add(&tree, &[], it));
    for id in ids {
        over(&tree, id);
    }
    let paused = add(&tree, &["--paused"], "true");
    for (state, id) in [
        ("completed", ids[0]),
        ("user-error", ids[1]),
        ("warning", ids[2]),
        ("not-started", paused),
    ] {
        let listed = tree.well(&["task", "list", "--status", state]);
        let rows: Vec<&str> = listed.lines().skip(1).collect();
        assert_eq!(rows.len(), 1, "{state}: {listed}");
        let mut words = rows[0].split_whitespace();
        assert_eq!((words.next(), words.next()), (Some(id.to_string().as_str()), Some(state)));
    }
    let all = tree.well(&["task", "list", "--status", "complete"]);
    assert_eq!(all.lines().count(), 4, "{all}");
    let wrong = tree.run(&["task", "list", "--status", "failed"]);
    assert_eq!(wrong.status, 2, "{wrong:?}");
    for state in ["not-ready", "processing", "user-error", "terminated"] {
        assert!(wrong.err.contains(state), "{wrong:?}");
    }
}

#[test]
fn what_is_no_number_is_said_to_be_none() {
    let tree = Tree::start();
    for (words, error) in [
        (&["task", "show", "abc"][..], "`abc` is not a task number: "),
        (&["task", "pause", "abc"], "`abc` is not a task number: "),
        (&["queue", "peek", "abc"], "`abc` is not a job number: "),
        (&["queue", "kick", "--id", "x"], "`x` is not a job number: "),
        (&["queue", "result", "abc"], "`abc` is not a job number: "),
        (&["queue", "ack", "1", "abc"], "`abc` is not a token: "),
        (&["lock", "release", "k", "--token", "y"], "`y` is not a token: "),
        (&["events", "--task", "abc"], "`abc` is not a task number: "),
        (&["events", "--job", "abc"], "`abc` is not a job number: "),
        (&["replay", ".", "--job", "abc"], "`abc` is not a job number: "),
        (&["recover", ".", "--skip", "z"], "`z` is not a sequence number: "),
        (&["register", "--pid", "z"], "`z` is not a process number: "),
    ] {
        let done = tree.run(words);
        assert_eq!(done.status, 2, "{words:?}: {done:?}");
        assert!(done.err.contains(error), "{words:?}: {done:?}");
        assert!(!done.err.contains("invalid digit"), "{words:?}: {done:?}");
    }
}

#[test]
fn a_task_that_is_changed_is_shown_as_it_is_now() {
    let tree = Tree::start();
    let id = add(&tree, &[], "exit 3");
    over(&tree, id);
    let number = id.to_string();
    let told = tree.well(&["task", "transcript", &number]);
    let head = format!("task {id}: complete, user-error\n");
    assert!(told.starts_with(&head), "{told}");
    let shown = tree.well(&["task", "show", &number]);
    let attempt = shown.lines().last().expect("a line");
    assert!(attempt.contains(" ms "), "the duration is shown: {shown}");

    tree.well(&["task", "pause", "--all", "--hard"]);
    let said = tree.well(&["task", "restart", &number]);
    let words = format!("task {id}: restarted; all tasks are paused (hard)\n");
    assert_eq!(said, words);
    let said = tree.well(&["task", "terminate", &number]);
    assert_eq!(said, format!("task {id}: terminated\n"));
}
