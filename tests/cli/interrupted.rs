//! Interrupted and killed commands: a backup gets its final name only when it is complete, and temporary files are
//! removed soon afterwards.

use crate::daemon::{Daemon, sexton};
use crate::directory;
use crate::patience::until;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

/// The maximum number of rounds, since a command may end before it gets the signal.
const ROUNDS_MAX: u32 = 200;

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the directory is readable");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        let name = entry.expect("the directory is readable").file_name();
        name.into_string().expect("UTF-8")
    };
    entries.map(name).collect()
}

/// Returns whether this signal is not ignored by the processes started here. Background jobs of a shell ignore SIGINT.
#[expect(clippy::print_stdout, reason = "skipped parts are reported")]
fn is_heard(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("the system has it");
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .expect("a mask of signals");
    let heard = ignored & (1 << (signal.as_raw() - 1)) == 0;
    if !heard {
        println!("skipped: {signal:?} is ignored here");
    }
    heard
}

/// Sends a signal to the command as soon as it has created something in the directory. Returns its exit status.
fn interrupt(mut command: Command, folder: &Path, signal: Signal) -> ExitStatus {
    let quiet = command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut child = quiet.stderr(Stdio::null()).spawn().expect("the command starts");
    while names(folder).is_empty() {
        if let Some(status) = child.try_wait().expect("our child") {
            return status;
        }
    }
    // The child is not reaped yet, so its PID cannot belong to another process.
    kill_process(Pid::from_child(&child), signal).expect("a live process");
    child.wait().expect("our child")
}

#[test]
fn an_interrupted_backup_never_has_its_name_and_leaves_nothing() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (data, copies) = (files.path().join("data"), files.path().join("copies"));
    directory::make(&data);
    fs::create_dir(&copies).expect("a new directory");
    let shown = data.to_str().expect("UTF-8");
    let daemon = Daemon::serve(&["--data", shown]);
    let copy = copies.join("copy");
    let signals = [Signal::INT, Signal::TERM, Signal::KILL];
    for signal in signals.into_iter().filter(|signal| is_heard(*signal)) {
        let mut rounds = 0;
        loop {
            let mut command = sexton();
            command.arg("backup").arg(&copy).arg("--data").arg(&data);
            let status = interrupt(command, &copies, signal);
            until("nothing incomplete is left", || {
                names(&copies).iter().all(|name| name == "copy").then_some(())
            });
            if copy.exists() {
                // If the command ended before it got the signal, the backup is complete.
                let inspected = sexton().arg("inspect").arg(&copy).output();
                let inspected = inspected.expect("the command runs");
                assert_eq!(inspected.status.code(), Some(0), "{inspected:?}");
                let said = String::from_utf8_lossy(&inspected.stdout).into_owned();
                assert!(said.contains("would load snapshot"), "{said}");
                fs::remove_dir_all(&copy).expect("it can be removed");
            } else if status.signal().is_some() {
                break;
            }
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "none was interrupted by {signal:?}");
        }
    }
    daemon.kill();
}

#[test]
fn copies_of_an_interrupted_look_are_removed() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (data, scratch) = (files.path().join("data"), files.path().join("scratch"));
    directory::make(&data);
    fs::create_dir(&scratch).expect("a new directory");
    let all = [("inspect", Signal::INT), ("replay", Signal::TERM), ("inspect", Signal::KILL)];
    for (subcommand, signal) in all.into_iter().filter(|(_, signal)| is_heard(*signal)) {
        let mut rounds = 0;
        loop {
            let mut command = sexton();
            command.arg(subcommand).arg(&data).env("TMPDIR", &scratch);
            let status = interrupt(command, &scratch, signal);
            until("no copy is left", || names(&scratch).is_empty().then_some(()));
            if status.signal().is_some() {
                break;
            }
            rounds += 1;
            assert!(rounds < ROUNDS_MAX, "none was interrupted by {signal:?}");
        }
    }
}
