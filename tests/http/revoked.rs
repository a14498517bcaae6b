//! Requests that are under way when their token is removed from the token file: their waits and streams end.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::browser::Browser;
use crate::listener::Listener;
use crate::opened::{Answer, Opened, TOKEN, answers, finish, read_all, write_private};
use crate::patience::until;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const RUN_TOKEN: &str = "correct-horse-that-runs";
const KEPT_TOKEN: &str = "correct-horse-that-is-kept";

/// Opens a node with a token of each kind, and one that is kept.
fn with_tokens() -> Opened {
    Opened::with_tokens(&format!("{TOKEN}\n{RUN_TOKEN} run\n{KEPT_TOKEN} run\n"))
}

/// Replaces the lines of the token file.
fn reload(opened: &Opened, lines: &str) {
    write_private(&opened.directory.path().join("token"), lines);
    let reloaded = opened.listener().reload_token().expect("the token file is readable");
    assert_eq!(reloaded, Some(true));
}

fn begin(opened: &Opened, token: &str, (path, fields): &(&'static str, Value)) -> TcpStream {
    opened.begin_with(path, &format!("Authorization: Bearer {token}\r\n"), fields)
}

fn waiting(opened: &Opened) -> (Value, Value) {
    let status = opened.get_over_socket("/v1/status").json();
    (status["queues"]["waiting"].clone(), status["http"]["active"].clone())
}

/// One request for each way to wait.
fn waits(opened: &Opened) -> Vec<(&'static str, Value)> {
    let post = |path: &str, body: &Value| opened.post_as_owner(path, body).json();
    let process = post("/v1/processes/register", &json!({"pid": std::process::id()}))["id"].clone();
    let token = post("/v1/locks/acquire", &json!({"key": "a", "owner": "one", "ttl": 3600}));
    post("/v1/leases/claim", &json!({"name": "l", "ttl_ms": 3_600_000, "no_delay": true}));
    vec![
        ("/v1/locks/acquire", json!({"key": "a", "owner": "two", "wait": 3600})),
        ("/v1/locks/watch", json!({"key": "a", "token": token["token"], "wait": 3600})),
        ("/v1/queues/pop", json!({"queues": ["q"], "wait": 3600})),
        ("/v1/leases/claim", json!({"name": "l", "wait": 3600})),
        ("/v1/leases/wait", json!({"name": "l", "begun": 1000, "wait": 3600})),
        ("/v1/processes/wait", json!({"id": process, "wait": 3600})),
    ]
}

#[test]
fn the_waits_of_a_removed_token_end_and_no_others() {
    let opened = with_tokens();
    let waits = waits(&opened);
    let kept = ("/v1/queues/pop", json!({"queues": ["kept"], "wait": 3600}));
    let kept_wait = begin(&opened, KEPT_TOKEN, &kept);
    let begun: Vec<TcpStream> = waits.iter().map(|it| begin(&opened, RUN_TOKEN, it)).collect();
    let all = json!(waits.len() + 2);
    until("all of them wait", || (waiting(&opened) == (json!(2), all.clone())).then_some(()));
    // The token stays, and only its scope changes.
    reload(&opened, &format!("{RUN_TOKEN}\n{KEPT_TOKEN} run\n"));
    for ((path, _), stream) in waits.iter().zip(begun) {
        let refused = finish(path, stream);
        refused.because(401, "unauthorized");
        assert_eq!(refused.header("www-authenticate"), Some("Bearer"), "{path}");
    }
    let place = opened.get_over_socket("/v1/locks/place?key=a&owner=two");
    assert_eq!(place.status, 404, "nobody waits for the lock any more: {place:?}");
    opened.post_as_owner("/v1/queues/push", &json!({"queue": "kept", "body": "x"})).json();
    assert_eq!(finish(kept.0, kept_wait).json()["jobs"][0]["body"], "x");
}

#[test]
fn the_streams_of_a_removed_token_end() {
    let opened = with_tokens();
    let browser = Browser::with_token(&opened, TOKEN);
    let mut page = opened.connect();
    let headers = browser.headers();
    let request = format!("GET /page/changes HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
    page.write_all(request.as_bytes()).expect("connected");
    let mut head = [0; 12];
    page.read_exact(&mut head).expect("an answer");
    assert_eq!(&head, b"HTTP/1.1 200");
    let mut events = Listener::new(&opened, "/v1/events", "");
    reload(&opened, &format!("{KEPT_TOKEN} run\n"));
    // Something happens that the stream would show.
    opened.post_as_owner("/v1/locks/acquire", &json!({"key": "a", "owner": "one"})).json();
    assert!(events.next().is_none(), "the stream has ended, with a last chunk");
    page.shutdown(std::net::Shutdown::Write).expect("connected");
    let rest = read_all(&mut page);
    assert!(rest.ends_with("0\r\n\r\n") && !rest.contains("changed"), "{rest}");
}

#[test]
fn a_request_whose_token_is_removed_while_its_body_arrives_is_refused() {
    let opened = with_tokens();
    let mut stream = opened.connect();
    let head = format!(
        "POST /v1/locks/acquire HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: 2\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).expect("connected");
    // The head was accepted.
    let mut said = [0; 25];
    stream.read_exact(&mut said).expect("an answer");
    assert_eq!(&said, b"HTTP/1.1 100 Continue\r\n\r\n");
    reload(&opened, &format!("{KEPT_TOKEN} run\n"));
    stream.write_all(b"{}").expect("connected");
    let answer: Answer = answers(&read_all(&mut stream)).pop().expect("an answer");
    answer.because(401, "unauthorized");
}
