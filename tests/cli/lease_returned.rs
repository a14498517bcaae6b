//! Ctrl-C of a waiting `sexton lease run` withdraws its request. Other requests that rely on the same pass are still
//! fulfilled.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::done;
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

/// A lease whose first pass runs until the test lets it end.
struct Waiting {
    tree: Tree,
    first: Child,
}

impl Waiting {
    fn start() -> Self {
        let tree = Tree::start();
        let first = ask(&tree, "while [ ! -e end ]; do sleep 0.02; done");
        let waiting = Self { tree, first };
        waiting.until("a pass runs", |lease| lease["current"]["status"] == "running");
        waiting
    }

    fn lease(&self) -> Value {
        let printed = self.tree.run(&["lease", "show", "k", "--json"]);
        serde_json::from_str(&printed.out).unwrap_or_default()
    }

    fn until(&self, what: &str, is_so: impl Fn(&Value) -> bool) {
        until(what, || is_so(&self.lease()).then_some(()));
    }

    /// Requests another pass, and interrupts that command with a signal while its request is next. Returns its output.
    fn interrupted(&self, signal: Signal, before: impl FnOnce()) -> Output {
        let next = ask(&self.tree, "echo pass >> passes");
        self.until("a request is next", |lease| lease["next"]["live"] == true);
        before();
        kill_process(Pid::from_child(&next), signal).expect("a permitted signal");
        next.wait_with_output().expect("our child")
    }

    fn passes(&self) -> PathBuf {
        self.tree.data.join("passes")
    }

    fn end_first(&mut self) {
        std::fs::write(self.tree.data.join("end"), "").expect("a writable file");
        let ended = self.first.wait().expect("our child");
        assert_eq!(ended.code(), Some(0));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // Let the pass end even if the test has failed.
        drop(std::fs::write(self.tree.data.join("end"), ""));
        drop(self.first.kill());
        drop(self.first.wait());
    }
}

fn ask(tree: &Tree, script: &str) -> Child {
    let mut command = tree.command(&["lease", "run", "k", "--period", "1ms", "--", "sh", "-c"]);
    command.arg(script).current_dir(&tree.data);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the command starts")
}

#[test]
fn who_is_interrupted_while_it_waits_gives_its_place_back() {
    for (signal, status) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let mut waiting = Waiting::start();
        let said = done(waiting.interrupted(signal, || {}));
        assert_eq!(said.status, status, "{said:?}");
        assert!(said.err.contains("k: request withdrawn\n"), "{said:?}");
        let lease = waiting.lease();
        assert!(lease["next"].is_null(), "{lease}");
        waiting.end_first();
        waiting.until("its pass has ended", |lease| lease["whole"] == 1);
        let lease = waiting.lease();
        assert_eq!((&lease["owed"], &lease["begun"]), (&false.into(), &1.into()));
        assert!(!waiting.passes().exists());
    }
}

#[test]
fn a_pass_on_which_others_rely_comes_all_the_same() {
    let mut waiting = Waiting::start();
    let said = done(waiting.interrupted(Signal::INT, || {
        let turned = waiting.tree.run(&["lease", "run", "k", "--", "true"]);
        assert!(turned.err.contains("not needed"), "{turned:?}");
    }));
    assert_eq!(said.status, 130, "{said:?}");
    assert!(said.err.contains("others rely on a pass"), "{said:?}");
    waiting.end_first();
    waiting.until("the pass has run", |lease| lease["whole"] == 2);
    let passes = std::fs::read_to_string(waiting.passes()).expect("the command wrote the file");
    assert_eq!(passes, "pass\n");
}

#[test]
fn who_is_killed_outright_is_made_up_for() {
    let mut waiting = Waiting::start();
    let said = waiting.interrupted(Signal::KILL, || {});
    assert_eq!(said.status.signal(), Some(9), "{said:?}");
    waiting.end_first();
    waiting.until("the pass has run", |lease| lease["whole"] == 2);
    assert!(waiting.passes().exists());
}

/// It is not woken until its pass is over and another one has begun, so that nothing is known of its own.
#[test]
fn a_pass_that_went_unnoticed_is_not_taken_for_a_request_that_was_dropped() {
    let mut waiting = Waiting::start();
    let next = ask(&waiting.tree, "echo pass >> passes");
    waiting.until("a request is next", |lease| lease["next"]["live"] == true);
    let pid = Pid::from_child(&next);
    kill_process(pid, Signal::STOP).expect("a permitted signal");
    waiting.tree.again(|| {});
    waiting.end_first();
    waiting.until("its pass has run", |lease| lease["whole"] == 2);
    let more = ["lease", "run", "k", "--detach", "--", "true"];
    waiting.tree.well(&more);
    waiting.until("another pass has run", |lease| lease["whole"] == 3);
    kill_process(pid, Signal::CONT).expect("a permitted signal");
    let said = done(next.wait_with_output().expect("our child"));
    assert_eq!(said.status, 75, "{said:?}");
    assert!(said.err.contains("it is not known how the pass of this request ended"), "{said:?}");
    assert_eq!(std::fs::read_to_string(waiting.passes()).expect("it ran"), "pass\n");
}

#[test]
fn a_request_that_was_dropped_is_said_to_be() {
    let mut waiting = Waiting::start();
    let next = ask(&waiting.tree, "echo pass >> passes");
    waiting.until("a request is next", |lease| lease["next"]["live"] == true);
    waiting.tree.well(&["lease", "disable", "k"]);
    let said = done(next.wait_with_output().expect("our child"));
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.err.contains("the request was dropped"), "{said:?}");
    waiting.end_first();
    assert!(!waiting.passes().exists());
}
