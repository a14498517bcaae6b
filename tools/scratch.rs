//! A directory that does not outlast the process that asked for it, however that ends: another process makes it, waits for
//! the end, and removes what is there by then.
//!
//! It is the one that removes in good order, too. What was renamed meanwhile is left alone: it has become something else.

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

/// A store that is being killed may write a moment longer.
const ATTEMPTS_MAX: u32 = 100;

/// Stands before the letters that make the name a new one; without it, what follows is an error.
const MADE: &str = "made ";

/// A directory for a while.
pub(crate) struct Scratch {
    path: PathBuf,
    /// It waits for the end of what is written to it.
    remover: Child,
}

impl Scratch {
    /// A new one in `folder`, whose name begins with `prefix`.
    pub(crate) fn make(folder: &Path, prefix: impl AsRef<OsStr>) -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["keep-scratch", "--"])
            .arg(folder)
            .arg(&prefix);
        // Outside the group that a terminal or a timeout sends its signals to.
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
        Ok(Self {
            path: folder.join(name),
            remover,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(mut input) = self.remover.stdin.take() {
            // One that has ended already has nothing to be told.
            drop(input.write_all(b"."));
        }
        drop(self.remover.wait());
    }
}

/// Keep a directory until standard input ends, for another process.
#[derive(Args)]
#[command(hide = true)]
pub(crate) struct KeepScratch {
    folder: PathBuf,
    prefix: OsString,
}

impl KeepScratch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // A service manager sends its signal to every process: this one ends when the others have.
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
        // Who asked may be gone already, which its input says too.
        drop(writeln!(io::stdout(), "{MADE}{}", letters.escape_ascii()));
        let mut said = Vec::new();
        let in_order = io::stdin().read_to_end(&mut said).is_ok() && !said.is_empty();
        let shown = path.display();
        let removed = remove(&path)
            .map_err(|error| Failure::unreachable(format!("failed to remove {shown}: {error}")))?;
        if removed && !in_order {
            tell(&format!("interrupted: {shown} is removed"));
        }
        Ok(())
    }
}

/// From now on. Who listens to a signal does not end by it, also if it listens no more.
fn ignore_signals() -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let _inside = runtime.enter();
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ] {
        drop(signal(kind)?);
    }
    Ok(())
}

/// Removes a directory with everything in it; whether it was there.
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
