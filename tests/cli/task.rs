//! `sexton task` and `sexton server`: commands that run in bursts, and bursts that fail. Row numbers in this file are
//! those of Acquia's text "Wip system failures and automatic recovery"; each row is tested with a real attempt.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;

/// The program, which scripts get as their `$0`.
const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// Adds a shell script as a task. Returns the task's id.
pub(crate) fn add(tree: &Tree, flags: &[&str], script: &str) -> u64 {
    let words = [&["task", "add"], flags, &["--", "sh", "-c", script, SEXTON]].concat();
    tree.well(&words).trim_end().parse().expect("a number")
}

pub(crate) fn show(tree: &Tree, id: u64) -> Value {
    let printed = tree.well(&["task", "show", &id.to_string(), "--json"]);
    serde_json::from_str(&printed).expect("valid JSON")
}

/// Waits until a task is complete, and returns it.
pub(crate) fn over(tree: &Tree, id: u64) -> Value {
    until("the task is over", || {
        let task = show(tree, id);
        (task["status"] == "complete").then_some(task)
    })
}

/// Waits until this number of attempts of a task have ended, and returns the task.
pub(crate) fn tried(tree: &Tree, id: u64, times: usize) -> Value {
    until("the attempts have ended", || {
        let task = show(tree, id);
        let past = task["past"].as_array().map_or(0, Vec::len);
        (past >= times).then_some(task)
    })
}

/// Waits until a task's command has written its PID to this file. Returns the PID.
fn running(tree: &Tree, file: &str) -> Pid {
    until("its command runs", || {
        let pid = std::fs::read_to_string(tree.data.join(file)).ok()?;
        Pid::from_raw(pid.trim().parse().ok()?)
    })
}

/// Returns how a task ended, and the result of its last attempt.
pub(crate) fn came_to(task: &Value) -> (&str, &str) {
    let newest = task["past"].as_array().and_then(|it| it.last());
    let cause = newest.map(|it| &it["cause"]);
    (task["exit"].as_str().unwrap_or_default(), cause.and_then(Value::as_str).unwrap_or_default())
}

/// Asserts that no thread of a server is in use, that no lock is held, and that an audit finds nothing.
pub(crate) fn assert_no_thread_is_taken(tree: &Tree) {
    until("all threads are free", || {
        let servers = tree.well(&["server", "list", "--json"]);
        let servers: Value = serde_json::from_str(&servers).expect("valid JSON");
        let all = servers["servers"].as_array()?.iter();
        all.map(|it| it["used"].as_u64()).all(|used| used == Some(0)).then_some(())
    });
    let locks = tree.get("/v1/locks");
    assert_eq!(locks["locks"].as_array().map(Vec::len), Some(0), "{locks}");
    tree.assert_all_agrees();
}

#[test]
fn a_task_runs_in_bursts_and_goes_on_from_what_it_saved() {
    let tree = Tree::start();
    let script = r#"
n=$("$0" task saved || echo 0); n=$((n + 1))
"$0" task save $n || exit 1
[ $n -lt 3 ] && exec "$0" task wait 10ms
exec "$0" task done "after $n"
"#;
    let id = add(&tree, &["--name", "counts"], script);
    let task = over(&tree, id);
    assert_eq!(task["exit"], "completed", "{task}");
    assert_eq!(task["message"], "after 3");
    assert_eq!(task["revision"], 3);
    assert_eq!(task["attempts"], 3);
    let outcomes = task["past"].as_array().expect("attempts").iter();
    let outcomes: Vec<&Value> = outcomes.map(|it| &it["outcome"]).collect();
    assert_eq!(outcomes, ["waits", "waits", "ended"]);
    assert_no_thread_is_taken(&tree);
}

#[test]
fn a_status_of_its_own_fails_a_task_and_bytes_are_saved_as_they_are() {
    let tree = Tree::start();
    let fails = over(&tree, add(&tree, &[], "exit 3"));
    assert_eq!(came_to(&fails), ("user-error", "user-error"));
    assert_eq!(fails["message"], "its command ended with status 3");
    let says = over(&tree, add(&tree, &[], r#""$0" task fail 'no such site'; exit 0"#));
    assert_eq!((&says["exit"], &says["message"]), (&"user-error".into(), &"no such site".into()));
    let warns = over(&tree, add(&tree, &[], r#""$0" task done --warning 'half'; exit 7"#));
    assert_eq!((&warns["exit"], &warns["exit_status"]), (&"warning".into(), &1.into()));
    let script = r#"printf '\377\000x' | "$0" task save && "$0" task saved | od -An -tx1 | tr -d ' \n' > "$SEXTON_DATA/bytes""#;
    assert_eq!(over(&tree, add(&tree, &[], script))["exit"], "completed");
    let bytes = std::fs::read_to_string(tree.data.join("bytes")).expect("they were read");
    assert_eq!(bytes, "ff0078");
    let waited = tree.run(&["task", "add", "--wait", "60s", "--", "false"]);
    assert_eq!(waited.status, 1, "{waited:?}");
    let waited = tree.run(&["task", "add", "--wait", "60s", "--", "true"]);
    assert_eq!(waited.status, 0, "{waited:?}");
}

/// Rows 1, 2 and 4: the program cannot be launched, for each reason that the kernel reports.
#[test]
fn what_cannot_be_launched_is_tried_again_and_says_why() {
    let tree = Tree::start();
    let file = tree.data.join("not-executable");
    std::fs::write(&file, "").expect("a writable file");
    let script = tree.data.join("no-interpreter");
    std::fs::write(&script, "#!/no/such/interpreter\n").expect("a writable file");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755))
        .expect("our own file");
    for abort in [true, false] {
        for command in ["/no/such/program", text(&file), text(&script)] {
            let flags: &[&str] = if abort { &[] } else { &["--retry"] };
            let words = [&["task", "add"], flags, &["--", command]].concat();
            let id = tree.well(&words).trim_end().parse().expect("a number");
            let task = tried(&tree, id, 2);
            assert_eq!(came_to(&task), ("not-finished", "not-launched"), "{task}");
            let failure = task["past"][0]["failure"].as_str().expect("the refusal has a detail");
            assert!(failure.starts_with("exec: "), "{failure}");
            tree.well(&["task", "terminate", "--now", &id.to_string()]);
        }
        let words = ["task", "add", "--dir", "/no/such/directory", "--", "true"];
        let id = tree.well(&words).trim_end().parse().expect("a number");
        let task = tried(&tree, id, 1);
        assert_eq!(came_to(&task).1, "not-launched", "{task}");
        tree.well(&["task", "terminate", "--now", &id.to_string()]);
    }
    assert_no_thread_is_taken(&tree);
}

/// Rows 1 and 4: an argument is longer than the kernel allows.
#[test]
fn arguments_that_the_kernel_does_not_take_are_its_error() {
    let tree = Tree::start();
    let long = "x".repeat(140_000);
    let body = format!(r#"{{"launch":{{"command":["true","{long}"],"dir":"/"}}}}"#);
    let added = tree.post("/v1/tasks/add", &body);
    let id = added["id"].as_u64().expect("a number");
    let task = tried(&tree, id, 1);
    assert_eq!(came_to(&task), ("not-finished", "not-launched"), "{task}");
    let failure = task["past"][0]["failure"].as_str().expect("the refusal has a detail");
    assert!(failure.contains("Argument list too long"), "{failure}");
    tree.well(&["task", "terminate", "--now", &id.to_string()]);
    assert_no_thread_is_taken(&tree);
}

/// Row 1: the keeper was killed, which nobody reports. Another keeper launches the command.
#[test]
fn a_task_runs_although_the_keeper_was_killed() {
    let tree = Tree::start();
    assert_eq!(over(&tree, add(&tree, &[], "true"))["exit"], "completed");
    tree.kill_keeper();
    assert_eq!(over(&tree, add(&tree, &[], "true"))["exit"], "completed");
}

/// Rows 6 and 7: the command of a task is killed before it saves, and after it has saved.
#[test]
fn a_command_that_dies_fails_its_task_unless_it_saved_or_may_run_twice() {
    let tree = Tree::start();
    for signal in ["KILL", "SEGV", "ABRT"] {
        let dies = format!("kill -{signal} $$");
        let task = over(&tree, add(&tree, &[], &dies));
        assert_eq!(came_to(&task), ("system-error", "died"), "{task}");
        assert_eq!(task["exit_status"], 2);
        let message = task["message"].as_str().expect("the refusal has a detail");
        assert!(message.contains("before it saved anything"), "{message}");

        let once = r#"[ -e "$SEXTON_DATA/$SEXTON_TASK_ID" ] && exit 0; : > "$SEXTON_DATA/$SEXTON_TASK_ID"; "#;
        let task = over(&tree, add(&tree, &["--retry"], &format!("{once}{dies}")));
        assert_eq!(task["exit"], "completed", "{task}");
        assert_eq!(task["past"][0]["cause"], "died");

        for flags in [&[] as &[&str], &["--retry"]] {
            let saves = format!(r#"{once}"$0" task save half; {dies}"#);
            let task = over(&tree, add(&tree, flags, &saves));
            assert_eq!((&task["exit"], &task["revision"]), (&"completed".into(), &1.into()));
            assert_eq!(
                (&task["past"][0]["saved"], &task["past"][0]["cause"]),
                (&true.into(), &"died".into())
            );
        }
    }
    assert_no_thread_is_taken(&tree);
}

/// Row 8: the command does not end, is stopped, or ignores SIGTERM, and so do its children.
#[test]
fn an_endless_burst_is_stopped_with_all_that_it_started() {
    let tree = Tree::start();
    for flags in [&[] as &[&str], &["--retry"]] {
        for script in [
            "while :; do :; done",
            "trap '' TERM; while :; do sleep 1; done",
            "sleep 1000 & setsid sleep 1000 & wait",
            "kill -STOP $$",
        ] {
            let flags = [flags, &["--fail-after", "300ms"]].concat();
            let task = over(&tree, add(&tree, &flags, script));
            assert_eq!(came_to(&task), ("system-error", "overdue"), "{script}: {task}");
            assert_eq!(task["message"], "its attempt took too long");
        }
    }
    // A command that has sent a heartbeat must continue to send them, however much time its burst still has.
    let task =
        over(&tree, add(&tree, &["--progress", "200ms"], r#""$0" task heartbeat; sleep 1000"#));
    assert_eq!(came_to(&task), ("system-error", "silent"), "{task}");
    // Heartbeats do not prolong a burst.
    let beats = r#""$0" task heartbeat && echo $$ > "$SEXTON_DATA/beats"; (while "$0" task heartbeat; do sleep 0.05; done) & sleep 1000"#;
    let flags = ["--progress", "30s", "--fail-after", "3s"];
    let task = over(&tree, add(&tree, &flags, beats));
    assert_eq!(came_to(&task), ("system-error", "overdue"), "{task}");
    running(&tree, "beats");
    let beats = r#"for i in 1 2 3 4 5; do "$0" task heartbeat; sleep 0.1; done"#;
    let task = over(&tree, add(&tree, &["--progress", "30s"], beats));
    assert_eq!(task["exit"], "completed", "{task}");
    let lives = tree.all().into_iter().filter(|it| it["status"] != "exited");
    assert_eq!(lives.count(), 0, "none of them is alive");
    assert_no_thread_is_taken(&tree);
}

/// Row 9: the command exits with 0 and has not reported its result, although it must.
#[test]
fn a_burst_of_which_nothing_is_said_is_run_again_where_it_must_be() {
    let tree = Tree::start();
    let script = r#"
[ -e "$SEXTON_DATA/said" ] && exec "$0" task done
: > "$SEXTON_DATA/said"
"#;
    let task = over(&tree, add(&tree, &["--report-required"], script));
    assert_eq!(task["exit"], "completed", "{task}");
    assert_eq!(task["past"][0]["cause"], "unreported");
    let dies = over(&tree, add(&tree, &["--report-required"], "exit 3"));
    assert_eq!(came_to(&dies), ("system-error", "died"), "{dies}");
}

/// Row 10: the cleanup command does not exist, does not end, or is killed. It holds no thread, and the task is complete
/// anyway.
#[test]
fn what_cleans_up_holds_nothing() {
    let tree = Tree::start();
    tree.well(&["server", "add", "local", "--threads", "1"]);
    for cleanup in ["/no/such/program", "sh -c 'exit 4'", "sh -c 'kill -9 $$'", "sleep 1000"] {
        let task = over(&tree, add(&tree, &["--cleanup", cleanup], "true"));
        assert_eq!(task["exit"], "completed", "{cleanup}: {task}");
    }
    // A cleanup runs without end, and the only thread is free.
    let script = "echo $SEXTON_TASK_ENDED $SEXTON_TASK_STATUS > $SEXTON_DATA/cleaned";
    let cleanup = format!("sh -c '{script}'");
    let id = add(&tree, &["--cleanup", &cleanup], "exit 9");
    until("its cleanup has ended", || {
        (show(&tree, id)["past"][0]["cleanup_code"] == 0).then_some(())
    });
    let said =
        std::fs::read_to_string(tree.data.join("cleaned")).expect("the command wrote the file");
    assert_eq!(said, "user-error complete\n");
    assert_no_thread_is_taken(&tree);
}

/// Rows 11, 12 and 13: the coordinator that should receive a report was killed. The next one receives it.
#[test]
fn a_task_that_ends_while_no_coordinator_is_there_has_ended() {
    let mut tree = Tree::start();
    let ends = add(&tree, &[], r#"echo $$ > "$SEXTON_DATA/ends"; sleep 0.2"#);
    let dies = add(&tree, &[], r#"echo $$ > "$SEXTON_DATA/dies"; exec sleep 1000"#);
    let goes_on = add(
        &tree,
        &[],
        r#"echo $$ > "$SEXTON_DATA/on"; while [ ! -e "$SEXTON_DATA/go" ]; do sleep 0.02; done"#,
    );
    let mut victim = None;
    for file in ["ends", "dies", "on"] {
        let pid = running(&tree, file);
        victim = victim.or((file == "dies").then_some(pid));
    }
    let ended = running(&tree, "ends");
    let victim = victim.expect("it is running");
    tree.again(|| {
        kill_process(victim, Signal::KILL).expect("a live process");
        until("the first has ended", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", ended.as_raw_nonzero()));
            stat.is_err().then_some(())
        });
    });
    assert_eq!(over(&tree, ends)["exit"], "completed");
    assert_eq!(came_to(&over(&tree, dies)), ("system-error", "died"));
    let task = show(&tree, goes_on);
    assert_eq!((&task["status"], &task["attempts"]), (&"processing".into(), &1.into()));
    std::fs::write(tree.data.join("go"), "").expect("a writable file");
    assert_eq!(over(&tree, goes_on)["exit"], "completed");
    assert_no_thread_is_taken(&tree);
}

/// The example in Wip's text, and the exit statuses of `wipctl server`.
#[test]
fn an_inventory_is_what_the_servers_are_but_for_an_operators_word() {
    let tree = Tree::start();
    let file = tree.data.join("servers.json");
    let write = |hosts: &str| std::fs::write(&file, hosts).expect("a writable file");
    for server in ["A", "B"] {
        tree.well(&["server", "add", server, "--threads", "4"]);
    }
    write(r#"[{"host":"A","max_procs":4},{"host":"C","max_procs":2}]"#);
    let from = ["--from", text(&file)];
    let check = tree.run(&[&["server", "check"], &from[..]].concat());
    assert_eq!(
        (check.status, check.out.as_str()),
        (1, "1 would be added, 1 would be removed, 0 would be changed\n")
    );
    let update = tree.run(&[&["server", "update"], &from[..]].concat());
    assert_eq!((update.status, update.out.as_str()), (1, "1 added, 1 removed, 0 changed\n"));
    let update = tree.run(&[&["server", "update"], &from[..]].concat());
    assert_eq!((update.status, update.out.as_str()), (0, "0 added, 0 removed, 0 changed\n"));
    tree.well(&["server", "disable", "C"]);
    write(r#"[{"host":"A","max_procs":4}]"#);
    assert_eq!(tree.run(&[&["server", "update"], &from[..]].concat()).status, 0);
    let listed = tree.well(&["server", "list"]);
    assert!(listed.contains("disabled"), "{listed}");
    for wrong in ["{}", "[1]", r#"[{"host":"A"},{"host":"A"}]"#, "not JSON"] {
        write(wrong);
        let refused = tree.run(&[&["server", "update"], &from[..]].concat());
        assert!(refused.status >= 2, "{wrong}: {refused:?}");
    }
    assert_eq!(tree.well(&["server", "list"]), listed, "nothing changed");
}

#[test]
fn it_says_why_a_task_does_not_run() {
    let tree = Tree::start();
    let waits = r#"echo $$ > "$SEXTON_DATA/$SEXTON_TASK_ID"; while [ ! -e "$SEXTON_DATA/go" ]; do sleep 0.02; done"#;
    let why =
        |id| until("the reason is shown", || show(&tree, id)["why"].as_str().map(str::to_owned));
    let first = add(&tree, &["--group", "mails", "--work", "w"], waits);
    running(&tree, &first.to_string());
    let limited = tree.well(&["task", "limit", "mails", "1"]);
    assert_eq!(limited, "group mails: at most 1 task in progress\n");
    assert_eq!(why(add(&tree, &["--group", "mails"], "true")), "group mails is full: 1 of 1");
    let same = format!("task {first} with work id w is under way");
    assert_eq!(why(add(&tree, &["--work", "w"], "true")), same);
    assert_eq!(why(add(&tree, &["--paused"], "true")), "it is paused");
    assert_eq!(why(add(&tree, &["--not-ready"], "true")), "it is not ready");
    let paused = tree.well(&["task", "pause", "--group", "others"]);
    let words = "paused: no task is started, but those under way continue";
    assert_eq!(paused, format!("group others {words}\n"));
    assert_eq!(why(add(&tree, &["--group", "others"], "true")), "group others is paused (soft)");
    tree.well(&["server", "disable", "local"]);
    let held = add(&tree, &[], "true");
    assert_eq!(why(held), "no server is enabled");
    let paused = tree.well(&["task", "pause", "--all", "--hard"]);
    assert_eq!(paused, "all tasks paused: no burst is started\n");
    assert_eq!(why(held), "all tasks are paused (hard)");
    std::fs::write(tree.data.join("go"), "").expect("a writable file");
    over(&tree, first);
    assert_eq!(tree.well(&["task", "resume", "--all"]), "all tasks resumed\n");
    tree.well(&["server", "enable", "local"]);
    assert_eq!(over(&tree, held)["exit"], "completed");
}

/// The report socket accepts only the reports of live attempts.
#[test]
fn reports_are_heard_of_attempts_that_live() {
    let tree = Tree::start();
    let keeps = r#"echo "$SEXTON_TASK_SECRET" > "$SEXTON_DATA/secret"; while [ ! -e "$SEXTON_DATA/go" ]; do sleep 0.02; done"#;
    let id = add(&tree, &[], keeps);
    let secret = until("its command runs", || {
        let secret = std::fs::read_to_string(tree.data.join("secret")).ok()?;
        Some(secret.trim().to_owned()).filter(|it| !it.is_empty())
    });
    let say = |line: &str| {
        let mut stream = UnixStream::connect(tree.data.join("report.sock")).expect("it listens");
        stream.write_all(line.as_bytes()).expect("connected");
        stream.write_all(b"\n").expect("connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        serde_json::from_str::<Value>(&answer).expect("valid JSON")
    };
    // The sender of a line is killed while it writes.
    let torn = |half: &str| {
        let mut stream = UnixStream::connect(tree.data.join("report.sock")).expect("it listens");
        stream.write_all(half.as_bytes()).expect("connected");
        stream.shutdown(Shutdown::Write).expect("it is connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        serde_json::from_str::<Value>(&answer).expect("valid JSON")
    };
    let with =
        |secret: &str, report: &str| say(&format!(r#"{{"secret":"{secret}","report":{report}}}"#));
    let beat = r#"{"do":"heartbeat"}"#;
    assert_eq!(with(&secret, r#"{"do":"save","body":"x"}"#)["revision"], 1);
    assert_eq!(with(&secret, r#"{"do":"saved"}"#)["body"], "x");
    let mut forged = secret.clone();
    let last = if forged.pop() == Some('0') { '1' } else { '0' };
    forged.push(last);
    for (line, reason) in [
        (with(&forged, beat), "unauthorized"),
        (with("", beat), "unauthorized"),
        (with(&secret, r#"{"do":"steal"}"#), "malformed"),
        (with(&secret, r#"{"do":"save"}"#), "field"),
        (with(&secret, r#"{"do":"save","body_b64":"%"}"#), "field"),
        (say("GET /v1/status HTTP/1.1\r"), "malformed"),
        (say("\u{0}\u{1}"), "malformed"),
        (torn(&format!(r#"{{"secret":"{secret}","report":{{"do":"sa"#)), "malformed"),
        (torn(""), "malformed"),
    ] {
        assert_eq!((&line["ok"], &line["reason"]), (&false.into(), &reason.into()), "{line}");
    }
    let long = with(&secret, &format!(r#"{{"do":"save","body":"{}"}}"#, "x".repeat(65_537)));
    assert_eq!(long["reason"], "field", "{long}");
    let mode = std::fs::metadata(tree.data.join("report.sock")).expect("the file exists");
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    std::fs::write(tree.data.join("go"), "").expect("a writable file");
    over(&tree, id);
    assert_eq!(with(&secret, beat)["reason"], "stale");
    // Only the file that the command wrote contains the secret.
    let journal = std::fs::read_dir(tree.data.join("journal")).expect("a journal");
    let code = secret.split_once('.').expect("it has a code").1;
    for file in journal {
        let bytes = std::fs::read(file.expect("a segment").path()).expect("a file");
        let found = bytes.windows(code.len()).any(|it| it == code.as_bytes());
        assert!(!found, "no secret is in the journal");
    }
    let outside = tree.run(&["task", "heartbeat"]);
    assert_eq!(outside.status, 2, "{outside:?}");
}

#[test]
fn an_operator_pauses_terminates_restarts_and_prunes() {
    let tree = Tree::start();
    let script = r#"[ "$SEXTON_TASK_TERMINATING" = 1 ] && : > "$SEXTON_DATA/wound-up"; exec "$0" task wait 1h"#;
    let id = add(&tree, &[], script).to_string();
    tried(&tree, id.parse().expect("a number"), 1);
    tree.well(&["task", "terminate", &id]);
    let task = over(&tree, id.parse().expect("a number"));
    assert_eq!(task["exit"], "terminated", "{task}");
    assert!(tree.data.join("wound-up").exists(), "it had another burst");
    let again = tree.run(&["task", "terminate", &id]);
    assert_eq!(again.status, 1, "{again:?}");
    tree.well(&["task", "restart", &id]);
    tried(&tree, id.parse().expect("a number"), 3);
    tree.well(&["task", "terminate", "--now", &id]);
    over(&tree, id.parse().expect("a number"));
    let runs = add(&tree, &[], r#"echo $$ > "$SEXTON_DATA/runs"; sleep 1000"#);
    let pid = running(&tree, "runs");
    tree.well(&["task", "terminate", "--now", &runs.to_string()]);
    assert_eq!(over(&tree, runs)["exit"], "terminated");
    assert!(!std::path::Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
    assert_eq!(tree.well(&["task", "prune", "--keep", "1"]), "1\n");
    assert_eq!(tree.run(&["task", "show", &id]).status, 1);
    assert_no_thread_is_taken(&tree);
}
