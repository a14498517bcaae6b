//! Data directories with a history, and the content of a directory: every file with its mode, time and bytes.

use crate::node::wait;
use sexton::actors::lock::{Message, Name};
use sexton::node::Handle;
use sexton::persist::journal::Sizes;
use sexton::spine::delivery::Item;
use sexton::{Config, Node};
use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Sizes of segments so small that a short history fills several.
pub(crate) const SEGMENTS: Sizes = Sizes { first_bytes: 16 << 10, max_bytes: 16 << 10 };

/// A file or directory: its mode, the time of its last change, and its bytes (`None` for a directory).
pub(crate) type Kept = (u32, (i64, i64), Option<Vec<u8>>);

/// Returns the directory and everything in it, by path.
pub(crate) fn everything(directory: &Path) -> BTreeMap<String, Kept> {
    let mut found = BTreeMap::new();
    collect(directory, "", &mut found);
    found
}

fn collect(path: &Path, name: &str, found: &mut BTreeMap<String, Kept>) {
    let about = std::fs::symlink_metadata(path).expect("the file exists");
    let content = about.is_file().then(|| std::fs::read(path).expect("the file is readable"));
    let changed = (about.mtime(), about.mtime_nsec());
    found.insert(name.to_owned(), (about.mode(), changed, content));
    if about.is_dir() {
        for entry in std::fs::read_dir(path).expect("the directory is readable") {
            let entry = entry.expect("the directory is readable");
            let below = entry.file_name().into_string().expect("UTF-8");
            collect(&entry.path(), &format!("{name}/{below}"), found);
        }
    }
}

/// Copies a directory with everything in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a new directory");
    for entry in std::fs::read_dir(from).expect("the directory is readable") {
        let entry = entry.expect("the directory is readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("an entry has a type").is_dir() {
            copy(&entry.path(), &target);
        } else {
            match std::fs::copy(entry.path(), target) {
                // A running node may have renamed a prepared segment since the directory was listed.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                copied => drop(copied.expect("it can be copied")),
            }
        }
    }
}

/// Returns the settings of a node with small segments that takes checkpoints only on request.
pub(crate) fn settings(data: &Path) -> Config {
    let mut config = Config::at(data);
    // Without history, what no snapshot needs is removed at once.
    config.checkpoints.history_bytes_max = 0;
    config.segments = SEGMENTS;
    config.checkpoints.records = 1 << 40;
    config
}

/// Returns a name with this text.
pub(crate) fn name(text: &str) -> Name {
    Name::try_from(text).expect("the name is short")
}

/// Requests locks for these numbers: even ones with the key `even`, others with the key `odd`. Each lock has three
/// owners, so the second and the third wait.
pub(crate) fn request(handle: &Handle, numbers: std::ops::Range<u32>) {
    let items = numbers.map(|number| {
        Item::Message(Message::Request {
            key: name(if number % 2 == 0 { "even" } else { "odd" }),
            index: name(&(number / 6).to_string()),
            owner: name(&format!("owner {number}")),
            ttl: 600,
            ttw: 300,
            priority: 0,
        })
    });
    let answers = wait(handle.locks().batch(items.collect())).expect("the node runs");
    assert!(answers.iter().all(Result::is_ok), "every request is answered");
}

/// Makes a history with two snapshots and a trimmed journal, as after a clean stop. The newer snapshot is from the end of
/// the history, and there are segments between the older snapshot and it.
pub(crate) fn make(data: &Path) {
    let node = Node::open(settings(data)).expect("the directory opens");
    let handle = node.handle();
    let checkpoint = || wait(handle.checkpoint()).expect("the lock is granted");
    request(&handle, 0..600);
    checkpoint();
    request(&handle, 600..900);
    checkpoint();
    request(&handle, 900..2000);
    node.stop().expect("the node stops");
}
