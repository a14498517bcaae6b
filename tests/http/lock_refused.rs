//! Refusals of locks over HTTP, each with its status and its reason.

use crate::opened::{Opened, finish};
use serde_json::{Value, json};
use sexton::actors::lock::Message;
use sexton::spine::delivery::Stage;

const ACQUIRE: &str = "/v1/locks/acquire";

#[test]
fn a_field_that_is_wrong_is_named() {
    let opened = Opened::new();
    let long = "x".repeat(256);
    for (fields, field) in [
        (json!({}), "key"),
        (json!({"key": 7, "owner": "o"}), "key"),
        (json!({"key": "a", "owner": ""}), "owner"),
        (json!({"key": long, "owner": "o"}), "key"),
        (json!({"key_b64": "?", "owner": "o"}), "key_b64"),
        (json!({"key": "a", "key_b64": "YQ==", "owner": "o"}), "key"),
        (json!({"key": "a", "owner": "o", "ttl": 0}), "ttl"),
        (json!({"key": "a", "owner": "o", "ttl": "60"}), "ttl"),
        (json!({"key": "a", "owner": "o", "wait": 3601}), "wait"),
        (json!({"key": "a", "owner": "o", "wait": -1}), "wait"),
        (json!({"key": "a", "owner": "o", "priority": 256}), "priority"),
        (json!({"key": "a", "owner": "o", "tll": 60}), "tll"),
    ] {
        let problem = opened.post(ACQUIRE, &fields).because(400, "field");
        assert_eq!(problem["field"], field, "{fields}");
        assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(field)));
    }
    for path in ["renew", "release", "release-all"] {
        let nobody = json!({"key": "a"});
        let nobody = if path == "release-all" { json!({}) } else { nobody };
        let path = format!("/v1/locks/{path}");
        let problem = opened.post(&path, &nobody).because(400, "field");
        assert_eq!(problem["field"], "owner", "{path}");
    }
    for path in ["renew", "release", "release-all", "watch"] {
        let problem = opened.post(&format!("/v1/locks/{path}"), &json!({"colour": 1}));
        problem.because(400, "field");
    }
    for target in [
        "/v1/locks/owner",
        "/v1/locks/owner?key=a&owner=b",
        "/v1/locks/place?key=a",
        "/v1/locks?limit=0",
        "/v1/locks?limit=1001",
        "/v1/locks?after=x",
        "/v1/locks?kye=a",
        "/v1/locks?key=a&key=b",
    ] {
        opened.get(target, "").because(400, "field");
    }
    opened.post_as_owner("/v1/drain?wait=x", &Value::Null).because(400, "field");
    assert_eq!(opened.get("/v1/status", "").json()["draining"], false, "it changed nothing");
    assert_eq!(opened.get("/v1/locks", "").json()["locks"], json!([]));
}

#[test]
fn a_body_that_is_no_json_object_is_refused() {
    let opened = Opened::new();
    let post = |headers: &str, body: &str| {
        let head = format!("POST {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\n{headers}");
        let length = body.len();
        opened.ask(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes())
    };
    let good = r#"{"key":"a","owner":"o"}"#;
    for body in
        ["", "{", "null", "[]", "\"secret\"", r#"{"key":"a","owner":"o"}}"#, "{\"key\":\"\u{1}\"}"]
    {
        let problem = post("", body).because(400, "malformed");
        assert!(!problem.to_string().contains("secret"));
    }
    assert_eq!(post("Content-Type: application/json; charset=utf-8\r\n", good).status, 200);
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", ""] {
        post(&format!("Content-Type: {kind}\r\n"), good).problem(415);
    }
    post("", &format!("{good}{}", " ".repeat(64 * 1024))).problem(413);
    let padded = format!("{good}{}", " ".repeat(64 * 1024 - good.len()));
    assert_eq!(post("", &padded).status, 200, "this size is allowed");
    let bytes =
        b"POST /v1/locks/acquire HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n\xff\xfe";
    opened.ask(bytes).because(400, "malformed");
    for method in ["GET", "PUT", "DELETE"] {
        let request = format!("{method} {ACQUIRE} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let answer = opened.ask(request.as_bytes());
        answer.problem(405);
        assert_eq!(answer.header("allow"), Some("POST"));
    }
}

#[test]
fn a_foreign_page_or_a_wrong_token_moves_no_lock() {
    let opened = Opened::with_token();
    let fields = json!({"key": "a", "owner": "o"});
    opened.post(ACQUIRE, &fields).problem(401);
    let evil = "Origin: https://evil.example\r\n";
    opened.post_with(ACQUIRE, evil, &fields).problem(403);
    let listed = opened.get_over_socket("/v1/locks").json();
    assert_eq!(listed["locks"], json!([]));
}

#[test]
fn what_is_kept_for_the_coordinator_is_forbidden() {
    let opened = Opened::new();
    let fields = json!({"key": "wip-pool-lock-7", "owner": "o"});
    opened.post(ACQUIRE, &fields).because(403, "reserved");
}

#[test]
fn bounds_are_answered() {
    let opened = Opened::configured(|config| {
        config.rules.lock.entries_max = 1;
        config.http.as_mut().expect("HTTP is configured").waits_max = 0;
    });
    let fields = |key: &str, wait: u64| json!({"key": key, "owner": "o", "wait": wait});
    assert_eq!(opened.post(ACQUIRE, &fields("a", 0)).status, 200);
    opened.post(ACQUIRE, &fields("b", 0)).because(503, "full");
    let waiting = opened.begin(ACQUIRE, &fields("b", 9));
    finish(ACQUIRE, waiting).because(503, "waits");
    let watch = json!({"key": "a", "owner": "o", "token": 1});
    opened.post("/v1/locks/watch", &watch).because(503, "waits");
}

#[test]
fn a_panic_fails_one_request_and_takes_nothing_away() {
    let opened = Opened::new();
    let fields = json!({"key": "a", "owner": "o"});
    assert_eq!(opened.post(ACQUIRE, &fields).status, 200);
    opened.handle().actors().lock.inject_panics(Box::new(|stage, message| {
        let is_planted = stage == Stage::Decide && matches!(message, Some(Message::Acquire { .. }));
        assert!(!is_planted, "planted");
    }));
    opened.post(ACQUIRE, &fields).because(500, "failed");
    let owner = opened.get("/v1/locks/owner?key=a", "").json();
    assert_eq!(owner["owner"], "o", "a renewal that failed does not end the lock");
}

#[test]
fn a_halted_node_refuses_all() {
    let opened = Opened::configured(|config| config.rules.supervisor.restarts.restarts_max = 0);
    opened.handle().actors().lock.inject_panics(Box::new(|stage, _| {
        assert_ne!(stage, Stage::Decide, "planted");
    }));
    let fields = json!({"key": "a", "owner": "o"});
    let halting = opened.post(ACQUIRE, &fields);
    assert!([500, 503].contains(&halting.status), "{halting:?}");
    opened.post("/v1/locks/renew", &fields).because(503, "halted");
    opened.get("/v1/locks", "").because(503, "halted");
    opened.post_as_owner("/v1/drain", &Value::Null).because(503, "halted");
}

#[test]
fn a_wait_ends_when_the_coordinator_stops() {
    let mut opened = Opened::new();
    let held = opened.post(ACQUIRE, &json!({"key": "a", "owner": "one"}));
    assert_eq!(held.status, 200);
    let waiting = opened.begin(ACQUIRE, &json!({"key": "a", "owner": "two", "wait": 600}));
    while opened.get("/v1/locks/place?key=a&owner=two", "").status != 200 {
        std::thread::yield_now();
    }
    opened.stop();
    finish(ACQUIRE, waiting).because(503, "stopped");
}
