//! `sexton backup` under load. A coordinator that starts on the copy has everything that was acknowledged before the
//! backup began.

use crate::daemon::{Daemon, sexton};
use crate::directory::{self, everything, settings};
use crate::lockserver::{Client, request};
use crate::node;
use crate::patience::until;
use serde_json::Value;
use sexton::Node;
use sexton::actors::lock::{LockMachine, Rules};
use sexton::ids::Digest;
use sexton::persist::backup;
use sexton::persist::disk::RealDisk;
use sexton::persist::snapshots::{SledStores, Slots};
use sexton::spine::machine::Paged as _;
use sexton::spine::recovery::{Recovering, RecoveryError, Replica, Scope, recover};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

fn run(data: &Path, into: &Path, flags: &[&str]) -> Output {
    let mut command = sexton();
    command.arg("backup").arg(into).arg("--data").arg(data);
    command.args(flags).output().expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

#[test]
fn what_was_acknowledged_before_is_in_the_copy_that_is_started() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let shown = data.to_str().expect("UTF-8");
    // Take checkpoints so often that files are created and removed while they are copied.
    let daemon = Daemon::serve(&["--data", shown, "--checkpoint-every", "700"]);
    let (over, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut copies = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(daemon.lockserver()).expect("connected");
            while !over.load(Ordering::Relaxed) {
                let number = acknowledged.load(Ordering::Acquire);
                let asked = request("key", &number.to_string(), "owner", (6000, 60, 0));
                assert_eq!(client.number(&asked).expect("an answer"), 1);
                acknowledged.store(number + 1, Ordering::Release);
            }
        });
        for round in 0..6 {
            until("some more locks", || {
                (acknowledged.load(Ordering::Acquire) > round * 500).then_some(())
            });
            let before = acknowledged.load(Ordering::Acquire);
            let copy = files.path().join(format!("copy {round}"));
            let output = run(&data, &copy, &["--json"]);
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(0), "round {round}: {said}");
            let said: Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
            copies.push((before, said, copy));
        }
        over.store(true, Ordering::Relaxed);
    });
    daemon.kill();
    for (before, said, copy) in copies {
        for (name, (mode, _, content)) in everything(&copy) {
            let private = if content.is_some() { 0o600 } else { 0o700 };
            assert_eq!(mode & 0o7777, private, "{name}");
        }
        // Restore as documented: copy the backup, which stays unchanged.
        let restored = copy.with_extension("restored");
        directory::copy(&copy, &restored);
        let node = Node::open(settings(&restored)).expect("the directory opens");
        let recovered = node.handle().recovered().clone();
        assert!(recovered.cut.is_none() && recovered.mended.is_empty(), "{recovered:?}");
        assert_eq!(recovered.records, said["records"].as_u64().expect("a number"));
        let entries = node::entries(&node.handle());
        let held: BTreeSet<String> = entries.iter().map(|entry| entry.index.to_text()).collect();
        for number in 0..before {
            assert!(held.contains(&number.to_string()), "{number} of {before} is lost");
        }
        node.stop().expect("the node stops");
    }
}

/// An empty environment variable counts as unset.
#[test]
fn an_empty_variable_names_no_directory() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let mut command = sexton();
    command.arg("backup").arg(files.path().join("copy"));
    command.env("SEXTON_DATA", "").env("HOME", files.path());
    let output = command.env_remove("XDG_STATE_HOME").output();
    let output = output.expect("the command runs");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("no coordinator runs on"), "{said}");
}

#[test]
fn nothing_is_replaced_and_nothing_is_left_of_what_failed() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (data, copy) = (files.path().join("data"), files.path().join("copy"));
    let refused = run(&data, &copy, &[]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("no coordinator runs"), "{said}");
    assert!(!copy.exists(), "a directory that was created in vain is removed");

    let shown = data.to_str().expect("UTF-8");
    let daemon = Daemon::serve(&["--data", shown]);
    std::fs::create_dir(&copy).expect("a new directory");
    std::fs::write(copy.join("precious"), "x").expect("a writable file");
    let before = everything(&copy);
    let refused = run(&data, &copy, &[]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("it is not empty"), "{said}");
    assert_eq!(everything(&copy), before, "nothing was changed");

    std::fs::remove_file(copy.join("precious")).expect("the file exists");
    let file = files.path().join("file");
    std::fs::write(&file, "x").expect("a writable file");
    let refused = run(&data, &file, &[]);
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{said}");
    assert!(said.contains("it is a file"), "{said}");

    let done = run(&data, &copy, &[]);
    assert_eq!(done.status.code(), Some(0), "{}", text(&done.stderr));
    assert!(text(&done.stdout).contains("everything up to seq "));
    daemon.kill();
}

#[test]
fn an_interrupted_copy_is_refused_or_has_everything() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let (trimmed, whole) = (files.path().join("trimmed"), files.path().join("whole"));
    directory::make(&trimmed);
    let node = Node::open(settings(&whole)).expect("the directory opens");
    directory::request(&node.handle(), 0..100);
    node.stop().expect("the node stops");
    for (data, may_start) in [(&trimmed, false), (&whole, true)] {
        let expected = recovered(data).expect("it is intact");
        let (mut starts, mut refusals) = (0, 0);
        for killed_at in 1.. {
            let copy = files.path().join(format!("{may_start} {killed_at}"));
            let mut copied = 0;
            let count = &mut |_| {
                copied += 1;
                assert!(copied < killed_at, "killed here");
            };
            let (from, to) = (RealDisk::new(data), RealDisk::new(&copy));
            let done = catch_unwind(AssertUnwindSafe(|| backup::copy(&from, &to, count)));
            match recovered(&copy) {
                Ok(found) => {
                    assert_eq!(found, expected, "{killed_at}");
                    starts += u32::from(done.is_err());
                }
                Err(_) => refusals += 1,
            }
            if let Ok(done) = done {
                done.expect("nothing changes meanwhile");
                break;
            }
        }
        assert_eq!(starts > 0, may_start, "{starts} starts");
        assert_eq!(refusals > 0, !may_start, "{refusals} refusals");
    }
}

/// Returns the digest of the locks after recovery.
fn recovered(data: &Path) -> Result<Digest, RecoveryError> {
    let disk = Arc::new(RealDisk::new(data));
    let slots = Slots::new(disk, Arc::new(SledStores::new(data)));
    let mut locks = Replica::<LockMachine>::new(Rules::default());
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut locks];
    recover(
        &RealDisk::new(data),
        Some(&slots),
        replicas,
        Scope { partial: true, ..Scope::default() },
    )?;
    Ok(locks.machine().digest())
}

/// The next snapshot of the data directory would remove the files of a backup in it.
#[test]
fn a_backup_within_the_data_is_refused() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let _daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    let link = files.path().join("link");
    std::os::unix::fs::symlink(&data, &link).expect("a link");
    for into in ["data/copy", "data/snapshots/b", "data", "link/journal/x/y"] {
        let output = run(&data, &files.path().join(into), &[]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{into}: {said}");
        assert!(said.contains("the directory to copy"), "{into}: {said}");
    }
    for left in ["copy", "snapshots/b", "journal/x"] {
        assert!(!data.join(left).exists(), "{left} was created");
    }
}

/// Two backups at once would remove each other's files, and one could report success although its copy is lost.
#[test]
fn of_two_backups_to_one_place_one_is_made() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let _daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    for round in 0..3 {
        let into = files.path().join(format!("copy {round}"));
        let ended = std::thread::scope(|scope| {
            let both = [(); 3].map(|()| scope.spawn(|| run(&data, &into, &[]).status.code()));
            both.map(|one| one.join().expect("no panic"))
        });
        let made = ended.iter().filter(|code| **code == Some(0)).count();
        assert_eq!(made, 1, "{ended:?}");
        assert!(into.join("journal").exists(), "it exists");
        assert!(!into.join("lock").exists(), "no process uses it");
    }
}

#[test]
fn the_history_of_a_lock_outlives_many_backups() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let shown = data.to_str().expect("UTF-8");
    let none = &["--journal-kept-max", "0"][..];
    for (flags, is_kept) in [(&[][..], true), (none, false)] {
        let daemon = Daemon::serve(&[&["--data", shown, "--fsync", "never"], flags].concat());
        let mut client = Client::connect(daemon.lockserver()).expect("connected");
        let asked = request("acct", "1", "the owner", (6000, 60, 0));
        client.number(&asked).expect("an answer");
        for round in 0..3 {
            // More than the first segments hold.
            for number in 0..4000 {
                let index = format!("{number} {}", "x".repeat(200));
                let asked = request("filling", &index, "another", (6000, 60, 0));
                client.number(&asked).expect("an answer");
            }
            let copy = files.path().join(format!("copy {round} {is_kept}"));
            assert!(run(&data, &copy, &[]).status.success());
        }
        let mut command = sexton();
        let status = command.args(["status", "--json", "--data", shown]);
        let status = status.output().expect("the command runs").stdout;
        let status: Value = serde_json::from_slice(&status).expect("JSON");
        let history = &status["snapshots"]["history"];
        assert_eq!(history["bytes"].as_u64().expect("a size") > 0, is_kept, "{history}");
        assert!(history["since"].is_u64(), "{history}");
        daemon.kill();
        let mut command = sexton();
        let inspected = command.args(["inspect", shown, "--key", "acct"]);
        let inspected = text(&inspected.output().expect("the command runs").stdout);
        // When it was granted, not only the state.
        assert_eq!(inspected.contains("granted"), is_kept, "{inspected}");
        let first = data.join("journal/00000001.seg");
        assert_eq!(first.exists(), is_kept, "{inspected}");
    }
}
