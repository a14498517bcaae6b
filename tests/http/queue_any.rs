//! What is claimed of any type, and jobs that say the same in other words.

#![expect(
    clippy::indexing_slicing,
    reason = "an answer that lacks a part fails the test"
)]

use crate::opened::Opened;
use crate::queue::{POP, act, push, target};
use serde_json::{Value, json};
use sexton::actors::queue::TypeRules;
use sexton::config::Config;
use std::collections::BTreeSet;

fn rules(config: &mut Config) {
    let named = TypeRules {
        in_any: false,
        ..TypeRules::default()
    };
    let same = TypeRules {
        dedup: true,
        dedup_ignore: vec!["at".to_owned()],
        ..TypeRules::default()
    };
    let types = [("named", named), ("same", same)];
    config.rules.queue.types = types.map(|(name, of)| (name.to_owned(), of)).into();
}

/// Claims up to so many of any type; from which queues.
fn any(opened: &Opened, any: &Value, count: u32) -> BTreeSet<String> {
    let claims = opened
        .post(POP, &json!({"any": any, "count": count}))
        .json();
    let claims = claims["jobs"].as_array().expect("a list").iter();
    let queues = claims.map(|claim| claim["queue"].as_str().expect("a name").to_owned());
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
    assert_eq!(
        any(&opened, &json!({"tenant": "t", "except": ["a"]}), 9),
        set(&["t:c"])
    );
    assert_eq!(
        any(&opened, &json!({"except": ["b", "c"]}), 9),
        set(&["a", "t:a"])
    );
    assert_eq!(any(&opened, &json!({"tenant": ""}), 9), set(&["b"]));
    assert_eq!(any(&opened, &json!({}), 9), set(&[]));
    push(&opened, "a", "x");
    let keyed = || {
        opened
            .post_with(POP, "Idempotency-Key: k\r\n", &json!({"any": {}}))
            .json()
    };
    let first = keyed();
    assert_eq!(first["jobs"][0]["queue"], "a");
    push(&opened, "b", "x");
    assert_eq!(
        keyed()["jobs"][0]["id"],
        first["jobs"][0]["id"],
        "asked again, the same"
    );
    act(&opened, "ack", &target(&first["jobs"][0])).json();

    for (wrong, field) in [
        (json!({}), "queues"),
        (json!({"any": {}, "queues": ["a"]}), "any"),
        (json!({"any": {}, "wait": 1}), "any"),
        (json!({"any": {"except": vec!["x"; 101]}}), "any.except"),
    ] {
        let problem = opened.post(POP, &wrong).because(400, "field");
        assert_eq!(problem["field"], field, "{wrong}");
    }
}

#[test]
fn a_body_that_says_the_same_in_another_order_is_the_same_job() {
    let opened = Opened::configured(rules);
    let id = push(
        &opened,
        "same",
        r#"{"to":"ann","at":1,"with":{"a":1,"b":2}}"#,
    );
    for body in [
        r#"{ "with": {"b":2, "a":1}, "to": "ann" }"#,
        r#"{"to":"ann","at":2,"requestId":"r","with":{"a":1,"b":2}}"#,
    ] {
        let again = act(&opened, "push", &json!({"queue": "same", "body": body}));
        assert_eq!(again.json(), json!({"id": id, "new": false}), "{body}");
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
    assert!(
        metrics.contains("sexton_jobs_duplicate_total 3"),
        "{metrics}"
    );
}
