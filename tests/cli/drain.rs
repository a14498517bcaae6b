//! `sexton drain` and the signals that drain, with clients that work on jobs.

use crate::beanstalk::{Client, Reply};
use crate::coordinator::command;
use crate::daemon::{Daemon, text};
use crate::patience::until;
use rustix::process::Signal;
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

struct Drained {
    daemon: Daemon,
    data: PathBuf,
    _files: TempDir,
}

impl Drained {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        let listener = ["--beanstalk", "127.0.0.1:0"];
        let daemon = Daemon::serve(&[&["--data", text(&data)], &listener[..]].concat());
        Self { daemon, data, _files: files }
    }

    fn client(&self) -> Client {
        Client::connect(self.daemon.beanstalk()).expect("connected")
    }

    /// Runs a command. Returns its exit status and its output.
    fn run(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = command(&self.data, words).output().expect("the command runs");
        let said = String::from_utf8(output.stdout).expect("UTF-8");
        (output.status.code(), said)
    }

    fn status(&self) -> Value {
        let (_, printed) = self.run(&["status", "--json"]);
        serde_json::from_str(&printed).expect("valid JSON")
    }

    fn ends_well(self) {
        let (status, log) = self.daemon.end();
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("drained"), "{log}");
    }
}

fn ask(client: &mut Client, words: &str) -> String {
    client.ask(words).expect("an answer").line
}

/// Adds a job of one byte. Returns the reply.
fn put(client: &mut Client) -> String {
    ask(client, "put 0 0 600 1\r\nx")
}

#[test]
fn a_drain_waits_for_claims_and_makes_no_new_ones() {
    let mut drained = Drained::start();
    let mut worker = drained.client();
    assert_eq!(put(&mut worker), "INSERTED 1");
    assert_eq!(ask(&mut worker, "reserve"), "RESERVED 1 1");
    let mut idle = drained.client();
    idle.send(b"reserve\r\n").expect("the receiver exists");
    until("it waits", || {
        let waiting = drained.status()["queues"]["waiting"] == 1;
        waiting.then_some(())
    });

    let (status, begun) = drained.run(&["drain"]);
    assert_eq!(status, Some(0), "{begun}");
    assert!(begun.contains("0 locks") && begun.contains("1 claim,"), "{begun}");
    let told = idle.receive().expect("an answer");
    assert_eq!(told, Reply::line("DRAINING"), "a client that waits for a job is answered");
    for words in ["reserve", "reserve-with-timeout 9", "reserve-job 1"] {
        let told = ask(&mut idle, words);
        assert!(["DRAINING", "NOT_FOUND"].contains(&told.as_str()), "{words}: {told}");
    }
    assert_eq!(put(&mut idle), "DRAINING");
    let (status, pushed) = drained.run(&["queue", "push", "default", "x"]);
    assert_eq!((status, pushed.as_str()), (Some(1), ""));
    let (status, popped) = drained.run(&["queue", "pop", "default"]);
    assert_eq!((status, popped.as_str()), (Some(1), ""));
    let (_, page) = drained.run(&["status"]);
    assert!(
        page.contains("warning     Draining: New locks, jobs, claims, passes, tasks are refused"),
        "{page}"
    );
    assert_eq!(drained.run(&["drain", "--wait", "1"]).0, Some(1), "one is left");

    assert_eq!(ask(&mut worker, "touch 1"), "TOUCHED", "the work continues");
    assert!(drained.daemon.is_running());
    assert_eq!(ask(&mut worker, "delete 1"), "DELETED");
    drained.ends_well();
}

#[test]
fn a_signal_drains_jobs_too_and_a_claim_that_is_given_back_has_ended() {
    let mut drained = Drained::start();
    let mut worker = drained.client();
    assert_eq!(put(&mut worker), "INSERTED 1");
    assert_eq!(ask(&mut worker, "reserve"), "RESERVED 1 1");
    drained.daemon.signal(Signal::USR2);
    drained.daemon.until_logged("draining");
    assert_eq!(put(&mut worker), "DRAINING");
    assert!(drained.daemon.is_running());
    assert_eq!(ask(&mut worker, "release 1 0 0"), "RELEASED");
    drained.ends_well();
}

#[test]
fn what_does_not_drain_goes_on_until_nothing_is_held() {
    let mut drained = Drained::start();
    let mut worker = drained.client();
    assert_eq!(put(&mut worker), "INSERTED 1");
    assert_eq!(ask(&mut worker, "reserve"), "RESERVED 1 1");
    assert_eq!(drained.run(&["drain", "locks"]).0, Some(0));
    assert_eq!(drained.status()["draining_what"], serde_json::json!(["locks"]));
    let acquire = ["lock", "acquire", "a", "--owner", "one"];
    assert_eq!(drained.run(&acquire).0, Some(1));
    assert_eq!(put(&mut worker), "INSERTED 2", "queues continue");
    assert_eq!(ask(&mut worker, "reserve"), "RESERVED 2 1");
    assert_eq!(ask(&mut worker, "delete 1"), "DELETED");
    assert!(drained.daemon.is_running(), "there is a claim");
    assert_eq!(drained.run(&["drain", "queues"]).0, Some(0));
    assert_eq!(put(&mut worker), "DRAINING", "the second drain extends the first");
    assert_eq!(ask(&mut worker, "delete 2"), "DELETED");
    drained.ends_well();
}

#[test]
fn a_claim_without_a_connection_holds_a_drain_up_as_well() {
    let mut drained = Drained::start();
    assert_eq!(drained.run(&["queue", "push", "q", "x"]).0, Some(0));
    let (_, popped) = drained.run(&["queue", "pop", "q"]);
    let words: Vec<&str> = popped.split_whitespace().collect();
    let (status, begun) = drained.run(&["drain"]);
    assert_eq!(status, Some(0), "{begun}");
    assert!(begun.contains("1 claim,"), "{begun}");
    assert!(drained.daemon.is_running());
    assert_eq!(drained.run(&["queue", "ack", words[0], words[1]]).0, Some(0));
    drained.ends_well();
}
