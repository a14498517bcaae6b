//! `Idempotency-Key`: a request that comes again is answered as it was, and nothing is done twice.

use crate::opened::{Answer, Opened, finish};
use serde_json::{Value, json};

fn post(opened: &Opened, key: &str, path: &str, fields: &Value) -> Answer {
    let header = format!("Idempotency-Key: {key}\r\n");
    opened.post_with(&format!("/v1/locks/{path}"), &header, fields)
}

#[test]
fn a_request_that_comes_again_is_answered_as_it_was() {
    let opened = Opened::new();
    let fields = json!({"key": "a", "owner": "one"});
    let granted = post(&opened, "k1", "acquire", &fields).json();
    assert_eq!(
        post(&opened, "k2", "release", &fields).json(),
        json!({"ended": 1})
    );
    assert_eq!(
        post(&opened, "k2", "release", &fields).json(),
        json!({"ended": 1})
    );
    assert_eq!(post(&opened, "k1", "acquire", &fields).json(), granted);
    opened
        .get("/v1/locks/owner?key=a", "")
        .because(404, "absent");
    post(&opened, "k3", "renew", &fields).because(404, "absent");
    assert_eq!(post(&opened, "k4", "acquire", &fields).status, 200);
    post(&opened, "k3", "renew", &fields).because(404, "absent");
    let all = json!({"owner": "one"});
    assert_eq!(
        post(&opened, "k5", "release-all", &all).json(),
        json!({"ended": 1})
    );
    assert_eq!(
        post(&opened, "k5", "release-all", &all).json(),
        json!({"ended": 1})
    );
}

#[test]
fn a_key_belongs_to_one_request() {
    let opened = Opened::new();
    let fields = |owner: &str| json!({"key": "a", "owner": owner});
    assert_eq!(post(&opened, "k", "acquire", &fields("one")).status, 200);
    post(&opened, "k", "acquire", &fields("two")).because(422, "key-reused");
    post(&opened, "k", "release", &fields("one")).because(422, "key-reused");
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
fn a_repetition_does_not_wait_beside_the_first() {
    let opened = Opened::new();
    assert_eq!(
        opened
            .post("/v1/locks/acquire", &json!({"key": "a", "owner": "one"}))
            .status,
        200
    );
    let path = "/v1/locks/acquire";
    let fields = json!({"key": "a", "owner": "two", "wait": 600});
    let first = opened.begin_with(path, "Idempotency-Key: k\r\n", &fields);
    let place = || opened.get("/v1/locks/place?key=a&owner=two", "").status;
    while place() != 200 {
        std::thread::yield_now();
    }
    post(&opened, "k", "acquire", &fields).because(409, "running");
    // Whoever lost the connection may ask again: the first one is withdrawn.
    drop(first);
    while place() != 404 {
        std::thread::yield_now();
    }
    let again = opened.begin_with(path, "Idempotency-Key: k\r\n", &fields);
    while place() != 200 {
        std::thread::yield_now();
    }
    opened
        .post("/v1/locks/release", &json!({"key": "a", "owner": "one"}))
        .json();
    assert_eq!(finish(path, again).json()["owner"], "two");
}
