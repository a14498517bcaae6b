//! The limits on the texts of all processes, leases, tasks and jobs: a request that would exceed one is refused, says what to do and changes
//! nothing; when something has been removed, it is accepted.

use crate::opened::{Answer, Opened, run};
use crate::patience::until;
use crate::process_status;
use serde_json::{Value, json};
use sexton::config::Config;

/// The limit on the texts of each actor, in bytes: the lowest that may be set.
const BYTES_MAX: u64 = 1 << 20;

/// A way to add texts to an actor, and to remove them.
struct Row {
    actor: &'static str,
    path: &'static str,
    /// The body of the request that adds the texts of this number.
    body: fn(u32) -> Value,
    /// What the refusal says, besides that a limit is reached.
    advice: &'static str,
    /// Removes something that the first of these answers is about.
    remove: fn(&Opened, &Value),
}

const ROWS: &[Row] = &[
    Row {
        actor: "process",
        path: "/v1/processes/launch",
        body: |_| with_long(&json!({"command": ["sleep", "600"]})),
        advice: "end some, or raise --text-bytes",
        remove: |opened, added| process_status::ended(&opened.socket(), text(added, "/id")),
    },
    Row {
        actor: "lease",
        path: "/v1/leases/set",
        body: |nth| json!({"name": nth.to_string(), "launch": launch()}),
        advice: "delete some with `sexton lease reset`, or raise --text-bytes",
        remove: reset,
    },
    Row {
        actor: "lease",
        path: "/v1/leases/set",
        body: |nth| json!({"name": nth.to_string(), "logfile": format!("/{}", "x".repeat(4000))}),
        advice: "delete some with `sexton lease reset`, or raise --text-bytes",
        remove: reset,
    },
    Row {
        actor: "dispatch",
        path: "/v1/tasks/add",
        body: |_| json!({"paused": true, "launch": launch()}),
        advice: "remove those that are over with `sexton task prune`, or raise --text-bytes",
        remove: end_task,
    },
    Row {
        actor: "dispatch",
        path: "/v1/tasks/add",
        body: |_| json!({"paused": true, "launch": {"command": ["true"]}, "cleanup": launch()}),
        advice: "remove those that are over with `sexton task prune`, or raise --text-bytes",
        remove: end_task,
    },
    Row {
        actor: "queue",
        path: "/v1/queues/push",
        body: |_| json!({"queue": "q", "body": "x".repeat(50_000)}),
        advice: "the limit on jobs, or on their total size, is reached",
        remove: |opened, _| well(opened, "/v1/queues/flush", &json!({"queue": "q"})),
    },
];

fn with_long(launch: &Value) -> Value {
    let mut launch = launch.clone();
    if let Some(fields) = launch.as_object_mut() {
        fields.insert("env".to_owned(), json!({"LONG": "x".repeat(50_000)}));
    }
    launch
}

fn launch() -> Value {
    with_long(&json!({"command": ["true"]}))
}

fn text<'v>(answer: &'v Value, at: &str) -> &'v str {
    let found = answer.pointer(at).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("{answer}"))
}

fn well(opened: &Opened, path: &str, body: &Value) {
    let answer = opened.post_as_owner(path, body);
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn reset(opened: &Opened, _: &Value) {
    well(opened, "/v1/leases/reset", &json!({"name": "0"}));
}

fn end_task(opened: &Opened, added: &Value) {
    let id = added.pointer("/id").unwrap_or_else(|| panic!("{added}"));
    well(opened, "/v1/tasks/act", &json!({"id": id, "act": "terminate"}));
    // Its cleanup, if it has one, runs first.
    until("it is removed", || {
        let pruned = opened.post_as_owner("/v1/tasks/prune", &json!({}));
        (pruned.json().pointer("/pruned") != Some(&json!(0))).then_some(())
    });
}

fn limited(config: &mut Config) {
    process_status::launches(config);
    let rules = &mut config.rules;
    rules.process.bytes_max = BYTES_MAX;
    rules.lease.bytes_max = BYTES_MAX;
    rules.dispatch.bytes_max = BYTES_MAX;
    rules.queue.bytes_max = BYTES_MAX;
}

/// Returns the counts of an actor's items and of their bytes.
fn counts(opened: &Opened, actor: &str) -> String {
    let status = run(opened.handle().status()).expect("the node is running");
    let found = status.actors.iter().find(|it| it.status.name == actor);
    format!("{:?}", found.expect("the actor is listed").status.gauges)
}

#[test]
fn texts_beyond_the_limit_are_refused_until_some_are_removed() {
    for row in ROWS {
        let opened = Opened::configured(limited);
        let add = |nth: u32| opened.post_as_owner(row.path, &(row.body)(nth));
        let mut added: Vec<Value> = Vec::new();
        let refused: Answer = loop {
            let answer = add(u32::try_from(added.len()).expect("there are few"));
            if answer.status != 200 {
                break answer;
            }
            added.push(answer.json());
            assert!(added.len() < 1000, "{} has no limit", row.path);
        };
        let first = added.first().expect("one has room");
        let document = refused.because(503, "full");
        let detail = document.get("detail").and_then(Value::as_str);
        let detail = detail.unwrap_or_default();
        assert!(detail.ends_with(row.advice), "{}: {detail}", row.path);
        let before = counts(&opened, row.actor);
        add(1_000_000).because(503, "full");
        assert_eq!(counts(&opened, row.actor), before, "nothing has changed");
        (row.remove)(&opened, first);
        let again = add(1_000_001);
        assert_eq!(again.status, 200, "{again:?}");
        if row.actor == "process" {
            for record in added.iter().skip(1).chain([&again.json()]) {
                process_status::ended(&opened.socket(), text(record, "/id"));
            }
        }
    }
}
