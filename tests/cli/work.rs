//! `sexton work` runs a command for each job, and never two at once for one job, whatever is killed.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::{CommandOutput, done};
use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Child, Stdio};

pub(crate) fn push(tree: &Tree, queue: &str, body: &str) -> String {
    let id = tree.well(&["queue", "push", queue, body]);
    id.trim_end().to_owned()
}

pub(crate) fn job(tree: &Tree, id: &str) -> Value {
    tree.get(&format!("/v1/queues/job?id={id}"))
}

/// Runs a shell script for each job. Returns the result, and the output of the command.
pub(crate) fn work(tree: &Tree, words: &[&str], script: &str) -> (Value, CommandOutput) {
    let all = [&["work"], words, &["--result", "json", "--", "sh", "-c", script]].concat();
    let done = tree.run(&all);
    let said = serde_json::from_str(&done.out);
    (said.unwrap_or_else(|_| panic!("no result: {done:?}")), done)
}

/// Returns the type, the status and the error of each job in a result.
pub(crate) fn jobs(said: &Value) -> Vec<(String, String, Value)> {
    let listed = said["jobs"].as_array().expect("a list");
    let word = |job: &Value, what: &str| job[what].as_str().expect("a word").to_owned();
    let jobs = listed.iter().map(|job| {
        assert!(job["time"].is_u64(), "{job}");
        (word(job, "type"), word(job, "status"), job["error"].clone())
    });
    jobs.collect()
}

/// Starts a `sexton work` that runs a shell script for each job.
pub(crate) fn begin(tree: &Tree, words: &[&str], script: &str) -> Child {
    let all = [&["work"], words, &["--", "sh", "-c", script]].concat();
    let mut command = tree.command(&all);
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

pub(crate) fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).expect("a PID fits")).expect("a PID")
}

/// Returns a script that logs when it begins and ends, and runs until a file exists. Also returns that file and the log.
fn gated(tree: &Tree) -> (String, PathBuf, PathBuf) {
    let (gate, log) = (tree.data.join("gate"), tree.data.join("log"));
    let script = format!(
        "echo begin >> {0}; while [ ! -e {1} ]; do sleep 0.02; done; echo end >> {0}",
        text(&log),
        text(&gate)
    );
    (script, gate, log)
}

pub(crate) fn until_lines(log: &std::path::Path, count: usize) {
    until("it is noted", || {
        let lines = std::fs::read_to_string(log).ok()?.lines().count();
        (lines >= count).then_some(())
    });
}

#[test]
fn a_command_has_the_job_and_its_exit_status_says_what_becomes_of_it() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "to: ann");
    let out = tree.data.join("out");
    let script = format!(
        "{{ cat; echo; echo $SEXTON_JOB_ID $SEXTON_JOB_QUEUE $SEXTON_JOB_TYPE $SEXTON_JOB_ATTEMPT; }} > {}; test $SEXTON_JOB_FENCE -gt 0",
        text(&out)
    );
    let (said, _) = work(&tree, &["mails"], &script);
    assert_eq!(jobs(&said), [("mails".into(), "ok".into(), Value::Null)]);
    assert_eq!((&said["reached"], &said["backoffs"]), (&json!("none-ready"), &json!({})));
    let written = std::fs::read_to_string(&out).expect("the command wrote the file");
    assert_eq!(written, format!("to: ann\n{id} mails mails 1\n"));
    assert_eq!(job(&tree, &id)["reason"], "absent", "it is done");

    let id = push(&tree, "mails", "x");
    let (said, done) = work(&tree, &["mails"], "echo one >&2; echo it is broken >&2; exit 3");
    assert_eq!(jobs(&said), [("mails".into(), "failed".into(), json!("one\nit is broken"))]);
    assert_eq!(done.status, 0, "{done:?}");
    assert!(done.err.contains("it is broken"), "{done:?}");
    let failed = job(&tree, &id);
    assert_eq!(
        (&failed["phase"], &failed["error"], &failed["attempts"]),
        (&json!("retrying"), &json!("one\nit is broken"), &json!(1))
    );
    tree.well(&["queue", "delete", &id]);

    // If a command has no output, the way in which it ended is the error.
    let id = push(&tree, "mails", "x");
    work(&tree, &["mails"], "kill -9 $$");
    let error = job(&tree, &id)["error"].to_string();
    assert!(error.contains('9') || error.contains("KILL"), "{error}");
}

#[test]
fn a_job_that_cannot_be_tried_now_is_given_back_without_a_try() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    let (said, _) = work(&tree, &["mails"], "echo later >&2; exit 75");
    assert_eq!(said["jobs"][0]["status"], "failed", "{said}");
    let given = job(&tree, &id);
    assert_eq!(
        (&given["phase"], &given["error"], &given["attempts"]),
        (&json!("retrying"), &json!("later"), &json!(0))
    );
}

#[test]
fn a_job_is_done_when_all_that_its_command_started_has_ended() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    let (script, gate, log) = gated(&tree);
    // Leave a process in another session when the command has ended.
    let script = format!("setsid sh -c '{script}' < /dev/null > /dev/null 2>&1 & exit 0");
    let mut running = begin(&tree, &["mails"], &script);
    until_lines(&log, 1);
    assert_eq!(job(&tree, &id)["phase"], "claimed");
    assert!(running.try_wait().expect("our child").is_none());
    std::fs::write(&gate, "").expect("a writable file");
    assert!(running.wait().expect("our child").success());
    assert_eq!(job(&tree, &id)["reason"], "absent", "it is done");
}

#[test]
fn a_run_ends_at_its_limits() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let (said, _) = work(&tree, &["mails", "--max-jobs", "2"], "true");
    assert_eq!((jobs(&said).len(), &said["reached"]), (2, &json!("job-limit")));
    for _ in 0..2 {
        push(&tree, "mails", "d");
    }
    // One job is run even if no time is allowed.
    let (said, _) = work(&tree, &["mails", "--max-time", "0"], "sleep 0.1");
    assert_eq!((jobs(&said).len(), &said["reached"]), (1, &json!("time-limit")));
    let (said, _) = work(&tree, &["purges"], "true");
    assert_eq!((jobs(&said).len(), &said["reached"]), (0, &json!("none-possible")));
    push(&tree, "t1:mails", "e");
    let (said, _) = work(&tree, &["mails", "--tenant", "t1"], "test $SEXTON_JOB_TENANT = t1");
    assert_eq!(jobs(&said), [("mails".into(), "ok".into(), Value::Null)]);
    push(&tree, "t1:mails", "e");
    let (said, _) = work(&tree, &["t1:mails"], "test $SEXTON_JOB_TENANT = t1");
    assert_eq!(jobs(&said), [("mails".into(), "ok".into(), Value::Null)]);
    push(&tree, "t2:mails", "f");
    let (said, _) = work(&tree, &["mails", "--any-ready"], "true");
    assert_eq!(jobs(&said).len(), 3, "those of every tenant: {said}");
    for body in ["g", "h", "i", "j"] {
        push(&tree, "t3:mails", body);
    }
    push(&tree, "t4:mails", "k");
    let asked = ["mails", "--any-ready", "--max-jobs", "2"];
    work(&tree, &asked, "true");
    let (said, _) = work(&tree, &["mails", "--tenant", "t4"], "true");
    assert_eq!(jobs(&said).len(), 0, "each tenant has had its turn: {said}");
}

#[test]
fn several_run_beside_each_other() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let (script, gate, log) = gated(&tree);
    let mut running = begin(&tree, &["mails", "--procs", "3"], &script);
    until_lines(&log, 3);
    let noted = std::fs::read_to_string(&log).expect("the file exists");
    assert_eq!(noted, "begin\nbegin\nbegin\n");
    std::fs::write(&gate, "").expect("a writable file");
    assert!(running.wait().expect("our child").success());
    assert_eq!(tree.get("/v1/queues")["queues"], json!([]), "all are done");
}

#[test]
fn a_run_that_waits_ends_by_a_signal_when_its_command_has() {
    let tree = Tree::start();
    let (script, gate, log) = gated(&tree);
    let running = begin(&tree, &["mails", "--wait"], &script);
    let id = push(&tree, "mails", "x");
    until_lines(&log, 1);
    let later = push(&tree, "mails", "y");
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    std::fs::write(&gate, "").expect("a writable file");
    let done = done(running.wait_with_output().expect("our child"));
    assert_eq!(done.status, 0, "{done:?}");
    assert!(done.err.contains("stopped"), "{done:?}");
    assert_eq!(job(&tree, &id)["reason"], "absent", "it is done");
    assert_eq!(job(&tree, &later)["phase"], "ready", "it was not begun");

    // A run that has no job ends at once.
    tree.well(&["queue", "delete", &later]);
    let idle = begin(&tree, &["mails", "--wait"], "true");
    until("it waits", || {
        let queue = tree.get("/v1/queues/queue?queue=mails");
        (queue["waiting"] == 1).then_some(())
    });
    kill_process(pid(&idle), Signal::TERM).expect("a live process");
    assert!(idle.wait_with_output().expect("our child").status.success());
}

/// Waits until the server knows the command that works on a job.
pub(crate) fn until_attached(tree: &Tree, id: &str) {
    until("the server knows its command", || job(tree, id)["command"].is_string().then_some(()));
}

/// Kills something, and asserts that the job is done when its command has ended, and is given to nobody else before.
fn killed(whom: impl FnOnce(&mut Tree, &mut Child)) {
    let mut tree = Tree::start();
    let id = push(&tree, "mails", "x");
    let (script, gate, log) = gated(&tree);
    let mut running = begin(&tree, &["mails"], &script);
    until_lines(&log, 1);
    until_attached(&tree, &id);
    whom(&mut tree, &mut running);
    if tree.daemon.is_none() {
        tree.serve();
    }
    assert_eq!(job(&tree, &id)["phase"], "claimed", "its command is alive");
    let early = tree.run(&["queue", "pop", "mails"]);
    assert_eq!(early.status, 1, "no other worker has it: {early:?}");
    std::fs::write(&gate, "").expect("a writable file");
    let is_killed = running.wait().expect("our child").code().is_none();
    if is_killed {
        until("the exit status of its command completes it", || {
            (job(&tree, &id)["reason"] == "absent").then_some(())
        });
        let noted = std::fs::read_to_string(&log).expect("the file exists");
        assert_eq!(noted, "begin\nend\n", "its command has ended");
    }
    assert_eq!(job(&tree, &id)["reason"], "absent", "it is done");
}

#[test]
fn a_job_whose_runner_is_killed_is_done_when_its_command_has_ended_well() {
    killed(|_, running| running.kill().expect("a live process"));
}

#[test]
fn a_job_that_came_back_shows_what_became_of_its_command() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    let (script, gate, log) = gated(&tree);
    let mut running = begin(&tree, &["mails"], &format!("{script}; exit 3"));
    until_lines(&log, 1);
    until_attached(&tree, &id);
    assert_eq!(job(&tree, &id)["error"], Value::Null, "it is being tried");
    running.kill().expect("it runs");
    running.wait().expect("it is ours");
    std::fs::write(&gate, "").expect("it can be written");
    until("it is ready again", || (job(&tree, &id)["phase"] == "ready").then_some(()));
    let shown = |tree: &Tree| {
        let said = job(tree, &id);
        let why = said["error"].as_str().expect("a reason").to_owned();
        let is_reason = why.starts_with("its claim ended: process ");
        assert!(is_reason && why.ends_with(" exited with status 3"), "{said}");
        let listed = tree.well(&["queue", "show", "--list"]);
        assert!(listed.ends_with(&format!("  {why}\n")), "{listed}");
        let peeked = tree.well(&["queue", "peek", &id]);
        assert!(peeked.contains(&format!("last error: {why}\n")), "{peeked}");
        why
    };
    let why = shown(&tree);

    // During its second try, the job still shows the error of the first.
    let token = tree.well(&["queue", "pop", "mails", "--json"]);
    assert_eq!(shown(&tree), why, "{token}");
    assert_eq!(job(&tree, &id)["attempts"], 2);
}

#[test]
fn a_job_goes_on_through_a_crash_of_the_coordinator() {
    killed(|tree, _| tree.daemon.take().expect("a server").kill());
}

#[test]
fn a_job_goes_on_without_its_keeper() {
    killed(|tree, _| tree.kill_keeper());
}

#[test]
fn a_command_that_is_not_there_costs_no_job_a_try() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    let done = tree.run(&["work", "mails", "--", "/nowhere/to/be/found"]);
    assert_eq!(done.status, 127, "{done:?}");
    assert_eq!(job(&tree, &id)["attempts"], 0, "{done:?}");
    for words in [
        &["work", "t:mails", "--tenant", "u", "--", "true"][..],
        &["work", "t:mails", "--any-ready", "--", "true"],
        &["work", "t:u:mails", "--", "true"],
        &["work", "mails", "--procs", "0", "--", "true"],
        &["work", "mails"],
        &["work", "mails", "--any-ready", "--tenant", "t", "--", "true"],
        &["work", "mails", "--throttle", "fast", "--", "true"],
        &["work", "mails", "--throttle", "1001", "--", "true"],
    ] {
        assert_eq!(tree.run(words).status, 2, "{words:?}");
    }
}

/// Standard error is for people. A run continues if nobody reads it.
#[test]
fn a_run_goes_on_though_nobody_takes_what_it_says() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let words = ["work", "mails", "--log", "logfmt", "--", "sh", "-c", "exit 0"];
    let mut command = tree.command(&words);
    let full = std::fs::File::options().write(true).open("/dev/full");
    command.stderr(full.expect("every Linux has it"));
    assert!(command.status().expect("the command runs").success());
    assert_eq!(tree.get("/v1/queues")["queues"], json!([]), "all are done");
}

/// Works on a job that does not end, and cancels it. Returns the error that is shown with the job, and the result of the
/// run.
pub(crate) fn cancelled(words: &[&str], script: &str) -> (String, Value) {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    push(&tree, "mails", "good");
    let log = tree.data.join("pids");
    let script = script.replace("PIDS", text(&log));
    let all = [&["work", "mails"], words, &["--result", "json", "--", "sh", "-c", &script]];
    let mut command = tree.command(&all.concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    until_lines(&log, 2);
    let cancel = ["queue", "cancel", &id, "--reason", "wrong file"];
    let said = tree.well(&cancel);
    assert!(
        said.starts_with("cancelled 1 job; process ") && said.ends_with(" is being stopped\n"),
        "{said}"
    );
    assert_eq!(tree.well(&cancel), "already abandoned or cancelled\n");
    let done = done(child.wait_with_output().expect("the process ends"));
    let said = serde_json::from_str(&done.out);
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    for number in noted.lines() {
        let pid = number.trim().parse().ok().and_then(Pid::from_raw);
        let is_there = test_kill_process(pid.expect("a PID")).is_ok();
        assert!(!is_there, "{number} is left");
    }
    let job = job(&tree, &id);
    assert_eq!(job["phase"], "abandoned", "{done:?}");
    let error = job["error"].as_str().expect("an error").to_owned();
    (error, said.unwrap_or_else(|_| panic!("no result: {done:?}")))
}

#[test]
fn a_job_that_is_cancelled_is_stopped_with_all_that_it_started() {
    let script = "read -r body; [ $body = good ] && exit 0; setsid sleep 600 & echo $! >> PIDS; \
        trap 'exit 0' TERM; echo $$ >> PIDS; while :; do sleep 0.05; done";
    let (error, said) = cancelled(&[], script);
    assert_eq!(error, "cancelled: wrong file");
    let outcomes: Vec<_> =
        jobs(&said).into_iter().map(|(_, status, error)| (status, error)).collect();
    let failed = ("failed".to_owned(), json!("it was cancelled"));
    assert_eq!(outcomes, [failed, ("ok".to_owned(), Value::Null)]);
}

/// The claim is ended by a client that has read its token; the command would have ended well.
#[test]
fn a_claim_that_somebody_else_ends_is_lost_and_its_job_is_neither_done_nor_cancelled() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "x");
    let log = tree.data.join("pids");
    let script =
        format!("trap 'exit 0' TERM; echo $$ >> {}; while :; do sleep 0.05; done", text(&log));
    let all = ["work", "mails", "--max-jobs", "1", "--result", "json", "--", "sh", "-c", &script];
    let mut command = tree.command(&all);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    until_lines(&log, 1);
    let token = job(&tree, &id)["token"].to_string();
    tree.well(&["queue", "bury", &id, &token]);
    let done = done(child.wait_with_output().expect("the process ends"));
    let said: Value = serde_json::from_str(&done.out).unwrap_or_default();
    let lost = "its claim was lost: somebody else ended it, or it has expired";
    let outcomes: Vec<_> =
        jobs(&said).into_iter().map(|(_, status, error)| (status, error)).collect();
    assert_eq!(outcomes, [("failed".to_owned(), json!(lost))], "{done:?}");
    assert_eq!(job(&tree, &id)["phase"], "buried");
}

/// The coordinator stops the command at once, before this process has noticed that the job was cancelled.
#[test]
fn a_command_that_ends_at_once_when_its_job_is_cancelled_has_not_crashed() {
    let script = "read -r body; [ $body = good ] && exit 0; echo $$ >> PIDS; echo $$ >> PIDS; exec sleep 600";
    let (error, said) = cancelled(&[], script);
    assert_eq!(error, "cancelled: wrong file");
    let outcomes: Vec<_> =
        jobs(&said).into_iter().map(|(_, status, error)| (status, error)).collect();
    let failed = ("failed".to_owned(), json!("it was cancelled"));
    assert_eq!(outcomes, [failed, ("ok".to_owned(), Value::Null)]);
}
