//! A real directory, and its content on a simulated storage: the names and bytes of the last sync.
//!
//! A power cut keeps or loses each unsynced change independently: each name that was created, moved or removed, and each
//! block of 4 KiB that was written. Files that are written without this disk, as sled's are, are read from the real
//! directory.

use crate::chance::Chance;
use sexton::persist::disk::{Disk, DiskFile, RealDisk};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const BLOCK: usize = 4096;

/// The file or directory to which a name refers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node {
    number: u64,
    is_folder: bool,
}

/// The synced content, by the inode numbers of files and directories.
#[derive(Default)]
struct Synced {
    names: BTreeMap<u64, BTreeMap<String, Node>>,
    bytes: BTreeMap<u64, Vec<u8>>,
}

/// The storage of a directory.
#[derive(Clone)]
pub(crate) struct Storage {
    root: PathBuf,
    real: RealDisk,
    synced: Arc<Mutex<Synced>>,
    /// Whether syncs of a directory's files report success without doing anything.
    lies: bool,
    /// Called at each step at which the power may be cut.
    cut: Arc<dyn Fn(&Storage) + Send + Sync>,
}

impl Storage {
    /// Creates a storage on which everything in a directory is synced now.
    pub(crate) fn new(root: &Path, lies: bool, cut: Arc<dyn Fn(&Self) + Send + Sync>) -> Self {
        let storage = Self {
            root: root.to_owned(),
            real: RealDisk::new(root),
            synced: Arc::default(),
            lies,
            cut,
        };
        storage.sync_all("");
        storage
    }

    /// Marks a step at which the power may be cut.
    pub(crate) fn may_be_cut(&self) {
        (self.cut)(self);
    }

    /// Writes to another directory what a power cut at this moment leaves.
    pub(crate) fn leave(&self, to: &Path, chance: &mut Chance) {
        // Keep none of the unsynced data, half of it, or all.
        let kept = 50 * chance.below(3);
        let root = node(&self.root).expect("the directory exists");
        self.leave_folder(Some(&self.root), root.number, to, &mut |()| chance.below(100) < kept);
    }

    fn leave_folder(
        &self,
        now: Option<&Path>,
        number: u64,
        to: &Path,
        keep: &mut dyn FnMut(()) -> bool,
    ) {
        std::fs::create_dir_all(to).expect("a new directory");
        let there = now.map(names).unwrap_or_default();
        let synced = self.synced().names.get(&number).cloned().unwrap_or_default();
        let all: BTreeSet<&String> = there.keys().chain(synced.keys()).collect();
        for name in all {
            let (is, was) = (there.get(name), synced.get(name));
            let chosen = if is == was || keep(()) { is } else { was };
            let Some(chosen) = chosen else { continue };
            let now = now.map(|now| now.join(name)).filter(|_| Some(chosen) == is);
            if chosen.is_folder {
                self.leave_folder(now.as_deref(), chosen.number, &to.join(name), keep);
            } else {
                let was = self.synced().bytes.get(&chosen.number).cloned();
                let was = was.unwrap_or_default();
                // If the file was removed in the meantime, only its synced bytes are known.
                let is = now.and_then(|now| std::fs::read(now).ok());
                let left = is.map_or_else(|| was.clone(), |is| mix(&is, &was, keep));
                std::fs::write(to.join(name), left).expect("a writable file");
            }
        }
    }

    fn synced(&self) -> MutexGuard<'_, Synced> {
        self.synced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_names(&self, folder: &str) {
        let place = self.root.join(folder);
        if let Some(folder) = node(&place) {
            self.synced().names.insert(folder.number, names(&place));
        }
    }

    fn note_bytes(&self, file: &str) {
        let place = self.root.join(file);
        if let (Some(node), Ok(bytes)) = (node(&place), std::fs::read(&place)) {
            self.synced().bytes.insert(node.number, bytes);
        }
    }

    fn sync_all(&self, folder: &str) {
        for (name, node) in names(&self.root.join(folder)) {
            let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
            if node.is_folder {
                self.sync_all(&name);
            } else {
                self.note_bytes(&name);
            }
        }
        self.note_names(folder);
    }
}

fn node(place: &Path) -> Option<Node> {
    let found = std::fs::metadata(place).ok()?;
    Some(Node { number: found.ino(), is_folder: found.is_dir() })
}

/// Returns the current content of a directory. It is empty if the directory was removed.
fn names(folder: &Path) -> BTreeMap<String, Node> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().expect("UTF-8");
        Some((name, node(&entry.path())?))
    });
    named.collect()
}

/// Mixes two versions of a file: each block, and the length, is that of one of them.
fn mix(is: &[u8], was: &[u8], keep: &mut dyn FnMut(()) -> bool) -> Vec<u8> {
    let len = if is.len() == was.len() || keep(()) { is.len() } else { was.len() };
    let mut left = Vec::with_capacity(len);
    for start in (0..len).step_by(BLOCK) {
        let end = len.min(start + BLOCK);
        let of = |bytes: &[u8]| {
            let mut block = bytes.get(start..end.min(bytes.len())).unwrap_or(&[]).to_vec();
            block.resize(end - start, 0);
            block
        };
        let (is, was) = (of(is), of(was));
        left.extend(if is == was || keep(()) { is } else { was });
    }
    left
}

/// An open file on disk.
struct File {
    storage: Storage,
    name: String,
    real: Box<dyn DiskFile>,
}

impl DiskFile for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.real.read_at(buf, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.storage.may_be_cut();
        self.real.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.storage.may_be_cut();
        self.storage.note_bytes(&self.name);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.real.len()
    }
}

/// Syncs only copy the current content to the simulated storage. The real disk is not synced, since the power cuts are
/// simulated.
impl Disk for Storage {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.real.list(folder)
    }

    fn tree(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.real.tree(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.may_be_cut();
        self.real.create_folder(folder)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.may_be_cut();
        let (storage, real) = (self.clone(), self.real.create(name)?);
        let name = name.to_owned();
        Ok(Box::new(File { storage, name, real }))
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn DiskFile>> {
        let (storage, real) = (self.clone(), self.real.open(name, write)?);
        let name = name.to_owned();
        Ok(Box::new(File { storage, name, real }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.may_be_cut();
        self.real.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.may_be_cut();
        self.real.remove(name)
    }

    fn remove_tree(&self, folder: &str) -> io::Result<()> {
        self.may_be_cut();
        self.real.remove_tree(folder)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.may_be_cut();
        self.note_names(folder);
        Ok(())
    }

    fn sync_tree(&self, folder: &str) -> io::Result<()> {
        self.may_be_cut();
        if !self.lies {
            self.sync_all(folder);
        }
        Ok(())
    }
}
