//! `Idempotency-Key`: a repeated request has the same answer, and nothing is done twice.

use crate::lock::until;
use crate::opened::{Answer, Opened, finish};
use crate::queue::{POP, push, target};
use serde_json::{Value, json};
use sexton::spine::delivery::Stage;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

fn post(opened: &Opened, key: &str, path: &str, fields: &Value) -> Answer {
    let header = format!("Idempotency-Key: {key}\r\n");
    opened.post_with(&format!("/v1/locks/{path}"), &header, fields)
}

#[test]
fn a_request_that_comes_again_is_answered_as_it_was() {
    let opened = Opened::new();
    let fields = json!({"key": "a", "owner": "one"});
    let granted = post(&opened, "k1", "acquire", &fields).json();
    assert_eq!(post(&opened, "k2", "release", &fields).json(), json!({"ended": 1}));
    assert_eq!(post(&opened, "k2", "release", &fields).json(), json!({"ended": 1}));
    assert_eq!(post(&opened, "k1", "acquire", &fields).json(), granted);
    opened.get("/v1/locks/owner?key=a", "").because(404, "absent");
    post(&opened, "k3", "renew", &fields).because(404, "absent");
    assert_eq!(post(&opened, "k4", "acquire", &fields).status, 200);
    assert_eq!(
        post(&opened, "k3", "renew", &fields).status,
        200,
        "a request that changed nothing is decided again"
    );
    let all = json!({"owner": "one"});
    assert_eq!(post(&opened, "k5", "release-all", &all).json(), json!({"ended": 1}));
    assert_eq!(post(&opened, "k5", "release-all", &all).json(), json!({"ended": 1}));
}

#[test]
fn a_key_belongs_to_one_request() {
    let opened = Opened::new();
    let fields = |owner: &str| json!({"key": "a", "owner": owner});
    assert_eq!(post(&opened, "k", "acquire", &fields("one")).status, 200);
    post(&opened, "k", "acquire", &fields("two")).because(422, "key-reused");
    post(&opened, "k", "release", &fields("one")).because(422, "key-reused");
    opened.get("/v1/locks/place?key=a&owner=two", "").because(404, "absent");
    for wrong in ["", "two words", &"x".repeat(129)] {
        post(&opened, wrong, "acquire", &fields("one")).because(400, "field");
    }
}

#[test]
fn a_request_that_is_not_carried_out_may_come_again() {
    let opened = Opened::configured(|config| config.rules.lock.entries_max = 1);
    let fields = |key: &str| json!({"key": key, "owner": "one"});
    assert_eq!(opened.post("/v1/locks/acquire", &fields("a")).status, 200);
    post(&opened, "k", "acquire", &fields("b")).because(503, "full");
    assert_eq!(opened.post("/v1/locks/release", &fields("a")).status, 200);
    assert_eq!(post(&opened, "k", "acquire", &fields("b")).status, 200);
}

#[test]
fn a_repetition_waits_for_the_same_entry() {
    let opened = Opened::new();
    let held = json!({"key": "a", "owner": "one"});
    assert_eq!(opened.post("/v1/locks/acquire", &held).status, 200);
    let path = "/v1/locks/acquire";
    let fields = json!({"key": "a", "owner": "two", "wait": 600});
    let begin = || opened.begin_with(path, "Idempotency-Key: k\r\n", &fields);
    let place = || opened.get("/v1/locks/place?key=a&owner=two", "").status;
    let gone = begin();
    until(|| place() == 200);
    // A client that has lost its connection may repeat the request, and still has its position in line.
    drop(gone);
    let third = json!({"key": "a", "owner": "three", "wait": 600});
    let behind = opened.begin(path, &third);
    until(|| opened.get("/v1/locks/place?key=a&owner=three", "").status == 200);
    let (again, beside) = (begin(), begin());
    assert_eq!(opened.post("/v1/locks/release", &held).status, 200);
    let granted = finish(path, again).json();
    assert_eq!(granted["owner"], "two");
    assert_eq!(finish(path, beside).json(), granted);
    drop(behind);
}

#[test]
fn a_repetition_waits_for_the_same_job() {
    let opened = Opened::new();
    let wanted = json!({"queues": ["q"], "wait": 600, "count": 3});
    let begin = |wanted| opened.begin_with(POP, "Idempotency-Key: k\r\n", wanted);
    let waiting = || opened.get("/v1/queues/queue?queue=q", "");
    let first = begin(&wanted);
    until(|| waiting().status == 200 && waiting().json()["waiting"] == 1);
    drop(first);
    until(|| waiting().status == 404);
    let first = begin(&wanted);
    until(|| waiting().status == 200 && waiting().json()["waiting"] == 1);
    let beside = begin(&wanted);
    until(|| waiting().json()["waiting"] == 2);
    let id = push(&opened, "q", "x");
    let claims = finish(POP, first).json();
    assert_eq!(claims["jobs"][0]["id"], id);
    // The concurrent request with the same key is answered when the first one is, with the same answer.
    push(&opened, "q", "y");
    let same = finish(POP, beside).json();
    assert_eq!(target(&same["jobs"][0]), target(&claims["jobs"][0]));
    assert_eq!(waiting().json()["ready"], 1);
}

#[test]
fn a_wait_that_ends_looks_for_what_its_repetition_was_given() {
    let opened = Opened::new();
    let waiting = || opened.get("/v1/queues/queue?queue=q", "");
    let wanted = json!({"queues": ["q"], "wait": 2});
    let begin = || opened.begin_with(POP, "Idempotency-Key: k\r\n", &wanted);
    let first = begin();
    until(|| waiting().status == 200 && waiting().json()["waiting"] == 1);
    let beside = begin();
    until(|| waiting().json()["waiting"] == 2);
    push(&opened, "q", "x");
    let claims = finish(POP, first).json();
    let same = finish(POP, beside).json();
    assert_eq!(target(&same["jobs"][0]), target(&claims["jobs"][0]));
}

#[test]
fn a_repetition_does_no_more_than_was_done() {
    let opened = Opened::new();
    for body in ["a", "b", "c", "d"] {
        push(&opened, "q", body);
    }
    // The second of three claims panics.
    let claims = AtomicU8::new(0);
    opened.handle().actors().queue.inject_panics(Box::new(move |stage, _| {
        let nth = u8::from(stage == Stage::Decide);
        let nth = claims.fetch_add(nth, Ordering::Relaxed) + nth;
        assert!(stage != Stage::Decide || nth != 2, "planted");
    }));
    let wanted = json!({"queues": ["q"], "count": 3});
    let ask = || opened.post_with(POP, "Idempotency-Key: k\r\n", &wanted).json();
    let ids = |claims: &Value| -> Vec<Value> {
        let jobs = claims["jobs"].as_array().expect("a list");
        jobs.iter().map(|job| job["id"].clone()).collect()
    };
    let part = ids(&ask());
    assert_eq!(part.len(), 2);
    assert_eq!(ids(&ask()), part);
    let ready = opened.get("/v1/queues/queue?queue=q", "").json();
    assert_eq!(ready["ready"], 2);
    // A repeated request does not claim more jobs either if there were not enough for the first one.
    let wanted = json!({"queues": ["q"], "count": 5});
    let ask = || opened.post_with(POP, "Idempotency-Key: l\r\n", &wanted).json();
    let all = ids(&ask());
    assert_eq!(all.len(), 2);
    push(&opened, "q", "e");
    assert_eq!(ids(&ask()), all);
}

#[test]
fn what_was_waited_for_is_all_that_a_repetition_gets() {
    let opened = Opened::new();
    let waiting = || opened.get("/v1/queues/queue?queue=q", "");
    let wanted = json!({"queues": ["q"], "count": 3, "wait": 600});
    let begin = || opened.begin_with(POP, "Idempotency-Key: k\r\n", &wanted);
    let first = begin();
    until(|| waiting().status == 200 && waiting().json()["waiting"] == 1);
    push(&opened, "q", "x");
    let claims = finish(POP, first).json();
    push(&opened, "q", "y");
    let same = finish(POP, begin()).json();
    assert_eq!(same["jobs"].as_array().map(Vec::len), Some(1));
    assert_eq!(target(&same["jobs"][0]), target(&claims["jobs"][0]));
}

#[test]
fn what_was_done_is_known_after_a_rebuild_and_a_stop() {
    let mut opened = Opened::new();
    let fields = json!({"key": "a", "owner": "one"});
    let granted = post(&opened, "k", "acquire", &fields).json();
    let panics = AtomicBool::new(true);
    opened.handle().actors().lock.inject_panics(Box::new(move |stage, _| {
        let now = stage == Stage::Commit && panics.swap(false, Ordering::Relaxed);
        assert!(!now, "planted");
    }));
    let other = json!({"key": "b", "owner": "one"});
    post(&opened, "l", "acquire", &other).because(500, "failed");
    assert_eq!(post(&opened, "k", "acquire", &fields).json(), granted);
    let other = post(&opened, "l", "acquire", &other).json();
    assert_ne!(other["token"], granted["token"], "nothing was done before");
    opened.restart();
    assert_eq!(post(&opened, "k", "acquire", &fields).json(), granted);
    post(&opened, "k", "acquire", &json!({"key": "a", "owner": "two"})).because(422, "key-reused");
}
