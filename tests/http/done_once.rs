//! Every POST request that accepts an idempotency key, sent twice with the same key: it is done once. A request that accepts keys and has
//! no case here fails the test; `keyed.rs` shows that all others refuse them.

use crate::every_status::{PendingRequest, SETTLE, hold};
use crate::keyed::posts;
use crate::opened::{Answer, Opened};
use crate::patience::until;
use crate::{lease_status, process_status, queue_status, task_status};
use serde_json::{Value, json};
use sexton::ids::ActorId;

/// The fields of answers that show the current state, in which a repeated answer may differ.
const CURRENT: [&str; 4] = ["remaining_ms", "age_ms", "lease", "now"];

/// Returns a request that changes something, and the process that must be ended afterwards, if it needs one.
fn request(path: &str, opened: &Opened) -> (PendingRequest, Option<String>) {
    if process_status::is_ours(path) {
        return process_status::well(path, "POST", &opened.socket());
    }
    let request = match path {
        "/v1/locks/acquire" => {
            PendingRequest::well(path, "POST").about(&json!({"key": "free", "owner": "me"}))
        }
        _ if path.starts_with("/v1/locks") => {
            hold(opened);
            PendingRequest::well(path, "POST")
        }
        _ if path.starts_with("/v1/queues") => queue_status::well(path, "POST", opened),
        _ if lease_status::is_ours(path) => lease_status::well(path, "POST", opened),
        _ if task_status::is_ours(path) => task_status::well(path, "POST", opened),
        _ => panic!("{path} has no case here"),
    };
    (request, None)
}

/// Waits until nothing happens any more that a request caused.
fn settle(path: &str, opened: &Opened, answer: &Answer) {
    let socket = opened.socket();
    match path {
        "/v1/processes/launch" | "/v1/processes/start" | "/v1/processes/stop" => {
            let id = answer.json().pointer("/id").cloned();
            let wait = PendingRequest::as_described("/v1/processes/wait", "POST");
            let wait = wait.about(&json!({"id": id, "wait": 60}));
            let ended = process_status::at(&wait, &socket).json();
            assert_eq!(ended.pointer("/status"), Some(&"exited".into()), "{path}");
        }
        "/v1/leases/run" => lease_status::wait_for_its_end(&answer.json(), &socket),
        _ => {}
    }
}

/// Returns the number of entries in the journal.
fn entries(opened: &Opened) -> u64 {
    let handle = opened.handle();
    (0..=u8::MAX).map(|id| handle.entries_of(ActorId(id))).sum()
}

/// Returns the part of an answer that is the same in every repetition. The rest shows the current state; of a record, only the id stays.
fn lasting(answer: Value) -> Value {
    match answer {
        Value::Object(fields) if fields.contains_key("queued_at") => {
            fields.get("id").cloned().expect("a record has an id")
        }
        Value::Object(fields) => {
            let fields = fields.into_iter();
            let fields = fields.filter(|(name, _)| !CURRENT.contains(&name.as_str()));
            fields.map(|(name, value)| (name, lasting(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(lasting).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => answer,
    }
}

#[test]
fn a_request_that_is_repeated_with_its_key_is_done_once() {
    let opened = Opened::configured(|config| {
        queue_status::rules(config);
        process_status::launches(config);
    });
    let accepting = posts().into_iter().filter(|(_, accepts)| *accepts);
    for (path, _) in accepting.filter(|(path, _)| path != SETTLE) {
        let (request, process) = request(&path, &opened);
        let request = request.with(&format!("Idempotency-Key: {path}"));
        if let Some(id) = &process {
            until("it has started", || {
                let record = opened.get_over_socket(&format!("/v1/processes/process?id={id}"));
                (record.json().pointer("/status") == Some(&"running".into())).then_some(())
            });
        }
        let before = entries(&opened);
        let first = process_status::at(&request, &opened.socket());
        assert_eq!(first.status, 200, "{path}: {first:?}");
        settle(&path, &opened, &first);
        let between = entries(&opened);
        assert!(between > before, "{path} changes something");
        let again = process_status::at(&request, &opened.socket());
        assert_eq!(entries(&opened), between, "{path} changes nothing when it is repeated");
        assert_eq!(lasting(again.json()), lasting(first.json()), "{path}");
        let other = process_status::at(&request.spaced(), &opened.socket());
        other.because(422, "key-reused");
        if let Some(id) = process {
            process_status::ended(&opened.socket(), &id);
        }
    }
}
