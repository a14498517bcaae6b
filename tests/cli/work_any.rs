//! `sexton work --any-ready`: jobs of all tenants in turns, also in a run that waits for jobs, and its throttle.

use crate::coordinator::done;
use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use crate::work::{begin, job, jobs, pid, push, until_lines, work};
use crate::work_result::{configured, now};
use rustix::process::{Signal, kill_process};
use serde_json::json;
use std::path::Path;

/// Adds this number of jobs to a queue, in one batch.
fn push_all(tree: &Tree, queue: &str, count: usize) {
    let file = tree.data.join("batch");
    std::fs::write(&file, "{\"body\":\"x\"}\n".repeat(count)).expect("a writable file");
    tree.well(&["queue", "push", queue, "--batch", text(&file)]);
}

/// Returns a script that logs the token and the tenant of its job, and then runs until a file exists.
fn noting(log: &Path, gate: &Path) -> String {
    format!(
        "echo $SEXTON_JOB_FENCE $SEXTON_JOB_TENANT >> {}; while [ ! -e {} ]; do sleep 0.02; done",
        text(log),
        text(gate)
    )
}

/// Returns the tenants in the log, in the order of their claims.
fn tenants(log: &Path) -> Vec<String> {
    let noted = std::fs::read_to_string(log).expect("it is noted");
    let mut claims: Vec<(u64, String)> = noted
        .lines()
        .filter_map(|line| {
            let (token, tenant) = line.split_once(' ')?;
            Some((token.parse().ok()?, tenant.to_owned()))
        })
        .collect();
    claims.sort();
    claims.into_iter().map(|(_, tenant)| tenant).collect()
}

/// A tenant with few jobs gets every second turn next to a tenant with many jobs, even if several jobs run at once, and
/// even if the run had to wait for them.
#[test]
fn ten_jobs_of_one_tenant_have_every_other_turn_beside_many_of_another() {
    for kept in [false, true] {
        let tree = Tree::start();
        let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
        let script = if kept {
            let ok = "echo \"{\\\"id\\\":$id,\\\"ok\\\":true}\" >&3";
            let member = |name: &str, end: &str| {
                format!("{name}=${{line#*\\\"{name}\\\":}}; {name}=${{{name}%%{end}*}}")
            };
            let note = format!("echo $fence $(echo $tenant | tr -d '\"') >> {}", text(&log));
            let (id, fence) = (member("id", ","), member("fence", ","));
            let (tenant, gate) = (member("tenant", ","), text(&gate));
            format!(
                "while read -r line <&3; do {id}; {fence}; {tenant}; {note}; \
                 while [ ! -e {gate} ]; do sleep 0.02; done; {ok}; done"
            )
        } else {
            noting(&log, &gate)
        };
        let words = ["mails", "--any-ready", "--wait", "--procs", "2"];
        let lines: &[&str] = if kept { &["--lines"] } else { &[] };
        let running = begin(&tree, &[&words, lines].concat(), &script);
        // Jobs that are added while the run waits are claimed first.
        push_all(&tree, "big:mails", 2);
        until_lines(&log, 2);
        push_all(&tree, "big:mails", 60);
        push_all(&tree, "small:mails", 10);
        std::fs::write(&gate, "").expect("a writable file");
        until_lines(&log, 72);
        until("all are done", || (tree.get("/v1/queues")["queues"] == json!([])).then_some(()));
        kill_process(pid(&running), Signal::TERM).expect("a live process");
        let done = done(running.wait_with_output().expect("our child"));
        assert!(done.err.contains("72 jobs done, 0 failed: stopped"), "{done:?}");
        let taken = tenants(&log).split_off(2);
        let of_small = (1..).zip(&taken).filter(|(_, it)| *it == "small");
        for (k, (place, _)) in (1..).zip(of_small.clone()) {
            assert!(place <= 2 * k, "{place} for the {k}th: {taken:?}");
        }
        assert_eq!(of_small.count(), 10, "{taken:?}");
    }
}

/// Each tenant's queue has its own throttle, and the run continues with each tenant when its queue opens.
#[test]
fn a_run_that_waits_goes_on_with_each_tenant_as_its_throttle_opens() {
    let tree = configured("[queues.calls]\nthrottle = 2\n");
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    std::fs::write(&gate, "").expect("a writable file");
    for queue in ["ann:calls", "ben:calls"] {
        push_all(&tree, queue, 2);
    }
    let script = noting(&log, &gate);
    let running = begin(&tree, &["calls", "--any-ready", "--wait"], &script);
    until_lines(&log, 4);
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    let done = done(running.wait_with_output().expect("our child"));
    assert!(done.err.contains("4 jobs done"), "{done:?}");
    assert_eq!(tenants(&log), ["ann", "ben", "ann", "ben"]);
}

#[test]
fn types_of_a_lower_rank_come_first() {
    let tree = configured("[queues.alerts]\nrank = 1\n");
    for queue in ["mails", "alerts", "mails", "alerts"] {
        push(&tree, queue, "x");
    }
    let (said, _) = work(&tree, &["mails", "alerts", "--any-ready"], "true");
    let types: Vec<String> = jobs(&said).into_iter().map(|(kind, ..)| kind).collect();
    assert_eq!(types, ["alerts", "alerts", "mails", "mails"]);
}

/// Only a minimum duration is asserted, so the test does not depend on the speed of the machine.
#[test]
fn a_throttle_holds_for_a_run_however_many_run_at_a_time() {
    let tree = Tree::start();
    push_all(&tree, "mails", 3);
    let before = now();
    let words = ["mails", "--procs", "3", "--throttle", "2"];
    let (said, _) = work(&tree, &words, "true");
    assert_eq!(jobs(&said).len(), 3, "{said}");
    assert!(now() >= before + 1.0, "the third begins a second after the first");

    // The first job is reported as done at once, although the throttle does not let the second one begin.
    push_all(&tree, "mails", 2);
    let log = tree.data.join("log");
    let script = format!("echo $SEXTON_JOB_ID >> {}", text(&log));
    let slow = ["mails", "--throttle", "0.001"];
    let running = begin(&tree, &slow, &script);
    until_lines(&log, 1);
    let first = std::fs::read_to_string(&log).expect("the command wrote the file");
    until("it is done", || (job(&tree, first.trim())["reason"] == "absent").then_some(()));
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    let done = done(running.wait_with_output().expect("our child"));
    assert!(done.err.contains("1 job done, 0 failed: stopped"), "{done:?}");
}

/// A drain does not end a run that waits. It continues with the next coordinator.
#[test]
fn a_run_that_waits_begins_nothing_while_its_coordinator_drains_and_goes_on_with_the_next() {
    for words in [&["mails", "--wait"][..], &["mails", "--wait", "--any-ready"]] {
        let mut tree = Tree::start();
        let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
        let running = begin(&tree, words, &noting(&log, &gate));
        let first = push(&tree, "mails", "x");
        until_lines(&log, 1);
        let later = push(&tree, "mails", "y");
        tree.well(&["drain"]);
        std::fs::write(&gate, "").expect("a writable file");
        let (status, drained) = tree.daemon.take().expect("a server").end();
        assert!(status.success(), "{drained}");
        let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
        assert_eq!(noted.lines().count(), 1, "the other was not begun");
        tree.serve();
        assert_eq!(job(&tree, &first)["reason"], "absent", "it is completed");
        until_lines(&log, 2);
        until("it is done", || (job(&tree, &later)["reason"] == "absent").then_some(()));
        kill_process(pid(&running), Signal::TERM).expect("a live process");
        let done = done(running.wait_with_output().expect("our child"));
        assert!(done.err.contains("2 jobs done, 0 failed: stopped"), "{done:?}");
    }
}
