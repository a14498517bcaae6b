//! `sexton kill --pid-file` stops or signals the process that a PID file of another program names. `sexton ps --pid-files` lists such
//! files and their processes.

use crate::process::pid_file::{CheckedPidFile, Verdict, files};
use crate::report::{Failure, print};
use crate::table::{Column, table};
use crate::text::{plain, time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use sexton::clock::Timestamp;
use sexton::kernel::pidfd::Pidfd;
use std::io;
use std::path::Path;

const TERM: u8 = 15;
const CONT: u8 = 18;
const KILL: u8 = 9;

/// The default grace period, in milliseconds.
const GRACE_MS: u64 = 10_000;

/// How long to wait after SIGKILL before the process is reported as unkillable, in milliseconds.
const KILLED_MS: u64 = 2000;

/// Sends `signal` to the process that a PID file names. If `signal` is `None`, stops the process instead: with SIGTERM, and with SIGKILL if
/// it has not ended within the grace period. Prints the outcome. Fails if no live process matches the file.
pub(super) fn kill(
    file: &Path,
    signal: Option<u8>,
    grace_ms: Option<u64>,
    json: bool,
) -> Result<(), Failure> {
    let unreadable =
        |error| Failure::unreachable(format!("failed to read {}: {error}", file.display()));
    let found = CheckedPidFile::read(file).map_err(unreadable)?;
    let pid = found.claim.pid;
    let Some(process) = &found.process else {
        let words = format!("not done: process {pid} of {}: {}", file.display(), found.verdict);
        let failure = Failure::found(words);
        return Err(if found.verdict == Verdict::NoProgram {
            failure.help(
                "write cmd.sh next to the file, with the command of the process on its last line",
            )
        } else {
            failure
        });
    };
    let failed =
        |error: io::Error| Failure::unreachable(format!("failed to signal process {pid}: {error}"));
    let outcome = match signal {
        Some(signal) => process.signal(signal).map(|_| "signalled"),
        None => end(process, grace_ms.unwrap_or(GRACE_MS)),
    };
    let outcome = outcome.map_err(failed)?;
    if json {
        let body = json!({"pid": pid, "file": file.display().to_string(), "outcome": outcome});
        print(&format!("{body}\n"))?;
    } else {
        print(&format!("process {pid}: {outcome}\n"))?;
    }
    if outcome == UNKILLABLE {
        return Err(Failure::found(format!("process {pid} has not ended after SIGKILL")));
    }
    Ok(())
}

/// The outcome if a process has not ended after SIGKILL.
const UNKILLABLE: &str = "unkillable";

/// Stops a process, and returns the outcome: `ended`, `killed` or [`UNKILLABLE`].
fn end(process: &Pidfd, grace_ms: u64) -> io::Result<&'static str> {
    if grace_ms > 0 {
        process.signal(TERM)?;
        // A suspended process handles SIGTERM only once it continues.
        process.signal(CONT)?;
        if has_ended(process, grace_ms)? {
            return Ok("ended");
        }
    }
    process.signal(KILL)?;
    Ok(if has_ended(process, KILLED_MS)? { "killed" } else { UNKILLABLE })
}

/// Waits at most `ms` for a process to end; returns whether it has.
fn has_ended(process: &Pidfd, ms: u64) -> io::Result<bool> {
    let wait = Timespec {
        tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
    };
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    loop {
        match poll(&mut polled, Some(&wait)) {
            Ok(count) => return Ok(count > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Lists the PID files below a directory, each with whether a live process still matches it.
pub(super) fn list(directory: &Path, json: bool) -> Result<(), Failure> {
    let unreadable =
        |error| Failure::unreachable(format!("failed to read {}: {error}", directory.display()));
    let paths = files(directory).map_err(unreadable)?;
    let all: Vec<_> =
        paths.iter().map(|path| (path.as_path(), CheckedPidFile::read(path))).collect();
    if json {
        let all: Vec<Value> = all.iter().map(|(path, found)| line(path, found)).collect();
        return print(&format!("{}\n", json!({ "pid_files": all })));
    }
    if all.is_empty() {
        return print("no PID files: no file name ends with .pid\n");
    }
    let heads = [
        ("PID", Column::Number),
        ("WRITTEN", Column::Words),
        ("PROGRAM", Column::Words),
        ("STATUS", Column::Words),
        ("FILE", Column::Words),
    ];
    let rows = all.iter().map(|(path, found)| {
        let file = plain(&path.display().to_string());
        match found {
            Ok(found) => [
                found.claim.pid.to_string(),
                time(Timestamp(found.claim.written_ms)),
                plain(found.claim.program.as_deref().unwrap_or("-")),
                found.verdict.to_string(),
                file,
            ],
            Err(error) => {
                let none = || "-".to_owned();
                [none(), none(), none(), format!("unknown: {error}"), file]
            }
        }
    });
    print(&table(heads, rows))
}

fn line(path: &Path, found: &io::Result<CheckedPidFile>) -> Value {
    let file = path.display().to_string();
    match found {
        Ok(found) => json!({
            "file": file,
            "pid": found.claim.pid,
            "written_at": found.claim.written_ms,
            "program": found.claim.program,
            "status": found.verdict.name(),
            "started_at": found.facts.as_ref().map(|facts| facts.started_ms),
        }),
        Err(error) => json!({"file": file, "status": "unreadable", "error": error.to_string()}),
    }
}
