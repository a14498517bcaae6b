//! Data directories with locks: how they are made, recovered and compared byte by byte.

use crate::node;
use sexton::actors::lock::{self, EntryView, LockMachine, Message, Name, Reply};
use sexton::persist::disk::RealDisk;
use sexton::persist::journal::Sizes;
use sexton::persist::snapshots::{SledStores, SlotId, SlotStatus, Slots};
use sexton::spine::checkpoint::Rules as CheckpointRules;
use sexton::spine::delivery::Item;
use sexton::spine::recovery::{self, Recovering, RecoveryError, Replica, Scope, recover};
use sexton::{Config, Node};
use sexton_api::operate::Checkpoint;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// The number of locks that are requested in one batch.
const BURST: usize = 1000;
/// The TTL of locks in seconds, longer than any test takes.
const TTL: u16 = 60_000;

/// Sizes with which the journal is never trimmed, because all of it fits into the first segment.
pub(crate) const LARGE: Sizes = Sizes { first_bytes: 4 << 20, max_bytes: 4 << 20 };
/// Sizes with which each checkpoint trims the journal.
pub(crate) const SMALL: Sizes = Sizes { first_bytes: 64 << 10, max_bytes: 64 << 10 };

/// Opens a node that takes checkpoints only on request.
pub(crate) fn open(data: &Path, segments: Sizes) -> Node {
    Node::open(settings(data, segments)).expect("the node opens")
}

pub(crate) fn settings(data: &Path, segments: Sizes) -> Config {
    Config {
        segments,
        checkpoints: CheckpointRules {
            records: 1 << 40,
            bytes: u64::MAX,
            growth_percent: 0,
            history_ms: 0,
            history_bytes_max: 0,
        },
        ..Config::at(data)
    }
}

fn name(text: &str) -> Name {
    Name::try_from(text).expect("names here are short")
}

fn request(number: usize) -> Message {
    Message::Request {
        key: name(&format!("key-{}", number / 10)),
        index: name(&number.to_string()),
        owner: name(&format!("owner-{}", number % 97)),
        ttl: TTL,
        ttw: TTL,
        priority: 0,
    }
}

fn release(number: usize) -> Message {
    Message::Release {
        key: name(&format!("key-{}", number / 10)),
        index: Some(name(&number.to_string())),
        owner: name(&format!("owner-{}", number % 97)),
        token: None,
    }
}

/// Acquires locks.
pub(crate) fn take(node: &Node, numbers: Range<usize>) {
    carry_out(node, &numbers.map(request).collect::<Vec<_>>());
}

/// Releases locks.
pub(crate) fn let_go(node: &Node, numbers: impl Iterator<Item = usize>) {
    carry_out(node, &numbers.map(release).collect::<Vec<_>>());
}

fn carry_out(node: &Node, messages: &[Message]) {
    for burst in messages.chunks(BURST) {
        let items = burst.iter().cloned().map(Item::Message).collect();
        let answers = node::wait(node.handle().locks().batch(items)).expect("the node runs");
        let refused = answers
            .iter()
            .find(|answer| !matches!(answer, Ok(Reply::LinePosition(_) | Reply::Ended(1))));
        assert!(refused.is_none(), "{refused:?}");
    }
}

/// Takes a checkpoint.
pub(crate) fn checkpoint(node: &Node) -> Checkpoint {
    node::wait(node.handle().checkpoint()).expect("a checkpoint is taken")
}

/// Makes a directory with both slots sealed, each written more than once, and entries after the latest snapshot. It is a
/// copy from before the node's stop, so it looks as after a kill.
pub(crate) fn make(segments: Sizes, locks: usize) -> TempDir {
    let made = tempfile::tempdir().expect("a temporary directory");
    let data = made.path().join("data");
    let node = open(&data, segments);
    let quarter = locks / 4;
    for part in 0..4 {
        take(&node, part * quarter..(part + 1) * quarter);
        let_go(&node, (part * quarter..(part + 1) * quarter).step_by(7));
        checkpoint(&node);
    }
    take(&node, locks..locks + quarter);
    let left = tempfile::tempdir().expect("a temporary directory");
    copy(&data, left.path());
    node.stop().expect("a clean stop");
    left
}

/// Returns the slots of a directory.
pub(crate) fn slots(data: &Path) -> Slots {
    let disk = Arc::new(RealDisk::new(data));
    Slots::new(disk, Arc::new(SledStores::new(data)))
}

/// Returns the machine after a recovery, and what the recovery found.
pub(crate) fn start(data: &Path) -> Result<(LockMachine, recovery::Past), RecoveryError> {
    let mut replica = Replica::<LockMachine>::new(lock::Rules::default());
    let replicas: &mut [&mut dyn Recovering] = &mut [&mut replica];
    let disk = RealDisk::new(data);
    let past =
        recover(&disk, Some(&slots(data)), replicas, Scope { partial: true, ..Scope::default() })?;
    Ok((replica.into_parts().machine, past))
}

/// Returns every lock without its remaining time, because TTLs begin again at startup.
pub(crate) fn timeless(mut entries: Vec<EntryView>) -> Vec<EntryView> {
    for entry in &mut entries {
        entry.deadline = None;
    }
    entries
}

/// Returns which slots are sealed.
pub(crate) fn sealed(data: &Path) -> [bool; 2] {
    SlotId::ALL.map(|slot| {
        let found = slots(data).look(slot).expect("no newer program was here");
        matches!(found, SlotStatus::Sealed(_))
    })
}

/// Returns every file with its bytes, except sockets and the file that contains the process id of the directory's owner.
pub(crate) fn bytes(data: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    each_file(data, "", &mut |name| {
        if name != "lock" {
            match std::fs::read(data.join(name)) {
                Ok(bytes) => drop(files.insert(name.to_owned(), bytes)),
                // The segment was being prepared, and was renamed in the meantime.
                Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound, "{name}"),
            }
        }
    });
    files
}

/// Copies a directory.
pub(crate) fn copy(from: &Path, to: &Path) {
    each_file(from, "", &mut |name| {
        let place = to.join(name);
        let folder = place.parent().expect("it is in a folder");
        std::fs::create_dir_all(folder).expect("a new directory");
        if let Err(error) = std::fs::copy(from.join(name), place) {
            // The segment was being prepared, and was renamed in the meantime.
            assert_eq!(error.kind(), ErrorKind::NotFound, "{name}");
        }
    });
}

fn each_file(root: &Path, folder: &str, visit: &mut dyn FnMut(&str)) {
    for entry in std::fs::read_dir(root.join(folder)).expect("the directory is readable") {
        let entry = entry.expect("the directory is readable");
        let name = entry.file_name().into_string().expect("UTF-8");
        let name = format!("{folder}{name}");
        let kind = entry.file_type().expect("it has a type");
        if kind.is_dir() {
            each_file(root, &format!("{name}/"), visit);
        } else if kind.is_file() {
            visit(&name);
        }
    }
}
