//! The content of a simulated disk, and the part of it that a power cut leaves.
//!
//! It records for every page whether it was synced, and for every directory which creations, renames and removals were
//! synced. It has no handles, and the content of the files has no meaning here.

use crate::chance::Chance;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

/// The result of a power cut.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    pub(crate) pages_lost: u64,
    pub(crate) pages_torn: u64,
    pub(crate) names_lost: u64,
}

#[derive(Clone)]
pub(crate) struct Storage {
    pub(crate) page_bytes: usize,
    pub(crate) chance: Chance,
    pub(crate) inodes: Vec<Inode>,
    /// The names that programs see: path to inode.
    pub(crate) names: BTreeMap<String, usize>,
    /// Directories have inodes too, so that a directory can be distinguished from a later one of the same name.
    pub(crate) folders: BTreeMap<String, usize>,
    /// The names that a power cut cannot remove.
    pub(crate) names_synced: BTreeMap<String, usize>,
    pub(crate) folders_synced: BTreeMap<String, usize>,
    /// Changes of directories that are not synced, in order.
    pub(crate) changes: Vec<Change>,
    pub(crate) faults: Faults,
    pub(crate) operations: u64,
}

#[derive(Clone, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each fault is independent of the others")]
pub(crate) struct Faults {
    /// The number of further changes that succeed. After them every change fails, since the process is being killed.
    pub(crate) dies_after: Option<u64>,
    pub(crate) dead: bool,
    pub(crate) fail_write: bool,
    pub(crate) fail_sync: bool,
    /// The maximum size of all files together, in bytes; `None` for no limit.
    pub(crate) space: Option<u64>,
    /// Whether syncs report success and do nothing.
    pub(crate) lying: bool,
}

#[derive(Clone, Default)]
pub(crate) struct Inode {
    pub(crate) bytes: Vec<u8>,
    pub(crate) synced: Vec<u8>,
    pub(crate) dirty: BTreeSet<usize>,
}

#[derive(Clone)]
pub(crate) enum Change {
    Folder(String, usize),
    Put(String, usize),
    Rename(String, String, usize),
    Take(String),
    /// A directory was removed with its content. Inodes from this one on were created later, perhaps with the same names.
    TakeFolder(String, usize),
}

impl Change {
    pub(crate) fn folder(&self) -> &str {
        match self {
            Self::Folder(path, _)
            | Self::Put(path, _)
            | Self::Rename(_, path, _)
            | Self::Take(path)
            | Self::TakeFolder(path, _) => parent(path),
        }
    }
}

pub(crate) fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Returns whether a path is in a directory, at any depth.
pub(crate) fn is_below(folder: &str, path: &str) -> bool {
    let rest = path.strip_prefix(folder);
    folder.is_empty() || rest.is_some_and(|rest| rest.starts_with('/'))
}

impl Storage {
    pub(crate) fn revive(&mut self) {
        let space = self.faults.space;
        let lying = self.faults.lying;
        self.faults = Faults { space, lying, ..Faults::default() };
        self.drop_unnamed();
    }

    /// Drops the content of files without a name, to save memory.
    pub(crate) fn drop_unnamed(&mut self) {
        if !self.changes.is_empty() {
            return;
        }
        let named: BTreeSet<usize> =
            self.names.values().chain(self.names_synced.values()).copied().collect();
        for (at, inode) in self.inodes.iter_mut().enumerate() {
            if !named.contains(&at) {
                *inode = Inode::default();
            }
        }
    }

    /// Cuts the power. A random fate is drawn for each unsynced change. Returns what was lost.
    pub(crate) fn cut_power(&mut self) -> Loss {
        let (page_bytes, mut chance) = (self.page_bytes, self.chance.fork());
        // Sometimes all pages have the same fate: everything lost, or everything kept, the two extremes.
        let fates: &[(u64, Fate)] = match chance.below(4) {
            0 => &[(1, Fate::Lost)],
            1 => &[(1, Fate::Kept)],
            _ => &[(4, Fate::Lost), (4, Fate::Kept), (2, Fate::Torn(0))],
        };
        self.cut_power_by(|unsynced| match (unsynced, chance.weighted(fates)) {
            (Unsynced::Name, _) if chance.per_mille(500) => Fate::Lost,
            (Unsynced::Name, _) => Fate::Kept,
            (Unsynced::Page(_), Fate::Torn(_)) => Fate::Torn(chance.index(page_bytes)),
            (Unsynced::Page(_), fate) => fate,
        })
    }

    /// Cuts the power. `fate` decides for each unsynced change. Returns what was lost.
    pub(crate) fn cut_power_by(&mut self, mut fate: impl FnMut(Unsynced) -> Fate) -> Loss {
        let mut loss = Loss::default();
        for change in std::mem::take(&mut self.changes) {
            match fate(Unsynced::Name) {
                Fate::Kept | Fate::Torn(_) => self.keep(change),
                Fate::Lost => loss.names_lost += 1,
            }
        }
        // The content of a removed directory is removed with it. In this order, a directory comes before its content.
        let mut folders = BTreeMap::new();
        for (folder, inode) in std::mem::take(&mut self.folders_synced) {
            if folder.is_empty() || folders.contains_key(parent(&folder)) {
                folders.insert(folder, inode);
            }
        }
        self.names_synced.retain(|path, _| folders.contains_key(parent(path)));
        self.folders_synced = folders;
        self.names = self.names_synced.clone();
        self.folders = self.folders_synced.clone();
        let page_bytes = self.page_bytes;
        for inode in &mut self.inodes {
            for page in std::mem::take(&mut inode.dirty) {
                match fate(Unsynced::Page(page)) {
                    Fate::Lost => loss.pages_lost += 1,
                    Fate::Kept => inode.settle(page, page_bytes, page_bytes),
                    Fate::Torn(upto) => {
                        loss.pages_torn += 1;
                        inode.settle(page, page_bytes, upto);
                    }
                }
            }
            inode.bytes.clone_from(&inode.synced);
        }
        self.revive();
        loss
    }

    pub(crate) fn keep(&mut self, change: Change) {
        match change {
            Change::Folder(path, inode) => {
                self.folders_synced.insert(path, inode);
            }
            Change::Put(path, inode) => {
                self.names_synced.insert(path, inode);
            }
            Change::Rename(from, to, inode) => {
                self.names_synced.remove(&from);
                self.names_synced.insert(to, inode);
            }
            Change::Take(path) => {
                self.names_synced.remove(&path);
            }
            Change::TakeFolder(folder, later) => {
                let goes = |path: &String, inode: &mut usize| {
                    *inode < later && (*path == folder || is_below(&folder, path))
                };
                self.folders_synced.retain(|path, inode| !goes(path, inode));
                self.names_synced.retain(|path, inode| !goes(path, inode));
            }
        }
    }

    /// Counts a change of the disk, and fails if the process is being killed. Called before every change.
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        self.operations += 1;
        match self.faults.dies_after {
            Some(0) => {
                self.faults.dies_after = None;
                self.faults.dead = true;
            }
            Some(left) => self.faults.dies_after = Some(left - 1),
            None => {}
        }
        if self.faults.dead {
            return Err(io::Error::other("the process is being killed"));
        }
        Ok(())
    }

    pub(crate) fn taken(&self) -> u64 {
        let inodes: BTreeSet<usize> = self.names.values().copied().collect();
        inodes
            .iter()
            .filter_map(|at| self.inodes.get(*at))
            .map(|inode| inode.bytes.len() as u64)
            .sum()
    }

    pub(crate) fn inode(&mut self, name: &str) -> io::Result<usize> {
        let found = self.names.get(name).copied();
        found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, name.to_owned()))
    }

    pub(crate) fn write(&mut self, inode: usize, bytes: &[u8], offset: usize) -> io::Result<()> {
        let dies_here = self.faults.dies_after == Some(0);
        if let Err(error) = self.enter() {
            // The process is killed in the middle of a write, so the first part of it may be on the disk.
            if dies_here {
                let part = self.chance.index(bytes.len() + 1);
                self.put(inode, bytes.get(..part).unwrap_or(&[]), offset);
            }
            return Err(error);
        }
        if std::mem::take(&mut self.faults.fail_write) {
            let part = self.chance.index(bytes.len() + 1);
            self.put(inode, bytes.get(..part).unwrap_or(&[]), offset);
            return Err(io::Error::other("the disk failed to write"));
        }
        let len = self.inodes.get(inode).map_or(0, |inode| inode.bytes.len());
        let more = (offset + bytes.len()).saturating_sub(len) as u64;
        if more > 0
            && let Some(space) = self.faults.space
            && self.taken() + more > space
        {
            return Err(ErrorKind::StorageFull.into());
        }
        self.put(inode, bytes, offset);
        Ok(())
    }

    pub(crate) fn put(&mut self, inode: usize, bytes: &[u8], offset: usize) {
        if bytes.is_empty() {
            return;
        }
        let page_bytes = self.page_bytes;
        let inode = self.inodes.get_mut(inode).expect("handles lead to inodes");
        let end = offset + bytes.len();
        if inode.bytes.len() < end {
            inode.bytes.resize(end, 0);
        }
        inode
            .bytes
            .get_mut(offset..end)
            .expect("it was just made long enough")
            .copy_from_slice(bytes);
        inode.dirty.extend(offset / page_bytes..=(end - 1) / page_bytes);
    }

    pub(crate) fn sync(&mut self, inode: usize) -> io::Result<()> {
        self.enter()?;
        if std::mem::take(&mut self.faults.fail_sync) {
            // As on Linux, the pages stay in memory and count as clean, so no later sync writes them.
            let inode = self.inodes.get_mut(inode).expect("handles lead to inodes");
            inode.dirty.clear();
            return Err(io::Error::other("the disk failed to sync"));
        }
        if self.faults.lying {
            return Ok(());
        }
        let page_bytes = self.page_bytes;
        let inode = self.inodes.get_mut(inode).expect("handles lead to inodes");
        for page in std::mem::take(&mut inode.dirty) {
            inode.settle(page, page_bytes, page_bytes);
        }
        Ok(())
    }
}

/// The effect of a power cut on an unsynced change.
#[derive(Clone, Copy)]
pub(crate) enum Fate {
    Lost,
    Kept,
    /// Only this number of its bytes reached the disk.
    Torn(usize),
}

/// An unsynced change at the time of a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// A directory, or a name in one, was created, removed or changed.
    Name,
    /// The page of a file, by its index.
    Page(usize),
}

impl Inode {
    /// Makes the first bytes of a page durable.
    pub(crate) fn settle(&mut self, page: usize, page_bytes: usize, upto: usize) {
        let start = page * page_bytes;
        let end = (start + upto).min(self.bytes.len());
        let whole = (start + page_bytes).min(self.bytes.len());
        if self.synced.len() < whole {
            self.synced.resize(whole, 0);
        }
        if let (Some(to), Some(from)) =
            (self.synced.get_mut(start..end), self.bytes.get(start..end))
        {
            to.copy_from_slice(from);
        }
    }
}
