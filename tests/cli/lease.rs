//! `sexton lease`: one pass at a time, at most one per period, and a complete pass after every request, whatever is killed.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::{CommandOutput, done};
use crate::daemon::text;
use crate::patience::until;
use crate::tree::Tree;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A script that writes a line when it begins and another when it ends. It runs until a file exists.
const PASS: &str = r#"
echo "begin $$ $2" >> "$1"
while [ ! -e "$1.end" ]; do sleep 0.02; done
echo "end $$ $2" >> "$1"
"#;

/// Passes of the lease `k`, and the file to which they write.
struct Passes {
    tree: Tree,
    log: PathBuf,
}

impl Passes {
    fn start() -> Self {
        let tree = Tree::start();
        let log = tree.data.join("passes");
        Self { tree, log }
    }

    /// Starts a `sexton lease run` in the foreground, whose pass writes this word.
    fn ask(&self, flags: &[&str], word: &str) -> Child {
        let mut command = self.tree.command(&["lease", "run", "k"]);
        command.args(flags).args(["--", "sh", "-c", PASS, "sh"]);
        command.arg(&self.log).arg(word);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the command starts")
    }

    fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Returns the words of the passes that have begun, in order.
    fn begun(&self) -> Vec<String> {
        let lines = self.lines().into_iter();
        let begun = lines.filter(|line| line.starts_with("begin"));
        begun.filter_map(|line| line.split(' ').nth(2).map(str::to_owned)).collect()
    }

    /// Returns the PID of the last pass.
    fn pid(&self) -> Pid {
        let lines = self.lines();
        let line = lines.iter().rev().find(|line| line.starts_with("begin"));
        let pid = line.and_then(|line| line.split(' ').nth(1)?.parse().ok());
        Pid::from_raw(pid.expect("a PID")).expect("a PID")
    }

    fn wait_for(&self, words: &[&str]) {
        until("the passes have begun", || (self.begun() == words).then_some(()));
    }

    /// Lets the running pass and all later ones end.
    fn let_end(&self) {
        std::fs::write(self.end(), "").expect("a writable file");
    }

    fn end(&self) -> PathBuf {
        let mut name = self.log.clone().into_os_string();
        name.push(".end");
        name.into()
    }

    fn show(&self) -> Value {
        show(&self.tree, "k")
    }

    /// Asserts that no two passes ran at the same time.
    fn assert_apart(&self) {
        let mut running: Option<String> = None;
        for line in self.lines() {
            let (word, who) = line.split_once(' ').expect("two words");
            match word {
                "begin" => {
                    if let Some(other) = running.replace(who.to_owned()) {
                        let pid = other.split(' ').next().expect("a PID");
                        assert!(!lives(pid), "{line} beside {other}");
                    }
                }
                _ => running = None,
            }
        }
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        // Let the passes end even if the test has failed.
        drop(std::fs::write(self.end(), ""));
    }
}

/// Returns whether a process is running. A zombie does not count.
fn lives(pid: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|it| !it.contains("State:\tZ"))
}

fn show(tree: &Tree, name: &str) -> Value {
    let printed = tree.well(&["lease", "show", name, "--json"]);
    serde_json::from_str(&printed).expect("valid JSON")
}

fn ended(child: Child) -> CommandOutput {
    done(child.wait_with_output().expect("our child"))
}

fn is_next(passes: &Passes) -> Option<()> {
    passes.show()["next"]["live"].as_bool()?.then_some(())
}

#[test]
fn it_ends_as_its_command_and_hands_on_its_streams() {
    let tree = Tree::start();
    let script =
        "echo out $SEXTON_LEASE $HERE; echo err >&2; test \"$SEXTON_FENCE\" -gt 0 && exit 7";
    let mut command = tree.command(&["lease", "run", "k", "--", "sh", "-c", script]);
    let said = done(command.env("HERE", "there").output().expect("it starts"));
    assert_eq!((said.status, said.out.as_str()), (7, "out k there\n"), "{said:?}");
    assert_eq!(said.err, "err\n");
    let lease = show(&tree, "k");
    assert_eq!(lease["current"]["code"], 7, "{lease}");
    assert_eq!(lease["begun"], 1, "{lease}");
    let said = tree.run(&["lease", "run", "other", "--", "/nowhere/to/be/found"]);
    assert_eq!(said.status, 127, "{said:?}");
}

#[test]
fn of_three_callers_one_runs_one_is_next_and_one_is_not_needed() {
    let passes = Passes::start();
    let first = passes.ask(&["--period", "200ms"], "first");
    passes.wait_for(&["first"]);
    let second = passes.ask(&["--period", "200ms"], "second");
    until("the second is next", || is_next(&passes));
    let third = ended(passes.ask(&["--period", "200ms"], "third"));
    assert_eq!(third.status, 0, "{third:?}");
    assert!(third.err.contains("not needed"), "{third:?}");
    let check = passes.tree.run(&["lease", "check", "k"]);
    assert_eq!((check.status, check.err.as_str()), (1, ""), "{check:?}");
    passes.let_end();
    assert_eq!(ended(first).status, 0);
    assert_eq!(ended(second).status, 0);
    assert_eq!(passes.begun(), ["first", "second"]);
    passes.assert_apart();
    until("both are whole", || (passes.show()["whole"] == 2).then_some(()));
    let check = passes.tree.run(&["lease", "check", "k"]);
    assert_eq!(check.status, 0, "{check:?}");
    assert_eq!(passes.show()["begun"], 2);
}

#[test]
fn who_never_waits_is_turned_away_and_says_so() {
    let passes = Passes::start();
    let first = passes.ask(&[], "first");
    passes.wait_for(&["first"]);
    let said = ended(passes.ask(&["--no-delay"], "second"));
    assert_eq!(said.status, 0, "{said:?}");
    assert!(said.err.contains("not this request's turn"), "{said:?}");
    // With `--no-lease`, the command runs at once.
    let said = passes.tree.run(&["lease", "run", "k", "--no-lease", "--", "sh", "-c", "exit 3"]);
    assert_eq!(said.status, 3, "{said:?}");
    let said = passes.tree.run(&["lease", "run", "k", "--if", "false", "--", "true"]);
    assert_eq!((said.status, said.out.as_str(), said.err.as_str()), (0, "", ""));
    assert_eq!(passes.show()["next"], Value::Null, "no request was made");
    passes.let_end();
    assert_eq!(ended(first).status, 0);
    assert_eq!(passes.begun(), ["first"]);
}

#[test]
fn a_lease_that_is_disabled_runs_nothing_until_it_is_enabled() {
    let passes = Passes::start();
    let first = passes.ask(&["--period", "100ms"], "first");
    passes.wait_for(&["first"]);
    let second = passes.ask(&["--period", "100ms"], "second");
    until("the second is next", || is_next(&passes));
    passes.tree.well(&["lease", "disable", "k"]);
    let second = ended(second);
    assert_eq!(second.status, 1, "{second:?}");
    let said = passes.tree.run(&["lease", "run", "k", "--", "true"]);
    assert_eq!(said.status, 1, "{said:?}");
    assert!(said.err.contains("disabled"), "{said:?}");
    assert_eq!(passes.tree.run(&["lease", "check", "k"]).status, 1);
    passes.let_end();
    assert_eq!(ended(first).status, 0, "the running pass continues");
    passes.tree.well(&["lease", "enable", "k"]);
    assert_eq!(ended(passes.ask(&[], "third")).status, 0);
    assert_eq!(passes.begun(), ["first", "third"]);
}

/// What is killed while a pass runs and another request is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Killed {
    /// The caller whose pass runs.
    Run,
    /// The caller that is next.
    Next,
    Command,
    Coordinator,
    Keeper,
}

/// Kills these processes, and asserts that a complete pass follows each of the two requests, one at a time.
fn killed(whom: &[Killed]) {
    let mut passes = Passes::start();
    let mut first = passes.ask(&["--period", "200ms"], "first");
    passes.wait_for(&["first"]);
    let mut second = passes.ask(&["--period", "200ms"], "second");
    until("the second is next", || is_next(&passes));
    for whom in whom {
        match whom {
            Killed::Run => first.kill().expect("a live process"),
            Killed::Next => second.kill().expect("a live process"),
            Killed::Command => kill_process(passes.pid(), Signal::KILL).expect("a live process"),
            Killed::Keeper => passes.tree.kill_keeper(),
            Killed::Coordinator => passes.tree.daemon.take().expect("a server").kill(),
        }
    }
    if passes.tree.daemon.is_none() {
        passes.tree.serve();
    }
    if !whom.contains(&Killed::Command) {
        let lease = passes.show();
        assert_eq!(lease["current"]["running"], true, "its command is alive: {lease}");
        assert_eq!(passes.begun(), ["first"]);
    }
    passes.let_end();
    passes.wait_for(&["first", "second"]);
    until("both are met", || {
        let lease = passes.show();
        let is_met = lease["owed"] == false && lease["current"]["running"] == false;
        (is_met && lease["whole"] == 2).then_some(())
    });
    drop((first.wait(), second.wait()));
    passes.assert_apart();
}

#[test]
fn a_kill_of_lease_run_changes_nothing() {
    killed(&[Killed::Run]);
}

#[test]
fn a_kill_of_who_is_next_leaves_the_pass_to_the_coordinator() {
    killed(&[Killed::Next]);
}

#[test]
fn a_kill_of_both_callers_changes_nothing() {
    killed(&[Killed::Run, Killed::Next]);
}

#[test]
fn a_kill_of_the_command_lets_the_next_run() {
    killed(&[Killed::Command]);
}

#[test]
fn a_kill_of_the_coordinator_changes_nothing() {
    killed(&[Killed::Coordinator]);
}

#[test]
fn a_kill_of_the_keeper_changes_nothing() {
    killed(&[Killed::Keeper]);
}

#[test]
fn a_kill_of_all_of_them_changes_nothing() {
    killed(&[Killed::Run, Killed::Next, Killed::Command, Killed::Keeper, Killed::Coordinator]);
}

/// No other request arrives, so the coordinator runs the command again when the period has ended.
#[test]
fn a_pass_that_is_killed_is_made_up_for_without_a_newcomer() {
    let passes = Passes::start();
    let first = passes.ask(&["--period", "300ms"], "first");
    passes.wait_for(&["first"]);
    kill_process(passes.pid(), Signal::KILL).expect("a live process");
    assert_eq!(ended(first).status, 128 + 9);
    passes.wait_for(&["first", "first"]);
    passes.let_end();
    until("it is whole", || (passes.show()["whole"] == 2).then_some(()));
    let lease = passes.show();
    assert_eq!((&lease["owed"], &lease["current"]["code"]), (&false.into(), &0.into()));
}

#[test]
fn a_request_handler_need_not_wait() {
    let passes = Passes::start();
    let ask = |word: &str| {
        let mut words = vec!["lease", "run", "k", "--period", "200ms", "--detach"];
        words.extend(["--", "sh", "-c", PASS, "sh", text(&passes.log), word]);
        passes.tree.run(&words)
    };
    let said = ask("first");
    assert!(said.status == 0 && said.out.starts_with("runs: "), "{said:?}");
    passes.wait_for(&["first"]);
    let said = ask("second");
    assert!(said.status == 0 && said.out.starts_with("next: "), "{said:?}");
    let said = ask("third");
    assert!(said.status == 0 && said.err.contains("not needed"), "{said:?}");
    passes.let_end();
    passes.wait_for(&["first", "second"]);
    until("the second is whole", || (passes.show()["whole"] == 2).then_some(()));
    assert_eq!(passes.begun(), ["first", "second"]);
}

#[test]
fn what_is_set_holds_for_all_who_ask() {
    let tree = Tree::start();
    let set = |words: &[&str]| tree.well(&[&["lease", "set", "nightly"], words].concat());
    let said = tree.run(&["lease", "run", "nightly"]);
    assert_eq!(said.status, 2, "there is no command: {said:?}");
    set(&["command", "--", "sh", "-c", "exit 0"]);
    set(&["period", "90s"]);
    set(&["no-delay", "on"]);
    set(&["max-run", "1h"]);
    set(&["catch-up", "on"]);
    let shown = set(&["schedule", "0 3 * * *", "Europe/Berlin"]);
    assert!(shown.contains("0 3 * * * (Europe/Berlin, catches up)"), "{shown}");
    let lease = show(&tree, "nightly");
    for (member, value) in [
        ("period_ms", Value::from(90_000)),
        ("no_delay", true.into()),
        ("max_run_ms", 3_600_000.into()),
        ("catch_up", true.into()),
        ("schedule", "0 3 * * *".into()),
        ("zone", "Europe/Berlin".into()),
    ] {
        assert_eq!(lease[member], value, "{member}: {lease}");
    }
    assert!(lease["due_at"].as_u64() > lease["now"].as_u64(), "{lease}");
    let said = tree.run(&["lease", "run", "nightly"]);
    assert_eq!(said.status, 0, "{said:?}");
    assert!(said.out.starts_with("runs: "), "{said:?}");
    let said = tree.run(&["lease", "run", "nightly"]);
    assert!(said.err.contains("not this request's turn"), "{said:?}");
    for (words, hint) in [
        (&["schedule", "0 3 * *"][..], "five fields"),
        (&["schedule", "0 3 * * *", "Europe/Nowhere"], "time zone"),
        (&["command", "none"], "no command"),
        (&["period", "0"], "from 1ms to 366d"),
        (&["no-delay", "maybe"], "neither on nor off"),
        (&["period", "1s", "2s"], "one value"),
    ] {
        let said = tree.run(&[&["lease", "set", "nightly"], words].concat());
        assert_eq!(said.status, 2, "{words:?}: {said:?}");
        assert!(said.err.contains(hint), "{words:?}: {said:?}");
    }
    set(&["schedule", "none"]);
    set(&["command", "none"]);
    let lease = show(&tree, "nightly");
    assert_eq!((&lease["due_at"], &lease["command"]), (&Value::Null, &Value::Null));
    let listed = tree.well(&["lease", "list", "night"]);
    assert!(listed.contains("nightly"), "{listed}");
    assert!(!tree.well(&["lease", "list", "x"]).contains("nightly"));
}

#[test]
fn a_pass_that_runs_too_long_is_stopped() {
    let passes = Passes::start();
    passes.tree.well(&["lease", "set", "k", "max-run", "200ms"]);
    let first = ended(passes.ask(&[], "first"));
    assert_eq!(first.status, 128 + 15, "{first:?}");
    // The process has ended, and perhaps not yet its tree, with which the pass ends.
    let lease = until("the pass is over", || {
        let lease = passes.show();
        (lease["current"]["running"] == false).then_some(lease)
    });
    assert_eq!(lease["current"]["signal"], 15, "{lease}");
    assert_eq!(lease["owed"], false, "it ran for the allowed time: {lease}");
}

#[test]
fn a_lease_of_fossil_is_read_and_printed() {
    let tree = Tree::start();
    let import = |text: &str| {
        tree.well(&["lease", "reset", "repo"]);
        tree.well(&["lease", "import", "repo", text])
    };
    tree.well(&["lease", "set", "repo", "period", "60s"]);
    // None of the imported processes is alive.
    let shown = import("4194303 1030 4194302 1090");
    let (_, fossil) = shown.split_once("\n\nnow:        ").expect("it has them");
    let lines: Vec<&str> = fossil.lines().collect();
    assert_eq!(lines[1], "lease:      \"4194303 1030 4194302 1090\"");
    assert_eq!(lines[2], "idCurrent:  4194303              (done)");
    assert!(lines[3].starts_with("tmCurrent:  1030                 (now-"), "{shown}");
    assert_eq!(lines[4], "idNext:     4194302              (done)");
    assert!(import("4194301 abc 34 56").contains("lease:      \"4194301 0 0 0\"\n"));
    assert!(import("").contains("lease:      \"0 0 0 0\"\n"));
    // The imported process is alive.
    let sleeper = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn();
    let mut sleeper = sleeper.expect("it is running");
    // It began after the period of this lease did, so it only has the PID of the holder.
    let shown = import(&format!("{0} 1030 {0} 1090", sleeper.id()));
    assert!(!shown.contains("(exists)"), "{shown}");
    assert_eq!(show(&tree, "repo")["current"]["running"], false);
    let now = std::time::UNIX_EPOCH.elapsed().expect("it is later");
    let own = format!("{} {} 0 0", sleeper.id(), now.as_secs() + 62);
    let shown = import(&own);
    assert!(shown.contains("(exists)"), "{shown}");
    let said = tree.run(&["lease", "import", "repo", &own]);
    assert_eq!(said.status, 1, "a pass runs: {said:?}");
    let said = tree.run(&["lease", "reset", "repo"]);
    assert!(said.status == 1 && said.err.contains("--force"), "{said:?}");
    sleeper.kill().expect("a live process");
    sleeper.wait().expect("our child");
    until("its pass is over", || {
        (show(&tree, "repo")["current"]["running"] == false).then_some(())
    });
}

#[test]
fn a_lease_is_forgotten_when_its_pass_is_proved_gone() {
    let passes = Passes::start();
    let first = passes.ask(&[], "first");
    passes.wait_for(&["first"]);
    let pid = passes.pid();
    let said = passes.tree.run(&["lease", "reset", "k"]);
    assert_eq!(said.status, 1, "{said:?}");
    let said = passes.tree.well(&["lease", "reset", "k", "--force"]);
    assert_eq!(said, "deleted\n");
    let lives = Path::new("/proc").join(pid.as_raw_nonzero().to_string());
    assert!(!lives.exists(), "it was stopped first");
    assert_eq!(passes.tree.run(&["lease", "show", "k"]).status, 1);
    assert_eq!(ended(first).status, 128 + 15);
}

/// The program is looked up at each launch, so a replaced program runs from the next pass on.
#[test]
fn a_program_that_is_replaced_runs_from_the_next_pass() {
    use std::os::unix::fs::PermissionsExt as _;
    let tree = Tree::start();
    let program = tree.data.join("program");
    let put = |word: &str| {
        let fresh = tree.data.join("fresh");
        std::fs::write(&fresh, format!("#!/bin/sh\necho {word}\n")).expect("a writable file");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&fresh, mode).expect("our own file");
        std::fs::rename(&fresh, &program).expect("our own file");
    };
    for word in ["old", "new"] {
        put(word);
        let said = tree.run(&["lease", "run", "k", "--period", "1ms", "--", text(&program)]);
        assert_eq!((said.status, said.out.trim()), (0, word), "{said:?}");
    }
}

/// A request that was made before a stop is fulfilled after the next startup.
#[test]
fn a_drain_waits_for_the_pass_that_runs_and_begins_no_other() {
    let mut passes = Passes::start();
    let first = passes.ask(&["--period", "100ms"], "first");
    passes.wait_for(&["first"]);
    let mut second = passes.ask(&["--period", "100ms"], "second");
    until("the second is next", || is_next(&passes));
    let said = passes.tree.well(&["drain"]);
    assert!(said.contains(", 1 pass and"), "{said}");
    let said = passes.tree.run(&["lease", "run", "k", "--", "true"]);
    assert!(said.status == 1 && said.err.contains("drain"), "{said:?}");
    let mut daemon = passes.tree.daemon.take().expect("a server");
    assert!(daemon.is_running(), "a pass runs");
    passes.let_end();
    let (status, log) = daemon.end();
    assert!(status.success() && log.contains("drained"), "{log}");
    assert_eq!(passes.begun(), ["first"]);
    passes.tree.serve();
    passes.wait_for(&["first", "second"]);
    until("it is whole", || (passes.show()["whole"] == 2).then_some(()));
    drop((ended(first), second.wait()));
}

#[test]
fn of_three_at_once_one_is_turned_away_whichever_it_is() {
    let passes = Passes::start();
    let words = ["a", "b", "c"];
    let mut asked = words.map(|word| passes.ask(&["--period", "200ms"], word));
    until("one is turned away", || {
        let ended = |child: &mut Child| matches!(child.try_wait(), Ok(Some(_)));
        asked.iter_mut().any(ended).then_some(())
    });
    until("one is next", || is_next(&passes));
    until("one has begun", || (passes.begun().len() == 1).then_some(()));
    passes.let_end();
    let done = asked.map(ended);
    let turned_away = |done: &&CommandOutput| done.err.contains("not needed");
    assert_eq!(done.iter().filter(turned_away).count(), 1, "{done:?}");
    assert!(done.iter().all(|it| it.status == 0), "{done:?}");
    assert_eq!(passes.begun().len(), 2, "{done:?}");
    passes.assert_apart();
}

/// The keeper holds the streams of at most 32 callers. Further requests are accepted, and run without streams.
#[test]
fn who_finds_no_room_for_its_streams_runs_without_them() {
    let tree = Tree::start();
    let names: Vec<String> = (0..32).map(|number| format!("l{number}")).collect();
    let mut waiting: Vec<Child> = Vec::new();
    for name in &names {
        tree.well(&["lease", "run", name, "--detach", "--", "true"]);
        let mut command = tree.command(&["lease", "run", name, "--", "true"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        waiting.push(command.spawn().expect("the command starts"));
    }
    for name in &names {
        let is_next = || show(&tree, name)["next"]["live"].as_bool();
        until("it is next", || is_next()?.then_some(()));
    }
    let said = tree.run(&["lease", "run", "x", "--", "sh", "-c", "echo lost; exit 5"]);
    assert_eq!((said.status, said.out.as_str()), (5, ""), "{said:?}");
    assert!(said.err.contains("32 parcels wait"), "{said:?}");
    let said = tree.run(&["lease", "run", "l0", "--", "true"]);
    assert!(said.status == 0 && said.err.contains("not needed"), "{said:?}");
    for child in &mut waiting {
        child.kill().expect("a live process");
        child.wait().expect("our child");
    }
    let mut tries = 0;
    until("a parcel is accepted again", || {
        tries += 1;
        let fresh = format!("y{tries}");
        let said = tree.run(&["lease", "run", &fresh, "--", "echo", "kept"]);
        (said.out == "kept\n").then_some(())
    });
}
