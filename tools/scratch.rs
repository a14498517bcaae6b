//! A temporary directory that never outlives the process that uses it, no matter how that process ends: a second process creates
//! the directory, waits for the end of the first, and removes the directory.
//!
//! It is also the second process that removes the directory when the [`Scratch`] is dropped. A directory that was renamed meanwhile
//! is left alone, since it is no longer temporary.

use crate::report::{self, Failure, tell};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tokio::signal::unix::{SignalKind, signal};

/// The maximum number of attempts to remove the directory: a process that is being killed may still write to it for a moment.
const ATTEMPTS_MAX: u32 = 100;

/// Precedes the random part of the directory's name in the line that the second process prints. A line without it is an error
/// message.
const MADE: &str = "made ";

/// A temporary directory, removed on drop.
pub(crate) struct Scratch {
    path: PathBuf,
    /// The process that removes the directory when its standard input ends.
    remover: Child,
}

impl Scratch {
    /// Creates a directory in `folder`, with a name that begins with `prefix`.
    pub(crate) fn make(folder: &Path, prefix: impl AsRef<OsStr>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["keep-scratch", "--"]).arg(folder).arg(&prefix);
        // In a process group of its own, the process does not receive signals from a terminal or from `timeout`.
        command.process_group(0);
        let streams = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut remover = streams.spawn()?;
        let mut answer = String::new();
        if let Some(output) = remover.stdout.take() {
            BufReader::new(output).read_line(&mut answer)?;
        }
        let Some(letters) = answer.trim_end().strip_prefix(MADE) else {
            drop(remover.wait());
            return Err(io::Error::other(answer.trim_end().to_owned()));
        };
        let mut name = prefix.as_ref().to_owned();
        name.push(letters);
        Ok(Self { path: folder.join(name), remover })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(mut input) = self.remover.stdin.take() {
            // The write fails if the process has already ended, which is harmless.
            drop(input.write_all(b"."));
        }
        drop(self.remover.wait());
    }
}

/// Keep a directory until standard input ends, for another process
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct KeepScratch {
    folder: PathBuf,
    prefix: OsString,
}

impl KeepScratch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // A service manager signals every process of a unit, but this one must outlive the others to remove the directory. If signals
        // cannot be ignored, the directory is still removed unless one arrives.
        drop(ignore_signals());
        let made = tempfile::Builder::new()
            .prefix(&self.prefix)
            .permissions(std::fs::Permissions::from_mode(0o700))
            .tempdir_in(&self.folder);
        let path = match made {
            Ok(made) => made.keep(),
            Err(error) => return report::written(writeln!(io::stdout(), "{error}")),
        };
        let name = path.file_name().unwrap_or_default().as_bytes();
        let letters = name.get(self.prefix.len()..).unwrap_or_default();
        // This fails if the parent has already exited, but then standard input ends too.
        drop(writeln!(io::stdout(), "{MADE}{}", letters.escape_ascii()));
        let mut body = Vec::new();
        let in_order = io::stdin().read_to_end(&mut body).is_ok() && !body.is_empty();
        let shown = path.display();
        let removed = remove(&path)
            .map_err(|error| Failure::unreachable(format!("failed to remove {shown}: {error}")))?;
        if removed && !in_order {
            tell(&format!("interrupted: {shown} was removed"));
        }
        Ok(())
    }
}

/// Ignores termination signals from now on. Registering a listener is enough, even if it is dropped immediately.
fn ignore_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let _inside = runtime.enter();
    for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
        drop(signal(kind)?);
    }
    Ok(())
}

/// Removes a directory with everything in it. Returns whether it existed.
fn remove(path: &Path) -> io::Result<bool> {
    let mut attempts = 1;
    loop {
        match std::fs::remove_dir_all(path) {
            Ok(()) => return Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound && !path.exists() => {
                return Ok(attempts > 1);
            }
            Err(error) if attempts == ATTEMPTS_MAX => return Err(error),
            Err(_) => attempts += 1,
        }
    }
}
