//! Completing a job and claiming the next one in one request.

use crate::opened::Opened;
use crate::queue::{POP, job, pop, push, target};
use serde_json::{Value, json};

/// Completes these jobs, and claims ready ones, in one request.
fn exchange(opened: &Opened, done: &[&Value], headers: &str) -> Value {
    let done: Vec<Value> = done.iter().map(|claim| target(claim)).collect();
    let fields = json!({"queues": ["q"], "done": done});
    opened.post_with(POP, headers, &fields).json()
}

#[test]
fn a_worker_ends_its_job_and_claims_the_next() {
    let opened = Opened::new();
    let ids = ["x", "y"].map(|body| push(&opened, "q", body));
    let first = pop(&opened, "q");
    let key = "Idempotency-Key: one\r\n";
    let said = exchange(&opened, &[&first], key);
    assert_eq!(said["jobs"][0]["id"], ids[1]);
    assert_eq!((&said["not_done"], &said["refused"]), (&json!([]), &Value::Null));
    opened.get(&format!("/v1/queues/job?id={}", ids[0]), "").because(404, "absent");
    let again = exchange(&opened, &[&first], key);
    assert_eq!(target(&again["jobs"][0]), target(&said["jobs"][0]));
    assert_eq!(again["not_done"], json!([]), "it was done once");

    let last = exchange(&opened, &[&said["jobs"][0]], "");
    assert_eq!(last, json!({"jobs": [], "not_done": []}), "there is no other job");
}

#[test]
fn what_cannot_be_ended_is_told_and_the_next_is_claimed() {
    let opened = Opened::new();
    let ids = ["x", "y"].map(|body| push(&opened, "q", body));
    let mut stale = pop(&opened, "q");
    stale["token"] = json!(stale["token"].as_u64().expect("a number") - 1);
    let gone = json!({"id": 99, "token": 1});
    let said = exchange(&opened, &[&stale, &gone], "");
    let reasons = [0, 1].map(|nth| said["not_done"][nth]["reason"].clone());
    assert_eq!(reasons, ["stale", "absent"]);
    assert_eq!(said["not_done"][0]["id"], ids[0]);
    assert_eq!(said["jobs"][0]["id"], ids[1]);
    assert_eq!(job(&opened, &json!(ids[0]))["phase"], "claimed");
}

#[test]
fn a_job_ends_also_where_nothing_is_claimed_any_more() {
    let opened = Opened::new();
    let ids = ["x", "y", "z"].map(|body| push(&opened, "q", body));
    let claims = [(); 2].map(|()| pop(&opened, "q"));
    assert_eq!(claims[1]["id"], ids[1], "it keeps the drain from its end");
    opened.post_as_owner("/v1/drain?what=queues", &Value::Null).json();
    let said = exchange(&opened, &[&claims[0]], "");
    assert_eq!(said["refused"]["reason"], "draining");
    assert_eq!((&said["jobs"], &said["not_done"]), (&json!([]), &json!([])));
    opened.get(&format!("/v1/queues/job?id={}", ids[0]), "").because(404, "absent");
}
