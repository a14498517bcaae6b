//! A coordinator with processes. All of them end with the test.

#![expect(clippy::indexing_slicing, reason = "an incomplete answer fails the test")]

use crate::coordinator::{CommandOutput, Coordinator, done};
use crate::daemon::{Daemon, serve, serve_by, sexton, text};
use crate::left_out::left_out;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A coordinator whose processes and keeper end with the test.
pub(crate) struct Tree {
    pub(crate) daemon: Option<Daemon>,
    pub(crate) data: PathBuf,
    _files: TempDir,
}

impl Tree {
    /// Starts a coordinator that cannot see control groups. Reports a skipped test and returns `None` if this user may
    /// not create namespaces.
    pub(crate) fn without_groups() -> Option<Self> {
        Self::configured_without_groups("")
    }

    /// Like [`Self::without_groups`], with this text in its configuration file.
    pub(crate) fn configured_without_groups(config: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            left_out("processes without control groups: only root takes those away");
            return None;
        }
        let mut starter = Command::new("unshare");
        let hide = "awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo | xargs -r -n1 umount -l; exec \"$@\"";
        starter.args(["--mount", "--", "sh", "-c", hide, "sh"]);
        Some(Self::started_by(starter, config))
    }

    /// Starts a coordinator through another program, with this text in its configuration file.
    pub(crate) fn started_by(starter: Command, config: &str) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        let file = files.path().join("sexton.toml");
        std::fs::write(&file, config).expect("a writable file");
        let flags = ["--data", text(&data), "--config", text(&file)];
        Self { daemon: Some(Daemon::start(serve_by(starter, &flags))), data, _files: files }
    }

    /// Starts a coordinator as this user. Only root may do that for another user.
    pub(crate) fn of_user(user: u32) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        let mut command = serve(&["--data", text(&data)]);
        if rustix::process::geteuid().as_raw() != user {
            std::os::unix::fs::chown(files.path(), Some(user), Some(user))
                .expect("root may do this");
            command.uid(user).gid(user);
        }
        Self { daemon: Some(Daemon::start(command)), data, _files: files }
    }

    pub(crate) fn start() -> Self {
        Self::configured("")
    }

    /// Starts a coordinator with this text in its configuration file.
    pub(crate) fn configured(config: &str) -> Self {
        let Coordinator { daemon, data, files, .. } = Coordinator::configured(&[], config);
        Self { daemon: Some(daemon), data, _files: files }
    }

    /// Returns a tree whose coordinator the test must start, and the parent of its data directory.
    pub(crate) fn to_come() -> (Self, PathBuf) {
        let files = tempfile::tempdir().expect("a temporary directory");
        let folder = files.path().to_owned();
        let tree = Self { daemon: None, data: folder.join("sexton"), _files: files };
        (tree, folder)
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = sexton();
        command.env("SEXTON_DATA", &self.data);
        command.args(words).stdin(Stdio::null());
        command
    }

    pub(crate) fn run(&self, words: &[&str]) -> CommandOutput {
        done(self.command(words).output().expect("the command runs"))
    }

    pub(crate) fn well(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{done:?}");
        done.out
    }

    /// Asserts that an audit finds nothing: the states of the actors agree with each other and with the machine.
    pub(crate) fn assert_all_agrees(&self) {
        let audit = self.run(&["audit"]);
        assert_eq!(audit.status, 0, "{audit:?}");
    }

    /// Launches a shell script in the background. Returns the id of its process.
    pub(crate) fn detach(&self, script: &str) -> String {
        let id = self.well(&["run", "--detach", "--", "sh", "-c", script]);
        id.trim_end().to_owned()
    }

    pub(crate) fn record(&self, id: &str) -> Value {
        let printed = self.well(&["ps", id, "--json"]);
        serde_json::from_str(&printed).expect("valid JSON")
    }

    pub(crate) fn all(&self) -> Vec<Value> {
        let printed = self.well(&["ps", "--all", "--json"]);
        let mut said: Value = serde_json::from_str(&printed).expect("valid JSON");
        let Value::Array(records) = said["processes"].take() else {
            panic!("no list: {said}");
        };
        records
    }

    /// Sends a GET request for a path. Returns the answer as JSON.
    pub(crate) fn get(&self, path: &str) -> Value {
        self.exchange(&format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ))
    }

    /// Returns a page, as the coordinator's own user sees it.
    pub(crate) fn page(&self, path: &str) -> String {
        let mut stream = UnixStream::connect(self.data.join("sexton.sock")).expect("it listens");
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("UTF-8");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        answer
    }

    /// Posts this body to a path. Returns the answer as JSON.
    pub(crate) fn post(&self, path: &str, body: &str) -> Value {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
        let length = body.len();
        self.exchange(&format!("{head}Content-Length: {length}\r\n\r\n{body}"))
    }

    fn exchange(&self, request: &str) -> Value {
        let mut stream = UnixStream::connect(self.data.join("sexton.sock")).expect("it listens");
        stream.write_all(request.as_bytes()).expect("connected");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str(body).expect("valid JSON")
    }

    /// Returns the PID of the keeper, or `None` if there is none.
    pub(crate) fn keeper(&self) -> Option<Pid> {
        let held = std::fs::read_to_string(self.data.join("keeper.lock")).ok()?;
        Pid::from_raw(held.trim().parse().ok()?)
    }

    pub(crate) fn kill_keeper(&self) {
        let keeper = self.keeper().expect("a keeper runs");
        kill_process(keeper, Signal::KILL).expect("a live process");
    }

    /// Starts a coordinator on the directory, on which none must be running.
    pub(crate) fn serve(&mut self) {
        self.daemon = Some(Daemon::serve(&["--data", text(&self.data)]));
    }

    /// Kills the coordinator, calls `between`, and starts another coordinator on the same directory.
    pub(crate) fn again(&mut self, between: impl FnOnce()) {
        self.daemon.take().expect("a server").kill();
        between();
        self.serve();
    }
}

impl Tree {
    /// Kills the live processes that the coordinator has launched.
    pub(crate) fn end_processes(&self) {
        let listed = self.command(&["ps", "--json"]).output();
        let said = listed.ok().and_then(|it| serde_json::from_slice(&it.stdout).ok());
        let said: Value = said.unwrap_or_default();
        for id in said["processes"].as_array().into_iter().flatten() {
            let id = id["id"].as_str().unwrap_or_default();
            drop(self.command(&["kill", "--tree", "--now", "--wait", id]).output());
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        self.end_processes();
        if let Some(keeper) = self.keeper() {
            // The process may have ended already.
            let _ = kill_process(keeper, Signal::KILL);
        }
    }
}
