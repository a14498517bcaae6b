//! The record of the server with the real program: what the services stand below, and what happens to it.

use crate::coordinator::{CommandOutput, command, done};
use crate::patience::until;
use crate::services::{Application, kill};
use serde_json::Value;
use std::process::Stdio;

const WEB: &str = "[services.web]\ncommand = [\"sleep\", \"1000\"]\n";

fn run(application: &Application, words: &[&str]) -> CommandOutput {
    let mut command = command(&application.data(), words);
    let output = command.stdin(Stdio::null()).output();
    done(output.expect("the command runs"))
}

/// Returns the PID of the server.
fn pid(application: &Application) -> u64 {
    let server = application.daemon.as_ref().expect("a server");
    let pid = server.pid().as_raw_pid();
    pid.try_into().expect("a PID")
}

/// Returns the ancestors of the service's process and that process, from the top, as type, id and PID.
fn line(application: &Application) -> Vec<(String, String, u64)> {
    let process = until("the service runs", || {
        application.running("web")?;
        let view = application.view("web");
        Some(view.pointer("/instances/0/process")?.as_str()?.to_owned())
    });
    let shown = run(application, &["ps", "--tree", &process, "--json"]);
    assert_eq!(shown.status, 0, "{shown:?}");
    let shown: Value = serde_json::from_str(&shown.out).expect("JSON");
    let records = shown.pointer("/processes").and_then(Value::as_array);
    let text = |record: &Value, field: &str| {
        let value = record.get(field).and_then(Value::as_str);
        value.expect("it has this field").to_owned()
    };
    let of = |it: &Value| {
        let pid = it.get("pid").and_then(Value::as_u64).unwrap_or(0);
        (text(it, "type"), text(it, "id"), pid)
    };
    records.expect("a list").iter().map(of).collect()
}

#[test]
fn the_server_keeps_one_record_above_its_services_over_every_restart() {
    let mut application = Application::start(WEB);
    let first = line(&application);
    let kinds: Vec<&str> = first.iter().map(|(kind, ..)| kind.as_str()).collect();
    assert_eq!(kinds, ["cli", "supervisord", "service"]);
    let [starter, server, web] = first.as_slice() else {
        panic!("{first:?}");
    };
    assert_eq!(starter.2, u64::from(std::process::id()));
    assert_eq!(server.2, pid(&application));
    application.kill();
    application.serve();
    let again = line(&application);
    let [_, same, kept] = again.as_slice() else {
        panic!("{again:?}");
    };
    assert_eq!((&same.1, kept), (&server.1, web));
    assert_eq!(same.2, pid(&application));
    kill(i32::try_from(web.2).expect("a PID"));
    let (_, replaced, _) = until("another process runs", || {
        let now = line(&application);
        now.last().filter(|it| it.1 != web.1).cloned()
    });
    let third = line(&application);
    let ids: Vec<&str> = third.iter().map(|(_, id, _)| id.as_str()).collect();
    assert_eq!(ids, [starter.1.as_str(), &server.1, &replaced]);
    let listed = run(&application, &["ps", "--all", "--type", "supervisord", "--count"]);
    assert_eq!(listed.out, "1\n");
}

#[test]
fn the_server_is_not_killed_through_its_record() {
    let application = Application::start(WEB);
    let before = line(&application);
    let [starter, server, _] = before.as_slice() else {
        panic!("{before:?}");
    };
    for words in [["kill", "--tree", &server.1], ["kill", "--tree", &starter.1]] {
        let refused = run(&application, &words);
        assert_eq!(refused.status, 1, "{refused:?}");
        assert!(refused.err.contains("sexton service stop"), "{refused:?}");
    }
    let refused = run(&application, &["kill", &server.1]);
    assert_eq!(refused.status, 1, "{refused:?}");
    assert_eq!(line(&application), before);
}
