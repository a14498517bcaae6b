//! Workers that are stopped or killed: what becomes of their jobs, and of the commands that are left.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::done;
use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use crate::work::{begin, job, pid, push, until_lines, work};
use crate::work_result::configured;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

/// A configuration whose jobs are tried again almost at once.
const SOON: &str = "[queues.default]\nbackoff = { first = \"10ms\", max = \"20ms\", jitter = 0 }\n";

/// Returns the same command, run by a shell with this umask.
pub(crate) fn under_umask(mask: &str, own: &Command) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "umask $0; exec \"$@\"", mask]);
    command.arg(own.get_program()).args(own.get_args());
    for (name, value) in own.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
}

/// Starts a run of several workers that wait for jobs, and stops it while it works on the only job.
fn stop_during(tree: &Tree, queue: &str, log: &Path) {
    let script = format!("echo $$ >> {}; exec sleep 600", text(log));
    let words = [queue, "--wait", "--procs", "3", "--finish-within", "0.2s"];
    let lines = std::fs::read_to_string(log).map_or(0, |noted| noted.lines().count());
    let running = begin(tree, &words, &script);
    until_lines(log, lines + 1);
    until("the other workers wait", || {
        let queue = tree.get(&format!("/v1/queues/queue?queue={queue}"));
        (queue["waiting"] == 2).then_some(())
    });
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    let done = done(running.wait_with_output().expect("our child"));
    assert_eq!(done.status, 0, "{done:?}");
    assert!(done.err.contains("1 deferred"), "{done:?}");
    let begun = std::fs::read_to_string(log).expect("the command wrote it");
    assert_eq!(begun.lines().count(), lines + 1, "{done:?}");
}

#[test]
fn a_run_that_is_stopped_does_not_take_its_own_jobs_back() {
    let tree = configured("[queues.default]\nmax_tries = 2\n");
    let log = tree.data.join("log");
    let id = push(&tree, "mails", "x");
    for times in 1..=3 {
        stop_during(&tree, "mails", &log);
        let given = job(&tree, &id);
        let shown = ["phase", "attempts", "claims", "error"].map(|it| given[it].clone());
        let error = json!("it was stopped before it was done");
        let expected = [json!("ready"), json!(0), json!(times), error];
        assert_eq!(shown, expected, "{given}");
    }
    tree.well(&["queue", "delete", &id]);

    // A job that runs at most once has not run.
    let id = tree.well(&["queue", "push", "mails", "y", "--once"]);
    stop_during(&tree, "mails", &log);
    assert_eq!(job(&tree, id.trim_end())["phase"], "ready");
}

/// Starts a run with two jobs, and kills it when the command of each has begun. Job `a` hangs; job `b` ends when a file exists, with status
/// 0. Returns the ids of the jobs, and the file with the PID of the hanging command.
fn killed(tree: &Tree, words: &[&str]) -> (String, String, std::path::PathBuf) {
    let (gate, log) = (tree.data.join("gate"), tree.data.join("log"));
    let hangs = tree.data.join("hangs");
    let script = format!(
        "read -r body; [ $body = a ] && echo $$ > {2}; echo $$ >> {0}; [ $body = a ] && exec sleep 600; while [ ! -e {1} ]; do sleep 0.02; done",
        text(&log),
        text(&gate),
        text(&hangs)
    );
    let ids = ["a", "b"].map(|body| push(tree, "mails", body));
    let mut running = begin(tree, &[&["mails", "--procs", "2"], words].concat(), &script);
    until_lines(&log, 2);
    until("the server knows the commands", || {
        let knows = |id: &String| job(tree, id)["command"].is_string();
        ids.iter().all(knows).then_some(())
    });
    running.kill().expect("a live process");
    running.wait().expect("our child");
    std::fs::write(&gate, "").expect("a writable file");
    let [a, b] = ids;
    (a, b, hangs)
}

fn is_alive(file: &Path) -> bool {
    let noted = std::fs::read_to_string(file).expect("the command wrote it");
    let pid = noted.trim().parse().ok().and_then(Pid::from_raw);
    test_kill_process(pid.expect("a PID")).is_ok()
}

#[test]
fn one_command_that_hangs_holds_only_its_own_job_when_the_run_is_killed() {
    let tree = Tree::start();
    let (hangs, ends, file) = killed(&tree, &[]);
    until("its exit status completes the other job", || {
        (job(&tree, &ends)["reason"] == "absent").then_some(())
    });
    let held = job(&tree, &hangs);
    assert_eq!((&held["phase"], is_alive(&file)), (&json!("claimed"), true), "{held}");

    let said = tree.well(&["queue", "cancel", &hangs, "--reason", "wrong file"]);
    assert!(said.ends_with("is being stopped\n"), "{said}");
    until("it is stopped", || (job(&tree, &hangs)["phase"] == "abandoned").then_some(()));
    assert!(!is_alive(&file), "a cancelled job is not worked on");
    assert_eq!(job(&tree, &hangs)["error"], "cancelled: wrong file");
}

/// Kills a run whose commands have this time limit. Returns the job that hung, when its time is over.
fn timed_out(limit: &str) -> Value {
    let tree = Tree::start();
    let (hangs, _, file) = killed(&tree, &["--timeout", limit, "--grace", "0.1"]);
    let failed = until("its time is over", || {
        let view = job(&tree, &hangs);
        (view["phase"] == "retrying").then_some(view)
    });
    assert!(!is_alive(&file), "{failed}");
    failed
}

#[test]
fn the_server_applies_the_time_limit_of_a_run_that_was_killed() {
    // On a busy machine, the run may apply a short limit itself before it is killed.
    let is_by_server = |failed: &Value| {
        failed["error"].as_str().is_some_and(|error| error.contains("after a claim ran out"))
    };
    let failed = ["0.2", "2", "20"].into_iter().map(timed_out).find(is_by_server);
    let failed = failed.expect("one of the limits should be applied by the server");
    assert_eq!((&failed["attempts"], &failed["crashes"]), (&json!(1), &json!(0)));
}

#[test]
fn a_job_that_crashes_again_and_again_is_quarantined_with_its_cause() {
    let tree = configured(SOON);
    let log = tree.data.join("log");
    let id = push(&tree, "mails", "x");
    let script = format!("echo $$ >> {}; echo about to crash >&2; kill -SEGV $$", text(&log));
    let mut running = begin(&tree, &["mails", "--wait"], &script);
    let crashed = until("it is set aside", || {
        let view = job(&tree, &id);
        (view["phase"] == "quarantined").then_some(view)
    });
    assert_eq!((&crashed["attempts"], &crashed["crashes"]), (&json!(3), &json!(3)));
    let error = crashed["error"].as_str().unwrap_or_default();
    for cause in ["it was killed by a signal (signal 11)", "its last output: about to crash"] {
        assert!(error.contains(cause), "{crashed}");
    }
    let listed = tree.well(&["queue", "show", "--list", "--status", "quarantined"]);
    assert!(listed.contains("about to crash"), "{listed}");
    let grouped = tree.well(&["queue", "show", "--group"]);
    assert_eq!(grouped, "mails: 0 queued; 0 claimed; 0 delayed; 1 quarantined\n");

    // Until somebody decides about it, it stays.
    assert_eq!(tree.well(&["queue", "retry", "mails"]), "retried 1 job\n");
    until("it is set aside again", || {
        let lines = std::fs::read_to_string(&log).ok()?.lines().count();
        (lines == 6 && job(&tree, &id)["phase"] == "quarantined").then_some(())
    });
    assert_eq!(tree.well(&["queue", "discard", "mails"]), "discarded 1 job\n");
    assert_eq!(job(&tree, &id)["reason"], "absent");
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    assert!(running.wait().expect("our child").success());
}

/// A job that kills its worker is no exception: it is tried again later, and not for ever.
#[test]
fn a_job_that_kills_its_worker_is_quarantined() {
    let tree = configured(SOON);
    let (log, whom) = (tree.data.join("log"), tree.data.join("whom"));
    let id = push(&tree, "mails", "x");
    let script = format!("echo $$ >> {}; kill -9 $(cat {}); kill -9 $$", text(&log), text(&whom));
    for times in 1..=3 {
        let words = ["work", "mails", "--wait", "--", "sh", "-c", &script];
        let mut command = tree.command(&words);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // The job cannot be claimed before its worker is known.
        tree.well(&["queue", "pause", "mails", "1h"]);
        let mut running = command.spawn().expect("the command starts");
        std::fs::write(&whom, running.id().to_string()).expect("a writable file");
        tree.well(&["queue", "pause", "mails", "0"]);
        until_lines(&log, times);
        assert_eq!(running.wait().expect("our child").code(), None);
        let phase = if times < 3 { "ready" } else { "quarantined" };
        until("its claim is over", || (job(&tree, &id)["phase"] == phase).then_some(()));
    }
    let view = job(&tree, &id);
    assert_eq!((&view["crashes"], view["error"] != Value::Null), (&json!(3), true), "{view}");
}

#[test]
fn commands_of_many_workers_have_the_umask_of_the_run() {
    let tree = Tree::start();
    for _ in 0..100 {
        push(&tree, "mails", "x");
    }
    let log = tree.data.join("log");
    let script = format!("umask >> {}", text(&log));
    let own = tree.command(&["work", "mails", "--procs", "16", "--", "sh", "-c", &script]);
    let done = done(under_umask("027", &own).output().expect("it runs"));
    assert_eq!(done.status, 0, "{done:?}");
    let noted = std::fs::read_to_string(&log).expect("the commands wrote it");
    assert_eq!(noted, "0027\n".repeat(100));
}

#[test]
fn a_job_whose_deleted_twin_was_unique_is_added() {
    let tree = Tree::start();
    let unique = ["queue", "push", "mails", "x", "--unique-for", "1h"];
    let first = tree.well(&unique);
    assert_eq!(tree.run(&unique).out, first, "its key is remembered");
    tree.well(&["queue", "delete", first.trim_end()]);
    let second = tree.well(&unique);
    assert_ne!(second, first, "nobody has worked on the first one");
    tree.well(&["queue", "discard", "mails", "--status", "ready"]);
    let third = tree.well(&unique);
    assert_ne!(third, second, "its key was forgotten, too");

    // A job that is given up still has its key: that is said, and is no success.
    tree.well(&["queue", "cancel", third.trim_end()]);
    let refused = tree.run(&unique);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert!(refused.err.contains("is abandoned"), "{refused:?}");

    // One that is done keeps it.
    tree.well(&["queue", "kick", "--id", third.trim_end()]);
    work(&tree, &["mails"], "true");
    assert_eq!(tree.run(&unique).out, third);
}
