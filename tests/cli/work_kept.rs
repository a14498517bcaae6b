//! `sexton work --keep-result` and `sexton queue result`: how a job ended and its output, which are kept for some time.

use crate::tree::Tree;
use crate::work::{push, work};
use crate::work_result::configured;
use serde_json::{Value, json};

fn result(tree: &Tree, id: &str) -> Value {
    let done = tree.run(&["queue", "result", id, "--json"]);
    serde_json::from_str(&done.out).unwrap_or_else(|_| panic!("no result: {done:?}"))
}

#[test]
fn what_a_command_prints_can_be_read_when_the_job_is_over() {
    let tree = Tree::start();
    let id = push(&tree, "sums", "1 2");
    let early = tree.run(&["queue", "result", &id]);
    assert_eq!(early.status, 1, "{early:?}");
    assert!(early.err.contains("has not ended"), "{early:?}");
    let script = "read a b; echo a word >&2; echo $((a + b))";
    let (_, done) = work(&tree, &["sums", "--keep-result", "1h"], script);
    assert!(done.err.contains("a word"), "it is passed on: {done:?}");
    let told = tree.run(&["queue", "result", &id]);
    assert_eq!((told.status, told.out.as_str()), (0, "3\n"), "{told:?}");
    assert!(told.err.contains("done, try 1, exit 0, took"), "{told:?}");
    let said = result(&tree, &id);
    assert_eq!(
        (&said["status"], &said["exit"], &said["output"]),
        (&json!("done"), &json!(0), &json!("3\n"))
    );
    let none = tree.run(&["queue", "result", "999"]);
    assert_eq!(none.status, 1, "{none:?}");
    assert!(none.err.contains("--keep-result"), "{none:?}");
}

#[test]
fn a_job_that_failed_for_good_tells_why_and_what_it_printed() {
    let tree = configured("[queues.default]\nmax_tries = 1\n");
    let id = push(&tree, "sums", "x");
    let script = "echo half; echo broken >&2; exit 3";
    work(&tree, &["sums", "--keep-result", "1h"], script);
    let told = tree.run(&["queue", "result", &id]);
    assert_eq!((told.status, told.out.as_str()), (1, "half\n"), "{told:?}");
    assert!(told.err.contains("failed, try 1, exit 3"), "{told:?}");
    assert!(told.err.contains("broken"), "{told:?}");
    // An abandoned job without a result shows its error.
    let id = push(&tree, "sums", "x");
    work(&tree, &["sums"], script);
    let said = result(&tree, &id);
    assert_eq!(
        (&said["status"], &said["error"], &said["exit"]),
        (&json!("failed"), &json!("broken"), &Value::Null)
    );
}

/// The first line of a traceback does not describe the error.
#[test]
fn of_an_error_with_many_lines_the_last_one_comes_first() {
    let tree = configured("[queues.default]\nmax_tries = 1\n");
    let id = push(&tree, "sums", "x");
    let script =
        "printf 'Traceback (most recent call last):\\n  File x\\nKeyError: a\\n' >&2; exit 1";
    work(&tree, &["sums", "--keep-result", "1h"], script);
    let listed = tree.well(&["queue", "show", "--list"]);
    assert!(listed.ends_with("  KeyError: a\n"), "{listed}");
    let told = tree.run(&["queue", "result", &id]);
    assert!(told.err.contains(" more: KeyError: a\n"), "{told:?}");
    let whole = ["Traceback (most recent call last):", "  File x", "KeyError: a"];
    let mut lines = told.err.lines();
    for line in whole {
        assert!(lines.any(|it| it.ends_with(line)), "{line}: {told:?}");
    }
    let peeked = tree.well(&["queue", "peek", &id]);
    assert!(peeked.contains("last error: Traceback (most"), "{peeked}");
}

#[test]
fn a_worker_that_is_kept_says_what_comes_of_a_job() {
    let tree = Tree::start();
    let id = push(&tree, "sums", "x");
    let script = r#"while read -r line <&3; do
        id=${line#*\"id\":}; id=${id%%,*}
        echo "{\"id\":$id,\"ok\":true,\"output\":\"4\"}" >&3
    done"#;
    work(&tree, &["sums", "--lines", "--keep-result", "1h"], script);
    assert_eq!(result(&tree, &id)["output"], "4");
}

#[test]
fn whoever_waits_hears_of_the_end() {
    let tree = Tree::start();
    let id = push(&tree, "sums", "x");
    let mut waiting = tree.command(&["queue", "result", &id, "--wait", "1m"]);
    waiting.stdout(std::process::Stdio::piped());
    let waiting = waiting.spawn().expect("the command starts");
    work(&tree, &["sums", "--keep-result", "1h"], "echo well");
    let told = waiting.wait_with_output().expect("our child");
    assert!(told.status.success(), "{told:?}");
    assert_eq!(told.stdout, b"well\n");
}

#[test]
fn a_span_that_is_too_long_is_refused() {
    let tree = Tree::start();
    for span in ["0", "31d", "soon"] {
        let done = tree.run(&["work", "sums", "--keep-result", span, "--", "true"]);
        assert_eq!(done.status, 2, "{span}: {done:?}");
    }
}
