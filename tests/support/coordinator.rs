//! A coordinator with its own data directory, and commands that tests run against it.

use crate::daemon::{Daemon, sexton, text};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

/// A running coordinator, and the commands of its user.
pub(crate) struct Coordinator {
    pub(crate) daemon: Daemon,
    pub(crate) data: PathBuf,
    pub(crate) files: TempDir,
    /// The words with which every command line begins, such as the name of a command group.
    of: &'static [&'static str],
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct CommandOutput {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Coordinator {
    /// Starts a coordinator. Every command line begins with the words in `of`.
    pub(crate) fn start(of: &'static [&'static str]) -> Self {
        Self::configured(of, "")
    }

    /// Starts a coordinator with this text in its configuration file. Every command line begins with the words in `of`.
    pub(crate) fn configured(of: &'static [&'static str], config: &str) -> Self {
        let files = tempfile::tempdir().expect("a temporary directory");
        let data = files.path().join("data");
        let file = files.path().join("sexton.toml");
        std::fs::write(&file, config).expect("a writable file");
        let daemon = Daemon::serve(&["--data", text(&data), "--config", text(&file)]);
        Self { daemon, data, files, of }
    }

    /// Uses a coordinator that was already started on this directory.
    pub(crate) fn of(daemon: Daemon, data: PathBuf, files: TempDir) -> Self {
        Self { daemon, data, files, of: &[] }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        command(&self.data, &[self.of, words].concat())
    }

    pub(crate) fn run(&self, words: &[&str]) -> CommandOutput {
        done(self.command(words).output().expect("the command runs"))
    }

    /// Runs a command that must succeed. Returns what it printed.
    pub(crate) fn well(&self, words: &[&str]) -> String {
        let done = self.run(words);
        assert_eq!((done.status, done.err.as_str()), (0, ""), "{words:?}: {done:?}");
        done.out
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let printed = self.well(&[words, &["--json"]].concat());
        serde_json::from_str(&printed).expect("valid JSON")
    }
}

/// Returns a command for this directory, with empty standard input.
pub(crate) fn command(data: &Path, words: &[&str]) -> Command {
    let mut command = sexton();
    command.env_remove("SEXTON_OWNER");
    command.args(words).arg("--data").arg(data);
    command.stdin(Stdio::null());
    command
}

pub(crate) fn done(output: Output) -> CommandOutput {
    CommandOutput {
        status: output.status.code().expect("it ended by itself"),
        out: String::from_utf8(output.stdout).expect("UTF-8"),
        err: String::from_utf8(output.stderr).expect("UTF-8"),
    }
}
