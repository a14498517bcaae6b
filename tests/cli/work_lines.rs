//! `sexton work --lines`: commands that work on one job after another, and commands that violate the protocol.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::{CommandOutput, done};
use crate::daemon::text;
use crate::left_out::left_out;
use crate::patience::until;
use crate::tree::Tree;
use crate::work::{begin, cancelled, job, pid, push, until_lines, work};
use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::{Value, json};

/// Returns a worker that reads jobs, and runs `each` with the variables `id` and `body` for each of them.
fn worker(each: &str) -> String {
    format!(
        r#"while read -r line <&3; do
             id=${{line#*\"id\":}}; id=${{id%%,*}}
             body=${{line#*\"body\":\"}}; body=${{body%%\"*}}
             {each}
           done"#
    )
}

const WELL: &str = r#"echo "{\"id\":$id,\"ok\":true}" >&3"#;

fn lines(tree: &Tree, words: &[&str], script: &str) -> (Value, CommandOutput) {
    work(tree, &[words, &["--lines"]].concat(), script)
}

fn outcomes(said: &Value) -> Vec<(&str, &str)> {
    let jobs = said["jobs"].as_array().expect("a list").iter();
    let of = |job: &'_ Value, name| -> &'static str {
        let word = job[name].as_str().unwrap_or("").to_owned();
        Box::leak(word.into_boxed_str())
    };
    jobs.map(|job| (of(job, "status"), of(job, "error"))).collect()
}

#[test]
fn one_command_works_on_one_job_after_another() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let log = tree.data.join("log");
    // The worker's other output goes to its usual place, and does no harm.
    let each =
        format!("echo '{{\"id\":1}}'; echo stray >&2; echo $$ $body >> {}; {WELL}", text(&log));
    let script = format!("test $SEXTON_JOB_LINES = 3 || exit 1; {}", worker(&each));
    let (said, done) = lines(&tree, &["mails"], &script);
    assert_eq!(outcomes(&said), [("ok", ""); 3], "{done:?}");
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    let noted: Vec<(&str, &str)> = noted.lines().filter_map(|it| it.split_once(' ')).collect();
    let bodies: Vec<&str> = noted.iter().map(|(_, body)| *body).collect();
    assert_eq!(bodies, ["a", "b", "c"]);
    assert!(noted.iter().all(|(pid, _)| *pid == noted[0].0), "{noted:?}");
    assert!(done.err.contains("stray"), "{done:?}");
    assert_eq!(tree.get("/v1/queues")["queues"], json!([]), "all are done");
}

#[test]
fn there_are_as_many_as_are_to_run_and_they_end_with_the_run() {
    let tree = Tree::start();
    for body in ["a", "b", "c"] {
        push(&tree, "mails", body);
    }
    let (log, gate) = (tree.data.join("log"), tree.data.join("gate"));
    let each = format!(
        "echo $$ >> {}; while [ ! -e {} ]; do sleep 0.02; done; {WELL}",
        text(&log),
        text(&gate)
    );
    let words = ["mails", "--wait", "--lines", "--procs", "3"];
    let running = begin(&tree, &words, &worker(&each));
    until_lines(&log, 3);
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    let mut pids: Vec<i32> = noted.lines().filter_map(|it| it.parse().ok()).collect();
    pids.sort_unstable();
    pids.dedup();
    assert_eq!(pids.len(), 3, "{noted}");
    std::fs::write(&gate, "").expect("a writable file");
    until("all are done", || {
        (tree.get("/v1/status")["queues"]["jobs"]["claimed"] == 0).then_some(())
    });
    // The workers wait for more jobs, and end when the run ends.
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    let done = done(running.wait_with_output().expect("our child"));
    assert_eq!(done.status, 0, "{done:?}");
    for number in pids {
        let one = rustix::process::Pid::from_raw(number).expect("a PID");
        assert!(test_kill_process(one).is_err(), "{number} has ended");
    }
}

#[test]
fn an_answer_says_what_becomes_of_a_job() {
    let tree = Tree::start();
    let ids = ["fail", "soon", "snooze", "well"].map(|body| push(&tree, "mails", body));
    let each = r#"case $body in
        fail) answer='"fail":"no such user"';;
        soon) answer='"fail":"again","retry_after":3000';;
        snooze) echo "{\"id\":$id,\"progress\":40,\"text\":\"page 2\"}" >&3; answer='"snooze":600,"why":"down"';;
        *) echo "{\"id\":$id,\"touch\":true}" >&3; answer='"ok":true';;
        esac; echo "{\"id\":$id,$answer}" >&3"#;
    let (said, done) = lines(&tree, &["mails", "--max-jobs", "4"], &worker(each));
    let right = [("failed", "no such user"), ("failed", "again"), ("failed", "down"), ("ok", "")];
    assert_eq!(outcomes(&said), right, "{done:?}");
    let [fail, soon, snooze, well] = ids.map(|id| job(&tree, &id));
    assert_eq!((&fail["phase"], &fail["attempts"]), (&json!("retrying"), &json!(1)));
    let left = soon["remaining_ms"].as_u64().expect("it is tried again");
    assert!(left > 2_500_000, "{soon}");
    assert_eq!(
        (&snooze["attempts"], &snooze["percent"], &snooze["report"]),
        (&json!(0), &json!(40), &json!("page 2"))
    );
    assert_eq!(well["reason"], "absent");
}

/// Runs a worker whose first answer is wrong. It is killed with its whole tree, its job fails, and the next job is worked
/// on. Returns the error of the job.
fn broken(each: &str, words: &[&str]) -> String {
    let tree = Tree::start();
    push(&tree, "mails", "bad");
    push(&tree, "mails", "good");
    let log = tree.data.join("log");
    let each = format!(
        "if [ $body = good ]; then {WELL}; continue; fi; sleep 3600 & echo $! >> {0}; echo $$ >> {0}; {each}",
        text(&log)
    );
    // Limit the number of jobs, since on a slow machine the first job would be tried again.
    let words = [words, &["--max-jobs", "2"]].concat();
    let (said, done) = lines(&tree, &words, &worker(&each));
    let outcomes = outcomes(&said);
    assert_eq!(outcomes.len(), 2, "{done:?}");
    assert_eq!((outcomes[0].0, outcomes[1].0), ("failed", "ok"), "{done:?}");
    let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
    for number in noted.lines() {
        let one = number.parse().ok().and_then(rustix::process::Pid::from_raw);
        assert!(test_kill_process(one.expect("a PID")).is_err(), "{number}");
    }
    outcomes[0].1.to_owned()
}

#[test]
fn a_foreign_answer_ends_the_worker() {
    let error = broken(r#"echo '{"id":999,"ok":true}' >&3; sleep 3600"#, &["mails"]);
    assert!(error.contains("answered for job 999"), "{error}");
}

#[test]
fn an_answer_that_is_none_ends_the_worker() {
    let error = broken("echo hello >&3; sleep 3600", &["mails"]);
    assert!(error.contains("is not an answer"), "{error}");
    let long = "head -c 100000 /dev/zero | tr '\\0' x >&3; sleep 3600";
    let error = broken(long, &["mails"]);
    assert!(error.contains("more than 65536 bytes"), "{error}");
}

#[test]
fn a_worker_that_does_not_answer_in_time_is_ended() {
    let words = ["mails", "--timeout", "5", "--grace", "0.2"];
    let error = broken("trap '' TERM; while :; do sleep 1; done", &words);
    assert!(error.contains("longer than 5 s"), "{error}");
}

#[test]
fn a_worker_that_ends_without_an_answer_has_failed() {
    let error = broken("kill $!; exit 0", &["mails"]);
    assert!(error.contains("exited without an answer"), "{error}");
    let error = broken("kill $!; echo out of cheese >&2; exit 3", &["mails"]);
    assert_eq!(error, "out of cheese");
}

#[test]
fn a_line_that_comes_late_ends_the_worker_before_its_next_job() {
    let tree = Tree::start();
    let log = tree.data.join("log");
    let each = format!("{WELL}; {WELL}; echo $$ >> {}", text(&log));
    let running = begin(&tree, &["mails", "--wait", "--lines"], &worker(&each));
    let first = push(&tree, "mails", "a");
    until("it is done", || (job(&tree, &first)["reason"] == "absent").then_some(()));
    until_lines(&log, 1);
    let second = push(&tree, "mails", "b");
    until("it has failed", || {
        let shown = job(&tree, &second);
        let error = shown["error"].as_str().unwrap_or_default().to_owned();
        error.contains("while it had no job").then_some(())
    });
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    drop(running.wait_with_output());
}

#[test]
fn a_worker_that_ends_while_it_has_no_job_costs_no_job_a_try() {
    let tree = Tree::start();
    let log = tree.data.join("log");
    let each = format!("echo $$ >> {}; {WELL}; exit 0", text(&log));
    let running = begin(&tree, &["mails", "--wait", "--lines"], &worker(&each));
    for count in 1..4 {
        let id = push(&tree, "mails", "a");
        until("it is done", || {
            let shown = job(&tree, &id);
            assert!(shown["error"].is_null(), "{shown}");
            (shown["reason"] == "absent").then_some(())
        });
        until_lines(&log, count);
        // Wait until the worker has ended, because then its socket is closed.
        let noted = std::fs::read_to_string(&log).expect("the command wrote the file");
        let pid = noted.lines().last().and_then(|it| it.parse().ok());
        let pid = pid.and_then(rustix::process::Pid::from_raw).expect("a PID");
        until("it has ended", || test_kill_process(pid).err());
    }
    kill_process(pid(&running), Signal::TERM).expect("a live process");
    drop(running.wait_with_output());
}

#[test]
fn a_worker_that_cannot_be_executed_costs_no_job_a_try() {
    let tree = Tree::start();
    let id = push(&tree, "mails", "a");
    let words = ["work", "mails", "--lines", "--", "/nowhere/to/be/found"];
    let done = tree.run(&words);
    assert_eq!(done.status, 127, "{done:?}");
    assert_eq!(job(&tree, &id)["attempts"], 0, "{done:?}");
}

/// Runs the worker of docs/protocols/work.md unchanged.
#[test]
fn the_worker_in_python_of_the_page_works() {
    let version = std::process::Command::new("python3").arg("--version").output();
    if !version.is_ok_and(|it| it.status.success()) {
        return left_out("the worker in Python: python3 is not installed");
    }
    let page = include_str!("../../docs/protocols/work.md");
    let block = page.split("```python\n").nth(1);
    let block = block.and_then(|rest| rest.split("```").next());
    let tree = Tree::start();
    let file = tree.data.join("worker.py");
    let resize = "def resize(path):\n    print('stray')\n    if path == 'bad':\n        raise ValueError('no picture')\n";
    let program = format!("{resize}{}", block.expect("a block in Python"));
    std::fs::write(&file, program).expect("a writable file");
    for body in ["good", "bad", "böse \" \\ \u{1F600}"] {
        push(&tree, "thumbs", body);
    }
    let words = ["work", "thumbs", "--lines", "--result", "json", "--"];
    let done = tree.run(&[&words, &["python3", text(&file)][..]].concat());
    let said: Value = serde_json::from_str(&done.out).unwrap_or_default();
    let right = [("ok", ""), ("failed", "no picture"), ("ok", "")];
    assert_eq!(outcomes(&said), right, "{done:?}");
}

#[test]
fn a_worker_whose_job_is_cancelled_is_ended() {
    let each = format!(
        "case $line in *good*) {WELL};; *) echo $$ >> PIDS; sleep 600 & echo $! >> PIDS; wait;; esac"
    );
    let (error, said) = cancelled(&["--lines"], &worker(&each));
    assert_eq!(error, "cancelled: wrong file");
    assert_eq!(outcomes(&said), [("failed", "it was cancelled"), ("ok", "")]);
}
