//! `sexton task add --inject`: each point at which a fault can be injected, and its effect on the task. Row numbers are
//! those of Acquia's text "Wip system failures and automatic recovery".

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::patience::until;
use crate::task::{add, assert_no_thread_is_taken, came_to, over, show};
use crate::tree::Tree;
use serde_json::Value;

/// Starts a coordinator that allows fault injection.
fn faulty() -> Tree {
    Tree::configured("[tasks]\nallow_fault_injection = true\n")
}

/// Returns two complete tasks with the same fault: one added without `--retry`, and one with it.
fn came(tree: &Tree, flags: &[&str], script: &str) -> [Value; 2] {
    [&[] as &[&str], &["--retry"]]
        .map(|more| over(tree, add(tree, &[flags, more].concat(), script)))
}

/// Returns how the first attempt of a task ended: its cause, and its exit code or signal.
fn first(task: &Value) -> (&str, Option<u64>, Option<u64>) {
    let past = &task["past"][0];
    (past["cause"].as_str().unwrap_or_default(), past["code"].as_u64(), past["signal"].as_u64())
}

/// Rows 1, 2 and 4: the command was not launched, so it is launched again, whether or not the task may be repeated.
#[test]
fn a_launch_that_fails_is_tried_again() {
    let tree = faulty();
    for (point, step) in
        [("before-parent", "directory: "), ("within-parent", "exec: "), ("before-child", "exec: ")]
    {
        for task in came(&tree, &["--inject", point], "true") {
            assert_eq!(came_to(&task), ("completed", "completed"), "{point}: {task}");
            assert_eq!(task["attempts"], 2, "{point}: {task}");
            assert_eq!(first(&task).0, "not-launched", "{point}: {task}");
            let failure = task["past"][0]["failure"].as_str().expect("the refusal has a detail");
            assert!(failure.starts_with(step), "{point}: {failure}");
        }
    }
    assert_no_thread_is_taken(&tree);
}

/// Rows 1 and 14: the keeper is killed before it launches, or after it has reported the exit. Neither has a visible
/// effect.
#[test]
fn a_keeper_that_dies_beside_an_attempt_changes_nothing() {
    let tree = faulty();
    // Run another task first, so that there is a keeper to kill.
    over(&tree, add(&tree, &[], "true"));
    for point in ["before-parent:kill", "after-parent"] {
        for task in came(&tree, &["--inject", point], "exit 0") {
            assert_eq!(came_to(&task), ("completed", "completed"), "{point}: {task}");
            assert_eq!(task["attempts"], 1, "{point}: {task}");
        }
    }
    assert_no_thread_is_taken(&tree);
}

/// Rows 2, 4 and 6: the command is killed before it saves, in each possible way.
#[test]
fn what_dies_before_it_saved_fails_unless_it_may_run_twice() {
    let tree = Tree::start();
    let all = ["within-child", "before-task", "within-task"];
    let by = |kind: &str| match kind {
        "abort" | "memory" => 6,
        "segv" => 11,
        _ => 9,
    };
    for point in all {
        for kind in ["abort", "segv", "kill", "memory"] {
            let inject = format!("{point}:{kind}");
            // The first attempt waits until it is killed.
            let script = r#"[ "$SEXTON_TASK_ATTEMPT" -gt 1 ] || exec sleep 1000"#;
            let [fails, retries] = came(&tree, &["--inject", &inject], script);
            let signal = Some(by(kind));
            assert_eq!(came_to(&fails), ("system-error", "died"), "{inject}: {fails}");
            assert_eq!(first(&fails), ("died", None, signal), "{inject}: {fails}");
            assert_eq!(came_to(&retries).0, "completed", "{inject}: {retries}");
            assert_eq!(first(&retries), ("died", None, signal), "{inject}: {retries}");
            assert_eq!(retries["attempts"], 2, "{inject}: {retries}");
        }
    }
    // If the command exits, its exit status is its result, even if the fault made it exit.
    let [fails, again] = came(&tree, &["--inject", "within-child:exit"], "true");
    assert_eq!((came_to(&fails).0, came_to(&again).0), ("user-error", "user-error"));
    let [ends, also] = came(&tree, &["--inject", "within-child:exit0"], "false");
    assert_eq!((came_to(&ends).0, came_to(&also).0), ("completed", "completed"));
    assert_no_thread_is_taken(&tree);
}

/// Row 7: the command is killed after it has saved. The task continues from what was saved.
#[test]
fn what_dies_after_it_saved_goes_on_from_that() {
    let tree = Tree::start();
    let script = r#"
if [ "$SEXTON_TASK_ATTEMPT" = 1 ]; then exec "$0" task save half; fi
[ "$("$0" task saved)" = half ]
"#;
    for kind in ["abort", "segv", "kill"] {
        let inject = format!("after-task:{kind}");
        for task in came(&tree, &["--inject", &inject], script) {
            assert_eq!(came_to(&task).0, "completed", "{inject}: {task}");
            assert_eq!((&task["attempts"], &task["revision"]), (&2.into(), &1.into()));
            assert_eq!(first(&task).0, "died");
            assert_eq!(task["past"][0]["saved"], true);
        }
    }
    // After the result of the burst was reported, the death of the command does not change it.
    for task in came(&tree, &["--inject", "after-child:segv"], "true") {
        assert_eq!((came_to(&task).0, &task["attempts"]), ("completed", &1.into()));
    }
    for task in came(&tree, &["--inject", "after-child"], "false") {
        assert_eq!(
            (came_to(&task).0, &task["message"]),
            ("user-error", &"its command failed".into())
        );
    }
    assert_no_thread_is_taken(&tree);
}

/// Row 8: the process does not end or is stopped, before, within and after the command.
#[test]
fn what_never_ends_is_stopped_and_fails_in_any_case() {
    let tree = Tree::start();
    for inject in ["within-child:loop", "within-task:stop", "after-task:stop"] {
        for task in came(&tree, &["--inject", inject, "--fail-after", "300ms"], "true") {
            assert_eq!(came_to(&task), ("system-error", "overdue"), "{inject}: {task}");
        }
    }
    let lives = tree.all().into_iter().filter(|it| it["status"] != "exited");
    assert_eq!(lives.count(), 0, "none of them is alive");
    assert_no_thread_is_taken(&tree);
}

/// Row 9: the command exits with 0 and has not reported its result.
#[test]
fn a_burst_whose_end_nobody_said_is_run_again_where_it_must_be() {
    let tree = Tree::start();
    let flags = ["--inject", "after-task:exit0", "--report-required"];
    for task in came(&tree, &flags, r#"[ "$SEXTON_TASK_ATTEMPT" = 1 ] || exec "$0" task done"#) {
        assert_eq!(came_to(&task).0, "completed", "{task}");
        assert_eq!(first(&task), ("unreported", Some(0), None), "{task}");
    }
    assert_no_thread_is_taken(&tree);
}

/// Row 10: the cleanup fails, and the task is complete anyway.
#[test]
fn a_cleanup_that_fails_changes_nothing_of_the_task() {
    let tree = faulty();
    for (point, signal) in [
        ("before-cleanup", None),
        ("within-cleanup:segv", Some(11)),
        ("after-cleanup:abort", Some(6)),
        ("within-cleanup:stop", None),
    ] {
        let flags = ["--inject", point, "--cleanup", "true"];
        for task in came(&tree, &flags, "true") {
            assert_eq!((came_to(&task).0, &task["attempts"]), ("completed", &1.into()), "{point}");
            if point == "within-cleanup:stop" {
                continue;
            }
            let id = task["id"].as_u64().expect("a number");
            until("the cleanup has ended", || {
                let told = tree.well(&["task", "transcript", &id.to_string(), "--json"]);
                let told: Value = serde_json::from_str(&told).expect("valid JSON");
                let phases = told["stories"][0]["phases"].as_array()?.iter();
                phases.into_iter().find(|it| it["phase"] == "cleaned").map(drop)
            });
            let past = &show(&tree, id)["past"][0];
            assert_eq!(
                (past["cleanup_code"].as_u64(), past["cleanup_signal"].as_u64()),
                (None, signal),
                "{point}: {past}"
            );
        }
    }
    let none = tree.run(&["task", "add", "--inject", "before-cleanup", "--", "true"]);
    assert_eq!(none.status, 2, "{none:?}");
    assert_no_thread_is_taken(&tree);
}

/// Rows 11 and 12: an actor panics before the thread and the lock are released, or the exit is not reported. The report
/// is repeated.
#[test]
fn what_an_actor_lost_by_a_panic_or_was_never_told_is_told_again() {
    let tree = faulty();
    for point in
        ["before-thread-cleanup", "within-thread-cleanup", "after-thread-cleanup", "drop-signal"]
    {
        for task in came(&tree, &["--inject", point], "true") {
            assert_eq!(came_to(&task), ("completed", "completed"), "{point}: {task}");
            assert_eq!(task["attempts"], 1, "{point}: {task}");
        }
        let dies = r#"[ "$SEXTON_TASK_ATTEMPT" -gt 1 ] || kill -9 $$"#;
        let [fails, retries] = came(&tree, &["--inject", point], dies);
        assert_eq!(came_to(&fails), ("system-error", "died"), "{point}: {fails}");
        assert_eq!(came_to(&retries).0, "completed", "{point}: {retries}");
        assert_eq!(first(&retries).0, "died", "{point}: {retries}");
        assert_no_thread_is_taken(&tree);
    }
    let status = tree.well(&["status", "--json"]);
    let status: Value = serde_json::from_str(&status).expect("valid JSON");
    for (actor, restarts, rebuilds) in [("dispatch", 4, 4), ("lock", 4, 0)] {
        let actors = status["actors"].as_array().expect("actors").iter();
        let mut those = actors.filter(|it| it["name"] == actor);
        let record = those.next().expect("it exists");
        let counted = (record["restarts"].as_u64(), record["rebuilds"].as_u64());
        assert_eq!(counted, (Some(restarts), Some(rebuilds)), "{actor}: {record}");
    }
}

#[test]
fn a_coordinator_makes_no_faults_unless_it_is_allowed_to() {
    let tree = Tree::start();
    let refused = tree.run(&["task", "add", "--inject", "drop-signal", "--", "true"]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("[tasks] allow_fault_injection = true"), "{refused:?}");
    let listed = tree.well(&["task", "list", "--json"]);
    let listed: Value = serde_json::from_str(&listed).expect("valid JSON");
    assert_eq!(listed["tasks"].as_array().map(Vec::len), Some(0), "nothing was added");
    // The variable has no effect without the flag.
    let variable = "SEXTON_TASK_INJECT=before-child";
    let task = over(&tree, add(&tree, &["--env", variable], "true"));
    assert_eq!((came_to(&task).0, &task["attempts"]), ("completed", &1.into()));
    for wrong in ["nowhere", "within-task:sleep", "drop-signal:kill"] {
        let refused = tree.run(&["task", "add", "--inject", wrong, "--", "true"]);
        assert_eq!(refused.status, 2, "{refused:?}");
    }
}
