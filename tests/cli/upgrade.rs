//! An upgrade of the program while processes run: the keeper executes the new program, and remains the parent of its
//! processes.

use crate::coordinator::done;
use crate::daemon::{Daemon, PROGRAM, serve, sexton, text};
use crate::may_look::may_look;
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A data directory, and a directory with copies of the program.
struct Site {
    files: TempDir,
    data: PathBuf,
}

impl Site {
    fn new() -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        Self { files, data }
    }

    /// Makes a copy of the program with this name. An existing copy is replaced, not written to. Returns its path.
    fn install(&self, name: &str) -> PathBuf {
        let (new, path) = (self.files.path().join("new"), self.files.path().join(name));
        // Let `cp` write the copy. A copy written by this process could be open in programs that other tests start at the
        // same time, and then it cannot be executed.
        let copied = Command::new("cp").arg(PROGRAM).arg(&new).status();
        assert!(copied.is_ok_and(|it| it.success()), "it can be copied");
        std::fs::rename(new, &path).expect("it can be renamed");
        path
    }

    fn serve(&self, program: &Path) -> Daemon {
        let mut command = Command::new(program);
        let ours = serve(&["--data", text(&self.data)]);
        command.args(ours.get_args());
        for (name, value) in ours.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        Daemon::start(command)
    }

    fn ask(&self, words: &[&str]) -> String {
        let mut command = sexton();
        command.env("SEXTON_DATA", &self.data).args(words);
        let done = done(command.output().expect("the command runs"));
        assert_eq!(done.status, 0, "{done:?}");
        done.out
    }

    /// Launches a script. Returns the id of its process.
    fn launch(&self, script: &str) -> String {
        let id = self.ask(&["run", "--detach", "--", "sh", "-c", script]);
        id.trim_end().to_owned()
    }

    fn record(&self, id: &str) -> Value {
        serde_json::from_str(&self.ask(&["ps", id, "--json"])).expect("valid JSON")
    }

    fn keeper(&self) -> Option<Pid> {
        let pid = std::fs::read_to_string(self.data.join("keeper.lock"));
        Pid::from_raw(pid.ok()?.trim().parse().ok()?)
    }

    /// Waits until the keeper executes this file.
    fn until_executed(&self, program: &Path) {
        let file = |path: &Path| std::fs::metadata(path).map(|it| (it.dev(), it.ino()));
        let wanted = file(program).expect("it exists");
        until("the keeper executes the new program", || {
            let keeper = self.keeper()?.as_raw_nonzero();
            let executed = file(Path::new(&format!("/proc/{keeper}/exe")));
            (executed.ok() == Some(wanted)).then_some(())
        });
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper() {
            // The process may have ended already.
            let _ = kill_process(keeper, Signal::KILL);
        }
        crate::groups::remove(&self.data);
    }
}

/// The message about an upgrade in the log.
const ASKED: &str = "the keeper is asked to execute another program";

#[test]
fn the_keeper_becomes_the_program_of_a_new_coordinator_and_its_children_live() {
    if !may_look("the program that the keeper executes") {
        return;
    }
    let site = Site::new();
    let program = site.install("sexton");
    let before = site.serve(&program);
    let lives = site.launch("trap 'exit 7' TERM; while :; do sleep 1000 & wait $!; done");
    let keeper = site.keeper();
    // Replace the program as a package does: the file that the keeper executes has no name any more.
    let program = site.install("sexton");
    before.kill();
    let after = site.serve(&program);
    site.until_executed(&program);
    assert_eq!(site.keeper(), keeper);
    let keeper = keeper.expect("a keeper is running").as_raw_nonzero();
    let words = std::fs::read(format!("/proc/{keeper}/cmdline")).expect("the file exists");
    assert!(words.starts_with(b"sexton\0keeper\0"), "{words:?}");

    // The keeper is still the parent of the process, since only a parent gets the exit code.
    site.ask(&["kill", &lives, "--wait"]);
    assert_eq!(site.record(&lives)["code"], 7);
    let next = site.launch("exit 8");
    until("the next has ended", || (site.record(&next)["code"] == 8).then_some(()));
    after.signal(Signal::TERM);
    let (_, log) = after.end();
    assert_eq!(log.matches(ASKED).count(), 1, "{log}");

    // A startup with the same program does not make the keeper execute it again.
    let same = site.serve(&program);
    let next = site.launch("exit 9");
    until("the next has ended", || (site.record(&next)["code"] == 9).then_some(()));
    same.signal(Signal::TERM);
    let (_, log) = same.end();
    assert!(!log.contains(ASKED), "{log}");
}

#[test]
fn what_is_launched_while_the_keeper_is_replaced_runs_once() {
    if !may_look("the program that the keeper executes") {
        return;
    }
    let site = Site::new();
    let mut daemon = site.serve(&site.install("0"));
    let long = site.launch("exec sleep 1000");
    let written = site.files.path().join("written");
    for number in 1..=5 {
        daemon.kill();
        let program = site.install(&number.to_string());
        daemon = site.serve(&program);
        let script = format!("echo {number} >> {}", text(&written));
        site.launch(&script);
        site.until_executed(&program);
    }
    let lines = || std::fs::read_to_string(&written).unwrap_or_default();
    until("all have written", || (lines().lines().count() >= 5).then_some(()));
    assert_eq!(lines(), "1\n2\n3\n4\n5\n");
    site.ask(&["kill", &long, "--now", "--wait"]);
    assert_eq!(site.record(&long)["signal"], 9);
    daemon.kill();
}
