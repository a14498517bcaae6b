//! A data directory, its coordinators and keepers, and a way to kill all of them.

use crate::daemon::{Daemon, serve_by, text};
use crate::groups;
use crate::patience::until;
use crate::processes::asking::{self, Answer};
use serde_json::Value;
use sexton::kernel::pidfd::Pidfd;
use sexton::kernel::proc;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A data directory. When it is dropped, its keeper and all children are killed.
pub(crate) struct Host {
    files: TempDir,
}

impl Host {
    pub(crate) fn new() -> Self {
        Self { files: tempfile::tempdir().expect("the disk has space") }
    }

    /// Returns the data directory.
    pub(crate) fn data(&self) -> PathBuf {
        self.files.path().join("data")
    }

    /// Returns the path of a file that only the test uses.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Starts a coordinator.
    pub(crate) fn start(&self) -> Daemon {
        Daemon::serve(&["--data", text(&self.data())])
    }

    /// Returns the command of a coordinator that appears to run on a rebooted machine: it has a mount namespace of its own, in which
    /// the boot has another id.
    pub(crate) fn rebooted(&self) -> Command {
        let boot = self.file("boot_id");
        let name = "11111111-2222-4333-8444-555555555555\n";
        std::fs::write(&boot, name).expect("the disk has space");
        let script = "mount --bind \"$0\" /proc/sys/kernel/random/boot_id && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, text(&boot)]);
        serve_by(command, &["--data", text(&self.data())])
    }

    /// Returns the path of the coordinator's socket.
    pub(crate) fn socket(&self) -> PathBuf {
        self.data().join("sexton.sock")
    }

    /// Posts a request with an idempotency key.
    pub(crate) fn post(&self, path: &str, key: &str, body: &Value) -> std::io::Result<Answer> {
        asking::post(&self.socket(), path, key, body)
    }

    /// Sends a request that must succeed.
    pub(crate) fn well(&self, path: &str, body: &Value) -> Value {
        let head = format!("POST {path} HTTP/1.1");
        let answered = asking::ask(&self.socket(), &head, &body.to_string());
        let (status, answer) = answered.expect("the request is answered");
        assert_eq!(status, 200, "{path} {body}: {answer}");
        answer
    }

    /// Returns the body of the answer to a GET of this path.
    pub(crate) fn get(&self, path: &str) -> Value {
        let head = format!("GET {path} HTTP/1.1");
        asking::ask(&self.socket(), &head, "").expect("the request is answered").1
    }

    /// Sends a request that may fail, and returns the status of the answer.
    pub(crate) fn try_post(&self, path: &str, body: &Value) -> u16 {
        let head = format!("POST {path} HTTP/1.1");
        let answered = asking::ask(&self.socket(), &head, &body.to_string());
        answered.expect("the request is answered").0
    }

    /// Returns every record.
    pub(crate) fn records(&self) -> Vec<Value> {
        asking::records(&self.socket()).expect("the coordinator answers")
    }

    /// Returns the number of records that have ended.
    pub(crate) fn ended(&self) -> u64 {
        asking::count(&self.socket(), "exited").expect("the coordinator answers")
    }

    /// Returns the keeper; `None` if none is running.
    pub(crate) fn keeper(&self) -> Option<Pidfd> {
        let pid = std::fs::read_to_string(self.data().join("keeper.lock")).ok()?;
        let pid: u32 = pid.trim().parse().ok()?;
        let pidfd = Pidfd::open(pid).ok()??;
        // The lock file may name a keeper that has ended.
        let argv = proc::cmdline(pid).ok()??;
        let is_ours = |word: &sexton::bytes::Bytes| self.is_data(word.as_bytes());
        (argv.iter().any(is_ours) && !pidfd.has_ended().ok()?).then_some(pidfd)
    }

    fn is_data(&self, path: &[u8]) -> bool {
        let data = self.data().canonicalize().ok();
        let data = data.as_deref().map(|data| text(data).as_bytes());
        data == Some(path) || text(&self.data()).as_bytes() == path
    }

    /// Returns how many tasks are not over. One answer tells that, because a task that changes its status between two answers may be in
    /// neither.
    pub(crate) fn tasks_left(&self) -> u64 {
        let status = self.get("/v1/status");
        let count = |path| status.pointer(path).and_then(Value::as_u64);
        let counts = ["/tasks/fresh", "/tasks/waiting", "/tasks/processing"].map(count);
        counts.into_iter().map(|it| it.expect("a number")).sum()
    }

    /// Kills the keeper with SIGKILL.
    pub(crate) fn kill_keeper(&self) {
        let keeper = until("a keeper runs", || self.keeper());
        keeper.signal(9).expect("a permitted signal");
        until("the keeper has ended", || {
            keeper.has_ended().expect("the descriptor can be polled").then_some(())
        });
    }

    /// Returns whether this host launched the process or an ancestor of it.
    pub(crate) fn is_of_it(&self, pid: u32) -> bool {
        let env = proc::environ(pid).ok().flatten().unwrap_or_default();
        let mut values = env.iter().filter_map(|it| it.as_bytes().strip_prefix(b"SEXTON_DATA="));
        values.any(|value| self.is_data(value))
    }

    /// Returns the live processes that this host launched, and their descendants.
    pub(crate) fn children(&self) -> Vec<Pidfd> {
        let pids = proc::pids().unwrap_or_default().into_iter();
        let opened = pids.filter_map(|pid| {
            let pidfd = Pidfd::open(pid).ok().flatten()?;
            self.is_of_it(pid).then_some(pidfd)
        });
        opened.collect()
    }

    /// Kills all launched processes with SIGKILL.
    pub(crate) fn kill_children(&self) {
        for _ in 0..100 {
            let left = self.children();
            if left.is_empty() {
                return;
            }
            for pidfd in left {
                drop(pidfd.signal(9));
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Some(keeper) = self.keeper() {
            drop(keeper.signal(9));
        }
        self.kill_children();
        groups::remove(&self.data());
    }
}

/// Returns whether a process has this PID.
pub(crate) fn is_taken(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}
