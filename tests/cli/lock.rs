//! `sexton lock` and `sexton drain`, with the real program.

use crate::coordinator::{Coordinator, command, done};
use crate::daemon::{Daemon, text};
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::process::Stdio;

#[test]
fn of_many_commands_of_one_shell_one_holds_the_lock() {
    let coordinator = Coordinator::start(&[]);
    let acquire = || {
        let mut command = coordinator.command(&["lock", "acquire", "y", "--json"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    };
    let all = [acquire(), acquire(), acquire()]
        .map(|it| it.wait_with_output().expect("the process ends"));
    let granted = all.iter().filter(|output| output.status.success());
    assert_eq!(granted.count(), 1, "{all:?}");
    for refused in all.into_iter().filter(|output| !output.status.success()) {
        let refused = done(refused);
        assert_eq!(refused.status, 1);
        assert!(
            refused.err.contains("holds the lock") && !refused.err.contains("place"),
            "without a wait there is no position: {refused:?}"
        );
    }
}

#[test]
fn key_and_token_are_enough_for_whoever_has_them() {
    let coordinator = Coordinator::start(&[]);
    let granted = coordinator.json(&["lock", "acquire", "backup", "--ttl", "600"]);
    let token = granted["token"].to_string();
    let owner = granted["owner"].as_str().expect("a string").to_owned();
    assert!(owner.contains('@') && owner.contains(':'), "a list shows the owner: {owner}");
    assert_eq!(coordinator.well(&["lock", "owner", "backup"]), format!("{owner}\n"));
    let place = format!("place 1: it holds the lock, token {token}\n");
    let of_owner = ["lock", "place", "backup", "--owner", &owner];
    assert_eq!(coordinator.well(&of_owner), place);
    let renewed = coordinator.well(&["lock", "renew", "backup", "--token", &token]);
    assert_eq!(renewed, format!("renewed, {place}"));
    let release =
        |words: &[&str]| coordinator.run(&[&["lock", "release", "backup"], words].concat());
    for words in [&["--token", "1"][..], &["--token", "1", "--owner", &owner]] {
        let stale = release(words);
        assert_eq!((stale.status, stale.out.as_str()), (1, ""));
        assert!(stale.err.contains("stale") && stale.err.contains("help:"), "{stale:?}");
    }
    let another = release(&["--token", &token, "--owner", "another"]);
    assert_eq!(another.status, 1, "an owner that is given must match");
    let nobody = release(&[]);
    assert_eq!(nobody.status, 2, "{nobody:?}");
    assert!(nobody.err.contains("--token"), "{nobody:?}");
    assert_eq!(release(&["--token", &token]).out, "released\n");
    for words in [
        &["release", "backup", "--token", &token][..],
        &["renew", "backup", "--token", &token],
        &["owner", "backup"],
        &["place", "backup", "--owner", &owner],
    ] {
        let absent = coordinator.run(&[&["lock"], words].concat());
        assert_eq!(absent.status, 1, "{words:?}: {absent:?}");
    }
}

#[test]
fn who_acquires_again_has_the_time_that_it_asks_for() {
    let coordinator = Coordinator::start(&[]);
    let acquire =
        |ttl: &str| coordinator.well(&["lock", "acquire", "a", "--owner", "one", "--ttl", ttl]);
    let first = acquire("60");
    for ttl in [600, 30] {
        assert_eq!(acquire(&ttl.to_string()), first, "the same token");
        let entry = coordinator.json(&["lock", "list", "a"])["locks"][0].clone();
        assert_eq!(entry["ttl"], ttl);
        let remaining = entry["remaining_ms"].as_u64().expect("a number");
        assert!(remaining > 0 && remaining <= ttl * 1000, "{entry}");
    }
}

#[test]
fn a_lock_that_is_held_says_by_whom_and_what_to_do() {
    let coordinator = Coordinator::start(&[]);
    coordinator.well(&["lock", "acquire", "a", "--owner", "one"]);
    let mut by_environment = coordinator.command(&["lock", "acquire", "a", "7"]);
    by_environment.env("SEXTON_OWNER", "two");
    let other = done(by_environment.output().expect("the command runs"));
    assert!(other.out.starts_with("acquired as two"), "each index is a separate lock: {other:?}");
    let held = coordinator.run(&["lock", "acquire", "a", "--owner", "two"]);
    assert_eq!((held.status, held.out.as_str()), (1, ""));
    assert!(held.err.contains("one holds the lock") && held.err.contains("--wait"), "{held:?}");
    for what in ["renew", "release"] {
        let none = coordinator.run(&["lock", what, "a", "--owner", "two"]);
        assert_eq!(none.status, 1, "{none:?}");
        assert!(none.err.contains("a: two neither holds this lock nor waits for it"), "{none:?}");
    }
    let held = coordinator.run(&["lock", "acquire", "a", "--owner", "two", "--json"]);
    let problem: Value = serde_json::from_str(&held.out).expect("valid JSON");
    assert_eq!((held.status, &problem["reason"]), (1, &"held".into()));
    assert_eq!(coordinator.well(&["lock", "release-all", "--owner", "one"]), "released 1\n");
    assert_eq!(coordinator.well(&["lock", "release-all", "--owner", "one"]), "released 0\n");
}

#[test]
fn who_waits_is_passed_the_lock_and_who_is_interrupted_waits_no_longer() {
    let coordinator = Coordinator::start(&[]);
    coordinator.well(&["lock", "acquire", "a", "--owner", "one"]);
    let wait = |owner: &str| {
        let mut command = coordinator.command(&["lock", "acquire", "a", "--wait", "600"]);
        command.args(["--owner", owner]).stdout(Stdio::piped());
        let waiting = command.spawn().expect("the command starts");
        until("it is in line", || {
            let place = coordinator.run(&["lock", "place", "a", "--owner", owner]);
            (place.status == 0).then_some(())
        });
        waiting
    };
    let mut interrupted = wait("two");
    let passed = wait("three");
    let place = coordinator.well(&["lock", "place", "a", "--owner", "three"]);
    assert_eq!(place, "place 3: it waits\n");
    kill_process(Pid::from_child(&interrupted), Signal::TERM).expect("a live process");
    interrupted.wait().expect("the process ends");
    until("it is withdrawn", || {
        let place = coordinator.run(&["lock", "place", "a", "--owner", "two"]);
        (place.status == 1).then_some(())
    });
    coordinator.well(&["lock", "release", "a", "--owner", "one"]);
    let passed = done(passed.wait_with_output().expect("the process ends"));
    assert!(passed.status == 0 && passed.out.starts_with("acquired as three"), "{passed:?}");
}

/// Stops or kills the coordinator with this signal, and starts it again on the same directory.
fn start_again(coordinator: Coordinator, signal: Signal) -> Coordinator {
    let Coordinator { daemon, data, files, .. } = coordinator;
    daemon.signal(signal);
    daemon.end();
    let daemon = Daemon::serve(&["--data", text(&data)]);
    Coordinator::of(daemon, data, files)
}

#[test]
fn a_wait_rides_over_a_restart_and_a_crash() {
    for signal in [Signal::TERM, Signal::KILL] {
        let coordinator = Coordinator::start(&[]);
        coordinator.well(&["lock", "acquire", "a", "--owner", "one", "--ttl", "100m"]);
        let spawn = |words: &[&str]| {
            let mut command = coordinator.command(words);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            command.spawn().expect("the command starts")
        };
        let lock = spawn(&["lock", "acquire", "a", "--owner", "two", "--wait", "3600"]);
        let job = spawn(&["queue", "pop", "q", "--wait", "3600", "--json"]);
        let waits = |coordinator: &Coordinator| {
            until("both wait", || {
                let status = coordinator.json(&["status"]);
                let found = [&status["lock_contenders"], &status["queues"]["waiting"]];
                (found == [&Value::from(1), &Value::from(1)]).then_some(())
            });
        };
        waits(&coordinator);
        let coordinator = start_again(coordinator, signal);
        waits(&coordinator);
        coordinator.well(&["lock", "release", "a", "--owner", "one"]);
        coordinator.well(&["queue", "push", "q", "x"]);
        for (child, words) in [(lock, "acquired as two"), (job, "\"body\":\"x\"")] {
            let ended = done(child.wait_with_output().expect("the process ends"));
            assert_eq!(ended.status, 0, "{signal:?}: {ended:?}");
            assert!(ended.out.contains(words), "{ended:?}");
            assert!(ended.err.contains("the coordinator stopped"), "{ended:?}");
        }
    }
}

#[test]
fn a_stop_that_outlasts_a_wait_is_no_halt() {
    let coordinator = Coordinator::start(&[]);
    let mut command = coordinator.command(&["queue", "pop", "q", "--wait", "2"]);
    let waiting = command.stderr(Stdio::piped()).spawn().expect("the command starts");
    until("it waits", || (coordinator.json(&["status"])["queues"]["waiting"] == 1).then_some(()));
    coordinator.daemon.signal(Signal::TERM);
    coordinator.daemon.end();
    let ended = done(waiting.wait_with_output().expect("the process ends"));
    assert_eq!(ended.status, 3, "{ended:?}");
    assert!(ended.err.contains("stopped and did not come back"), "{ended:?}");
    drop(coordinator.files);
}

#[test]
fn a_holder_watches_its_lock() {
    let coordinator = Coordinator::start(&[]);
    let granted = coordinator.json(&["lock", "acquire", "a", "--owner", "one"]);
    let token = granted["token"].to_string();
    let watch = ["lock", "watch", "a", "--token", &token];
    let still = coordinator.run(&[&watch[..], &["--wait", "0"]].concat());
    assert_eq!((still.status, still.out.as_str()), (1, ""));
    let mut command = coordinator.command(&watch);
    let watching = command.stdout(Stdio::piped()).spawn().expect("the command starts");
    coordinator.well(&["lock", "release", "a", "--owner", "one"]);
    let lost = done(watching.wait_with_output().expect("the process ends"));
    assert_eq!((lost.status, lost.out.as_str()), (0, "lost\n"));
}

#[test]
fn a_list_is_a_table_or_json() {
    let coordinator = Coordinator::start(&[]);
    assert_eq!(coordinator.well(&["lock", "list"]), "no locks\n");
    for (key, index, owner) in
        [("a\\xff", "1", "one"), ("orders", "", "one"), ("caf\u{e9}", "", "two")]
    {
        coordinator.well(&["lock", "acquire", key, index, "--owner", owner, "--ttl", "600"]);
    }
    let table = coordinator.well(&["lock", "list"]);
    let lines: Vec<Vec<&str>> =
        table.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        lines[0],
        ["KEY", "INDEX", "PLACE", "OWNER", "PRIORITY", "REMAINING", "TOKEN", "PROCESS"]
    );
    assert_eq!(lines[1][..4], ["a\\xff", "1", "1", "one"]);
    assert_eq!(lines[2][..4], ["caf\u{e9}", "-", "1", "two"]);
    assert_eq!(lines.len(), 4, "{table}");
    let one = coordinator.json(&["lock", "list", "--owner", "one", "--limit", "1"]);
    assert_eq!(one["locks"].as_array().map(Vec::len), Some(1));
    assert!(one["next"].is_string(), "there are more: {one}");
    let of_key = coordinator.json(&["lock", "list", "a\\xff"]);
    assert_eq!(of_key["locks"][0]["key_b64"], "Yf8=");
    assert_eq!(of_key["next"], Value::Null);
}

#[test]
fn a_drain_ends_the_coordinator_when_no_lock_is_left() {
    let coordinator = Coordinator::start(&[]);
    coordinator.well(&["lock", "acquire", "a", "--owner", "one"]);
    let begun = coordinator.well(&["drain"]);
    assert!(begun.starts_with("draining: no new locks"), "{begun}");
    let refused = coordinator.run(&["lock", "acquire", "b", "--owner", "one"]);
    assert_eq!(refused.status, 1);
    assert!(refused.err.contains("is draining"), "{refused:?}");
    assert_eq!(coordinator.run(&["drain", "--wait", "1"]).status, 1, "one is left");
    coordinator.well(&["lock", "release", "a", "--owner", "one"]);
    let (status, log) = coordinator.daemon.end();
    assert!(status.success(), "{log}");
    assert!(log.contains("drained"), "{log}");
    drop(coordinator.files);
}

#[test]
fn usage_and_absence_of_a_coordinator_have_their_statuses() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let run =
        |words: &[&str]| done(command(files.path(), words).output().expect("the command runs"));
    for words in [
        &["lock"][..],
        &["lock", "acquire"],
        &["lock", "acquire", "a", "--ttl", "0"],
        &["lock", "acquire", "a", "--ttl", "19h"],
        &["lock", "acquire", "a", "--ttl", "1500ms"],
        &["lock", "acquire", "a", "--wait", "3601"],
        &["lock", "acquire", "bad\\q"],
        &["lock", "watch", "a", "b"],
        &["drain", "--wait", "0"],
    ] {
        assert_eq!(run(words).status, 2, "{words:?}");
    }
    for words in [&["lock", "acquire", "a"][..], &["lock", "list"], &["drain"]] {
        let away = run(words);
        assert_eq!(away.status, 3, "{away:?}");
        assert!(away.err.contains("sexton serve --data"), "how to start one: {away:?}");
    }
    let help = run(&["lock", "acquire", "--help"]);
    assert!(help.status == 0 && help.out.contains("Examples:"), "{help:?}");
}
