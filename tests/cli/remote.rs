//! Tasks on another machine, a real sshd on loopback with this user. Cut connections, kills and silence have the results
//! that `docs/tasks.md` describes, and no attempt ever runs twice at once.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::text;
use crate::far::Far;
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};

const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// Starts another machine, and a coordinator whose tasks run only on it. Returns `None` if no sshd is installed.
pub(crate) fn start() -> Option<(Far, Tree)> {
    let far = Far::start()?;
    let tree = Tree::start();
    far.add_to(&tree, 4);
    Some((far, tree))
}

pub(crate) fn add(tree: &Tree, flags: &[&str], script: &str) -> u64 {
    let words = [&["task", "add"], flags, &["--", "sh", "-c", script, SEXTON]].concat();
    tree.well(&words).trim_end().parse().expect("a number")
}

pub(crate) fn show(tree: &Tree, id: u64) -> Value {
    let printed = tree.well(&["task", "show", &id.to_string(), "--json"]);
    serde_json::from_str(&printed).expect("valid JSON")
}

pub(crate) fn over(tree: &Tree, id: u64) -> Value {
    until("the task is over", || {
        let task = show(tree, id);
        (task["status"] == "complete").then_some(task)
    })
}

/// Returns the lines of a file, once it has this many.
pub(crate) fn lines(path: &Path, count: usize) -> Vec<String> {
    until("it is written there", || {
        let text = std::fs::read_to_string(path).ok()?;
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        (lines.len() >= count && text.ends_with('\n')).then_some(lines)
    })
}

/// Returns a script that logs its PID when it begins, waits until a file exists, and logs when it ends.
pub(crate) fn waits(far: &Far, more: &str) -> String {
    let (log, go) = (far.path("log"), far.path("go"));
    format!(
        "echo begin $$ >> {log}; while [ ! -e {go} ]; do sleep 0.02; done; {more} echo end >> {log}",
        log = text(&log),
        go = text(&go)
    )
}

pub(crate) fn let_go(far: &Far) {
    std::fs::write(far.path("go"), "").expect("a writable file");
}

/// Returns whether a process is running. A zombie does not count.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

/// Asserts that no attempt is kept on the other machine any more, and that an audit finds nothing.
pub(crate) fn assert_settled(far: &Far, tree: &Tree) {
    far.assert_forgotten();
    tree.assert_all_agrees();
}

/// Asserts that each attempt in the log ended before the next one began.
pub(crate) fn assert_one_at_a_time(log: &[String]) {
    for pair in log.windows(2) {
        let both = pair.iter().all(|line| line.starts_with("begin"));
        let pid = pair[0].rsplit(' ').next().unwrap_or_default();
        assert!(!both || !lives(pid), "{log:?}");
    }
}

#[test]
fn a_task_runs_there_and_nothing_secret_is_told_on_the_way() {
    let Some((far, tree)) = start() else { return };
    let file = far.path("env");
    std::fs::write(&file, "API_TOKEN=hush-hush\n").expect("a writable file");
    let script = format!(
        "echo out; echo err >&2; \"$0\" task save half && \"$0\" task heartbeat; echo \"${{#API_TOKEN}} $PLAIN $SEXTON_TASK_NAME $PWD\"; {}; \
         exec \"$0\" task done 'all of it'",
        waits(&far, "")
    );
    let id = add(
        &tree,
        &[
            "--name",
            "letters",
            "--progress",
            "5m",
            "--env-file",
            text(&file),
            "--env",
            "PLAIN=plain",
            "--dir",
            "/tmp",
        ],
        &script,
    );
    lines(&far.path("log"), 1);
    // The command line of ssh contains the destination, and nothing about the command.
    for pid in far.all_with("ssh") {
        for file in ["cmdline", "environ"] {
            let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
            let shown = String::from_utf8_lossy(&bytes);
            for word in ["hush-hush", "SEXTON_TASK_SECRET=", "letters", "task save"] {
                assert!(!shown.contains(word), "{word} in {file} of ssh: {shown}");
            }
        }
    }
    let_go(&far);
    let task = over(&tree, id);
    assert_eq!(
        (&task["exit"], &task["message"]),
        (&"completed".into(), &"all of it".into()),
        "{task}"
    );
    assert_eq!((&task["revision"], &task["attempts"]), (&1.into(), &1.into()));
    assert_eq!(task["past"][0]["server"], "web");
    let process = task["past"][0]["process"].as_str().expect("a string").to_owned();
    let out = tree.well(&["logs", &process]);
    assert!(out.contains("out\n") && out.contains("9 plain letters /tmp\n"), "{out}");
    let err = tree.well(&["logs", &process, "--stderr"]);
    assert!(err.contains("err\n"), "{err}");
    let record = tree.well(&["ps", &process, "--json"]);
    assert!(!record.contains("hush-hush"), "{record}");
    assert_settled(&far, &tree);
}

#[test]
fn how_a_command_ends_there_is_how_it_ends_here() {
    let Some((far, tree)) = start() else { return };
    for (script, exit, message) in [
        ("exit 0", "completed", ""),
        ("exit 7", "user-error", "its command ended with status 7"),
        (
            "kill -9 $$",
            "system-error",
            "its command was killed by signal 9 before it saved anything",
        ),
        ("\"$0\" task fail 'no such site'", "user-error", "no such site"),
    ] {
        let task = over(&tree, add(&tree, &[], script));
        assert_eq!(
            (&task["exit"], &task["message"]),
            (&exit.into(), &message.into()),
            "{script}: {task}"
        );
    }
    // A process that the command leaves running is part of the attempt.
    let log = far.path("left");
    let script = format!("(sleep 0.3; echo left > {}) & exit 0", text(&log));
    over(&tree, add(&tree, &[], &script));
    assert_eq!(lines(&log, 1), ["left"]);
    // A program that does not exist was never launched, so the task is tried again.
    let id: u64 =
        tree.well(&["task", "add", "--", "/no/such/program"]).trim_end().parse().expect("a number");
    let task = until("it was tried", || {
        let task = show(&tree, id);
        (task["past"].as_array().map_or(0, Vec::len) > 0).then_some(task)
    });
    assert_eq!(task["past"][0]["cause"], "not-launched", "{task}");
    tree.well(&["task", "terminate", "--now", &id.to_string()]);
    over(&tree, id);
    assert_settled(&far, &tree);
}

#[test]
fn a_connection_that_is_cut_is_made_again_and_the_attempt_goes_on() {
    let Some((far, tree)) = start() else { return };
    let id = add(&tree, &[], &waits(&far, "\"$0\" task save end &&"));
    let log = far.path("log");
    lines(&log, 1);
    for _ in 0..3 {
        far.cut();
        until("it is connected again", || {
            (!far.pids(" wrapper --state ").is_empty()).then_some(())
        });
    }
    far.cut();
    let_go(&far);
    let task = over(&tree, id);
    assert_eq!(
        (&task["exit"], &task["attempts"], &task["revision"]),
        (&"completed".into(), &1.into(), &1.into()),
        "{task}"
    );
    assert_eq!(lines(&log, 2).len(), 2);
    assert_settled(&far, &tree);
}

#[test]
fn an_attempt_outlives_who_waits_for_it_here_and_the_coordinator() {
    let Some((far, mut tree)) = start() else {
        return;
    };
    let id = add(&tree, &[], &waits(&far, ""));
    let log = far.path("log");
    lines(&log, 1);
    let first = show(&tree, id)["attempt"]["process"].as_str().expect("a string").to_owned();
    let pid = tree.record(&first)["pid"].as_i64().expect("a live process");
    let pid = Pid::from_raw(i32::try_from(pid).expect("a PID fits")).expect("a PID");
    kill_process(pid, Signal::KILL).expect("a permitted signal");
    until("another waits for it", || {
        let task = show(&tree, id);
        let process = task["attempt"]["process"].as_str()?.to_owned();
        (process != first && task["attempt"]["stage"] == "launched").then_some(())
    });
    tree.again(|| {
        let_go(&far);
        lines(&log, 2);
    });
    let task = over(&tree, id);
    assert_eq!((&task["exit"], &task["attempts"]), (&"completed".into(), &1.into()), "{task}");
    assert_eq!(lines(&log, 2).len(), 2);
    assert_settled(&far, &tree);
}

#[test]
fn who_keeps_an_attempt_there_is_killed_and_nothing_of_it_is_left() {
    let Some((far, tree)) = start() else { return };
    for (flags, exit) in [(&["--retry"][..], "completed"), (&[][..], "system-error")] {
        drop(std::fs::remove_file(far.path("go")));
        drop(std::fs::remove_file(far.path("log")));
        let id = add(&tree, flags, &waits(&far, ""));
        let log = far.path("log");
        let begun = lines(&log, 1);
        let command = begun[0].rsplit(' ').next().expect("its PID").to_owned();
        for pid in far.keepers() {
            kill_process(pid, Signal::KILL).expect("a permitted signal");
        }
        if exit == "completed" {
            let log = lines(&log, 2);
            assert_one_at_a_time(&log);
            let_go(&far);
        }
        let task = over(&tree, id);
        assert_eq!(task["exit"], exit, "{task}");
        assert_eq!(task["past"][0]["cause"], "died", "{task}");
        assert!(!lives(&command), "{command} lives");
        assert_settled(&far, &tree);
    }
}

#[test]
fn a_machine_that_was_started_again_says_so() {
    let Some((mut far, tree)) = start() else {
        return;
    };
    let id = add(&tree, &[], &waits(&far, ""));
    let begun = lines(&far.path("log"), 1);
    let command: i32 = begun[0].rsplit(' ').next().and_then(|it| it.parse().ok()).expect("its PID");
    far.shut();
    far.reboot(Pid::from_raw(command));
    let sshd = ["/usr/sbin/sshd", "/usr/bin/sshd"].into_iter().find(|it| Path::new(it).exists());
    far.listen(sshd.expect("sshd is installed"));
    let task = over(&tree, id);
    assert_eq!(
        (&task["exit"], &task["past"][0]["cause"]),
        (&"system-error".into(), &"died".into()),
        "{task}"
    );
    let process = task["past"][0]["process"].as_str().expect("a string").to_owned();
    let err = tree.well(&["logs", &process, "--stderr"]);
    assert!(err.contains("rebooted"), "{err}");
}

#[test]
fn what_is_to_end_is_ended_there_with_all_that_it_started() {
    let Some((far, tree)) = start() else { return };
    let log = far.path("log");
    let stubborn =
        format!("trap '' TERM; (trap '' TERM; sleep 300) & echo begin $! >> {}; wait", text(&log));
    let terminated = add(&tree, &[], &stubborn);
    let overdue = add(&tree, &["--fail-after", "2s"], &stubborn);
    let pids: Vec<String> =
        lines(&log, 2).iter().filter_map(|it| it.rsplit(' ').next().map(str::to_owned)).collect();
    tree.well(&["task", "terminate", "--now", &terminated.to_string()]);
    assert_eq!(over(&tree, terminated)["exit"], "terminated");
    assert_eq!(over(&tree, overdue)["past"][0]["cause"], "overdue");
    for pid in pids {
        assert!(!lives(&pid), "{pid} lives");
    }
    // The removal of the server ends its attempts.
    let removed = add(&tree, &[], &waits(&far, ""));
    lines(&log, 3);
    tree.well(&["server", "remove", "web"]);
    let task = over(&tree, removed);
    assert_eq!(
        (&task["exit"], &task["past"][0]["cause"]),
        (&"system-error".into(), &"server-gone".into()),
        "{task}"
    );
    assert!(tree.well(&["server", "list", "--json"]).contains("\"servers\":[]"));
    assert_settled(&far, &tree);
}

#[test]
fn who_cannot_be_reached_has_begun_nothing() {
    let Some((mut far, tree)) = start() else {
        return;
    };
    far.shut();
    let id = add(&tree, &[], "exit 0");
    let task = until("it was tried", || {
        let task = show(&tree, id);
        (task["past"].as_array().map_or(0, Vec::len) > 0).then_some(task)
    });
    assert_eq!(task["past"][0]["cause"], "not-launched", "{task}");
    let process = task["past"][0]["process"].as_str().expect("a string").to_owned();
    let err = tree.well(&["logs", &process, "--stderr"]);
    assert!(err.contains("onnection refused"), "what ssh says: {err}");
    far.listen("/usr/sbin/sshd");
    assert_eq!(over(&tree, id)["exit"], "completed");
    // If the key of the host has changed, nothing is sent to it.
    let stranger = std::fs::read_to_string(far.path("stranger.pub")).expect("the file exists");
    std::fs::write(far.path("known"), format!("[127.0.0.1]:{} {stranger}", far.port))
        .expect("a writable file");
    let id = add(&tree, &[], "exit 0");
    let task = until("it was tried", || {
        let task = show(&tree, id);
        (task["past"].as_array().map_or(0, Vec::len) > 0).then_some(task)
    });
    let process = task["past"][0]["process"].as_str().expect("a string").to_owned();
    let err = tree.well(&["logs", &process, "--stderr"]);
    assert!(err.contains("Host key verification failed"), "{err}");
    assert_settled(&far, &tree);
}

/// Sends one request to a report socket. Returns the answer.
fn report(socket: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.write_all(format!("{line}\n").as_bytes()).expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    serde_json::from_str(&answer).expect("valid JSON")
}

#[test]
fn what_is_forged_or_torn_there_is_refused_and_what_is_said_twice_is_heard_once() {
    let Some((far, tree)) = start() else { return };
    let count = 40;
    let script = format!(
        "for n in $(seq {count}); do \"$0\" task save $n || exit 1; echo $n >> {}; done; {}",
        text(&far.path("saved")),
        waits(&far, "")
    );
    let id = add(&tree, &[], &script);
    // Cut the connections while reports are in transit.
    let saved = far.path("saved");
    for at in [3, 9, 15, 22, 30] {
        lines(&saved, at);
        far.cut();
    }
    lines(&far.path("log"), 1);
    assert_eq!(show(&tree, id)["revision"], count, "each report was applied once");
    let place = std::fs::read_dir(far.path("state")).expect("it is kept").flatten().next();
    let socket = place.expect("one is kept").path().join("report");
    let forged = r#"{"secret":"00000000000000000000000000000000000000000000000000000000000000ff","report":{"do":"save","body":"evil"}}"#;
    for (line, reason) in [
        (forged, "unauthorized"),
        ("no JSON", "malformed"),
        ("", "malformed"),
        (r#"{"secret":"","report":{"do":"done"}}"#, "unauthorized"),
        (r#"{"report":{"do":"done"}}"#, "malformed"),
    ] {
        assert_eq!(report(&socket, line)["reason"], reason, "{line}");
    }
    let_go(&far);
    let task = over(&tree, id);
    assert_eq!((&task["exit"], &task["revision"]), (&"completed".into(), &count.into()), "{task}");
    assert_settled(&far, &tree);
}

#[test]
fn the_wrapper_bears_with_whatever_comes() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (said, heard) in [
        (&b""[..], "hello"),
        (b"\xff\xfe\n", "hello"),
        (b"{\"do\":\"ping\"}\n", "hello"),
        (b"{\"do\":\"attach\",\"attempt\":\"../../etc\",\"from\":[0,0]}\n", "hello"),
        (b"{\"do\":\"attach\",\"attempt\":\"0192\",\"from\":[0,0]}\n", "ended"),
        // The result of this attempt was requested before, so the attempt must not begin any more.
        (
            b"{\"do\":\"start\",\"attempt\":\"0192\",\"command\":[\"touch\",\"ran\"],\"env\":[],\"dir\":\"\",\"grace_ms\":1,\"lost_after_ms\":1000}\n",
            "failed",
        ),
    ] {
        let mut wrapper = Command::new(SEXTON)
            .args(["wrapper", "--state", text(dir.path())])
            .current_dir(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the command starts");
        wrapper.stdin.take().expect("a pipe").write_all(said).expect("connected");
        let done = wrapper.wait_with_output().expect("the process ends");
        let out = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(out.contains(heard), "{said:?}: {out}");
        assert!(!dir.path().join("ran").exists());
    }
}

/// Starts the same as `start`, with a coordinator that gives up a machine after this time.
pub(crate) fn start_impatient(lost_after: &str) -> Option<(Far, Tree)> {
    let far = Far::start()?;
    let tree = Tree::configured(&format!("[tasks]\nserver_lost_after = \"{lost_after}\"\n"));
    far.add_to(&tree, 4);
    Some((far, tree))
}

#[test]
fn a_connection_that_stalls_is_given_up_and_made_again() {
    let Some((far, tree)) = start_impatient("20s") else {
        return;
    };
    let id = add(&tree, &[], &waits(&far, ""));
    lines(&far.path("log"), 1);
    let fronts = far.pids(" wrapper --state ");
    for pid in &fronts {
        kill_process(*pid, Signal::STOP).expect("a permitted signal");
    }
    until("another takes its place", || {
        let now = far.pids(" wrapper --state ");
        now.iter().any(|pid| !fronts.contains(pid)).then_some(())
    });
    for pid in fronts {
        // The old connection continues, but its remaining reports arrive too late.
        let _gone = kill_process(pid, Signal::CONT);
    }
    let_go(&far);
    let task = over(&tree, id);
    assert_eq!((&task["exit"], &task["attempts"]), (&"completed".into(), &1.into()), "{task}");
    assert_eq!(lines(&far.path("log"), 2).len(), 2);
    assert_settled(&far, &tree);
}

#[test]
fn a_machine_that_does_not_answer_is_given_up_when_the_attempt_has_ended_there() {
    let Some((mut far, tree)) = start_impatient("2s") else {
        return;
    };
    let fails = add(&tree, &[], &waits(&far, ""));
    let again = add(&tree, &["--retry"], &waits(&far, ""));
    let saves = add(&tree, &[], &format!("\"$0\" task save half; {}", waits(&far, "")));
    let begun = lines(&far.path("log"), 3);
    far.shut();
    far.cut();
    let failed = over(&tree, fails);
    assert_eq!(
        (&failed["exit"], &failed["past"][0]["cause"]),
        (&"system-error".into(), &"server-lost".into()),
        "{failed}"
    );
    for line in begun {
        let pid = line.rsplit(' ').next().unwrap_or_default();
        assert!(!lives(pid), "{pid} is alive, and was given up");
    }
    far.listen("/usr/sbin/sshd");
    let_go(&far);
    for id in [again, saves] {
        let task = over(&tree, id);
        assert_eq!(
            (&task["exit"], &task["past"][0]["cause"]),
            (&"completed".into(), &"server-lost".into()),
            "{task}"
        );
    }
    tree.assert_all_agrees();
}
