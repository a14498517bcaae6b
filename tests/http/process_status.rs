//! Requests about processes that produce every described answer. They are sent over the socket, because TCP does not
//! permit them.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::every_status::PendingRequest;
use crate::opened::{Answer, Opened, answers, read_all};
use serde_json::{Value, json};
use sexton::actors::process::{Definition, Policy};
use sexton::bytes::Bytes;
use sexton::clock::{ManualClock, Timestamp};
use sexton::config::{Config, KeeperProgram};
use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;

const SERVICE: &str = "once";

const ABSENT: &str = "0192f5e0-7a4b-7c11-9d2e-5f6a7b8c9d0e";

/// Returns whether a path is about processes or services.
pub(crate) fn is_ours(path: &str) -> bool {
    path.starts_with("/v1/processes") || path.starts_with("/v1/services")
}

/// Configures a node to launch processes.
pub(crate) fn launches(config: &mut Config) {
    config.keeper = KeeperProgram::At(env!("CARGO_BIN_EXE_sexton").into());
}

/// Configures a service that ends immediately.
pub(crate) fn serves(config: &mut Config) {
    let mut service =
        Definition { name: SERVICE.to_owned(), restart: Policy::Never, ..Definition::default() };
    service.spec.argv = vec![Bytes::new(*b"true")];
    config.services = vec![service];
}

fn post(socket: &Path, what: &str, body: &Value) -> Value {
    let path = format!("/v1/processes/{what}");
    at(&PendingRequest::as_described(&path, "POST").about(body), socket).json()
}

/// Sends a request over this socket.
pub(crate) fn at(asking: &PendingRequest, socket: &Path) -> Answer {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    let text = asking.clone().with("Connection: close").text();
    stream.write_all(text.as_bytes()).expect("connected");
    answers(&read_all(&mut stream)).pop().expect("an answer")
}

/// Launches a process that ends without help, but long after the test. Returns its id.
pub(crate) fn launched(socket: &Path) -> String {
    let record = post(socket, "launch", &json!({"command": ["sleep", "60"]}));
    record["id"].as_str().expect("a string").to_owned()
}

/// Stops a process, and waits until it has ended.
pub(crate) fn ended(socket: &Path, id: &str) {
    // The process may already have ended.
    let stop = PendingRequest::as_described("/v1/processes/stop", "POST");
    at(&stop.about(&json!({"id": id, "grace_ms": 0})), socket);
    let record = post(socket, "wait", &json!({"id": id, "wait": 60}));
    assert_eq!(record["status"], "exited");
}

/// The time stands still, so that it ends in the millisecond of the request.
#[test]
fn a_process_that_ended_in_this_millisecond_is_forgotten_as_well() {
    let clock = ManualClock::at(Timestamp(1_000_000_000_000));
    let opened = Opened::configured(|config| {
        launches(config);
        config.clock = Some(clock.clone());
    });
    let socket = opened.socket();
    let id = launched(&socket);
    ended(&socket, &id);
    let pruned = |body: &Value| post(&socket, "prune", body)["pruned"].clone();
    assert_eq!(pruned(&json!({"older_than_ms": 1})), 0);
    assert_eq!(pruned(&json!({})), 1);
}

/// Returns a request that succeeds, and the process that must be ended afterwards, if it needs one.
pub(crate) fn well(path: &str, method: &str, socket: &Path) -> (PendingRequest, Option<String>) {
    let asking = PendingRequest::as_described(path, method);
    let mine = json!({"pid": std::process::id()});
    // The process of this test is the server, which has a record already.
    #[expect(clippy::zombie_processes, reason = "it ends by itself, after the test")]
    let registered = || {
        let mut other = Command::new("sleep");
        let other = other.arg("60").spawn().expect("the command starts");
        post(socket, "register", &json!({"pid": other.id()}))["id"].clone()
    };
    match path {
        "/v1/processes/launch" => (asking.about(&json!({"command": ["true"]})), None),
        "/v1/processes/start" => {
            let body = json!({"command": ["true"], "deferred": true});
            let id = post(socket, "launch", &body)["id"].clone();
            (asking.about(&json!({ "id": id })), None)
        }
        "/v1/processes/register" => (asking.about(&mine), None),
        "/v1/processes/finish" => {
            let body = json!({"id": registered(), "code": 0});
            (asking.about(&body), None)
        }
        "/v1/processes/stop" | "/v1/processes/wait" => {
            let id = launched(socket);
            (asking.about(&json!({"id": id})), Some(id))
        }
        "/v1/processes/usage" => {
            let id = launched(socket);
            (asking.about(&json!({"ids": [id]})), Some(id))
        }
        "/v1/processes/signal" => {
            let id = launched(socket);
            let body = json!({"id": id, "signal": 18});
            (asking.about(&body), Some(id))
        }
        "/v1/services/service" => {
            let target = format!("{path}?name={SERVICE}");
            (asking.at_target(&target), None)
        }
        "/v1/services/start" | "/v1/services/stop" | "/v1/services/restart" => {
            (asking.about(&json!({"name": SERVICE, "wait": 60})), None)
        }
        "/v1/processes/process" | "/v1/processes/ancestors" | "/v1/processes/descendants" => {
            let id = registered();
            let target = format!("{path}?id={}", id.as_str().expect("a string"));
            (asking.at_target(&target), None)
        }
        _ => (asking, None),
    }
}

/// Returns a valid request with the fewest fields.
pub(crate) fn least(path: &str, method: &str) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    match path {
        "/v1/processes/usage" => asking.about(&json!({"ids": [ABSENT]})),
        _ => asking,
    }
}

/// Returns a request about a process that does not exist.
pub(crate) fn absent(path: &str, method: &str) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    match path {
        "/v1/services/service" => asking.at_target(&format!("{path}?name=none")),
        _ if path.starts_with("/v1/services") => asking.about(&json!({"name": "none"})),
        "/v1/processes/register" => asking.about(&json!({"pid": i32::MAX})),
        "/v1/processes/finish" => asking.about(&json!({"id": ABSENT, "code": 0})),
        "/v1/processes/signal" => asking.about(&json!({"id": ABSENT, "signal": 18})),
        _ if method == "POST" => asking.about(&json!({"id": ABSENT})),
        _ => asking.at_target(&format!("{path}?id={ABSENT}")),
    }
}

/// Sends a request that conflicts with the state of a process.
pub(crate) fn conflict(path: &str, method: &str, socket: &Path) -> Answer {
    let id = launched(socket);
    ended(socket, &id);
    let asking = PendingRequest::as_described(path, method);
    let body = match path {
        "/v1/processes/finish" => json!({"id": id, "code": 0}),
        "/v1/processes/signal" => json!({"id": id, "signal": 18}),
        _ => json!({"id": id}),
    };
    at(&asking.about(&body), socket)
}

/// Sends a request that is refused because the disk is full. It is about a process that was launched before.
pub(crate) fn full(path: &str, method: &str, (socket, id): (&Path, &str)) -> Answer {
    let asking = PendingRequest::as_described(path, method);
    let body = match path {
        "/v1/processes/launch" => json!({"command": ["true"]}),
        "/v1/processes/register" => json!({"pid": std::process::id()}),
        "/v1/processes/signal" => json!({"id": id, "signal": 18}),
        _ => json!({"id": id}),
    };
    at(&asking.about(&body), socket)
}
