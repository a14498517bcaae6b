//! Commands of `sexton work` that leak memory, do not end, write without end, ignore SIGTERM, or leave processes. Their
//! limits apply, the job fails with an error that names the limit, and the next job is worked on.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::text;
use crate::tree::Tree;
use crate::work::{push, work};
use rustix::process::{Pid, test_kill_process};
use serde_json::Value;

/// The time limit, in seconds, of a command that does not end; one that ends immediately must stay below it on a busy machine, too.
const LIMIT: &str = "5";

/// Runs a script for a bad job, and then `true` for a good one. Returns the error of the bad job. Asserts that no process
/// is left.
fn bad(words: &[&str], script: &str) -> String {
    let tree = Tree::start();
    push(&tree, "mails", "bad");
    push(&tree, "mails", "good");
    let log = tree.data.join("pids");
    let script = format!(
        "read -r body; if [ $body = good ]; then exit 0; fi; echo $$ >> {}; PIDS={}; {script}",
        text(&log),
        text(&log)
    );
    let (said, done) = work(&tree, &[&["mails"], words].concat(), &script);
    let outcomes = [0, 1].map(|nth| said["jobs"][nth]["status"].as_str().unwrap_or(""));
    assert_eq!(outcomes, ["failed", "ok"], "{said} {:.2000}", done.err);
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    for number in noted.lines() {
        let pid = number.trim().parse().ok().and_then(Pid::from_raw);
        assert!(test_kill_process(pid.expect("a PID")).is_err(), "{number}");
    }
    said["jobs"][0]["error"].as_str().expect("an error").to_owned()
}

#[test]
fn one_that_hangs_is_stopped() {
    let error = bad(&["--timeout", LIMIT], "sleep 3600");
    assert!(error.contains("it took longer than"), "{error}");
}

#[test]
fn one_that_ignores_term_is_killed() {
    let script = "trap '' TERM; while :; do sleep 1; done";
    let error = bad(&["--timeout", LIMIT, "--grace", "0.2"], script);
    assert!(error.contains("it took longer than"), "{error}");
}

#[test]
fn one_that_forks_away_is_stopped_with_all_that_it_started() {
    let script =
        "setsid sh -c 'echo $$ >> '$PIDS'; sleep 3600' < /dev/null > /dev/null 2>&1 & exit 0";
    let error = bad(&["--timeout", LIMIT], script);
    assert!(error.contains("it took longer than"), "{error}");
}

#[test]
fn one_that_floods_its_output_is_cut_off() {
    let error = bad(&["--output-max", "1M"], "head -c 1073741824 /dev/zero");
    assert_eq!(error, "it wrote more than 1.0 MiB");
    let error = bad(&["--output-max", "64k"], "yes >&2");
    assert_eq!(error, "it wrote more than 64.0 KiB");
}

/// A script with a variable that grows without end. With too little memory, some shells are ended by a signal, without an
/// error message.
const LEAK: &str = "x=0123456789abcdef; while :; do x=$x$x; done";

#[test]
fn one_that_leaks_reaches_its_limit() {
    let error = bad(&["--memory", "64MiB"], LEAK);
    let names_it = error.contains("memory") && error.contains("64.0 MiB");
    assert!(names_it, "{error}");
    let error = bad(&["--memory", "64MiB"], &format!("exec 2>/dev/null; {LEAK}"));
    let names_it = error.contains("memory") && error.contains("64.0 MiB");
    assert!(names_it, "without an error message of its own: {error}");
}

#[test]
fn one_that_fails_far_below_its_limit_says_nothing_of_memory() {
    let error = bad(&["--memory", "1G"], "echo no such user >&2; exit 1");
    assert_eq!(error, "no such user");
}

/// Does the same as `bad` with a worker that gets one job after another. Another worker works on the next job.
fn bad_line(words: &[&str], script: &str) -> String {
    let ok = "echo \"{\\\"id\\\":$id,\\\"ok\\\":true}\" >&3";
    let script = format!(
        "while read -r line <&3; do id=${{line#*\\\"id\\\":}}; id=${{id%%,*}}; \
           case $line in *good*) {ok};; *) {script}; {ok};; esac; done"
    );
    let tree = Tree::start();
    for body in ["bad", "good", "good"] {
        push(&tree, "mails", body);
    }
    let (said, done) = work(&tree, &[&["mails", "--lines"], words].concat(), &script);
    let outcomes = [0, 1, 2].map(|nth| said["jobs"][nth]["status"].as_str().unwrap_or(""));
    assert_eq!(outcomes, ["failed", "ok", "ok"], "{said} {:.2000}", done.err);
    let error = said["jobs"][0]["error"].as_str();
    error.expect("an error").to_owned()
}

#[test]
fn a_kept_worker_that_leaks_reaches_its_limit() {
    let error = bad_line(&["--memory", "64MiB"], LEAK);
    let names_it = error.contains("memory") && error.contains("64.0 MiB");
    assert!(names_it, "{error}");
}

#[test]
fn a_kept_worker_that_floods_its_output_is_cut_off_and_has_no_other_job() {
    // Here the worker itself gets SIGPIPE.
    let error = bad_line(&["--output-max", "1M"], "exec head -c 1073741824 /dev/zero");
    assert_eq!(error, "it wrote more than 1.0 MiB");
    // Here a command of the worker gets SIGPIPE, and the worker continues.
    let error = bad_line(&["--output-max", "64k"], "yes >&2");
    assert_eq!(error, "it wrote more than 64.0 KiB");
}

/// Each process stays below the limit, and all of them together exceed it. So the limit applies only if the sum is
/// counted.
#[test]
fn those_that_leak_together_reach_a_limit_that_status_names() {
    let tree = Tree::start();
    assert_eq!(tree.get("/v1/status")["memory_limits"], Value::Null);
    push(&tree, "mails", "");
    let script = "leak() { x=$(head -c 25000000 /dev/zero | tr '\\0' x); sleep 0.2; }; \
                  leak & leak & leak & leak & wait";
    let (said, done) = work(&tree, &["mails", "--memory", "64MiB"], script);
    let job = &said["jobs"][0];
    let page = tree.well(&["status"]);
    match tree.get("/v1/status")["memory_limits"].as_str() {
        Some("tree") => {
            let error = job["error"].as_str().unwrap_or_default();
            assert!(error.starts_with("it reached its memory limit (64.0 MiB)"), "{said}");
            assert!(page.contains("memory.max"), "{page}");
        }
        Some("process") => {
            assert_eq!(job["status"], "ok", "{said} {:.2000}", done.err);
            assert!(page.contains("RLIMIT_DATA"), "{page}");
            println!("skipped: memory of whole trees, which no control group bounds here");
        }
        other => panic!("status says {other:?}"),
    }
}
