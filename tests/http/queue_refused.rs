//! Refusals of queues over HTTP, each with its status and its reason.

use crate::gate::Gate;
use crate::opened::{Opened, finish};
use crate::patience::until;
use crate::queue::{POP, PUSH, pop, push, target};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sexton::actors::queue::{Message, TypeRules};
use sexton::spine::delivery::Stage;

/// The last part of a path, a wrong body, and the field that the answer must name.
const WRONG: &[(&str, &str, &str)] = &[
    ("push", "{}", "queue"),
    ("push", r#"{"queue": "q"}"#, "body"),
    ("push", r#"{"queue": "q", "body": 7}"#, "body"),
    ("push", r#"{"queue": "q", "body": {}}"#, "body"),
    ("push", r#"{"queue": "q", "body_b64": "?"}"#, "body_b64"),
    ("push", r#"{"queue": "q", "body": "", "body_b64": ""}"#, "body"),
    ("push", r#"{"queue": "-q", "body": ""}"#, "queue"),
    ("push", r#"{"queue": "", "body": ""}"#, "queue"),
    ("push", r#"{"queue": "a:b:c", "body": ""}"#, "queue"),
    ("push", r#"{"queue": "q", "body": "", "priority": 4294967296}"#, "priority"),
    ("push", r#"{"queue": "q", "body": "", "delay_ms": -1}"#, "delay_ms"),
    ("push", r#"{"queue": "q", "body": "", "ttr_ms": 1.5}"#, "ttr_ms"),
    ("push", r#"{"queue": "q", "body": "", "dedup": 1}"#, "dedup"),
    ("push", r#"{"queue": "q", "body": "", "prio": 1}"#, "prio"),
    ("push", r#"{"queue": "q", "body": "", "retries": 1}"#, "retries"),
    ("push", r#"{"queue": "q", "body": "", "root": "s"}"#, "root"),
    ("push", r#"{"queue": "q", "body": "", "root": {"at": 1}}"#, "root.signature"),
    ("push", r#"{"queue": "q", "body": "", "root": {"signature": "s"}}"#, "root.at"),
    ("push", r#"{"queue": "q", "body": "", "is_root": true}"#, "root"),
    ("push", r#"{"jobs": []}"#, "queue"),
    ("push-all", "{}", "jobs"),
    ("push-all", r#"{"jobs": []}"#, "jobs"),
    ("push-all", r#"{"jobs": [7]}"#, "jobs[0]"),
    ("push-all", r#"{"jobs": [{"queue": "q"}]}"#, "jobs[0].body"),
    ("push-all", r#"{"jobs": [{"queue": "q", "body": ""}], "queue": "q"}"#, "queue"),
    ("register", r#"{"queue": "q", "at": 1}"#, "signature"),
    ("register", r#"{"queue": "q", "signature": "s"}"#, "at"),
    ("pop", "{}", "queues"),
    ("pop", r#"{"queues": "q"}"#, "queues"),
    ("pop", r#"{"queues": []}"#, "queues"),
    ("pop", r#"{"queues": [1]}"#, "queues[0]"),
    ("pop", r#"{"queues": ["q", "no name"]}"#, "queues[1]"),
    ("pop", r#"{"queues": ["q"], "count": 0}"#, "count"),
    ("pop", r#"{"queues": ["q"], "count": 101}"#, "count"),
    ("pop", r#"{"queues": ["q"], "wait": 3601}"#, "wait"),
    ("pop", r#"{"queues": ["q"], "weights": 1}"#, "weights"),
    ("pop", r#"{"queues": ["q"], "weights": [1, 1]}"#, "weights"),
    ("pop", r#"{"queues": ["q"], "weights": [0]}"#, "weights[0]"),
    ("pop", r#"{"queues": ["q"], "weights": [1.5]}"#, "weights[0]"),
    ("pop", r#"{"queues": ["q"], "weights": [4294967296]}"#, "weights[0]"),
    ("ack", r#"{"id": 1}"#, "token"),
    ("ack", r#"{"token": 1}"#, "id"),
    ("ack", r#"{"id": "1", "token": 1}"#, "id"),
    ("ack", r#"{"id": 1, "token": 1, "delay_ms": 1}"#, "delay_ms"),
    ("fail", r#"{"id": 1, "token": 1, "retry_after_ms": "1"}"#, "retry_after_ms"),
    ("touch", r#"{"id": 1}"#, "token"),
    ("release", r#"{"id": 1, "token": 1, "priority": -1}"#, "priority"),
    ("bury", r#"{"id": 1, "token": 1, "priority": -1}"#, "priority"),
    ("delete", r#"{"id": 1, "token": 1}"#, "token"),
    ("pop", r#"{"queues": ["q"], "done": []}"#, "done"),
    ("pop", r#"{"queues": ["q"], "done": [{"id": 1}]}"#, "done[0].token"),
    ("pop", r#"{"queues": ["q"], "wait": 1, "done": [{"id": 1, "token": 1}]}"#, "done"),
    ("pop", r#"{"any": {}, "wait": 1, "done": [{"id": 1, "token": 1}]}"#, "done"),
    ("retry", r#"{"phase": "ready"}"#, "phase"),
    ("discard", r#"{"phase": "claimed"}"#, "phase"),
    ("discard", r#"{"limit": 1001}"#, "limit"),
    ("kick", "{}", "queue"),
    ("kick", r#"{"queue": "q", "id": 1}"#, "id"),
    ("kick-job", r#"{"queue": "q"}"#, "id"),
    ("kick", r#"{"count": 1}"#, "queue"),
    ("kick", r#"{"queue": "q", "count": 0}"#, "count"),
    ("repush", r#"{"id": 1}"#, "queue"),
    ("pause", r#"{"queue": "q"}"#, "ms"),
    ("flush", r#"{"queue": 1}"#, "queue"),
];

#[test]
fn a_field_that_is_wrong_is_named() {
    let opened = Opened::new();
    let rows = WRONG.iter().map(|(path, fields, field)| {
        let fields: Value = serde_json::from_str(fields).expect("valid JSON");
        (*path, fields, *field)
    });
    let large = [
        ("push", json!({"queue": "x".repeat(201), "body": ""}), "queue"),
        ("pop", json!({"queues": vec!["q"; 1001]}), "queues"),
    ];
    for (path, fields, field) in rows.chain(large) {
        let problem = opened.post(&format!("/v1/queues/{path}"), &fields);
        let problem = problem.because(400, "field");
        assert_eq!(problem["field"], field, "{path} {fields}");
        let detail = problem["detail"].as_str();
        assert!(detail.is_some_and(|detail| detail.contains(field)));
    }
    for target in [
        "/v1/queues?limit=0",
        "/v1/queues?limit=1001",
        "/v1/queues?after=x",
        "/v1/queues?name=q",
        "/v1/queues/queue",
        "/v1/queues/queue?queue=-",
        "/v1/queues/jobs?phase=reserved",
        "/v1/queues/jobs?queue=a%20b",
        "/v1/queues/job",
        "/v1/queues/job?id=x",
        "/v1/queues/next?type=a",
        "/v1/queues/config?queue=a",
        "/v1/queues/config?type=a%20b",
    ] {
        opened.get(target, "").because(400, "field");
    }
    assert_eq!(opened.get("/v1/queues", "").json()["queues"], json!([]), "it changed nothing");
}

#[test]
fn a_job_of_the_longest_body_passes_and_a_longer_one_does_not() {
    let opened = Opened::new();
    let fields = |bytes: usize| {
        let body = STANDARD.encode(vec![0xff; bytes]);
        json!({"queue": "q", "body_b64": body})
    };
    assert_eq!(opened.post(PUSH, &fields(65_535)).status, 200);
    let claim = pop(&opened, "q");
    assert_eq!(claim["body_b64"], fields(65_535)["body_b64"]);
    opened.post(PUSH, &fields(65_536)).because(413, "too-big");
    opened.post(PUSH, &fields(200_000)).problem(413);
    // Only the paths that add jobs accept bodies of this size.
    opened.post(POP, &fields(65_535)).problem(413);
}

#[test]
fn bounds_are_answered() {
    let closed = TypeRules { read_only: Some("it moves".to_owned()), ..TypeRules::default() };
    let opened = Opened::configured(|config| {
        config.rules.queue.jobs_max = 2;
        config.rules.queue.queues_max = 1;
        config.rules.queue.types = [("closed".to_owned(), closed)].into();
        config.http.as_mut().expect("HTTP is configured").waits_max = 0;
    });
    let fields = |queue: &str| json!({"queue": queue, "body": "x"});
    let refused = opened.post(PUSH, &fields("closed")).because(403, "read-only");
    let words = refused.get("detail").and_then(Value::as_str);
    assert_eq!(words, Some("the queue accepts no jobs: it moves"));
    push(&opened, "q", "x");
    opened.post(PUSH, &fields("other")).because(503, "full");
    push(&opened, "q", "x");
    opened.post(PUSH, &fields("q")).because(503, "full");
    let wait = json!({"queues": ["other"], "wait": 9});
    let waiting = opened.begin(POP, &wait);
    finish(POP, waiting).because(503, "waits");
}

#[test]
fn a_drain_takes_no_new_jobs_and_lets_those_be_done_that_are_there() {
    let opened = Opened::new();
    push(&opened, "q", "x");
    push(&opened, "q", "y");
    let claim = target(&pop(&opened, "q"));
    let waiting = opened.begin(POP, &json!({"queues": ["other"], "wait": 600}));
    until("it waits", || {
        let status = opened.get("/v1/status", "").json();
        (status["queues"]["waiting"] == 1).then_some(())
    });
    let drains = opened.post_as_owner("/v1/drain?what=queues", &Value::Null).json();
    assert_eq!(drains, json!({"draining": true, "locks": 0, "claims": 1, "passes": 0, "tasks": 0}));
    opened.post_as_owner("/v1/drain?what=jobs", &Value::Null).problem(400);
    finish(POP, waiting).because(503, "draining");
    let fields = json!({"queue": "q", "body": "x"});
    opened.post(PUSH, &fields).because(503, "draining");
    opened.post(POP, &json!({"queues": ["q"]})).because(503, "draining");
    assert_eq!(opened.post("/v1/queues/ack", &claim).status, 200);
}

#[test]
fn a_foreign_page_or_a_wrong_token_moves_no_job() {
    let opened = Opened::with_token();
    let fields = json!({"queue": "q", "body": "x"});
    opened.post(PUSH, &fields).problem(401);
    let evil = "Origin: https://evil.example\r\n";
    opened.post_with(PUSH, evil, &fields).problem(403);
    let listed = opened.get_over_socket("/v1/queues").json();
    assert_eq!(listed["queues"], json!([]));
}

#[test]
fn a_panic_fails_one_request_and_takes_nothing_away() {
    let opened = Opened::new();
    let id = push(&opened, "q", "x");
    opened.handle().actors().queue.inject_panics(Box::new(|stage, message| {
        let is_planted = stage == Stage::Decide && matches!(message, Some(Message::Pop(_)));
        assert!(!is_planted, "planted");
    }));
    let wanted = json!({"queues": ["q"]});
    opened.post(POP, &wanted).because(500, "failed");
    let told = opened.get(&format!("/v1/queues/job?id={id}"), "").json();
    assert_eq!(told["phase"], "ready");
}

#[test]
fn a_halted_node_refuses_all() {
    let opened = Opened::configured(|config| config.rules.supervisor.restarts.restarts_max = 0);
    opened.handle().actors().queue.inject_panics(Box::new(|stage, _| {
        assert_ne!(stage, Stage::Decide, "planted");
    }));
    let fields = json!({"queue": "q", "body": "x"});
    let halting = opened.post(PUSH, &fields);
    assert!([500, 503].contains(&halting.status), "{halting:?}");
    opened.post(PUSH, &fields).because(503, "halted");
    opened.get("/v1/queues", "").because(503, "halted");
}

#[test]
fn a_wait_ends_when_the_coordinator_stops() {
    let mut opened = Opened::new();
    let waiting = opened.begin(POP, &json!({"queues": ["q"], "wait": 600}));
    let told = || opened.get("/v1/queues/queue?queue=q", "");
    crate::lock::until(|| told().status == 200);
    opened.stop();
    finish(POP, waiting).because(503, "stopped");
}

#[test]
fn a_repetition_beside_the_first_claims_nothing_more() {
    let opened = Opened::new();
    let id = push(&opened, "q", "x");
    push(&opened, "q", "y");
    let gate = Gate::default();
    opened.handle().actors().queue.inject_panics(gate.before_decisions());
    let wanted = json!({"queues": ["q"]});
    let key = "Idempotency-Key: k\r\n";
    let first = opened.begin_with(POP, key, &wanted);
    gate.reached();
    let beside = opened.begin_with(POP, key, &wanted);
    gate.open();
    let claims = finish(POP, first).json();
    assert_eq!(claims["jobs"][0]["id"], id);
    let same = finish(POP, beside).json();
    assert_eq!(target(&same["jobs"][0]), target(&claims["jobs"][0]));
}
