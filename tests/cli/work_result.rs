//! The output of `sexton work --result json`, which follows MediaWiki's `runJobs.php --result=json`: its shape, and the
//! reason for the end of the run.

use crate::daemon::{Daemon, text};
use crate::patience::until;
use crate::task_space::fill;
use crate::tree::Tree;
use crate::work::{begin, job, jobs, pid, push, until_lines, work};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};
use sexton::clock::{Clock as _, SystemClock, Timestamp};
use std::process::Stdio;
use std::time::Duration;

/// Starts a coordinator with this text in its configuration file.
pub(crate) fn configured(config: &str) -> Tree {
    let mut tree = Tree::start();
    tree.daemon.take().expect("a server").kill();
    let file = tree.data.with_extension("toml");
    std::fs::write(&file, config).expect("a writable file");
    let words = ["--data", text(&tree.data), "--config", text(&file)];
    tree.daemon = Some(Daemon::serve(&words));
    tree
}

/// Returns the wall clock, in seconds since 1970.
pub(crate) fn now() -> f64 {
    let wall = SystemClock::starting_at(Timestamp(0)).wall();
    Duration::from_millis(wall.0).as_secs_f64()
}

fn keys(said: &Value) -> Vec<&str> {
    let fields = said.as_object().expect("an object");
    fields.keys().map(String::as_str).collect()
}

/// Two of three jobs are run, because no more are allowed.
#[test]
fn a_run_ends_at_its_limit_of_jobs() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let (said, _) = work(&tree, &["mails", "--max-jobs", "2"], "sleep 0.05");
    assert_eq!(keys(&said), ["jobs", "reached", "backoffs", "elapsed"]);
    assert_eq!(said["reached"], "job-limit");
    assert_eq!(jobs(&said).len(), 2);
    assert_eq!(keys(&said["jobs"][0]), ["type", "status", "error", "time"], "{said}");
    let times = [0, 1].map(|nth| said["jobs"][nth]["time"].as_u64().expect("a time"));
    assert!(times.iter().all(|ms| *ms >= 50), "{said}");
    assert_eq!(said["elapsed"], times[0] + times[1], "{said}");
    assert_eq!(said["backoffs"], json!({}));
}

/// A job type is unknown. The result of a run that could not begin has no other members.
#[test]
fn a_type_that_nobody_knows_is_not_possible() {
    let tree = configured("[queues.purges]\n");
    let (said, done) = work(&tree, &["mials"], "true");
    assert_eq!(said, json!({ "jobs": [], "reached": "none-possible" }));
    assert_eq!(done.status, 0, "{done:?}");
    // A type with a table in the configuration is known.
    let (said, _) = work(&tree, &["mials", "purges"], "true");
    let none = json!({ "jobs": [], "reached": "none-ready", "backoffs": {}, "elapsed": 0 });
    assert_eq!(said, none);
    // A type is also known if any tenant has a queue of it.
    tree.well(&["queue", "push", "t1:mials", "x"]);
    let (said, _) = work(&tree, &["mials"], "true");
    assert_eq!(said, none);
}

/// At two items per second, a job of ten items closes its queue for five seconds.
#[test]
fn a_throttled_type_is_told_with_the_time_at_which_it_is_open_again() {
    let tree = configured("[queues.mails]\nthrottle = 2\n");
    tree.well(&["queue", "push", "mails", "a", "--items", "10"]);
    let later = push(&tree, "mails", "b");
    let before = now();
    let (said, _) = work(&tree, &["mails", "purges"], "true");
    let after = now();
    assert_eq!((jobs(&said).len(), &said["reached"]), (1, &json!("none-ready")));
    assert_eq!(keys(&said["backoffs"]), ["mails"], "{said}");
    let at = said["backoffs"]["mails"].as_f64().expect("a number");
    // The job was claimed between the times `before` and `after`.
    assert!(at > before + 4.9 && at < after + 5.1, "{said}");
    assert_eq!(job(&tree, &later)["phase"], "ready");
    let queue = tree.get("/v1/queues/queue?queue=mails");
    assert!(queue["throttled_ms"].as_u64().is_some(), "{queue}");
}

#[test]
fn failed_tries_are_not_counted_as_failed_jobs() {
    let tree = configured("[queues.few]\nmax_tries = 1\n");
    let summary = |kind: &str, body: &str| {
        push(&tree, kind, body);
        let done = tree.run(&["work", kind, "--", "sh", "-c", "exit 3"]);
        let line = done.err.lines().last().map(str::to_owned);
        line.unwrap_or_default()
    };
    assert_eq!(
        summary("mails", "x"),
        "sexton: 0 jobs done, 0 failed, 1 failed try: no more jobs are ready"
    );
    assert_eq!(summary("few", "x"), "sexton: 0 jobs done, 1 failed: no more jobs are ready");
}

/// A failed job of a type without a back-off is tried again when its claim would have ended.
#[test]
fn a_failed_job_is_tried_again_when_its_claim_would_have_ended() {
    let tree = configured("[queues.mails]\nretry = \"claim-ttl\"\nclaim_ttl = 3600\n");
    let id = push(&tree, "mails", "a");
    let (said, _) = work(&tree, &["mails"], "echo broken >&2; exit 1");
    assert_eq!(jobs(&said), [("mails".into(), "failed".into(), json!("broken"))]);
    let failed = job(&tree, &id);
    assert_eq!(failed["phase"], "retrying", "{failed}");
    let left = failed["remaining_ms"].as_u64().expect("it is tried again");
    assert!((3_500_000..=3_600_001).contains(&left), "{failed}");

    let tree = configured("[queues.mails]\nbackoff = false\nclaim_ttl = \"1s\"\n");
    push(&tree, "mails", "a");
    work(&tree, &["mails"], "exit 1");
    until("it is tried again", || {
        let (said, _) = work(&tree, &["mails"], "test $SEXTON_JOB_ATTEMPT = 2");
        (jobs(&said) == [("mails".into(), "ok".into(), Value::Null)]).then_some(())
    });
}

#[test]
fn a_run_ends_at_its_limits_of_time_and_memory_after_one_job() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let (said, _) = work(&tree, &["mails", "--max-time", "0"], "sleep 0.05");
    assert_eq!((jobs(&said).len(), &said["reached"]), (1, &json!("time-limit")));
    let (said, _) = work(&tree, &["mails", "--memory-limit", "1k"], "true");
    assert_eq!((jobs(&said).len(), &said["reached"]), (1, &json!("memory-limit")));
    let (said, _) = work(&tree, &["mails"], "true");
    assert_eq!((jobs(&said).len(), &said["reached"]), (1, &json!("none-ready")));
}

#[test]
fn a_signal_ends_a_run_and_so_does_a_drain() {
    let tree = Tree::start();
    let log = tree.data.join("log");
    for body in ["a", "b", "c", "d"] {
        push(&tree, "mails", body);
    }
    let script = format!("echo begin >> {}; sleep 0.3", text(&log));
    let running = begin(&tree, &["mails", "--result", "json"], &script);
    until_lines(&log, 1);
    kill_process(pid(&running), Signal::URG).expect("a live process");
    let done = crate::coordinator::done(running.wait_with_output().expect("our child"));
    assert_eq!(done.status, 0, "{done:?}");
    assert_eq!(job(&tree, "1")["reason"], "absent", "it is completed");
    assert_eq!(job(&tree, "2")["phase"], "ready", "it was not begun");

    // The drain waits for the claim of another worker.
    let popped = tree.well(&["queue", "pop", "mails", "--json"]);
    let popped: Value = serde_json::from_str(&popped).expect("valid JSON");
    let log = tree.data.join("other");
    let script = format!("echo begin >> {}; sleep 0.5; exit 0", text(&log));
    let running = begin(&tree, &["mails"], &script);
    until_lines(&log, 1);
    tree.well(&["drain"]);
    let done = crate::coordinator::done(running.wait_with_output().expect("our child"));
    assert!(done.err.contains("1 job done, 0 failed: stopped"), "{done:?}");
    assert_eq!(job(&tree, "4")["phase"], "ready", "it was not begun");
    let token = popped["jobs"][0]["token"].to_string();
    tree.well(&["queue", "ack", "2", &token]);
}

/// The coordinator has completed the job before the worker gets the answer.
#[test]
fn a_signal_ends_a_run_that_is_about_to_wait_for_the_next_job() {
    let tree = configured("");
    for _ in 0..20 {
        let words = ["sums", "--wait", "--keep-result", "1h"];
        let mut running = begin(&tree, &words, "true");
        let id = push(&tree, "sums", "x");
        let result = tree.run(&["queue", "result", &id, "--wait", "60"]);
        assert_eq!(result.status, 0, "{result:?}");
        kill_process(pid(&running), Signal::TERM).expect("a live process");
        let ended = until("it has ended", || running.try_wait().expect("our child"));
        assert!(ended.success(), "{ended}");
    }
}

#[test]
fn a_coordinator_that_changes_nothing_is_read_only() {
    let tree = Tree::start();
    let daemon = tree.daemon.as_ref().expect("a server");
    push(&tree, "mails", "a");
    fill(&tree);
    let (said, done) = work(&tree, &["mails"], "true");
    let nothing = json!({ "jobs": [], "reached": "read-only" });
    assert_eq!((said, done.status), (nothing.clone(), 0), "{}", done.err);
    // A run that waits for jobs also waits for disk space, for as long as it may run.
    let (said, done) = work(&tree, &["mails", "--wait", "--max-time", "1s"], "true");
    assert_eq!((said, done.status), (nothing, 0), "{}", done.err);
    assert!(done.err.contains("waiting for space"), "{}", done.err);
    let mut waiting = begin(&tree, &["mails", "--wait", "--max-jobs", "1"], "true");
    daemon.limit_files(None);
    let ended = until("the job is done", || waiting.try_wait().expect("our child"));
    assert!(ended.success(), "{ended}");
}

#[test]
fn a_command_that_cannot_be_run_is_an_exception() {
    let tree = Tree::start();
    push(&tree, "mails", "a");
    let words = ["work", "mails", "--result", "json", "--", "/nowhere"];
    let done = tree.run(&words);
    assert_eq!(done.status, 127, "{done:?}");
    let said: Value = serde_json::from_str(&done.out).expect("a result");
    assert_eq!(said["reached"], "exception", "{said}");

    let id = push(&tree, "purges", "a");
    let done = tree.run(&["work", "purges", "--", "/nowhere"]);
    assert_eq!(done.status, 127, "{done:?}");
    let lines: Vec<&str> = done.err.lines().collect();
    let [summary, error] = lines[..] else {
        panic!("{done:?}");
    };
    assert_eq!(summary, "sexton: 0 jobs done, 0 failed: ended by an error");
    assert!(error.starts_with("sexton: /nowhere: "), "{error}");
    let job = format!("; job {id} of purges is given back");
    assert!(error.ends_with(&job), "{error}");
}

#[test]
fn the_end_of_a_run_is_told_in_plain_words() {
    let tree = Tree::start();
    let told = |words: &[&str]| {
        let done = tree.run(&[&["work"], words, &["--", "true"]].concat());
        assert_eq!(done.status, 0, "{done:?}");
        done.err
    };
    let mistyped = "sexton: 0 jobs done, 0 failed: there is no queue mials; a queue exists while it has jobs\n";
    assert_eq!(told(&["mials"]), mistyped);
    for body in ["a", "b"] {
        push(&tree, "mails", body);
    }
    let limit = "sexton: 1 job done, 0 failed: --max-jobs is reached\n";
    assert_eq!(told(&["mails", "--max-jobs", "1"]), limit);
    let rest = "sexton: 1 job done, 0 failed: no more jobs are ready\n";
    assert_eq!(told(&["mails"]), rest);
}

#[test]
fn a_run_without_a_coordinator_is_an_exception() {
    let mut tree = Tree::start();
    let exception = json!({ "jobs": [], "reached": "exception", "backoffs": {}, "elapsed": 0 });
    let absent = |tree: &Tree| {
        let (said, done) = work(tree, &["mails"], "true");
        assert_eq!((said, done.status), (exception.clone(), 3), "{}", done.err);
        assert!(done.err.contains("no coordinator"), "{}", done.err);
    };
    tree.daemon.take().expect("a server").kill();
    absent(&tree);
    let (never, _) = Tree::to_come();
    absent(&never);
}

#[test]
fn a_run_that_is_stopped_says_so() {
    let tree = Tree::start();
    for body in ["a", "b"] {
        push(&tree, "mails", body);
    }
    let log = tree.data.join("log");
    let script = format!("echo begin >> {}; sleep 0.3", text(&log));
    let words = ["work", "mails", "--result", "json", "--", "sh", "-c", &script];
    let mut command = tree.command(&words);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let running = command.spawn().expect("the command starts");
    until_lines(&log, 1);
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    let done = crate::coordinator::done(running.wait_with_output().expect("our child"));
    let said: Value = serde_json::from_str(&done.out).expect("a result");
    assert_eq!(keys(&said), ["jobs", "reached", "backoffs", "elapsed"]);
    assert_eq!((jobs(&said).len(), &said["reached"]), (1, &json!("stopped")));
}

/// The error of a job is the end of what its command wrote.
#[test]
fn what_a_command_wrote_steers_no_terminal_in_what_is_said_of_its_job() {
    let tree = Tree::start();
    // ESC, BEL and DEL; then CSI as one character (U+009B), and one that turns the direction of text (U+202E).
    let script = r"printf 'a\033]0;x\007\177\302\23331m\342\200\256b\n' >&2; exit 1";
    let error = "a\u{1b}]0;x\u{7}\u{7f}\u{9b}31m\u{202e}b";
    for form in [&["--log", "json"][..], &["--log", "logfmt"], &[]] {
        push(&tree, "mails", "x");
        let running = begin(&tree, &[&["mails"], form].concat(), script);
        let done = crate::coordinator::done(running.wait_with_output().expect("our child"));
        // What the command wrote is passed on as it is, before the line about its job.
        let line = done.err.lines().find_map(|line| {
            let starts = ["time=", "{", "sexton: job "];
            let at = starts.iter().find_map(|start| line.find(start))?;
            line.get(at..)
        });
        let line = line.unwrap_or_else(|| panic!("no line: {done:?}"));
        assert_eq!(line.chars().find(|it| sexton::text::steers(*it)), None, "{line:?}");
        assert!(line.contains("31m"), "{line}");
        if form.contains(&"json") {
            let line: Value = serde_json::from_str(line).expect("valid JSON");
            assert_eq!(line["error"], error, "it is read back unchanged");
        }
    }
}

#[test]
fn a_line_of_the_log_for_each_job() {
    let tree = Tree::start();
    let first = push(&tree, "mails", "a");
    let all = ["mails", "--log", "logfmt"];
    let running = begin(&tree, &all, "echo 'no such user' >&2; exit 1");
    let done = crate::coordinator::done(running.wait_with_output().expect("our child"));
    let line = done.err.lines().find(|line| line.starts_with("time="));
    let line = line.unwrap_or_else(|| panic!("no line: {done:?}"));
    let rest = format!(" job={first} queue=mails attempt=1 result=failed ms=");
    assert!(line.contains(&rest), "{line}");
    assert!(line.ends_with(" error=\"no such user\""), "{line}");

    let second = push(&tree, "mails", "b");
    let running = begin(&tree, &["mails", "--log", "json"], "true");
    let done = crate::coordinator::done(running.wait_with_output().expect("our child"));
    let mut lines = done.err.lines().map(serde_json::from_str);
    let line: Value = lines.find_map(Result::ok).expect("a line in JSON");
    assert_eq!(
        (&line["job"], &line["result"], &line["error"]),
        (&json!(second.parse::<u64>().expect("a number")), &json!("done"), &Value::Null)
    );
}
