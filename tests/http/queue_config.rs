//! The settings of queues in `/v1/queues/config`.

use crate::opened::Opened;
use serde_json::{Value, json};
use sexton::actors::queue::{Backoff, Class, Order, Rules, SharedRules, TenantRules, TypeRules};
use std::collections::BTreeMap;

/// Opens a node with these rules.
fn opened(rules: &Rules) -> Opened {
    Opened::configured(|config| config.rules.queue = rules.clone())
}

/// Returns the settings in an answer, by type.
fn types(told: &Value) -> BTreeMap<String, Value> {
    let types = told["types"].as_array().expect("a list").iter();
    let named = types.map(|of| (of["type"].as_str().expect("a string").to_owned(), of.clone()));
    named.collect()
}

#[test]
fn every_field_of_every_entry_is_told_and_the_limits() {
    let purges = TypeRules {
        class: Class::Memory,
        order: Order::Random,
        claim_ttl_ms: 7,
        max_tries: 5,
        retries: false,
        dedup: true,
        read_only: Some("it moves".to_owned()),
        prune_ms: 9,
        throttle_milli: 500,
        backoff: Some(Backoff { jitter_milli: 125, ..Backoff::default() }),
        tube_max_tries: 6,
        dedup_ignore: vec!["at".to_owned()],
        in_any: false,
        rank: 9,
        crash_tries: 2,
        tube_crash_tries: 0,
    };
    let rules = Rules {
        jobs_max: 11,
        bytes_max: 12,
        queues_max: 13,
        body_bytes_max: 14,
        roots_max: 15,
        default: TypeRules::default(),
        types: BTreeMap::from([("purges".to_owned(), purges)]),
        across: SharedRules {
            tenants: BTreeMap::from([("acme".to_owned(), TenantRules { weight: 3 })]),
            ..SharedRules::default()
        },
    };
    let told = opened(&rules).get("/v1/queues/config", "").json();
    let limits = json!({
        "jobs_max": 11, "bytes_max": 12, "queues_max": 13, "body_bytes_max": 14, "roots_max": 15,
    });
    assert_eq!(told["limits"], limits);
    let purges = json!({
        "type": "purges", "from": "purges", "class": "memory", "order": "random", "claim_ttl_ms": 7,
        "max_tries": 5, "retries": false, "dedup": true, "read_only_reason": "it moves", "prune_ms": 9,
        "throttle": 0.5, "tube_max_tries": 6, "dedup_ignore": ["at"], "in_any": false, "rank": 9,
        "crash_tries": 2, "tube_crash_tries": 0,
        "backoff": {"first_ms": 1000, "factor": 2, "max_ms": 3_600_000, "jitter": 0.125},
    });
    let default = json!({
        "type": "default", "from": "default", "class": "durable", "order": "priority",
        "claim_ttl_ms": 60_000, "max_tries": 25, "tube_max_tries": 0, "dedup_ignore": [], "in_any": true, "rank": 100, "retries": true, "dedup": false,
        "crash_tries": 3, "tube_crash_tries": 0,
        "read_only_reason": null, "prune_ms": 604_800_000, "throttle": 0.0,
        "backoff": {"first_ms": 1000, "factor": 2, "max_ms": 3_600_000, "jitter": 0.1},
    });
    assert_eq!(told["types"], json!([default, purges]));
    assert_eq!(told["tenants"], json!([{"tenant": "acme", "weight": 3}]));
}

#[test]
fn what_holds_for_one_type_is_told_with_the_entry_that_says_so() {
    let fifo = TypeRules { order: Order::Fifo, ..TypeRules::default() };
    let rules = Rules { types: BTreeMap::from([("mails".to_owned(), fifo)]), ..Rules::default() };
    let opened = opened(&rules);
    for (asked, kind, from, order) in [
        ("mails", "mails", "mails", "fifo"),
        ("t1:mails", "mails", "mails", "fifo"),
        ("purges", "purges", "default", "priority"),
        ("default", "default", "default", "priority"),
    ] {
        let told = opened.get(&format!("/v1/queues/config?type={asked}"), "");
        let types = types(&told.json());
        assert_eq!(types.len(), 1, "{asked}");
        let of = &types[kind];
        assert_eq!((&of["from"], &of["order"]), (&json!(from), &json!(order)));
    }
}
