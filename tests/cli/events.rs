//! `sexton events` and `sexton lock watch` without a token, with the real program.

use crate::daemon::{Daemon, sexton, text};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running command that shows events.
struct Showing {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Showing {
    fn start(data: &Path, words: &[&str]) -> Self {
        Self::of(&mut command(data, words))
    }

    fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("the command starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("UTF-8");
        line
    }

    /// Returns the next line. Repeats `act` until a line arrives, because the command may not have subscribed yet.
    fn line_after(&mut self, mut act: impl FnMut()) -> String {
        std::thread::scope(|scope| {
            let line = scope.spawn(|| self.line());
            while !line.is_finished() {
                act();
            }
            line.join().expect("no panic")
        })
    }

    fn end(&mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("UTF-8");
        (self.child.wait().expect("the process ends").code(), rest)
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        // The process may already have ended.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn command(data: &Path, words: &[&str]) -> Command {
    let mut command = sexton();
    command.args(words).arg("--data").arg(data);
    command
}

fn run(data: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let done = command(data, words).output().expect("the command runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code(), text(done.stdout), text(done.stderr))
}

/// The date for which a pass is scheduled is not the time of the event.
#[test]
fn an_event_has_one_time() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let _daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    // The flag must precede the value, which extends to the end of the line.
    let set = |words: &[&str]| {
        let mut command = sexton();
        command.args(["lease", "set", "--data"]).arg(&data);
        let done = command.args(words).output().expect("the command runs");
        assert!(done.status.success(), "{done:?}");
    };
    let mut scheduled = Showing::start(&data, &["events", "--kind", "scheduled", "--json"]);
    set(&["tick", "command", "--", "true"]);
    let told = scheduled.line_after(|| set(&["tick", "schedule", "0 3 1 1 *"]));
    assert_eq!(told.matches("\"at\":").count(), 1, "{told}");
    let told: Value = serde_json::from_str(&told).expect("valid JSON");
    let hour = 3_600_000;
    let at = told["at"].as_u64().expect("a time");
    let due = told["due"].as_u64().expect("a date");
    assert!(due.is_multiple_of(hour) && due > at, "{told}");
}

#[test]
fn what_happens_is_shown_until_the_coordinator_ends() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    let acquire = |key: &str| {
        let words = ["lock", "acquire", key, "--owner", "me", "--json"];
        let (status, out, err) = run(&data, &words);
        assert_eq!(status, Some(0), "{err}");
        let said: Value = serde_json::from_str(&out).expect("valid JSON");
        said.get("token").and_then(Value::as_u64).expect("a token")
    };
    let mut all = Showing::start(&data, &["events", "--json"]);
    // The command has subscribed once it has shown an event.
    let mut first = None;
    let mut keys = 0;
    let told = all.line_after(|| {
        first = Some(acquire(&format!("key-{keys}")));
        keys += 1;
    });
    let told: Value = serde_json::from_str(&told).expect("valid JSON");
    let after = told["position"].as_str().expect("a position").to_owned();
    assert!(told["token"].as_u64() <= first);
    let mut rest = Showing::start(&data, &["events", "--after", &after, "--name", "later*"]);
    let mut locks = Showing::start(&data, &["lock", "watch", "l*r"]);
    let shown = rest.line_after(|| {
        acquire("later");
    });
    assert!(shown.contains("  lock        granted      key=later  owner=me  token="), "{shown}");
    drop(rest);
    let words = ["lock", "release", "later", "--owner", "me"];
    assert_eq!(run(&data, &words), (Some(0), "released\n".to_owned(), String::new()));
    let mut lost = Showing::start(&data, &["events", "--after", "0"]);
    assert!(lost.line().starts_with("events were lost: those after position 0, up to "));
    let origins = format!("{}, node", sexton::actors::names().join(", "));
    for (flag, word, known) in [("--kind", "expird", "expired"), ("--actor", "foo", &origins)] {
        let (status, _, err) = run(&data, &["events", flag, word]);
        assert_eq!(status, Some(2), "{err}");
        assert!(err.contains(known), "{err}");
    }
    daemon.signal(Signal::TERM);
    let (status, rest) = all.end();
    assert_eq!(status, Some(0));
    assert!(rest.ends_with("\"actor\":\"node\",\"kind\":\"stopping\"}\n"), "{rest}");
    assert_eq!(locks.end().0, Some(0));
    daemon.end();
    let (status, out, err) = run(&data, &["events"]);
    assert_eq!((status, out.as_str()), (Some(3), ""));
    assert!(err.contains("no coordinator runs on"), "{err}");
    for words in [
        &["events", "--after", "x"][..],
        &["lock", "watch", "--token", "7"],
        &["lock", "watch", "a", "b"],
        &["lock", "watch", "a", "--wait", "1"],
    ] {
        assert_eq!(run(&data, words).0, Some(2), "{words:?}");
    }
}

#[test]
fn the_help_names_every_actor() {
    let help = sexton().args(["events", "--help"]).output().expect("the command runs");
    let help = String::from_utf8(help.stdout).expect("UTF-8");
    let line = help.lines().find(|line| line.contains("events of this actor"));
    let line = line.expect("it describes --actor");
    for actor in sexton::actors::names().into_iter().chain(["node"]) {
        assert!(line.contains(&format!(" {actor}")), "{actor}: {line}");
    }
}

/// The coordinator's answer lists all kinds, which are too many to be read.
#[test]
fn an_unknown_kind_is_answered_with_what_was_meant() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let _daemon = Daemon::serve(&["--data", text(files.path())]);
    for (kinds, help) in [
        ("granted,expird", "did you mean expired?"),
        ("qqq", "without --kind, `sexton events` shows all"),
    ] {
        let mut events = sexton();
        events.args(["events", "--kind", kinds, "--data", text(files.path())]);
        let done = events.output().expect("the command runs");
        let err = String::from_utf8(done.stderr).expect("UTF-8");
        assert_eq!(done.status.code(), Some(2), "{err}");
        assert!(err.starts_with("sexton: there is no kind of event named "), "{err}");
        assert!(err.contains(help) && err.len() < 250, "{err}");
    }
}

#[test]
fn a_refusal_is_shown_at_once_although_the_connection_stays_open() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let thread = std::thread::Builder::new().name("refusing".to_owned());
    let serving = thread.spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client connects");
        let lines = BufReader::new(&stream).lines();
        let head = lines.take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()));
        assert!(head.count() > 0, "a request");
        let body =
            r#"{"status":400,"detail":"the field kind has the unknown value \"expird\"","reason":"field"}"#;
        let length = body.len();
        let answer = format!("HTTP/1.1 400 Bad Request\r\nContent-Length: {length}\r\n\r\n{body}");
        stream.write_all(answer.as_bytes()).expect("connected");
        // Keep the connection open until the command ends.
        stream.read_to_end(&mut Vec::new()).expect("the end");
    });
    let serving = serving.expect("a new thread");
    let mut events = sexton();
    let done = events.args(["events", "--kind", "expird", "--url", &url]).output();
    let done = done.expect("the command runs");
    let err = String::from_utf8(done.stderr).expect("UTF-8");
    assert_eq!(done.status.code(), Some(2), "{err}");
    assert!(err.contains("the field kind has the unknown value \"expird\""), "{err}");
    serving.join().expect("a request arrived");
}

/// Whatever answers at a URL cannot make a command hold more and more: a head, a line, the size of a chunk and a body
/// of unknown length are each bounded.
#[test]
fn a_line_without_an_end_is_given_up() {
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    let text = "x".repeat(1 << 10);
    for (command, start, endless) in [
        ("events", "", text.clone()),
        ("events", head, "0".repeat(1 << 10)),
        ("events", head, chunk),
        ("status", "", text.clone()),
        ("status", "HTTP/1.1 200 OK\r\n", "a: b\r\n".repeat(1 << 8)),
        ("status", "HTTP/1.1 200 OK\r\n\r\n", text),
    ] {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let thread = std::thread::Builder::new().name("endless".to_owned());
        let serving = thread.spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client connects");
            stream.write_all(start.as_bytes()).expect("connected");
            // Ends when the client gives up.
            while stream.write_all(endless.as_bytes()).is_ok() {}
        });
        let serving = serving.expect("a new thread");
        let done = sexton().args([command, "--url", &url]).output();
        let done = done.expect("the command runs");
        let err = String::from_utf8(done.stderr).expect("UTF-8");
        assert_eq!(done.status.code(), Some(3), "{command}: {err}");
        serving.join().expect("the client gave up");
    }
}

#[test]
fn a_coordinator_that_is_killed_is_told_as_such() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    let mut command = command(&data, &["events"]);
    let mut events = Showing::of(command.stderr(Stdio::piped()));
    // A connection with an unread request would be reset, so wait for an event first.
    events.line_after(|| {
        run(&data, &["lock", "acquire", "a", "--owner", "me"]);
        // Release, since a repeated request would be a renewal, which causes no event.
        run(&data, &["lock", "release-all", "--owner", "me"]);
    });
    daemon.kill();
    let (status, _) = events.end();
    let mut errors = String::new();
    let mut stderr = events.child.stderr.take().expect("a pipe");
    stderr.read_to_string(&mut errors).expect("UTF-8");
    assert_eq!(status, Some(3), "{errors}");
    assert!(errors.contains("the coordinator closed the connection unexpectedly"), "{errors}");
}
