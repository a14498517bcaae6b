//! Failed jobs over HTTP: they wait in their own phase, in which they can be kicked, deleted and queried.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::lock::until;
use crate::opened::Opened;
use crate::queue::{act, job, pop, push, target, tried_twice};
use serde_json::{Value, json};

/// Adds a job, claims it, and fails it. Returns its view.
fn failed(opened: &Opened, queue: &str, more: &Value) -> Value {
    push(opened, queue, "x");
    fail(opened, queue, more)
}

/// Claims a job and fails it. Returns its view.
fn fail(opened: &Opened, queue: &str, more: &Value) -> Value {
    let mut fields = target(&pop(opened, queue));
    for (name, value) in more.as_object().into_iter().flatten() {
        fields[name] = value.clone();
    }
    act(opened, "fail", &fields).json()
}

#[test]
fn a_failed_job_is_nobodys_and_says_when_it_is_tried_again() {
    let opened = Opened::new();
    let view = failed(&opened, "q", &json!({"retry_after_ms": 1_000_000}));
    assert_eq!((&view["phase"], &view["attempts"]), (&json!("retrying"), &json!(1)));
    let remaining = view["remaining_ms"].as_u64().expect("it is tried again");
    assert!((900_000..=1_000_000).contains(&remaining), "{remaining}");
    let told = job(&opened, &view["id"]);
    assert_eq!((&told["phase"], &told["token"]), (&json!("retrying"), &Value::Null));
    let queue = opened.get("/v1/queues/queue?queue=q", "").json();
    assert_eq!((&queue["retrying"], &queue["claimed"]), (&json!(1), &json!(0)));
    let listed = opened.get("/v1/queues/jobs?phase=retrying", "").json();
    assert_eq!(listed["jobs"][0]["id"], view["id"]);
    assert_eq!(opened.get("/v1/queues/jobs?phase=claimed", "").json()["jobs"], json!([]));
    let metrics = opened.get("/metrics", "").body;
    for line in ["sexton_jobs{phase=\"retrying\"} 1", "sexton_jobs{phase=\"claimed\"} 0"] {
        assert!(metrics.contains(line), "{line}");
    }
}

#[test]
fn a_failed_job_is_kicked_deleted_and_one_with_others_meanwhile() {
    let opened = Opened::new();
    let later = json!({"retry_after_ms": 1_000_000});
    let id = failed(&opened, "q", &later)["id"].clone();
    let kicked = act(&opened, "kick-job", &json!({"id": id}));
    assert_eq!(kicked.json(), json!({"kicked": 1}));
    assert_eq!(job(&opened, &id)["phase"], "ready");
    fail(&opened, "q", &later);
    let kicked = act(&opened, "kick", &json!({"queue": "q", "count": 9}));
    assert_eq!(kicked.json(), json!({"kicked": 1}));
    fail(&opened, "q", &later);
    let deleted = act(&opened, "delete", &json!({"id": id}));
    assert_eq!(deleted.json(), json!({"deleted": 1}));

    let same = json!({"queue": "q", "body": "y", "dedup": "k"});
    let id = act(&opened, "push", &same).json()["id"].clone();
    fail(&opened, "q", &later);
    let again = act(&opened, "push", &same).json();
    assert_eq!(again, json!({"id": id, "new": false, "phase": "retrying"}), "no worker has it");
}

#[test]
fn who_fails_at_the_last_try_is_told_that_it_is_abandoned() {
    let opened = Opened::configured(tried_twice);
    failed(&opened, "twice", &json!({"retry_after_ms": 0}));
    until(|| job(&opened, &json!(1))["phase"] == "ready");
    let view = fail(&opened, "twice", &json!({"retry_after_ms": 1_000_000}));
    assert_eq!((&view["phase"], &view["attempts"]), (&json!("abandoned"), &json!(2)));
    let repushed = act(&opened, "repush", &json!({"queue": "twice"}));
    assert_eq!(repushed.json(), json!({"repushed": 1}));
}

#[test]
fn a_job_shows_what_was_said_of_its_newest_failure() {
    let mut opened = Opened::new();
    let now = json!({"retry_after_ms": 0, "error": "no route to host\nagain"});
    let id = failed(&opened, "q", &now)["id"].clone();
    opened.restart();
    let shown = |opened: &Opened| job(opened, &id)["error"].clone();
    assert_eq!(shown(&opened), "no route to host\nagain");
    let listed = opened.get("/v1/queues/jobs", "").json();
    assert_eq!(listed["jobs"][0]["error"], "no route to host\nagain");
    until(|| job(&opened, &id)["phase"] == "ready");
    let long = format!("{}\u{e4}", "x".repeat(999));
    fail(&opened, "q", &json!({"error": long, "retry_after_ms": 0}));
    let excerpt = shown(&opened);
    let excerpt = excerpt.as_str().expect("an error is text");
    assert!(excerpt.len() <= 1000 && excerpt.starts_with("xx"), "{excerpt}");
    assert!(excerpt.contains(" left out ...]\n") && excerpt.ends_with("x\u{e4}"), "{excerpt}");
    until(|| job(&opened, &id)["phase"] == "ready");
    fail(&opened, "q", &json!({}));
    assert_eq!(shown(&opened), Value::Null, "the newest failure had no error");
}

#[test]
fn jobs_that_a_filter_lets_through_are_tried_again_or_ended() {
    let opened = Opened::configured(tried_twice);
    let abandoned = |queue: &str, error: &str| {
        let failed = json!({"retry_after_ms": 0, "error": error});
        let id = push(&opened, queue, "x");
        fail(&opened, queue, &failed);
        // Wait until the job is ready again.
        until(|| opened.get("/v1/queues/next", "").status == 200);
        assert_eq!(fail(&opened, queue, &failed)["phase"], "abandoned");
        id
    };
    let late = abandoned("twice", "it timed out");
    let foreign = abandoned("t:twice", "it timed out");
    let lost = abandoned("twice", "no such user");
    push(&opened, "q", "x");
    let buried = target(&pop(&opened, "q"));
    act(&opened, "bury", &buried);
    push(&opened, "twice", "nobody has tried it");

    let listed = opened.get("/v1/queues/jobs?error=timed", "").json();
    let listed = listed["jobs"].as_array().expect("a list").iter();
    let listed: Vec<&Value> = listed.map(|job| &job["id"]).collect();
    assert_eq!(listed, [late, foreign]);

    let retry = |fields: &Value| act(&opened, "retry", fields).json();
    let timed = json!({"queue": "twice", "error": "timed"});
    assert_eq!(retry(&timed), json!({"retried": 1, "next": null}));
    assert_eq!(retry(&timed)["retried"], 0, "the job is already ready");
    let told = job(&opened, &json!(late));
    assert_eq!((&told["phase"], &told["attempts"]), (&json!("ready"), &json!(0)));
    let first = retry(&json!({"type": "twice", "limit": 1}));
    assert_eq!(first["retried"], 1);
    let more = json!({"type": "twice", "limit": 1, "phase": "delayed", "after": first["next"]});
    assert_eq!(retry(&more)["retried"], 0, "it continues from there");

    let discard = |fields: &Value| act(&opened, "discard", fields).json();
    let ready = json!({"queue": "twice", "phase": "ready", "error": "timed"});
    assert_eq!(discard(&ready)["discarded"], 1);
    assert_eq!(discard(&json!({"type": "twice"}))["discarded"], 1);
    assert_eq!(discard(&json!({})), json!({"discarded": 1, "next": null}));
    opened.get(&format!("/v1/queues/job?id={}", buried["id"]), "").because(404, "absent");
    let left = opened.get("/v1/queues/jobs", "").json();
    let left = left["jobs"].as_array().expect("a list").iter();
    let left: Vec<&Value> = left.map(|job| &job["phase"]).collect();
    assert_eq!(left, ["ready", "ready"], "of {late}, {foreign} and {lost}");
}
