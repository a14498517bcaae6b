//! Requests about queues that produce every described answer.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::every_status::PendingRequest;
use crate::opened::{Answer, Opened, run};
use crate::process_status;
use crate::queue::{POP, PUSH, pop, push, target};
use serde_json::{Value, json};
use sexton::actors::queue::{Body, Put, QueueName, TypeRules};
use sexton::config::Config;
use std::path::Path;

const QUEUE: &str = "held";
const KEEP: &str = "/v1/queues/keep-result";
/// A type of jobs that are tried once.
const FEW: &str = "few";

/// Configures the rules of the type `FEW`.
pub(crate) fn rules(config: &mut Config) {
    let rules = TypeRules { max_tries: 1, ..TypeRules::default() };
    config.rules.queue.types.insert(FEW.to_owned(), rules);
}

/// Returns the query and the body for a path. A claim in them is well-formed, but does not exist.
pub(crate) fn parts(path: &str) -> (Option<&'static str>, Option<Value>) {
    let body = match path {
        "/v1/queues/retry" | "/v1/queues/discard" => json!({}),
        "/v1/queues" | "/v1/queues/jobs" | "/v1/queues/next" | "/v1/queues/config" => {
            return (None, None);
        }
        "/v1/queues/queue" => return (Some("queue=held"), None),
        "/v1/queues/job" | "/v1/queues/result" => return (Some("id=1"), None),
        KEEP => json!({"id": 1, "token": 1, "keep_ms": 1000, "done": true}),
        PUSH => json!({"queue": QUEUE, "body": "x"}),
        "/v1/queues/push-all" => json!({"jobs": [{"queue": QUEUE, "body": "x"}]}),
        POP => json!({"queues": [QUEUE]}),
        "/v1/queues/ack" | "/v1/queues/fail" | "/v1/queues/defer" | "/v1/queues/report"
        | "/v1/queues/touch" | "/v1/queues/release" | "/v1/queues/bury" => {
            json!({"id": 1, "token": 1})
        }
        "/v1/queues/delete" | "/v1/queues/kick-job" | "/v1/queues/cancel" => json!({"id": 1}),
        "/v1/queues/kick" | "/v1/queues/repush" | "/v1/queues/flush" => json!({"queue": QUEUE}),
        "/v1/queues/register" => json!({"queue": QUEUE, "signature": "s", "at": 1}),
        "/v1/queues/pause" => json!({"queue": QUEUE, "ms": 0}),
        "/v1/queues/withdraw" => json!({"process": "00000000-0000-7000-8000-000000000001"}),
        path => panic!("{path} has no case here"),
    };
    (None, Some(body))
}

/// Returns a request that succeeds.
pub(crate) fn well(path: &str, method: &str, opened: &Opened) -> PendingRequest {
    push(opened, QUEUE, "claimed");
    let claim = pop(opened, QUEUE);
    let ready = push(opened, QUEUE, "ready");
    let asking = PendingRequest::well(path, method);
    match path {
        "/v1/queues/job" | "/v1/queues/result" => asking.at_target(&format!("{path}?id={ready}")),
        KEEP => asking.about(&kept(&target(&claim))),
        "/v1/queues/delete" | "/v1/queues/cancel" => asking.about(&json!({"id": ready})),
        "/v1/queues/kick-job" | "/v1/queues/kick" => {
            let bury = PendingRequest::well("/v1/queues/bury", "POST").about(&target(&claim));
            assert_eq!(bury.of(opened).status, 200);
            if path == "/v1/queues/kick" {
                return asking;
            }
            asking.about(&json!({"id": claim["id"]}))
        }
        // Each registration must be for a later root job than the one before.
        "/v1/queues/register" => {
            asking.about(&json!({"queue": QUEUE, "signature": "s", "at": ready}))
        }
        "/v1/queues/repush" => {
            push(opened, FEW, "x");
            let claim = pop(opened, FEW);
            let release = PendingRequest::well("/v1/queues/release", "POST").about(&target(&claim));
            assert_eq!(release.of(opened).status, 200);
            asking.about(&json!({"queue": FEW}))
        }
        "/v1/queues/ack" | "/v1/queues/fail" | "/v1/queues/defer" | "/v1/queues/report"
        | "/v1/queues/touch" | "/v1/queues/release" | "/v1/queues/bury" => {
            asking.about(&target(&claim))
        }
        _ => asking,
    }
}

/// Sends a request about something that does not exist.
pub(crate) fn absent(path: &str, method: &str, opened: &Opened) -> Answer {
    let asking = PendingRequest::well(path, method);
    let absent = match path {
        "/v1/queues/job" | "/v1/queues/result" => asking.at_target(&format!("{path}?id=999999999")),
        KEEP => asking.about(&kept(&json!({"id": 999_999_999, "token": 1}))),
        "/v1/queues/queue" => asking.at_target("/v1/queues/queue?queue=absent"),
        "/v1/queues/next" => asking.at_target("/v1/queues/next?types=absent"),
        "/v1/queues/kick-job" | "/v1/queues/delete" | "/v1/queues/cancel" => {
            asking.about(&json!({"id": 999_999_999}))
        }
        "/v1/queues/pause" => asking.about(&json!({"queue": "absent", "ms": 0})),
        // Bind the claim to a process that does not exist.
        POP => {
            let process = "00000000-0000-7000-8000-000000000001";
            let bound = asking.about(&json!({"queues": [QUEUE], "process": process}));
            return process_status::at(&bound, &opened.socket());
        }
        _ => asking.about(&json!({"id": 999_999_999, "token": 1})),
    };
    absent.of(opened)
}

/// Sends a request that conflicts with the current state.
pub(crate) fn conflict(path: &str, method: &str, opened: &Opened) -> Answer {
    push(opened, QUEUE, "claimed");
    let claim = pop(opened, QUEUE);
    let fields = match path {
        "/v1/queues/ack" | "/v1/queues/fail" | "/v1/queues/defer" | "/v1/queues/report"
        | "/v1/queues/touch" | "/v1/queues/release" | "/v1/queues/bury" => {
            json!({"id": claim["id"], "token": 1})
        }
        "/v1/queues/delete" | "/v1/queues/kick-job" => json!({"id": claim["id"]}),
        KEEP => kept(&json!({"id": claim["id"], "token": 1})),
        POP => return claim_again(opened),
        path => panic!("{path} has no conflict here"),
    };
    PendingRequest::well(path, method).about(&fields).of(opened)
}

/// Returns the fields of a request to keep the result of this claim.
fn kept(claim: &Value) -> Value {
    json!({"id": claim["id"], "token": claim["token"], "keep_ms": 1000, "done": true})
}

/// Repeats a request for a claim after the claim has ended.
fn claim_again(opened: &Opened) -> Answer {
    push(opened, QUEUE, "claimed again");
    let once = PendingRequest::well(POP, "POST").with("Idempotency-Key: claimed");
    let claims = once.of(opened).json();
    let ack = PendingRequest::well("/v1/queues/ack", "POST").about(&target(&claims["jobs"][0]));
    assert_eq!(ack.of(opened).status, 200);
    once.of(opened)
}

/// Makes a data directory with an abandoned job, which failed at its last try.
pub(crate) fn abandon(data: &Path) {
    let mut config = Config::at(data);
    config.rules.queue.default = TypeRules { max_tries: 1, ..TypeRules::default() };
    let node = sexton_http::open(config).expect("the directory opens");
    let queues = node.handle().queues();
    run(async {
        let held = QueueName::parse(QUEUE.as_bytes()).expect("a valid name");
        let job = Put::new(held.clone(), Body::new(*b"x"));
        queues.put(job).await.expect("the job is added");
        let claim = queues.pop(&[held]).await.expect("an answer");
        let claim = claim.expect("there is a job");
        let released = queues.release(claim.id, claim.token, (0, None)).await;
        released.expect("the job is claimed");
    });
    node.stop().expect("a clean stop");
}
