//! `Idempotency-Key` with the real program, which is killed in between: a repeated request is recognised, and done only
//! once.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::daemon::{Daemon, ended, sexton, text};
use crate::opened::{Answer, answers, read_all};
use crate::queue::{POP, PUSH, target};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::path::Path;

const PUSH_ALL: &str = "/v1/queues/push-all";
const ACQUIRE: &str = "/v1/locks/acquire";

fn start(data: &Path) -> Daemon {
    Daemon::serve(&["--http", "127.0.0.1:0", "--data", text(data)])
}

fn post(daemon: &Daemon, path: &str, key: &str, fields: &Value) -> Answer {
    let body = fields.to_string();
    let key = if key.is_empty() { String::new() } else { format!("Idempotency-Key: {key}\r\n") };
    let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{key}");
    let length = body.len();
    send(daemon, &format!("{head}Content-Length: {length}\r\n\r\n{body}"))
}

fn get(daemon: &Daemon, path: &str) -> Value {
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send(daemon, &head).json()
}

fn send(daemon: &Daemon, request: &str) -> Answer {
    let mut stream = TcpStream::connect(daemon.http()).expect("it listens");
    stream.write_all(request.as_bytes()).expect("connected");
    answers(&read_all(&mut stream)).pop().expect("an answer")
}

/// Sends each kind of request once, each with its own key. Returns the results.
fn work(daemon: &Daemon) -> [Value; 4] {
    let jobs: Vec<Value> =
        (0..3).map(|job| json!({"queue": "many", "body": format!("{job}")})).collect();
    let wanted = json!({"queues": ["q"], "count": 2});
    let entry = json!({"key": "a", "owner": "one", "ttl": 6000});
    [
        post(daemon, ACQUIRE, "lock", &entry).json(),
        post(daemon, PUSH, "job", &json!({"queue": "q", "body": "x"})).json(),
        post(daemon, PUSH_ALL, "jobs", &json!({"jobs": jobs})).json(),
        target(&post(daemon, POP, "claim", &wanted).json()["jobs"][0]),
    ]
}

/// Asserts that each of those requests was done once.
fn is_done_once(daemon: &Daemon) {
    let jobs = |queue: &str| get(daemon, &format!("/v1/queues/queue?queue={queue}"));
    assert_eq!(jobs("q")["ready"], 0);
    assert_eq!(jobs("q")["claimed"], 1);
    assert_eq!(jobs("many")["ready"], 3);
}

fn key_is_reused(daemon: &Daemon) {
    let other = json!({"key": "a", "owner": "two"});
    post(daemon, ACQUIRE, "lock", &other).because(422, "key-reused");
    let other = json!({"queue": "q", "body": "y"});
    post(daemon, PUSH, "job", &other).because(422, "key-reused");
    // This request claims more jobs than before. It must not claim the additional ones.
    let other = json!({"queues": ["many"], "count": 3});
    post(daemon, POP, "claim", &other).because(422, "key-reused");
}

#[test]
fn what_was_done_is_known_after_a_kill() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = start(&data);
    let done = work(&daemon);
    assert_eq!(work(&daemon), done);
    daemon.kill();
    let daemon = start(&data);
    key_is_reused(&daemon);
    assert_eq!(work(&daemon), done);
    is_done_once(&daemon);
    // A request with another key is a new request.
    let pushed = post(&daemon, PUSH, "other", &json!({"queue": "q", "body": "x"}));
    assert_ne!(pushed.json(), done[1]);
}

#[test]
fn what_was_done_is_known_when_the_journal_is_trimmed() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let kept = ["--journal-kept-max", "0"];
    let daemon =
        Daemon::serve(&[&["--http", "127.0.0.1:0", "--data", text(&data)][..], &kept].concat());
    let done = work(&daemon);
    // Each round adds more than fits into the first segment. The segment is removed once neither snapshot needs it.
    let fill = json!({"queue": "filled", "body": "x".repeat(60_000)});
    for _ in 0..2 {
        for _ in 0..20 {
            post(&daemon, PUSH, "", &fill).json();
        }
        post(&daemon, "/v1/checkpoint", "", &json!({})).json();
    }
    let first = data.join("journal/00000001.seg");
    assert!(!first.exists(), "the journal is trimmed");
    let granted = post(&daemon, ACQUIRE, "b", &json!({"key": "b", "owner": "one"})).json();
    daemon.kill();
    let daemon = start(&data);
    key_is_reused(&daemon);
    assert_eq!(work(&daemon), done);
    is_done_once(&daemon);
    let again = post(&daemon, ACQUIRE, "b", &json!({"key": "b", "owner": "one"}));
    assert_eq!(again.json(), granted);
}

#[test]
fn an_exported_log_has_what_was_done_under_which_key() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = start(&data);
    work(&daemon);
    post(&daemon, "/v1/checkpoint", "", &json!({})).json();
    daemon.kill();
    let export = files.path().join("log.jsonl");
    let replay = |flags: &[&str]| -> Vec<Value> {
        let output = sexton().arg("replay").args(flags).output();
        let [out, _] = ended(output.expect("the program runs"), 0);
        out.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    replay(&[text(&data), "--verify"]);
    replay(&[text(&data), "--export", text(&export)]);
    let log = std::fs::read_to_string(&export).expect("the file was written");
    let keys = log.lines().filter(|line| line.contains(r#""key":"#));
    let lengths: Vec<usize> = keys
        .filter_map(|line| {
            let line: Value = serde_json::from_str(line).ok()?;
            Some(line["key"].as_str()?.len())
        })
        .collect();
    assert_eq!(lengths, [64; 4], "four requests, each one message");
    // The digests in the checkpoint include the remembered keys and replies.
    replay(&[text(&export), "--verify"]);
}

#[test]
fn a_place_in_line_ends_with_its_connection_but_stays_for_who_can_come_back() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = start(&data);
    let one = json!({"key": "a", "owner": "one", "ttl": 6000});
    post(&daemon, ACQUIRE, "", &one).json();
    let wait = |owner: &str, header: &str| {
        let fields = json!({"key": "a", "owner": owner, "wait": 3600}).to_string();
        let length = fields.len();
        let head = format!("POST {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\n{header}");
        let mut stream = TcpStream::connect(daemon.http()).expect("it listens");
        let request = format!("{head}Content-Length: {length}\r\n\r\n{fields}");
        stream.write_all(request.as_bytes()).expect("connected");
        while place(&daemon, owner) != 200 {
            std::thread::yield_now();
        }
        stream
    };
    let waiting = [wait("gone", ""), wait("back", "Idempotency-Key: mine\r\n")];
    daemon.kill();
    drop(waiting);
    let daemon = start(&data);
    assert_eq!(place(&daemon, "gone"), 404, "no client waits there");
    assert_eq!(place(&daemon, "back"), 200, "a client with a key may come back");
    let release = json!({"key": "a", "owner": "one"});
    post(&daemon, "/v1/locks/release", "", &release).json();
    let fields = json!({"key": "a", "owner": "back", "wait": 3600});
    let granted = post(&daemon, ACQUIRE, "mine", &fields).json();
    assert_eq!(granted["owner"], "back");
}

fn place(daemon: &Daemon, owner: &str) -> u16 {
    let path = format!("/v1/locks/place?key=a&owner={owner}");
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    send(daemon, &head).status
}
