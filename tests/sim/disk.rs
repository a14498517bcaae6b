//! A disk in memory that forgets what a real one may forget.
//!
//! It knows of every page whether it was synced, and of every folder which creations, renames and removals were. A
//! power cut treats each unsynced page by itself (lost, kept, or torn at some byte) and each unsynced change of a
//! folder by itself (lost or kept): no order between them may be relied on. A killed process loses nothing that was
//! written. The same seed and the same calls give the same bytes. Never here: any knowledge of what the files mean.

use crate::chance::Chance;
use sexton::persist::disk::{Disk, DiskFile};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a power cut came to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Loss {
    pub(crate) pages_lost: u64,
    pub(crate) pages_torn: u64,
    pub(crate) pages_kept: u64,
    pub(crate) names_lost: u64,
}

/// The disk. Cloning gives another handle on it.
#[derive(Clone)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Clone)]
struct State {
    page_bytes: usize,
    chance: Chance,
    inodes: Vec<Inode>,
    /// What programs see: path to inode.
    names: BTreeMap<String, usize>,
    folders: BTreeSet<String>,
    /// What a power cut cannot take.
    names_synced: BTreeMap<String, usize>,
    folders_synced: BTreeSet<String>,
    /// Changes of folders that are not synced, in order.
    changes: Vec<Change>,
    faults: Faults,
    operations: u64,
}

#[derive(Clone, Default)]
struct Faults {
    /// Everything that changes the disk fails once so many more such calls were made: the process is being killed.
    dies_after: Option<u64>,
    dead: bool,
    fail_write: bool,
    fail_sync: bool,
    /// Bytes that files may take together.
    space: Option<u64>,
    /// Syncs report success and do nothing.
    lying: bool,
}

#[derive(Clone, Default)]
struct Inode {
    bytes: Vec<u8>,
    synced: Vec<u8>,
    dirty: BTreeSet<usize>,
}

#[derive(Clone)]
enum Change {
    Folder(String),
    Put(String, usize),
    Rename(String, String, usize),
    Take(String),
}

impl Change {
    fn folder(&self) -> &str {
        match self {
            Self::Folder(path)
            | Self::Put(path, _)
            | Self::Rename(_, path, _)
            | Self::Take(path) => parent(path),
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

impl SimDisk {
    /// An empty disk.
    pub(crate) fn new(chance: Chance, page_bytes: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                page_bytes,
                chance,
                inodes: Vec::new(),
                names: BTreeMap::new(),
                folders: BTreeSet::from([String::new()]),
                names_synced: BTreeMap::new(),
                folders_synced: BTreeSet::from([String::new()]),
                changes: Vec::new(),
                faults: Faults::default(),
                operations: 0,
            })),
        }
    }

    /// Another disk with the same content.
    pub(crate) fn copy(&self) -> Self {
        Self {
            state: Arc::new(Mutex::new(self.state().clone())),
        }
    }

    /// The power goes: what was not synced may be lost, whole or in part.
    pub(crate) fn cut_power(&self) -> Loss {
        let mut state = self.state();
        let loss = state.cut_power();
        state.revive();
        loss
    }

    /// The process is gone and another one may use the disk: faults end, what was written stays.
    pub(crate) fn kill(&self) {
        self.state().revive();
    }

    /// Kills the process in its `calls`-th change of the disk from now on.
    pub(crate) fn die_after(&self, calls: u64) {
        self.state().faults.dies_after = Some(calls);
    }

    /// Whether the process was killed in the middle of something.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().faults.dead
    }

    /// The next write fails.
    pub(crate) fn fail_write(&self) {
        self.state().faults.fail_write = true;
    }

    /// The next sync fails.
    pub(crate) fn fail_sync(&self) {
        self.state().faults.fail_sync = true;
    }

    /// Leaves so many bytes beyond those that are taken; `None` for as many as wanted.
    pub(crate) fn set_space(&self, free: Option<u64>) {
        let mut state = self.state();
        let taken = state.taken();
        state.faults.space = free.map(|free| taken + free);
    }

    /// Whether the space is bounded.
    pub(crate) fn is_bounded(&self) -> bool {
        self.state().faults.space.is_some()
    }

    /// From now on, syncs of files lie.
    pub(crate) fn lie(&self) {
        self.state().faults.lying = true;
    }

    /// Flips one bit, on the platter and in memory. Which byte of which file is for the caller.
    pub(crate) fn flip(&self, name: &str, offset: usize, bit: u8) {
        let mut state = self.state();
        let inode = *state.names.get(name).expect("the file is there");
        let file = state.inodes.get_mut(inode).expect("names lead to inodes");
        for bytes in [&mut file.bytes, &mut file.synced] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << bit;
            }
        }
    }

    /// The bytes of a file as programs see them.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        let inode = state.names.get(name).and_then(|at| state.inodes.get(*at));
        inode.map_or_else(Vec::new, |inode| inode.bytes.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn revive(&mut self) {
        let space = self.faults.space;
        let lying = self.faults.lying;
        self.faults = Faults {
            space,
            lying,
            ..Faults::default()
        };
        self.drop_unnamed();
    }

    /// Files without a name take no memory here.
    fn drop_unnamed(&mut self) {
        if !self.changes.is_empty() {
            return;
        }
        let named: BTreeSet<usize> = self
            .names
            .values()
            .chain(self.names_synced.values())
            .copied()
            .collect();
        for (at, inode) in self.inodes.iter_mut().enumerate() {
            if !named.contains(&at) {
                *inode = Inode::default();
            }
        }
    }

    fn cut_power(&mut self) -> Loss {
        let mut loss = Loss::default();
        for change in std::mem::take(&mut self.changes) {
            if self.chance.per_mille(500) {
                self.keep(change);
            } else {
                loss.names_lost += 1;
            }
        }
        // What lay in a folder that is gone is gone with it.
        let folders = &self.folders_synced;
        self.names_synced
            .retain(|path, _| folders.contains(parent(path)));
        self.names = self.names_synced.clone();
        self.folders = self.folders_synced.clone();
        let (page_bytes, mut chance) = (self.page_bytes, self.chance.fork());
        // One fate for all pages now and then: all lost and all kept are the ends of what can happen.
        let fates: &[(u64, Fate)] = match chance.below(4) {
            0 => &[(1, Fate::Lost)],
            1 => &[(1, Fate::Kept)],
            _ => &[(4, Fate::Lost), (4, Fate::Kept), (2, Fate::Torn)],
        };
        for inode in &mut self.inodes {
            for page in std::mem::take(&mut inode.dirty) {
                let fate = chance.weighted(fates);
                match fate {
                    Fate::Lost => loss.pages_lost += 1,
                    Fate::Kept => {
                        loss.pages_kept += 1;
                        inode.settle(page, page_bytes, page_bytes);
                    }
                    Fate::Torn => {
                        loss.pages_torn += 1;
                        inode.settle(page, page_bytes, chance.index(page_bytes));
                    }
                }
            }
            inode.bytes.clone_from(&inode.synced);
        }
        loss
    }

    fn keep(&mut self, change: Change) {
        match change {
            Change::Folder(path) => {
                self.folders_synced.insert(path);
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
        }
    }

    /// Called by everything that changes the disk.
    fn enter(&mut self) -> io::Result<()> {
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

    fn taken(&self) -> u64 {
        let inodes: BTreeSet<usize> = self.names.values().copied().collect();
        inodes
            .iter()
            .filter_map(|at| self.inodes.get(*at))
            .map(|inode| inode.bytes.len() as u64)
            .sum()
    }

    fn inode(&mut self, name: &str) -> io::Result<usize> {
        let found = self.names.get(name).copied();
        found.ok_or_else(|| io::Error::new(ErrorKind::NotFound, name.to_owned()))
    }

    fn write(&mut self, inode: usize, bytes: &[u8], offset: usize) -> io::Result<()> {
        let dies_here = self.faults.dies_after == Some(0);
        if let Err(error) = self.enter() {
            // Killed in the middle of a write: the first part of it may have been done.
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

    fn put(&mut self, inode: usize, bytes: &[u8], offset: usize) {
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
        inode
            .dirty
            .extend(offset / page_bytes..=(end - 1) / page_bytes);
    }

    fn sync(&mut self, inode: usize) -> io::Result<()> {
        self.enter()?;
        if std::mem::take(&mut self.faults.fail_sync) {
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

#[derive(Clone, Copy)]
enum Fate {
    Lost,
    Kept,
    Torn,
}

impl Inode {
    /// Makes the first bytes of a page what a power cut cannot take.
    fn settle(&mut self, page: usize, page_bytes: usize, upto: usize) {
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

impl Disk for SimDisk {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let state = self.state();
        let inside = state
            .names
            .iter()
            .filter(|(path, _)| parent(path) == folder);
        Ok(inside
            .map(|(path, inode)| {
                let name = path.rsplit('/').next().unwrap_or(path).to_owned();
                let len = state
                    .inodes
                    .get(*inode)
                    .map_or(0, |inode| inode.bytes.len());
                (name, len as u64)
            })
            .collect())
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        let mut state = self.state();
        state.enter()?;
        if state.folders.insert(folder.to_owned()) {
            state.changes.push(Change::Folder(folder.to_owned()));
        }
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.enter()?;
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !state.folders.contains(parent(name)) {
            return Err(io::Error::new(ErrorKind::NotFound, parent(name).to_owned()));
        }
        let inode = state.inodes.len();
        state.inodes.push(Inode::default());
        state.names.insert(name.to_owned(), inode);
        state.changes.push(Change::Put(name.to_owned(), inode));
        Ok(self.file(inode))
    }

    fn open(&self, name: &str, _write: bool) -> io::Result<Box<dyn DiskFile>> {
        let inode = self.state().inode(name)?;
        Ok(self.file(inode))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        state.enter()?;
        let inode = state.inode(from)?;
        state.names.remove(from);
        state.names.insert(to.to_owned(), inode);
        state
            .changes
            .push(Change::Rename(from.to_owned(), to.to_owned(), inode));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.state();
        state.enter()?;
        state.inode(name)?;
        state.names.remove(name);
        state.changes.push(Change::Take(name.to_owned()));
        Ok(())
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        let mut state = self.state();
        state.enter()?;
        let changes = std::mem::take(&mut state.changes);
        for change in changes {
            if change.folder() == folder
                && !matches!(&change, Change::Folder(path) if path == folder)
            {
                state.keep(change);
            } else {
                state.changes.push(change);
            }
        }
        Ok(())
    }
}

impl SimDisk {
    fn file(&self, inode: usize) -> Box<dyn DiskFile> {
        Box::new(SimFile {
            disk: self.clone(),
            inode,
        })
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let bytes = state
            .inodes
            .get(self.inode)
            .map_or(&[][..], |inode| &inode.bytes);
        let offset = usize::try_from(offset).expect("files fit in memory");
        let rest = bytes.get(offset..).unwrap_or(&[]);
        let len = rest.len().min(buf.len());
        if let (Some(to), Some(from)) = (buf.get_mut(..len), rest.get(..len)) {
            to.copy_from_slice(from);
        }
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let offset = usize::try_from(offset).expect("files fit in memory");
        self.disk.state().write(self.inode, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.disk.state().sync(self.inode)
    }

    fn len(&self) -> io::Result<u64> {
        let state = self.disk.state();
        Ok(state
            .inodes
            .get(self.inode)
            .map_or(0, |inode| inode.bytes.len()) as u64)
    }
}
