//! `sexton recover` repairs a directory whose damage prevents a startup. A dry run reports what would be lost and changes
//! nothing. Afterwards the directory starts with everything before the damage, or with everything except the damaged
//! records, issues no number twice, and keeps the replaced files.

#![expect(clippy::indexing_slicing, reason = "a missing part fails the test")]

use crate::daemon::{Daemon, serve, sexton};
use crate::directory::{copy, everything, make, request, settings};
use crate::node;
use serde_json::Value;
use sexton::Node;
use sexton::ids::{ActorId, Seq};
use sexton::persist::disk::{Disk, RealDisk};
use sexton::persist::format::{About, Batch, Kind};
use sexton::persist::journal::{InlineFiller, Reader, Writer};
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::Arc;

fn recover(data: &Path, flags: &[&str]) -> Output {
    let mut command = sexton();
    command.arg("recover").arg(data).args(flags);
    command.output().expect("the command runs")
}

fn text(output: &Output) -> String {
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8(all).expect("UTF-8")
}

fn json(data: &Path, flags: &[&str]) -> (Option<i32>, Value) {
    let output = recover(data, &[flags, &["--json"]].concat());
    let found = serde_json::from_slice(&output.stdout);
    let found = found.unwrap_or_else(|error| panic!("{error}: {}", text(&output)));
    (output.status.code(), found)
}

/// Returns the segments that contain records, in order.
fn segments(data: &Path) -> Vec<std::path::PathBuf> {
    let folder = fs::read_dir(data.join("journal")).expect("there is a journal");
    let mut segments: Vec<_> = folder
        .map(|entry| entry.expect("the directory is readable").path())
        .filter(|path| path.extension().is_some_and(|ends| ends == "seg"))
        .filter(|path| {
            fs::read(path).expect("the file is readable")[32..].iter().any(|byte| *byte != 0)
        })
        .collect();
    segments.sort();
    segments
}

/// Returns the offset and the sequence number of each frame of a segment.
fn frames(segment: &Path) -> Vec<(usize, u64)> {
    let bytes = fs::read(segment).expect("the file is readable");
    let mut frames = Vec::new();
    let mut at = 32;
    loop {
        let size = u32::from_le_bytes(*bytes[at..].first_chunk().expect("it is long enough"));
        if size == 0 {
            return frames;
        }
        let seq = u64::from_le_bytes(*bytes[at + 8..].first_chunk().expect("it is long enough"));
        frames.push((at, seq));
        at += usize::try_from(size).expect("a small number");
    }
}

fn edit(file: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(file).expect("the file is readable");
    change(&mut bytes);
    fs::write(file, bytes).expect("a writable file");
}

/// Makes a directory as after a kill: 600 locks in a snapshot, 300 of them also in the snapshot before, and 500 more in
/// the journal.
fn left(data: &Path) {
    let made = data.with_extension("made");
    let node = Node::open(settings(&made)).expect("the directory opens");
    let handle = node.handle();
    for to in [600, 900] {
        request(&handle, to - 300..to);
        node::wait(handle.checkpoint()).expect("the lock is granted");
    }
    request(&handle, 900..1400);
    copy(&made, data);
    node.stop().expect("the node stops");
}

/// Starts a node on a directory. Returns the number of locks, and the token of a new lock.
fn starts(data: &Path) -> (usize, u64) {
    let node = Node::open(settings(data)).expect("the node starts");
    let locks = node::entries(&node.handle()).len();
    request(&node.handle(), 5000..5001);
    let newest =
        node::entries(&node.handle()).iter().filter_map(|entry| Some(entry.token?.0)).max();
    node.stop().expect("the node stops");
    (locks, newest.expect("a snapshot exists"))
}

#[test]
fn what_stands_before_the_damage_is_kept_and_the_rest_is_told_first() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    left(&data);
    let journal = segments(&data);
    let last = journal.last().expect("there are records");
    let frames = frames(last);
    let (at, seq) = frames[frames.len() / 2];
    let (_, end) = *frames.last().expect("there are some");
    edit(last, |bytes| bytes[at + 40] ^= 4);
    let before = everything(&data);

    let refused =
        serve(&["--data", data.to_str().expect("UTF-8")]).output().expect("the command runs");
    assert_eq!(refused.status.code(), Some(3));
    assert!(text(&refused).contains("sexton recover DATA --dry-run"), "{}", text(&refused));

    let untouched = everything(&data);
    let output = recover(&data, &["--dry-run"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains(&format!("--skip {seq}")), "{}", text(&output));
    let (status, said) = json(&data, &["--dry-run"]);
    assert_eq!(status, Some(1), "{said:#}");
    assert_eq!(everything(&data), untouched, "a dry run changes nothing");
    let lost = said["lost"].as_array().expect("a list");
    assert_eq!(lost[0]["unread"]["from"], seq, "{said:#}");
    assert_eq!(lost[0]["unread"]["seems"]["seq"], seq, "{said:#}");
    let last_lost = &lost[lost.len() - 1]["record"]["line"];
    assert_eq!(last_lost["seq"], end, "{said:#}");
    assert!(
        last_lost.to_string().contains("odd") || last_lost.to_string().contains("even"),
        "{last_lost:#}"
    );
    assert_eq!(said["lost_records"], end - seq, "every one is counted");
    assert_eq!(said["last"], seq - 1, "{said:#}");

    let (status, done) = json(&data, &[]);
    assert_eq!(status, Some(0), "{done:#}");
    let aside = data.join(done["aside"].as_str().expect("a string"));
    let name = last.file_name().expect("the path has a file name");
    let (_, _, kept) = &before[&format!("/journal/{}", name.to_str().expect("UTF-8"))];
    assert_eq!(&fs::read(aside.join("journal").join(name)).ok(), kept, "kept as it was");
    let (locks, number) = starts(&data);
    assert!((600..1100).contains(&locks), "{locks}");
    assert!(number > end, "{number} was issued before");
    // The directory is now intact.
    let output = recover(&data, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).contains("nothing to recover"), "{}", text(&output));
}

#[test]
fn what_follows_is_kept_if_the_damaged_record_is_passed_over() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    left(&data);
    let last = segments(&data).pop().expect("there are records");
    let frames = frames(&last);
    let (at, seq) = frames[frames.len() - 3];
    edit(&last, |bytes| bytes[at + 40] ^= 4);
    for (wrong, status) in [("5", 2), ("x", 2)] {
        let before = everything(&data);
        let output = recover(&data, &["--skip", wrong]);
        assert_eq!(output.status.code(), Some(status), "{}", text(&output));
        let unlocked: Vec<_> = everything(&data)
            .into_iter()
            .filter(|(name, _)| !name.is_empty() && name != "/lock")
            .collect();
        assert!(
            unlocked.into_iter().all(|(name, kept)| before[&name] == kept),
            "nothing is changed"
        );
    }
    let (status, done) = json(&data, &["--skip", &seq.to_string()]);
    assert_eq!(status, Some(0), "{done:#}");
    assert_eq!(done["lost"].as_array().map(Vec::len), Some(1), "{done:#}");
    assert_eq!(starts(&data).0, 1099);
}

#[test]
fn what_is_left_of_a_file_whose_end_is_gone_is_kept() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    left(&data);
    let last = segments(&data).pop().expect("there are records");
    let frames = frames(&last);
    let [(_, kept), (at, _)] = [1, 0].map(|before| frames[frames.len() / 2 - before]);
    edit(&last, |bytes| bytes.truncate(at + 7));
    let (status, said) = json(&data, &["--dry-run"]);
    assert_eq!(status, Some(1), "{said:#}");
    let refused = said["refused"].as_str().expect("the refusal has a detail");
    let place = format!("damaged at offset {at}, after sequence number {kept}: its header");
    assert!(refused.contains(&place), "{refused}");
    assert_eq!(said["last"], kept, "{said:#}");
    let lost = said["lost"].as_array().expect("a list");
    for unread in lost {
        assert_eq!(unread["unread"]["from"], kept + 1, "{said:#}");
    }
    let replay = sexton().arg("replay").arg(&data).output().expect("the command runs");
    assert_eq!(replay.status.code(), Some(3), "{}", text(&replay));
    let shown = String::from_utf8_lossy(&replay.stdout).into_owned();
    let shown = shown.lines().last().expect("records").trim_start();
    assert!(shown.starts_with(&format!("{kept} ")), "{shown}");
    let inspected = sexton().arg("inspect").arg(&data).output();
    let inspected = text(&inspected.expect("the command runs"));
    let numbers = format!("to {kept} in ");
    assert!(inspected.contains(&numbers), "{inspected}");

    let end = frames.last().expect("there are some").1;
    let (status, done) = json(&data, &[]);
    assert_eq!(status, Some(0), "{done:#}");
    let (locks, number) = starts(&data);
    assert_eq!(locks as u64, 1100 - (end - kept), "all except the lost ones");
    assert!(number > end, "{number} was issued before");
}

/// A damage: its name, the function that causes it, the minimum number of remaining locks, and part of the output.
type Harm = (&'static str, fn(&Path), usize, &'static str);

/// Damage to a directory that was stopped cleanly.
const HARMS: &[Harm] = &[
    (
        "the last records became zeros",
        |data| {
            let last = segments(data).pop().expect("there are records");
            let frames = frames(&last);
            let (at, _) = frames[frames.len() / 2];
            edit(&last, |bytes| bytes[at..].fill(0));
        },
        600,
        "was synced up to",
    ),
    (
        "a segment is gone",
        |data| {
            let journal = segments(data);
            fs::remove_file(&journal[journal.len() - 2]).expect("the file exists");
        },
        600,
        "it is missing",
    ),
    (
        "a header that cannot be corrected",
        |data| {
            let last = segments(data).pop().expect("there are records");
            edit(&last, |bytes| bytes[..40].fill(9));
        },
        600,
        "its header is invalid",
    ),
    (
        "the journal is gone",
        |data| fs::remove_dir_all(data.join("journal")).expect("the directory exists"),
        600,
        "the journal ends earlier",
    ),
    (
        "the snapshots are gone",
        |data| fs::remove_dir_all(data.join("snapshots")).expect("the directory exists"),
        0,
        "nothing: neither snapshot can be read",
    ),
    (
        "the newer snapshot is gone, and a record after the older is damaged",
        |data| {
            fs::write(data.join("snapshots/b.seal"), "x").expect("a writable file");
            let (at, _) = frames(&segments(data)[1])[3];
            edit(&segments(data)[1], |bytes| bytes[at + 40] ^= 1);
        },
        300,
        "not a complete record",
    ),
];

#[test]
fn whatever_a_start_refuses_is_made_to_start() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let made = files.path().join("made");
    left(&made);
    for (what, harm, locks_min, words) in HARMS {
        let data = files.path().join("data");
        copy(&made, &data);
        let end = segments(&data).last().map(|last| frames(last).last().expect("some").1);
        harm(&data);
        assert!(Node::open(settings(&data)).is_err(), "{what}: it is refused");
        let output = recover(&data, &["--dry-run"]);
        assert_eq!(output.status.code(), Some(1), "{what}: {}", text(&output));
        assert!(text(&output).contains(words), "{what}: {}", text(&output));
        let output = recover(&data, &[]);
        assert_eq!(output.status.code(), Some(0), "{what}: {}", text(&output));
        let (locks, number) = starts(&data);
        assert!((*locks_min..1100).contains(&locks), "{what}: {locks}");
        assert!(number > end.expect("it had an end"), "{what}: {number} was given before");
        fs::remove_dir_all(&data).expect("it can be removed");
    }
}

/// A record has a valid checksum, but no state accepts it. This is a bug, and every command reports it as one.
#[test]
fn an_impossible_record_is_a_defect_in_every_command_and_can_be_passed_over() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    make(&data);
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(&data));
    let mut reader = Reader::open_present(disk.as_ref()).expect("the journal is intact");
    let mut granted = None;
    while let Some(record) = reader.next().expect("the record is readable") {
        if record.actor == ActorId::LOCK && record.kind == Kind::Entry {
            granted = Some(record.payload.to_vec());
        }
    }
    let tail = reader.tail().clone();
    let granted = granted.expect("there are some");
    let seq = Seq(tail.last.0 + 1);
    let filler = Box::new(InlineFiller::new(Arc::clone(&disk)));
    let mut writer =
        Writer::open(disk, settings(&data).segments, filler, &tail).expect("the journal is intact");
    let mut batch = Batch::default();
    let about = About { seq, at: tail.last_at, actor: ActorId::LOCK, kind: Kind::Entry };
    // A lock that is held is granted again, in the same slot.
    batch.push(about, |bytes| bytes.extend_from_slice(&granted));
    writer.write(&mut batch).expect("connected");
    writer.sync().expect("it syncs");
    drop(writer);
    let data_text = data.to_str().expect("UTF-8");
    let served = serve(&["--data", data_text]).output().expect("the command runs");
    let inspected = sexton().args(["inspect", data_text]).output();
    let inspected = inspected.expect("the command runs");
    for (command, output, status) in [("serve", served, 4), ("inspect", inspected, 3)] {
        let said = text(&output);
        assert!(said.contains("this is a bug in sexton"), "{command:?}: {said}");
        assert!(said.contains(&format!("replay entry {seq}")), "{command:?}: {said}");
        assert!(said.contains("sexton recover"), "{command:?}: {said}");
        assert_eq!(output.status.code(), Some(status), "{command:?}: {said}");
    }
    let (status, done) = json(&data, &["--skip", &seq.to_string()]);
    assert_eq!(status, Some(0), "{done:#}");
    assert_eq!(starts(&data).0, 2000);
}

#[test]
fn a_directory_that_starts_or_runs_is_left_alone() {
    let files = tempfile::tempdir().expect("a temporary directory");
    let data = files.path().join("data");
    let daemon = Daemon::serve(&["--data", data.to_str().expect("UTF-8")]);
    for flags in [&["--dry-run"][..], &[]] {
        let output = recover(&data, flags);
        assert_eq!(output.status.code(), Some(3), "{}", text(&output));
        assert!(text(&output).contains("is using it"), "{}", text(&output));
    }
    daemon.kill();
    let before = everything(&data);
    for flags in [&["--dry-run"][..], &["--dry-run", "--json"]] {
        let output = recover(&data, flags);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    }
    assert_eq!(everything(&data), before);
    assert_eq!(recover(&data, &["--skip", "3"]).status.code(), Some(2));
    assert_eq!(recover(&files.path().join("absent"), &[]).status.code(), Some(3));
}
