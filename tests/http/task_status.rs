//! Requests about tasks and servers that produce every described answer.

use crate::every_status::PendingRequest;
use crate::opened::{Answer, Opened, run};
use crate::patience::until;
use crate::process_status::at;
use serde_json::json;
use sexton::actors::dispatch::{Act, NewTask, ServerChange};
use sexton::actors::lease::Setting;
use sexton::actors::lock::Name;
use sexton::actors::process::{Launching, Spec};
use sexton::bytes::Bytes;
use sexton::handle::{LeaseError, REFRESH};
use std::path::Path;
use std::sync::Arc;

/// Returns whether a path is about tasks or servers.
pub(crate) fn is_ours(path: &str) -> bool {
    ["/v1/audit", "/v1/servers", "/v1/tasks"].iter().any(|beginning| path.starts_with(beginning))
}

/// A command that does nothing.
fn nothing() -> Arc<Launching> {
    let spec = Spec { argv: vec![Bytes::new(b"true".as_slice())], ..Spec::default() };
    Arc::new(Launching { spec, ..Launching::default() })
}

/// Adds a paused task, which does not run. Returns its id.
fn paused(opened: &Opened) -> u64 {
    let adding = NewTask { command: nothing(), paused: true, ..NewTask::default() };
    let added = run(opened.handle().tasks().add(adding));
    added.expect("the node adds it").task.id
}

fn named(name: &str) -> Name {
    Name::try_from(name).expect("the name is short")
}

/// Returns a request that succeeds, and changes something if it is of a kind that does.
pub(crate) fn well(path: &str, method: &str, opened: &Opened) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    let body = match path {
        "/v1/tasks" | "/v1/tasks/groups" | "/v1/servers" => return asking,
        "/v1/tasks/task" | "/v1/tasks/transcript" => {
            return asking.at_target(&format!("{path}?id={}", paused(opened)));
        }
        "/v1/tasks/act" => json!({"id": paused(opened), "act": "terminate"}),
        "/v1/tasks/wait" => json!({"id": paused(opened), "wait": 0}),
        "/v1/servers/set" => json!({"server": "set", "threads": 1}),
        "/v1/servers/reach" => {
            let tasks = opened.handle().tasks();
            // It may be there from an earlier request.
            drop(run(tasks.server(named("far"), ServerChange::Removed)));
            json!({"server": "far", "threads": 1, "ssh": {"to": "far"}})
        }
        "/v1/servers/remove" => {
            let tasks = opened.handle().tasks();
            let added = tasks.server(named("removed"), ServerChange::Threads(1));
            run(added).expect("the node adds it");
            json!({"server": "removed"})
        }
        "/v1/servers/refresh" => {
            refreshing(opened, Setting::Disabled(false));
            refreshing(opened, Setting::Command(Some(nothing())));
            json!({})
        }
        _ => return least(path, method),
    };
    asking.about(&body)
}

/// Creates the lease that updates the inventory of servers, with this setting.
fn refreshing(opened: &Opened, setting: Setting) {
    let (leases, name) = (opened.handle().leases(), named(REFRESH));
    run(leases.set(&name, setting)).expect("the node accepts the setting");
}

/// Returns a request about a task or server that does not exist.
fn absent(path: &str, method: &str) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    match path {
        "/v1/tasks/task" | "/v1/tasks/transcript" => asking.at_target(&format!("{path}?id=1")),
        "/v1/tasks/act" => asking.about(&json!({"id": 1, "act": "pause"})),
        "/v1/tasks/wait" => asking.about(&json!({"id": 1, "wait": 0})),
        "/v1/servers/set" => asking.about(&json!({"server": "none", "enabled": true})),
        _ => asking.about(&json!({"server": "none"})),
    }
}

/// Returns a valid request with the fewest fields.
fn least(path: &str, method: &str) -> PendingRequest {
    let asking = PendingRequest::as_described(path, method);
    match path {
        "/v1/tasks/task" | "/v1/tasks/transcript" => asking.at_target(&format!("{path}?id=1")),
        "/v1/tasks/add" => asking.about(&json!({"launch": {"command": ["true"]}, "paused": true})),
        "/v1/tasks/act" => asking.about(&json!({"id": 1, "act": "pause"})),
        "/v1/tasks/wait" => asking.about(&json!({"id": 1, "wait": 0})),
        "/v1/tasks/pause" => asking.about(&json!({"pause": "soft", "group": "g"})),
        "/v1/tasks/limit" => asking.about(&json!({"group": "g", "max": 7})),
        "/v1/servers/set" => asking.about(&json!({"server": "x", "threads": 1})),
        "/v1/servers/reach" => {
            asking.about(&json!({"server": "x", "threads": 1, "ssh": {"to": "x"}}))
        }
        "/v1/servers/remove" => asking.about(&json!({"server": "x"})),
        "/v1/servers/inventory" => asking.about(&json!({"hosts": [{"host": "h"}]})),
        "/v1/servers/refresh" => asking.about(&json!({})),
        _ => asking,
    }
}

/// Creates the lease that a request needs, before the disk is full.
pub(crate) fn before_it_is_full(socket: &Path) {
    let lease = json!({"name": REFRESH, "launch": {"command": ["true"], "dir": "/"}});
    let set = PendingRequest::as_described("/v1/leases/set", "POST").about(&lease);
    let answer = at(&set, socket);
    assert_eq!(answer.status, 200, "{answer:?}");
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
        404 if path == "/v1/servers/refresh" => {
            let (leases, name) = (well_node.handle().leases(), named(REFRESH));
            // A pass that runs must be stopped before its lease can be reset.
            until("the lease is forgotten", || {
                let _was_there = run(leases.reset(&name, true));
                let left = run(leases.get(&name));
                left.is_err_and(|it| it == LeaseError::Absent).then_some(())
            });
            absent(path, method)
        }
        404 => absent(path, method),
        409 if path == "/v1/servers/refresh" => {
            refreshing(well_node, Setting::Disabled(true));
            least(path, method)
        }
        409 => {
            let id = paused(well_node);
            let ends = Act::Terminate { now: true };
            run(well_node.handle().tasks().act(id, ends)).expect("it has not started");
            least(path, method).about(&json!({"id": id, "act": "pause"}))
        }
        415 => well(path, method, well_node).with("Content-Type: text/plain"),
        422 => {
            let asking = well(path, method, well_node);
            let asking = asking.with(&format!("Idempotency-Key: {path}"));
            let first = at(&asking, &socket);
            assert_eq!(first.status, 200, "{first:?}");
            asking.spaced()
        }
        500 => return Some(at(&least(path, method), &panicking.socket())),
        _ => return None,
    };
    Some(at(&asking, &socket))
}
