//! The log: lines for programs, levels, and no secrets.

use crate::daemon::{Daemon, serve, sexton, text};
use crate::lockserver::{Client, request};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

const TOKEN: &str = "first-secret-0123456789";
const NEXT: &str = "second-secret-0123456789";
const WRONG: &str = "guessed-secret-0123456789";

/// Parses the lines of a log, each of which must be a JSON object with the common fields.
fn events(log: &str) -> Vec<Value> {
    let events = log.lines().map(|line| {
        let event: Value = serde_json::from_str(line).expect(line);
        let is_text = |field: &&str| event.get(field).is_some_and(Value::is_string);
        let always = ["timestamp", "level", "target", "message"];
        assert!(always.iter().all(is_text), "{line}");
        event
    });
    events.collect()
}

fn write_token(path: &Path, token: &str) {
    std::fs::write(path, format!("{token}\n")).expect("a writable file");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).expect("our own file");
}

fn status_code(address: SocketAddr, token: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let asked = format!(
        "GET /v1/status HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all(asked.as_bytes()).expect("connected");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer.split_whitespace().nth(1).expect("a status").to_owned()
}

#[test]
fn no_secret_stands_in_the_log_however_much_is_asked_for() {
    for format in ["text", "json"] {
        let files = tempfile::tempdir().expect("a temporary directory");
        let (token, data) = (files.path().join("token"), files.path().join("data"));
        write_token(&token, TOKEN);
        let places = ["--data", text(&data), "--token-file", text(&token)];
        let rest = ["--http", "127.0.0.1:0", "-d", "--log", "trace"];
        let flags = [&places[..], &rest, &["--log-format", format]];
        let daemon = Daemon::serve(&flags.concat());
        let http = daemon.http();
        assert_eq!(status_code(http, TOKEN), "200");
        assert_eq!(status_code(http, WRONG), "401");
        write_token(&token, NEXT);
        daemon.signal(Signal::HUP);
        daemon.until_logged("the token file changed and is in force");
        assert_eq!(status_code(http, NEXT), "200");
        assert_eq!(status_code(http, TOKEN), "401");
        std::fs::write(&token, format!("{TOKEN} {NEXT}")).expect("a writable file");
        daemon.signal(Signal::HUP);
        daemon.until_logged("the old token file stays in force");
        let mut client = Client::connect(daemon.lockserver()).expect("connected");
        let lock = request("k", "i", "alice", (600, 60, 0));
        assert_eq!(client.number(&lock).expect("an answer"), 1);
        daemon.signal(Signal::TERM);
        let (status, log) = daemon.end();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("DEBUG"), "at the most detailed level: {log}");
        for secret in [TOKEN, NEXT, WRONG] {
            assert!(!log.contains(secret), "{secret} in {log}");
        }
        if format == "json" {
            assert!(events(&log).len() > 5, "{log}");
        }
    }
}

#[test]
fn a_program_can_read_the_log_and_the_end() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let flags = ["--data", text(files.path()), "--log-format", "json"];
    let daemon = Daemon::serve(&flags);
    // A second coordinator fails to start, and reports that in the same format.
    let output = serve(&flags).output().expect("the program runs");
    assert_eq!(output.status.code(), Some(3));
    let said = events(&String::from_utf8_lossy(&output.stderr));
    let last = said.last().expect("the failure is logged");
    assert_eq!((&last["level"], &last["status"]), (&"ERROR".into(), &3.into()));
    let words = last["message"].as_str().expect("words");
    assert!(words.contains("another coordinator holds it"), "{words}");
    assert!(last["help"].as_str().is_some_and(|help| help.contains("--data")), "{last}");

    daemon.signal(Signal::TERM);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(0), "{log}");
    let events = events(&log);
    let find = |message: &str| {
        let mut found = events.iter().filter(|event| event["message"] == message);
        found.next().expect(message)
    };
    let recovered = find("recovered");
    assert_eq!(recovered["level"], "INFO");
    assert!(recovered["records"].is_number() && recovered["ms"].is_number());
    assert_eq!(recovered["clean"], true);
    assert_eq!(find("stopping")["signal"], "TERM");
}

#[test]
fn a_filter_says_how_much_of_what() {
    let lines = |filter: &str| {
        let daemon = Daemon::serve(&["--memory", "--log", filter]);
        daemon.signal(Signal::TERM);
        let (status, log) = daemon.end();
        assert_eq!(status.code(), Some(0), "{log}");
        log
    };
    assert!(lines("info").contains("stopping"));
    assert_eq!(lines("off"), "");
    assert_eq!(lines("info,sexton=error"), "", "the program is sexton, too");
    assert!(lines("off,sexton::serve=info").contains("stopping"));
    let output = sexton().args(["serve", "--memory", "--log", "inof"]).output();
    let output = output.expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(errors.contains("not a level"), "{errors}");
}
