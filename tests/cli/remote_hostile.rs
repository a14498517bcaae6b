//! Another machine that means harm: the process that waits here for an attempt there, with a program in place of ssh that says what such a
//! machine might. A socket of the test stands for the coordinator.

use crate::daemon::text;
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{Permissions, create_dir, read_to_string, set_permissions, write};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use tempfile::{TempDir, tempdir};

const SEXTON: &str = env!("CARGO_BIN_EXE_sexton");

/// The first words of a far end, and those of one that has begun the attempt.
const HELLO: &str = r#"echo '{"is":"hello","version":1}'; "#;
const STARTED: &str = r#"echo '{"is":"hello","version":1}'; echo '{"is":"started","pid":1}'; "#;

/// A wait for an attempt on such a machine. The coordinator answers each report but `saved`.
struct Waiting {
    near: Child,
    files: TempDir,
    reports: Arc<Mutex<Vec<Value>>>,
}

impl Waiting {
    /// Starts the wait. `far` is the script in place of ssh; in it, `$LOG` is a file.
    fn start(far: &str) -> Self {
        let files = tempdir().expect("the disk has space");
        let path = |name: &str| files.path().join(name);
        create_dir(path("bin")).expect("a new directory");
        let log = path("log");
        let script = format!("#!/bin/sh\nLOG={}\necho connected >> $LOG\n{far}\n", text(&log));
        write(path("bin/ssh"), script).expect("a writable file");
        set_permissions(path("bin/ssh"), Permissions::from_mode(0o755)).expect("our own");
        let listener = UnixListener::bind(path("report.sock")).expect("a new socket");
        let reports = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&reports);
        let answer = move || {
            let mut unanswered = Vec::new();
            for stream in listener.incoming().map_while(Result::ok) {
                let mut line = String::new();
                let mut stream = BufReader::new(stream);
                if stream.read_line(&mut line).is_ok() && !line.is_empty() {
                    let report: Value = serde_json::from_str(&line).expect("valid JSON");
                    if report.pointer("/report/do") == Some(&"saved".into()) {
                        unanswered.push(stream);
                        continue;
                    }
                    let report = report.pointer("/report").expect("it is a report");
                    taken.lock().expect("no panic").push(report.clone());
                    // The peer may have been killed at the end of the test.
                    drop(stream.get_mut().write_all(b"{\"ok\":true,\"revision\":0}\n"));
                }
            }
        };
        thread::Builder::new().spawn(answer).expect("a thread");
        let search = std::env::var_os("PATH").expect("there are programs");
        let near = Command::new(SEXTON)
            .args(["wrapper", "near", "--to", "far", "--attempt", "0192"])
            .args(["--lost-after", "500", "--grace", "0", "--", "true"])
            .env("PATH", format!("{}:{}", text(&path("bin")), search.display()))
            .env("SEXTON_TASK_REPORT", path("report.sock"))
            .env("SEXTON_TASK_SECRET", "secret")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(path("err")).expect("a new file"))
            .spawn()
            .expect("the command starts");
        Self { near, files, reports }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Waits until the machine has written this many lines to its log.
    fn until_logged(&self, count: usize) -> String {
        until("the other machine has written that", || {
            let log = read_to_string(self.path("log")).ok()?;
            (log.lines().count() >= count).then_some(log)
        })
    }

    fn stop(&self) {
        let pid = i32::try_from(self.near.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a PID"), Signal::TERM).expect("a permitted signal");
    }

    /// Waits until the process has ended, and returns what it has reported about the attempt as a whole.
    fn reported(&mut self) -> Vec<Value> {
        let near = &mut self.near;
        until("the wait is over", || near.try_wait().expect("our child"));
        let reports = self.reports.lock().expect("no panic");
        reports.iter().filter(|it| it["do"] != "reached").cloned().collect()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.near.kill());
        drop(self.near.wait());
    }
}

fn unreachable() -> Vec<Value> {
    vec![serde_json::json!({ "do": "unreachable" })]
}

/// It answers every ping, and sends output: only that the attempt has ended it never says.
#[test]
fn a_machine_that_never_ends_an_attempt_does_not_keep_it() {
    let forever = "while :; do echo '{\"is\":\"pong\"}'; \
                   echo '{\"is\":\"output\",\"stream\":1,\"b64\":\"YQo=\"}'; sleep 0.05; done";
    let mut waiting = Waiting::start(&format!("{STARTED}{forever}"));
    waiting.until_logged(1);
    waiting.stop();
    assert_eq!(waiting.reported(), unreachable());
    let told = read_to_string(waiting.path("err")).expect("its output");
    assert!(told.contains("far has not stopped the attempt in time"), "{told}");
    // It was not connected to again.
    assert_eq!(waiting.until_logged(1), "connected\n");
}

/// It takes each connection, and closes it as soon as it knows for which attempt it is.
#[test]
fn a_machine_that_closes_every_connection_does_not_keep_an_attempt() {
    let mut waiting = Waiting::start(&format!("{HELLO}read -r order; echo \"$order\" >> $LOG"));
    waiting.until_logged(4);
    waiting.stop();
    assert_eq!(waiting.reported(), unreachable());
}

/// It sends as fast as it can, and reads nothing.
#[test]
fn a_machine_that_floods_the_wait_keeps_no_stop_from_it() {
    let mut waiting = Waiting::start(&format!("{STARTED}exec yes '{{\"is\":\"pong\"}}'"));
    waiting.until_logged(1);
    waiting.stop();
    assert_eq!(waiting.reported(), unreachable());
}

#[test]
fn a_machine_identifies_itself_once_and_has_one_report_at_a_time() {
    let report = |nth: u32, report: &str| {
        format!("echo '{{\"is\":\"report\",\"nth\":{nth},\"report\":{report}}}'; ")
    };
    let ended = "echo '{\"is\":\"ended\",\"exit\":{\"code\":0},\"words\":\"\"}'; ";
    let first = "[ $(wc -l < $LOG) = 1 ] && ";
    // Each of these closes the first connection; the second one ends the attempt. No answer comes to the first report.
    let two = report(1, r#"{"do":"saved"}"#) + &report(2, r#"{"do":"heartbeat"}"#);
    for said in [HELLO.to_owned(), "echo dance; ".to_owned(), two] {
        let mut waiting =
            Waiting::start(&format!("{STARTED}{first}{{ {said}exec sleep 1000; }}\n{ended}"));
        assert_eq!(
            waiting.reported(),
            [serde_json::json!({ "do": "ended", "exit": { "code": 0 } })],
            "{said}"
        );
        assert_eq!(waiting.until_logged(2), "connected\nconnected\n", "{said}");
    }
    // What a command reports about the attempt as a whole does not reach the coordinator.
    let forged = report(1, r#"{"do":"ended","exit":{"code":0}}"#);
    let answered = "grep -m 1 answer >> $LOG; ";
    let mut waiting = Waiting::start(&format!("{STARTED}{forged}{answered}exec sleep 1000"));
    let log = waiting.until_logged(2);
    assert!(log.contains("malformed"), "{log}");
    waiting.stop();
    assert_eq!(waiting.reported(), unreachable());
}
