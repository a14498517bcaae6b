//! The real program on a disk that becomes full: additions are refused, releases and reads work, and nothing that was
//! acknowledged is lost. Once there is space, everything is accepted again. If even releases have no space, the program
//! halts.
//!
//! There are two kinds of disks: a limit on the size of files, which every user can set on their own process, and a small
//! tmpfs, which requires the right to mount. Without that right, the tmpfs is reported as skipped.

use crate::coordinator::done;
use crate::daemon::{Daemon, ended, sexton, text};
use crate::lockserver::{Client, find_owner, release, request};
use crate::patience::until;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The number of requests that are sent at once.
const BURST: usize = 50;

/// A number of requests that a full disk cannot have accepted.
const REQUESTS_MAX: usize = 200_000;

/// A disk with space for the first two segments of a journal, 1 MiB and 2 MiB, and not for the third of 4 MiB.
enum Disk {
    /// A directory, with a limit of 3 MiB on each file of the process.
    Limit(TempDir),
    /// A file system of 6 MiB.
    Mount(TempDir),
}

impl Disk {
    fn limit() -> Self {
        Self::Limit(tempfile::tempdir().expect("a temporary directory"))
    }

    fn mount() -> Option<Self> {
        Self::mount_of("size=6m")
    }

    fn mount_of(size: &str) -> Option<Self> {
        let files = tempfile::tempdir().expect("a temporary directory");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", size, "sexton-test"]).arg(files.path());
        let mounted = mount.output().is_ok_and(|output| output.status.success());
        mounted.then(|| Self::Mount(files))
    }

    fn data(&self) -> PathBuf {
        let (Self::Limit(files) | Self::Mount(files)) = self;
        files.path().join("data")
    }

    /// Starts the program on this disk.
    fn serve(&self) -> Daemon {
        let data = self.data();
        let daemon = Daemon::serve(&["--fsync", "never", "--data", text(&data)]);
        if let Self::Limit(_) = self {
            daemon.limit_files(Some(3 << 20));
        }
        daemon
    }

    /// Frees space.
    fn free(&self, daemon: &Daemon) {
        match self {
            Self::Limit(_) => daemon.limit_files(None),
            Self::Mount(_) => self.enlarge(),
        }
    }

    fn enlarge(&self) {
        if let Self::Mount(files) = self {
            let mut mount = Command::new("mount");
            mount.args(["-o", "remount,size=64m"]).arg(files.path());
            assert!(
                mount.status().is_ok_and(|status| status.success()),
                "the file system can be enlarged"
            );
        }
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Self::Mount(files) = self {
            // Detach it even if it is still in use: it is removed when its last user ends.
            drop(Command::new("umount").arg("-l").arg(files.path()).status());
        }
    }
}

/// Acquires locks until one is refused. Returns the numbers of the granted ones.
fn fill(client: &mut Client, daemon: &Daemon) -> BTreeSet<usize> {
    let mut granted = BTreeSet::new();
    for first in (0..REQUESTS_MAX).step_by(BURST) {
        let numbers = first..first + BURST;
        let asked: Vec<Vec<u8>> = numbers.clone().map(ask).collect();
        client.send(&asked.concat()).expect("connected");
        let mut refused = false;
        for number in numbers {
            let answer = client.receive_number();
            match answer.unwrap_or_else(|error| panic!("{error}\n{}", daemon.log())) {
                1 => assert!(granted.insert(number) && !refused, "space is not freed by itself"),
                0 => refused = true,
                place => panic!("place {place} of a lock without other clients"),
            }
        }
        if refused {
            return granted;
        }
    }
    panic!("the disk was never full");
}

fn ask(number: usize) -> Vec<u8> {
    request("k", &number.to_string(), "alice", (60_000, 60, 0))
}

fn let_go(number: usize) -> Vec<u8> {
    release("k", &number.to_string(), "alice")
}

/// Returns the numbers of the granted locks that the server has.
fn held(client: &mut Client, granted: &BTreeSet<usize>) -> BTreeSet<usize> {
    let mut there = BTreeSet::new();
    for number in granted {
        let owner = client.owner("k", &number.to_string()).expect("an answer");
        if owner == b"alice" {
            there.insert(*number);
        }
    }
    there
}

#[expect(clippy::print_stdout, reason = "the progress is of interest")]
fn goes_on_when_space_is_freed(disk: &Disk) {
    let daemon = disk.serve();
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    let mut granted = fill(&mut client, &daemon);
    println!("{} locks before the disk was full", granted.len());
    daemon.until_logged("the next journal segment cannot be prepared");
    // Reads, renewals and releases continue.
    let mut newcomers = granted.len() + BURST..;
    let mut newcomer = || newcomers.next().expect("there are enough numbers");
    for number in 0..100 {
        assert_eq!(client.owner("k", &number.to_string()).expect("an answer"), b"alice");
        assert!(client.renew("k", &number.to_string(), "alice").expect("an answer"), "a renewal");
        assert_eq!(client.number(&ask(number)).expect("an answer"), 1, "a repeated request renews");
        assert_eq!(client.number(&let_go(number)).expect("an answer"), 1, "a release");
        assert!(granted.remove(&number));
        assert_eq!(client.number(&ask(newcomer())).expect("an answer"), 0, "nothing new");
    }
    disk.free(&daemon);
    let number = newcomer();
    until("new connections are accepted again", || {
        (client.number(&ask(number)).expect("an answer") == 1).then_some(())
    });
    granted.insert(number);
    daemon.until_logged("the next journal segment is prepared: there is room again");
    let more: Vec<usize> = (0..40_000).map(|_| newcomer()).collect();
    for burst in more.chunks(BURST) {
        let asked: Vec<Vec<u8>> = burst.iter().copied().map(ask).collect();
        client.send(&asked.concat()).expect("connected");
        let found = client.receive(burst.len() * 2).expect("answers");
        assert_eq!(found, [0, 1].repeat(burst.len()));
        granted.extend(burst);
    }
    daemon.kill();
    let again = disk.serve();
    let mut client = Client::connect(again.lockserver()).expect("connected");
    assert_eq!(client.owner("k", "7").expect("an answer"), b"", "released while the disk was full");
    assert!(held(&mut client, &granted) == granted, "nothing acknowledged is lost");
}

#[expect(clippy::print_stdout, reason = "the progress is of interest")]
fn halts_when_nothing_is_left(disk: &Disk) {
    let daemon = disk.serve();
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    let granted = fill(&mut client, &daemon);
    let mut released = BTreeSet::new();
    let mut open = None;
    for number in &granted {
        let answer = client.number(&let_go(*number));
        if answer.is_err() {
            // The program may or may not have executed that request.
            open = Some(*number);
            break;
        }
        assert_eq!(answer.expect("it was just looked at"), 1, "a release is never refused");
        released.insert(*number);
    }
    let open = open.expect("releases use up what was kept for them");
    println!(
        "{} locks before the disk was full, {} releases after that",
        granted.len(),
        released.len()
    );
    drop(client);
    let (status, log) = daemon.end();
    assert_eq!(status.code(), Some(4), "{log}");
    assert!(log.contains("halted, nothing more is acknowledged"), "{log}");

    disk.enlarge();
    let again = disk.serve();
    disk.free(&again);
    let mut client = Client::connect(again.lockserver()).expect("connected");
    let mut expected: BTreeSet<usize> = granted.difference(&released).copied().collect();
    let there = held(&mut client, &granted);
    if !there.contains(&open) {
        expected.remove(&open);
    }
    assert!(there == expected, "exactly the acknowledged locks");
    let answer = client.ask(&find_owner("k", "none"), 1).expect("an answer");
    assert_eq!(answer, [0]);
}

#[test]
fn with_a_limit_on_files_it_goes_on_when_the_limit_is_lifted() {
    goes_on_when_space_is_freed(&Disk::limit());
}

#[test]
fn with_a_limit_on_files_it_halts_when_nothing_is_left() {
    halts_when_nothing_is_left(&Disk::limit());
}

/// Returns the size of the journal that is kept as history, in bytes.
fn history_bytes(data: &Path) -> u64 {
    let mut status = sexton();
    let status = status.args(["status", "--json", "--data", text(data)]);
    let [status, _] = ended(status.output().expect("the program runs"), 0);
    let status: Value = serde_json::from_str(&status).expect("valid JSON");
    let bytes = status.pointer("/snapshots/history/bytes");
    bytes.and_then(Value::as_u64).expect("a size")
}

#[test]
fn history_gives_way_when_space_is_low() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--fsync", "never", "--data", text(&data)]);
    let mut client = Client::connect(daemon.lockserver()).expect("connected");
    // More than the first segment holds.
    for number in 0..8000 {
        let index = format!("{number} {}", "x".repeat(200));
        let asked = request("filling", &index, "alice", (6000, 60, 0));
        client.number(&asked).expect("an answer");
    }
    // A snapshot in each slot.
    for _ in 0..2 {
        let mut checkpoint = sexton();
        let checkpoint = checkpoint.args(["checkpoint", "--data", text(&data)]);
        ended(checkpoint.output().expect("the program runs"), 0);
        client.number(&ask(REQUESTS_MAX)).expect("an answer");
    }
    assert!(history_bytes(&data) > 0, "the first segment is kept");
    let first = data.join("journal/00000001.seg");
    assert!(first.exists(), "it is kept as history");

    // The third segment, of 4 MiB, can be prepared, but no other, and no snapshot can be taken: their largest file is larger.
    daemon.limit_files(Some(4 << 20));
    fill(&mut client, &daemon);
    until("the history is gone", || (history_bytes(&data) == 0).then_some(()));
    // The node counts what it keeps before its thread has removed the file.
    until("it made room", || (!first.exists()).then_some(()));
    daemon.limit_files(None);
}

#[test]
fn on_a_small_file_system_it_goes_on_when_there_is_space() {
    match Disk::mount() {
        Some(disk) => goes_on_when_space_is_freed(&disk),
        None => println!("skipped: a small tmpfs, which this user may not mount"),
    }
}

#[test]
fn on_a_small_file_system_it_halts_when_nothing_is_left() {
    match Disk::mount() {
        Some(disk) => halts_when_nothing_is_left(&disk),
        None => println!("skipped: a small tmpfs, which this user may not mount"),
    }
}

/// Nothing else is needed: the server itself takes the snapshot after which the old journal is removed.
#[test]
fn what_a_refusal_names_frees_space() {
    let Some(disk) = Disk::mount_of("size=24m") else {
        return println!("skipped: a small tmpfs, which this user may not mount");
    };
    let daemon = disk.serve();
    let data = disk.data();
    let run = |words: &[&str]| {
        let mut command = sexton();
        command.args(words).env("SEXTON_DATA", &data);
        done(command.output().expect("the program runs"))
    };
    let long = "x".repeat(60_000);
    let push = || run(&["queue", "push", "filler", &long]);
    let refused = (0..1000).find_map(|_| Some(push()).filter(|done| done.status != 0));
    let refused = refused.unwrap_or_else(|| panic!("the disk is never full: {}", daemon.log()));
    assert_eq!(refused.status, 1, "{refused:?}");
    let words = ["the disk is full", "`sexton queue flush`", "`sexton ps prune`"];
    assert!(words.iter().all(|word| refused.err.contains(word)), "{refused:?}");
    // A command of ours that is refused says the same, whatever it was to add.
    for words in [
        &["lock", "acquire", "k", "--owner", "a", "--ttl", "60"][..],
        &["lease", "run", "l", "--", "true"],
        &["task", "add", "--", "true"],
        &["run", "--detach", "--", "true"],
    ] {
        let other = run(words);
        assert!(
            other.status != 0 && other.err.contains("`sexton queue flush`"),
            "{words:?}: {other:?}"
        );
    }
    let flushed = run(&["queue", "flush", "filler"]);
    assert_eq!(flushed.status, 0, "{flushed:?}");
    until("there is space again", || (push().status == 0).then_some(()));
}
