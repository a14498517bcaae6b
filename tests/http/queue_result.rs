//! The result of a job, which its worker stores and which is reported for some time.

use crate::opened::Opened;
use crate::queue::{pop, push, target};
use serde_json::{Value, json};

const KEEP: &str = "/v1/queues/keep-result";

fn result(opened: &Opened, id: u64, more: &str) -> Value {
    let path = format!("/v1/queues/result?id={id}{more}");
    opened.get(&path, "").json()
}

/// Stores a result for a claim.
fn keep(opened: &Opened, claim: &Value, more: &Value) -> Value {
    let mut fields = target(claim);
    let parts = more.as_object().expect("an object").clone();
    fields.as_object_mut().expect("an object").extend(parts);
    opened.post(KEEP, &fields).json()
}

#[test]
fn a_result_is_told_once_its_job_is_over() {
    let opened = Opened::new();
    let id = push(&opened, "q", "x");
    assert_eq!(result(&opened, id, "")["status"], "open");
    let claim = pop(&opened, "q");
    let said =
        json!({"keep_ms": 60_000, "done": true, "exit": 0, "output": "fine\n", "took_ms": 12});
    assert_eq!(keep(&opened, &claim, &said), json!({"kept": 1}));
    assert_eq!(result(&opened, id, "")["status"], "open", "it is claimed");
    assert_eq!(opened.post("/v1/queues/ack", &target(&claim)).status, 200);
    let told = result(&opened, id, "");
    let part = |name: &str| told[name].clone();
    assert_eq!(
        [part("queue"), part("status"), part("exit"), part("output")],
        [json!("q"), json!("done"), json!(0), json!("fine\n")]
    );
    assert_eq!((part("took_ms"), part("error")), (json!(12), Value::Null));
    assert_eq!(part("attempts"), 1);
    for number in ["age_ms", "ended_at", "remaining_ms"] {
        assert!(told[number].is_u64(), "{number} in {told}");
    }
}

#[test]
fn what_is_no_text_and_what_is_too_long_is_kept_from_its_end() {
    let opened = Opened::new();
    let id = push(&opened, "q", "x");
    let claim = pop(&opened, "q");
    let long = format!("{}end", "x".repeat(20_000));
    keep(
        &opened,
        &claim,
        &json!({"keep_ms": 60_000, "done": false, "error": "broken", "output": long}),
    );
    keep(
        &opened,
        &claim,
        &json!({"keep_ms": 60_000, "done": false, "error": "worse", "output_b64": "/w=="}),
    );
    assert_eq!(opened.post("/v1/queues/ack", &target(&claim)).status, 200);
    let told = result(&opened, id, "");
    assert_eq!(
        (&told["output_b64"], &told["error"], &told["status"]),
        (&json!("/w=="), &json!("worse"), &json!("failed")),
        "the newest counts"
    );
    let id = push(&opened, "q", "y");
    let claim = pop(&opened, "q");
    keep(&opened, &claim, &json!({"keep_ms": 60_000, "done": true, "output": long}));
    assert_eq!(opened.post("/v1/queues/ack", &target(&claim)).status, 200);
    let told = result(&opened, id, "");
    let output = told["output"].as_str().expect("a string");
    assert_eq!(output.len(), 16_384);
    assert!(output.ends_with("xend"), "its end is kept");
}

#[test]
fn whoever_waits_is_told_when_the_job_is_over() {
    let opened = &Opened::new();
    let id = push(opened, "q", "x");
    let claim = pop(opened, "q");
    std::thread::scope(|scope| {
        // Send the request without closing the sending side, since a client that does so stops waiting.
        let path = format!("/v1/queues/result?id={id}&wait=60");
        let waiting = scope.spawn(move || opened.get_over_socket(&path).json());
        keep(opened, &claim, &json!({"keep_ms": 60_000, "done": true}));
        assert_eq!(opened.post("/v1/queues/ack", &target(&claim)).status, 200);
        let told = waiting.join().expect("the request is answered");
        assert_eq!(told["status"], "done");
    });
    // The result of a finished job is reported at once. If a wait times out, the current state is reported.
    let ask = |id: u64, wait: u64| {
        opened.get_over_socket(&format!("/v1/queues/result?id={id}&wait={wait}"))
    };
    assert_eq!(ask(id, 60).json()["status"], "done");
    let other = push(opened, "q", "y");
    assert_eq!(ask(other, 1).json()["status"], "open");
    ask(999, 60).because(404, "absent");
}

#[test]
fn a_result_is_refused_that_is_kept_too_long_or_is_of_somebody_else() {
    let opened = Opened::new();
    push(&opened, "q", "x");
    let claim = pop(&opened, "q");
    for (ms, status) in [(0, 400), (30 * 86_400_000_u64 + 1, 400), (30 * 86_400_000, 200)] {
        let mut fields = target(&claim);
        fields["keep_ms"] = json!(ms);
        fields["done"] = json!(true);
        assert_eq!(opened.post(KEEP, &fields).status, status, "{ms}");
    }
    let mut stale = target(&claim);
    stale["token"] = json!(1);
    stale["keep_ms"] = json!(1000);
    stale["done"] = json!(true);
    opened.post(KEEP, &stale).because(409, "stale");
}
