//! Requests about leases that produce every described answer.

use crate::every_status::PendingRequest;
use crate::opened::{Answer, Opened, run};
use crate::process_status::at;
use serde_json::{Value, json};
use sexton::actors::lease::{Claim, PassRequest, Setting};
use sexton::actors::lock::Name;
use std::path::Path;

/// The id of a process that does not exist.
const ABSENT: &str = "0192f5e0-7a4b-7c11-9d2e-5f6a7b8c9d0e";

/// Returns whether a path is about leases.
pub(crate) fn is_ours(path: &str) -> bool {
    path.starts_with("/v1/leases")
}

fn named(name: &str) -> Name {
    Name::try_from(name).expect("the name is short")
}

/// Creates a lease with a pass that a client runs. Returns the token of the pass.
fn claimed(opened: &Opened, name: &str) -> u64 {
    let leases = opened.handle().leases();
    let requesting = PassRequest {
        name: named(name),
        claim: Some(Claim::default()),
        no_delay: true,
        ..PassRequest::default()
    };
    let requested = run(leases.request(requesting)).expect("the request is answered");
    let current = requested.lease.lease.current;
    current.expect("the lease has a current pass").token.0
}

/// Adds a request that waits in line for its turn. Returns its number.
fn next(opened: &Opened, name: &str) -> u64 {
    claimed(opened, name);
    let leases = opened.handle().leases();
    let waits = true;
    let requesting = PassRequest {
        name: named(name),
        claim: Some(Claim { waits, ..Claim::default() }),
        ..PassRequest::default()
    };
    run(leases.request(requesting)).expect("the request is answered").place.0
}

/// Returns a request that succeeds.
pub(crate) fn well(path: &str, method: &str, opened: &Opened) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    let lease = || {
        let set = opened.handle().leases();
        let name = named("well");
        run(set.set(&name, Setting::Period(1))).expect("the node accepts the setting");
        "well"
    };
    let body = match path {
        "/v1/leases" => return asking,
        "/v1/leases/lease" | "/v1/leases/check" => {
            return asking.at_target(&format!("{path}?name={}", lease()));
        }
        "/v1/leases/run" => json!({"name": "run", "launch": {"command": ["true"]}}),
        "/v1/leases/claim" => json!({"name": "claim"}),
        "/v1/leases/renew" | "/v1/leases/finish" => {
            json!({"name": path, "token": claimed(opened, path)})
        }
        "/v1/leases/withdraw" => json!({"name": path, "place": next(opened, path)}),
        "/v1/leases/wait" => json!({"name": lease(), "begun": 0}),
        "/v1/leases/set" => json!({"name": "set", "period_ms": 5000}),
        "/v1/leases/import" => json!({"name": "import", "text": "0 0 0 0"}),
        "/v1/leases/reset" => json!({"name": lease()}),
        _ => panic!("{path} has no case here"),
    };
    asking.about(&body)
}

/// Returns a request about a lease that does not exist, or with a process that does not exist.
fn absent(path: &str, method: &str) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    match path {
        "/v1/leases/lease" => asking.at_target("/v1/leases/lease?name=none"),
        "/v1/leases/claim" => asking.about(&json!({"name": "none", "process": ABSENT})),
        "/v1/leases/renew" => asking.about(&json!({"name": "none", "token": 1, "process": ABSENT})),
        "/v1/leases/wait" => asking.about(&json!({"name": "none", "begun": 1})),
        "/v1/leases/withdraw" => asking.about(&json!({"name": "none", "place": 1})),
        _ => asking.about(&json!({"name": "none"})),
    }
}

/// Returns a request that conflicts with the state of a lease.
fn conflict(path: &str, method: &str, opened: &Opened) -> PendingRequest {
    let leases = opened.handle().leases();
    let body = match path {
        "/v1/leases/run" | "/v1/leases/claim" => {
            let off = named("off");
            run(leases.set(&off, Setting::Disabled(true))).expect("the node accepts the setting");
            match path {
                "/v1/leases/run" => json!({"name": "off", "launch": {"command": ["true"]}}),
                _ => json!({"name": "off"}),
            }
        }
        "/v1/leases/import" => {
            claimed(opened, "busy");
            json!({"name": "busy", "text": "0 0 0 0"})
        }
        "/v1/leases/reset" => {
            claimed(opened, "busy");
            json!({"name": "busy"})
        }
        _ => json!({"name": "busy", "token": 1}),
    };
    PendingRequest::as_described(path, method).about(&body)
}

/// Returns a valid request with the fewest fields.
pub(crate) fn least(path: &str, method: &str) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    match path {
        "/v1/leases/run" => asking.about(&json!({"name": "x", "launch": {"command": ["true"]}})),
        "/v1/leases/lease" | "/v1/leases/check" => asking.at_target(&format!("{path}?name=x")),
        "/v1/leases/claim" | "/v1/leases/reset" => asking.about(&json!({"name": "x"})),
        "/v1/leases/renew" | "/v1/leases/finish" => asking.about(&json!({"name": "x", "token": 1})),
        "/v1/leases/set" => asking.about(&json!({"name": "x", "period_ms": 5000})),
        "/v1/leases/withdraw" => asking.about(&json!({"name": "x", "place": 1})),
        "/v1/leases/wait" => asking.about(&json!({"name": "x", "begun": 1})),
        "/v1/leases/import" => asking.about(&json!({"name": "x", "text": ""})),
        _ => asking,
    }
}

/// Sends a request that is refused because the disk is full.
pub(crate) fn full(path: &str, method: &str, socket: &Path) -> Answer {
    at(&least(path, method), socket)
}

/// Provokes an answer over the socket. Returns `None` if the answer is provoked in the same way as for other paths.
pub(crate) fn provoke(
    (path, method, status): (&str, &str, u16),
    (well_node, panicking): (&Opened, &Opened),
) -> Option<Answer> {
    let socket = well_node.socket();
    let asking = match status {
        200 => well(path, method, well_node),
        404 => absent(path, method),
        409 => conflict(path, method, well_node),
        415 => well(path, method, well_node).with("Content-Type: text/plain"),
        422 => {
            // Use a claim that is granted: one that is turned away is not recorded, so its key is not remembered.
            let asking = match path {
                "/v1/leases/claim" => least(path, method).about(&json!({"name": "once"})),
                _ => well(path, method, well_node),
            };
            let asking = asking.with(&format!("Idempotency-Key: {path}"));
            let first = at(&asking, &socket);
            assert_eq!(first.status, 200, "{first:?}");
            asking.spaced()
        }
        500 => return Some(at(&least(path, method), &panicking.socket())),
        _ => return None,
    };
    let answer = at(&asking, &socket);
    if path == "/v1/leases/run" && status == 200 {
        wait_for_its_end(&answer.json(), &socket);
    }
    Some(answer)
}

/// Waits until the pass that this answer shows has ended.
pub(crate) fn wait_for_its_end(said: &Value, socket: &Path) {
    let token = said.pointer("/lease/current/token").cloned();
    let body = json!({"name": "run", "ended": token, "wait": 60});
    let ended = at(&least("/v1/leases/wait", "POST").about(&body), socket);
    assert_eq!(ended.json().pointer("/current/running"), Some(&false.into()));
}
