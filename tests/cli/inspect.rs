//! `sexton inspect` finds and names each planted damage, and reports what a startup would do; the startup must then do
//! it. `inspect` changes neither bytes nor modification times.

#![expect(clippy::indexing_slicing, reason = "a missing part fails the test")]

use crate::daemon::{Daemon, sexton};
use crate::directory::{self, copy, everything, make};
use crate::lockserver::{Client, request};
use crate::node;
use serde_json::Value;
use sexton::Node;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};

fn inspect(data: &Path, flags: &[&str]) -> Output {
    let mut command = sexton();
    command.arg("inspect").arg(data).args(flags);
    command.output().expect("the command runs")
}

fn json(data: &Path) -> (Option<i32>, Value) {
    let output = inspect(data, &["--json"]);
    let found = serde_json::from_slice(&output.stdout).expect("valid JSON");
    (output.status.code(), found)
}

/// Returns the whole output as one line.
fn said(output: &Output) -> String {
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    let text = String::from_utf8(all).expect("UTF-8");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A directory to be damaged: its segments in order, and its newer snapshot.
struct DamagedDirectory {
    data: PathBuf,
    segments: Vec<PathBuf>,
    newer: &'static str,
    older: &'static str,
}

impl DamagedDirectory {
    fn at(data: &Path) -> Self {
        let (status, found) = json(data);
        assert_eq!(status, Some(0), "{found}");
        let upto = |slot: usize| found["snapshots"][slot]["sealed"]["upto"].as_u64();
        let (newer, older) = if upto(0) > upto(1) { ("a", "b") } else { ("b", "a") };
        let mut segments: Vec<PathBuf> = fs::read_dir(data.join("journal"))
            .expect("there is a journal")
            .map(|entry| entry.expect("the directory is readable").path())
            .filter(|path| path.extension().is_some_and(|ends| ends == "seg"))
            .collect();
        segments.sort();
        Self { data: data.to_owned(), segments, newer, older }
    }

    fn slot(&self, slot: &str, file: &str) -> PathBuf {
        self.data.join("snapshots").join(slot).join(file)
    }

    fn seal(&self, slot: &str) -> PathBuf {
        self.data.join("snapshots").join(format!("{slot}.seal"))
    }

    /// Returns the last segment that contains records.
    fn last(&self) -> &Path {
        let used = |path: &&PathBuf| {
            let bytes = fs::read(path).expect("the file is readable");
            bytes[32..].iter().any(|byte| *byte != 0)
        };
        self.segments.iter().rfind(used).expect("there are records")
    }
}

fn flip(file: &Path, offset: u64) {
    let opened = fs::OpenOptions::new().read(true).write(true).open(file).expect("the file exists");
    let mut byte = [0];
    opened.read_exact_at(&mut byte, offset).expect("it is long enough");
    opened.write_all_at(&[byte[0] ^ 4], offset).expect("a writable file");
}

fn put(file: &Path, offset: u64, bytes: &[u8]) {
    let opened = fs::OpenOptions::new().write(true).open(file);
    opened.expect("it exists").write_all_at(bytes, offset).expect("a writable file");
}

/// Sets the version of a seal or a segment to a newer one, and corrects the checksum.
fn newer(file: &Path, is_seal: bool) {
    let mut bytes = fs::read(file).expect("the file is readable");
    bytes[8..12].copy_from_slice(&9_u32.to_le_bytes());
    let head = if is_seal { 8..12 } else { 0..12 };
    let end = if is_seal { bytes.len() } else { 32 };
    let sum = crc32c::crc32c_append(crc32c::crc32c(&bytes[head]), &bytes[16..end]);
    put(file, 8, &[9_u32, sum].map(u32::to_le_bytes).concat());
}

fn shorten(file: &Path, len: u64) {
    let opened = fs::OpenOptions::new().write(true).open(file);
    opened.expect("it exists").set_len(len).expect("it can be cut");
}

fn remove(file: &Path) {
    fs::remove_file(file).expect("the file exists");
}

/// Returns the offset at which the used part of a segment ends.
fn used(file: &Path) -> u64 {
    let bytes = fs::read(file).expect("the file is readable");
    let last = bytes.iter().rposition(|byte| *byte != 0).expect("it has a header");
    last as u64 + 1
}

/// Moves a file or directory away, and leaves a symbolic link to it.
fn linked(made: &DamagedDirectory, name: impl AsRef<Path>) {
    let away = tempfile::tempdir_in(made.data.parent().expect("it is in a directory"));
    let away = away.expect("it can be created").keep().join("away");
    let path = made.data.join(name);
    fs::rename(&path, &away).expect("it exists");
    std::os::unix::fs::symlink(&away, &path).expect("a link");
}

type Plant = fn(&DamagedDirectory);

/// The cases: a name, the damage, the exit status of `inspect`, and parts of its output.
const PLANTED: &[(&str, Plant, i32, &[&str])] = &[
    ("nothing", |_| {}, 0, &["sealed and intact", "would load snapshot"]),
    (
        "a bit of the newer snapshot",
        |made| flip(&made.slot(made.newer, "db"), 70_000),
        1,
        &["db has changed since it was sealed", "nothing is lost"],
    ),
    (
        "a bit of the older snapshot",
        |made| flip(&made.slot(made.older, "db"), 5),
        1,
        &["db has changed since it was sealed"],
    ),
    (
        "a snapshot's file is cut",
        |made| shorten(&made.slot(made.newer, "db"), 1000),
        1,
        &["db has 1000 bytes, but was sealed with"],
    ),
    (
        "a snapshot's file is gone",
        |made| remove(&made.slot(made.newer, "conf")),
        1,
        &["conf is missing"],
    ),
    (
        "a file too many in a snapshot",
        |made| fs::write(made.slot(made.older, "stray"), "x").expect("a writable file"),
        1,
        &["stray did not exist when the slot was sealed"],
    ),
    ("a bit of a seal", |made| flip(&made.seal(made.newer), 30), 1, &["its seal is invalid"]),
    (
        "a seal is gone",
        |made| remove(&made.seal(made.newer)),
        1,
        &["never finished", "it is not sealed"],
    ),
    (
        "a seal's version alone",
        |made| put(&made.seal(made.newer), 8, &[9]),
        1,
        &["its seal is invalid"],
    ),
    (
        "a seal whose version and checksum are damaged",
        |made| put(&made.seal(made.newer), 8, &[9, 0, 0, 0, 1, 2, 3, 4]),
        1,
        &["its seal is invalid"],
    ),
    (
        "a seal of a newer sexton",
        |made| newer(&made.seal(made.newer), true),
        3,
        &["written by a newer sexton", "format 9 is newer than"],
    ),
    (
        "both snapshots",
        |made| {
            flip(&made.slot(made.newer, "db"), 70_000);
            shorten(&made.slot(made.older, "db"), 1000);
        },
        3,
        &[
            "would be refused",
            "are gone",
            "db has changed since it was sealed",
            "db has 1000 bytes",
        ],
    ),
    (
        "a record that a start does not need",
        |made| flip(&made.segments[1], 100),
        1,
        &["damaged at offset 32", "00000", "after sequence number"],
    ),
    (
        "a record that no start can do without",
        |made| {
            flip(&made.slot(made.newer, "db"), 70_000);
            flip(&made.segments[1], 100);
        },
        3,
        &["would be refused", "damaged at offset 32"],
    ),
    (
        "the journal behind the older snapshot",
        |made| {
            for segment in &made.segments[..2] {
                remove(segment);
            }
        },
        1,
        &["it matches its seal, but the journal no longer goes back to it", "nothing is lost"],
    ),
    (
        "a segment is gone",
        |made| remove(&made.segments[1]),
        3,
        &["would be refused", "it is missing, but"],
    ),
    (
        "the last record, before the end that the snapshot knows of",
        |made| put(made.last(), 32, &vec![0; 16_000]),
        3,
        &["would be refused", "a snapshot shows that it reached"],
    ),
    (
        "an unfinished end",
        |made| put(made.last(), used(made.last()), &[7; 9]),
        0,
        &["would cut the unfinished end of", "9 bytes", "are not a complete record"],
    ),
    (
        "a segment of a newer sexton",
        |made| newer(made.last(), false),
        3,
        &["format 9 is newer than", "would be refused"],
    ),
    (
        "a segment's version alone",
        |made| put(made.last(), 8, &9_u32.to_le_bytes()),
        1,
        &["is damaged at offset 0", "nothing is lost"],
    ),
    (
        "a segment's header",
        |made| flip(&made.segments[1], 17),
        1,
        &["is damaged at offset 0", "nothing is lost"],
    ),
    (
        "the last records, which no snapshot has",
        |made| put(made.last(), used(made.last()) - 100, &[0; 100]),
        3,
        &["would be refused", "was synced up to sequence number"],
    ),
    (
        "a segment that was being prepared",
        |made| fs::write(made.data.join("journal/00000099.tmp"), "x").expect("a writable file"),
        0,
        &["00000099.tmp is not a segment"],
    ),
    (
        "a pipe for a lock",
        |made| {
            let lock = made.data.join("lock");
            fs::remove_file(&lock).expect("the file exists");
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &lock, rustix::fs::FileType::Fifo, mode, 0)
                .expect("the node can be created");
        },
        3,
        &["would be refused", "lock: it is not a file"],
    ),
    (
        "a link for a lock",
        |made| linked(made, "lock"),
        3,
        &["would be refused", "lock: it is a symbolic link"],
    ),
    (
        "a link for the journal",
        |made| linked(made, "journal"),
        3,
        &["would be refused", "journal: it is a symbolic link"],
    ),
    (
        "a link for a segment",
        |made| {
            let last = made.segments.last().expect("a segment exists");
            linked(made, last.strip_prefix(&made.data).expect("it is inside"));
        },
        3,
        &["would be refused", ".seg: it is a symbolic link"],
    ),
    (
        "a link in a snapshot",
        |made| {
            linked(
                made,
                made.slot(made.newer, "db").strip_prefix(&made.data).expect("it is inside"),
            );
        },
        3,
        &["would be refused", "db: it is a symbolic link"],
    ),
    (
        "no journal",
        |made| fs::remove_dir_all(made.data.join("journal")).expect("the directory exists"),
        3,
        &["would be refused", "ends at sequence number 0"],
    ),
    (
        "no snapshots",
        |made| fs::remove_dir_all(made.data.join("snapshots")).expect("the directory exists"),
        3,
        &["would be refused", "are gone"],
    ),
];

#[test]
fn each_planted_damage_is_named_and_nothing_is_changed() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let made = files.path().join("made");
    make(&made);
    assert!(!made.join("journal/00000001.seg").exists(), "the journal was trimmed");
    for (what, plant, status, words) in PLANTED {
        let data = files.path().join("data");
        copy(&made, &data);
        plant(&DamagedDirectory::at(&data));
        let before = everything(&data);
        let output = inspect(&data, &[]);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(*status), "{what}: {text}");
        for expected in *words {
            assert!(text.contains(expected), "{what}: no {expected:?} in {text}");
        }
        let (status, found) = json(&data);
        assert_eq!(status, output.status.code(), "{what}");
        inspect(&data, &["--key", "even"]);
        assert_eq!(everything(&data), before, "{what}: something was changed");
        does_what_was_said(&data, what, &found);
        fs::remove_dir_all(&data).expect("it can be removed");
    }
}

/// Asserts that a startup on this directory does what `inspect` reported.
fn does_what_was_said(data: &Path, what: &str, found: &Value) {
    let start = &found["start"];
    let node = match Node::open(directory::settings(data)) {
        Ok(node) => node,
        Err(error) => {
            let refused = start["refused"].as_str();
            let refused = refused.unwrap_or_else(|| panic!("{what}: refused with {error}"));
            assert!(refused.contains(&error.to_string()), "{what}: {error}");
            return;
        }
    };
    assert_eq!(start["refused"], Value::Null, "{what}");
    let handle = node.handle();
    let recovered = handle.recovered();
    assert_eq!(start["records"], recovered.records, "{what}");
    assert_eq!(start["clean"], recovered.clean, "{what}");
    let snapshot = recovered.snapshot.as_ref();
    let snapshot = snapshot.map(|(slot, upto)| serde_json::json!([slot, upto]));
    assert_eq!(start["snapshot"], snapshot.unwrap_or_default(), "{what}");
    let entries = node::entries(&handle);
    let owners = entries.iter().filter(|entry| entry.place == 1).count();
    let actors = found["actors"].as_array().expect("a list");
    let locks = actors.iter().find(|actor| actor["name"] == "lock");
    let locks = locks.expect("it is one of them");
    assert_eq!(locks["owners"], owners, "{what}");
    assert_eq!(locks["contenders"], entries.len() - owners, "{what}");
    node.stop().expect("the node stops");
}

#[test]
fn what_is_held_under_a_key_is_shown() {
    let files = tempfile::tempdir().expect("a temporary directory");
    make(files.path());
    let output = inspect(files.path(), &["--key", "odd"]);
    let text = said(&output);
    assert!(text.contains(r#""0": "owner 1" holds it with token"#), "{text}");
    assert!(text.contains(r#""0": "owner 3" waits in position 2"#), "{text}");
    let (held, story) = text.split_once("(node time").expect("it says whose time");
    assert!(!held.contains("\"owner 2\""), "{held}");
    assert!(story.contains("lock granted key=odd index=150"), "its history is shown");
    let absent = said(&inspect(files.path(), &["--key", r"no\x00ne"]));
    assert!(absent.contains(r"no\x00ne has no holder and no waiters"), "{absent}");
    let counts = said(&inspect(files.path(), &["--actor", "lock"]));
    assert!(counts.starts_with("lock 668 owners, 1,332 contenders"), "{counts}");
    assert_eq!(counts.lines().count(), 1, "no other actor: {counts}");
    for flags in [["--actor", "bogus"], ["--key", r"\q"]] {
        assert_eq!(inspect(files.path(), &flags).status.code(), Some(2));
    }
}

#[test]
fn what_is_no_data_directory_is_refused_and_an_empty_one_too() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let refused = |path: &Path, why: &str| {
        for subcommand in ["inspect", "replay"] {
            let output = sexton().arg(subcommand).arg(path).output();
            let output = output.expect("the command runs");
            let said = said(&output);
            assert_eq!(output.status.code(), Some(3), "{subcommand}: {said}");
            assert!(said.contains("failed to"), "{subcommand}: {said}");
            assert!(said.contains(why), "{subcommand}: {said}");
            assert!(output.stdout.is_empty(), "{subcommand}: {said}");
        }
    };
    refused(files.path(), "it is empty");
    refused(&files.path().join("absent"), "there is no such");
    fs::write(files.path().join("notes"), "x").expect("a writable file");
    refused(files.path(), "it is not a data directory");
    let file = inspect(&files.path().join("notes"), &[]);
    assert_eq!(file.status.code(), Some(3));
    assert!(said(&file).contains("it is a file"), "{}", said(&file));
}

#[test]
fn the_directory_is_that_of_the_other_commands_unless_one_is_named() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    drop(Node::open(directory::settings(&data)).expect("a new directory"));
    for subcommand in ["inspect", "replay"] {
        let run = |named: bool| {
            let mut command = sexton();
            command.arg(subcommand);
            if named {
                command.arg(&data).env_remove("SEXTON_DATA");
            } else {
                command.env("SEXTON_DATA", &data);
            }
            let output = command.output().expect("the command runs");
            assert_eq!(output.status.code(), Some(0), "{output:?}");
            output.stdout
        };
        assert_eq!(run(false), run(true), "{subcommand}");
    }
    let mut recover = sexton();
    recover.arg("recover").env("SEXTON_DATA", &data);
    let output = recover.output().expect("the command runs");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

/// A directory in which nothing was ever written had no clean stop either.
#[test]
fn a_directory_without_a_past_has_no_end_to_speak_of() {
    let files = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(files.path().join("journal")).expect("a new directory");
    let (status, found) = json(files.path());
    assert_eq!((status, &found["start"]["clean"]), (Some(0), &Value::Null));
    let text = said(&inspect(files.path(), &[]));
    assert!(
        text.contains("would begin with an empty state sequence numbers continue at 1"),
        "{text}"
    );
}

#[test]
fn a_directory_in_use_is_read_as_it_is() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let flags = ["--data", data.to_str().expect("UTF-8"), "--checkpoint-every", "500"];
    let daemon = Daemon::serve(&flags);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Client::connect(daemon.lockserver()).expect("connected");
            for number in 0_u32.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let index = (number % 5000).to_string();
                let asked = request("key", &index, &number.to_string(), (60, 60, 0));
                client.number(&asked).expect("an answer");
            }
        });
        for look in 0..10 {
            let (status, found) = json(&data);
            assert_eq!(status, Some(0), "look {look}: {found:#}");
            let process = u64::from(daemon.pid().as_raw_nonzero().get().unsigned_abs());
            assert_eq!(found["running"], process, "look {look}");
        }
        over.store(true, Ordering::Relaxed);
    });
    daemon.kill();
    let (status, found) = json(&data);
    assert!(status == Some(0) || status == Some(1), "{found:#}");
    assert_eq!(found["running"], Value::Null);
}

/// A file name chosen by another user is shown on one line, and cannot control the terminal.
#[test]
fn names_of_files_cannot_steer_a_terminal() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path();
    fs::create_dir_all(data.join("snapshots/a")).expect("a new directory");
    fs::create_dir(data.join("journal")).expect("a new directory");
    for folder in ["snapshots/a", "journal"] {
        let name = "\u{1b}[31mx\nsnapshot a   sealed and intact";
        fs::write(data.join(folder).join(name), "x").expect("a new file");
    }
    let output = inspect(data, &[]);
    let all = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(all).expect("UTF-8");
    assert!(text.contains("[31mx"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
    assert!(!text.contains("\nsnapshot a   sealed"), "{text:?}");
}
