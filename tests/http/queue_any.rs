//! Claims of jobs of any type, and jobs whose bodies differ only in form.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::opened::{Opened, finish};
use crate::patience::until;
use crate::queue::{POP, act, push, target};
use serde_json::{Value, json};
use sexton::actors::queue::{TenantRules, TypeRules};
use sexton::config::Config;
use std::collections::BTreeSet;

fn rules(config: &mut Config) {
    let named = TypeRules { in_any: false, ..TypeRules::default() };
    let same =
        TypeRules { dedup: true, dedup_ignore: vec!["at".to_owned()], ..TypeRules::default() };
    let types = [("named", named), ("same", same)];
    config.rules.queue.types = types.map(|(name, of)| (name.to_owned(), of)).into();
}

/// Claims up to this many jobs of any type. Returns the names of their queues.
fn any(opened: &Opened, any: &Value, count: u32) -> BTreeSet<String> {
    let claims = opened.post(POP, &json!({"any": any, "count": count})).json();
    let claims = claims["jobs"].as_array().expect("a list").iter();
    let queues = claims.map(|claim| claim["queue"].as_str().expect("a string").to_owned());
    queues.collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn a_claim_of_any_type_leaves_out_what_it_says_and_what_is_set_so() {
    let opened = Opened::configured(rules);
    for queue in ["a", "b", "t:a", "t:c", "named", "t:named"] {
        push(&opened, queue, "x");
    }
    assert_eq!(any(&opened, &json!({"tenant": "t", "except": ["a"]}), 9), set(&["t:c"]));
    assert_eq!(any(&opened, &json!({"except": ["b", "c"]}), 9), set(&["a", "t:a"]));
    assert_eq!(any(&opened, &json!({"tenant": ""}), 9), set(&["b"]));
    assert_eq!(any(&opened, &json!({}), 9), set(&[]));
    push(&opened, "a", "x");
    let keyed = || opened.post_with(POP, "Idempotency-Key: k\r\n", &json!({"any": {}})).json();
    let first = keyed();
    assert_eq!(first["jobs"][0]["queue"], "a");
    push(&opened, "b", "x");
    assert_eq!(keyed()["jobs"][0]["id"], first["jobs"][0]["id"], "the same when repeated");
    act(&opened, "ack", &target(&first["jobs"][0])).json();

    for (wrong, field) in [
        (json!({}), "queues"),
        (json!({"any": {}, "queues": ["a"]}), "any"),
        (json!({"any": {"except": vec!["x"; 101]}}), "any.except"),
        (json!({"any": {"except": ["x"], "types": ["y"]}}), "any.except"),
        (json!({"any": {"types": ["t:y"]}}), "any.types"),
        (json!({"any": {}, "done": [{"id": 1, "token": 1}], "wait": 1}), "done"),
    ] {
        let problem = opened.post(POP, &wrong).because(400, "field");
        assert_eq!(problem["field"], field, "{wrong}");
    }
}

#[test]
fn a_client_that_waits_for_any_type_is_given_the_first_job_that_it_asked_for() {
    let opened = Opened::configured(rules);
    let nothing = json!({"any": {"types": ["a"]}, "wait": 1});
    let none = opened.begin(POP, &nothing);
    assert_eq!(finish(POP, none).json(), json!({"jobs": []}));
    let waiting = opened.begin(POP, &json!({"any": {"types": ["a"]}, "wait": 600}));
    until("it waits", || {
        let status = opened.get("/v1/status", "").json();
        (status["queues"]["waiting"] == 1).then_some(())
    });
    push(&opened, "t:b", "not that");
    push(&opened, "t:a", "x");
    let claimed = finish(POP, waiting).json();
    let jobs = claimed["jobs"].as_array().expect("a list");
    assert_eq!(jobs.len(), 1, "{claimed}");
    assert_eq!(jobs[0]["queue"], "t:a");
}

#[test]
fn tenants_have_their_turns_in_one_request_each() {
    let opened = Opened::configured(|config| {
        rules(config);
        let weight = TenantRules { weight: 2 };
        config.rules.queue.across.tenants = [("heavy".to_owned(), weight)].into();
    });
    for _ in 0..8 {
        push(&opened, "big:named", "x");
    }
    for queue in ["small:named", "heavy:a", "small:a", "heavy:named", "heavy:a"] {
        push(&opened, queue, "x");
    }
    let of = json!({"types": ["named", "a", "none"]});
    let mut claims = Vec::new();
    let mut done = None;
    for _ in 0..9 {
        let mut asked = json!({"any": of});
        if let Some(done) = &done {
            asked["done"] = json!([done]);
        }
        let said = opened.post(POP, &asked).json();
        if done.is_some() {
            assert_eq!(said["not_done"], json!([]), "the earlier claims are done");
        }
        let claim = &said["jobs"][0];
        done = Some(target(claim));
        let tenant = claim["queue"].as_str().expect("a string").split(':').next();
        claims.push(tenant.expect("a name has a first part").to_owned());
    }
    let first = claims.iter().take(6).filter(|it| *it == "big").count();
    assert!(first <= 2, "two of six, however many jobs it has: {claims:?}");
    let count = |tenant: &str| claims.iter().filter(|it| *it == tenant).count();
    assert_eq!((count("heavy"), count("small")), (3, 2), "{claims:?}");
    let jobs = opened.get("/v1/status", "").json()["queues"]["jobs"].clone();
    assert_eq!(jobs["claimed"], 1, "all but the last have ended");
}

#[test]
fn a_body_that_says_the_same_in_another_order_is_the_same_job() {
    let opened = Opened::configured(rules);
    let id = push(&opened, "same", r#"{"to":"ann","at":1,"with":{"a":1,"b":2}}"#);
    for body in [
        r#"{ "with": {"b":2, "a":1}, "to": "ann" }"#,
        r#"{"to":"ann","at":2,"requestId":"r","with":{"a":1,"b":2}}"#,
    ] {
        let again = act(&opened, "push", &json!({"queue": "same", "body": body}));
        assert_eq!(again.json(), json!({"id": id, "new": false, "phase": "ready"}), "{body}");
    }
    push(&opened, "same", r#"{"to":"ann","with":{"a":1,"b":3}}"#);
    let batch = json!({"jobs": [
        {"queue": "same", "body": "[1,2]"}, {"queue": "same", "body": "[ 1, 2 ]"},
    ]});
    let added = act(&opened, "push-all", &batch).json();
    assert_eq!(added["jobs"][0]["id"], added["jobs"][1]["id"]);
    let totals = &opened.get("/v1/status", "").json()["queues"];
    assert_eq!(totals["duplicates"], 3);
    let metrics = opened.get("/metrics", "").body;
    assert!(metrics.contains("sexton_jobs_duplicate_total 3"), "{metrics}");
}
