//! A disk in memory that loses the data that a real disk may lose.
//!
//! It records for every page whether it was synced, and for every directory which creations, renames and removals were
//! synced. A power cut treats each unsynced page independently (lost, kept, or torn at some byte), and each unsynced
//! change of a directory (lost or kept). There is no order between them to rely on. A process that is killed loses
//! nothing that it had written. The same seed and the same calls give the same bytes. The content of the files has no
//! meaning here.

use crate::chance::Chance;
use crate::storage::{Change, Fate, Faults, Inode, Loss, Storage, Unsynced, is_below, parent};
use sexton::persist::disk::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The disk. Cloning gives another handle on it.
#[derive(Clone)]
pub(crate) struct SimDisk {
    state: Arc<Mutex<Storage>>,
}

impl SimDisk {
    /// Creates an empty disk.
    pub(crate) fn new(chance: Chance, page_bytes: usize) -> Self {
        Self {
            state: Arc::new(Mutex::new(Storage {
                page_bytes,
                chance,
                inodes: vec![Inode::default()],
                names: BTreeMap::new(),
                folders: BTreeMap::from([(String::new(), 0)]),
                names_synced: BTreeMap::new(),
                folders_synced: BTreeMap::from([(String::new(), 0)]),
                changes: Vec::new(),
                faults: Faults::default(),
                operations: 0,
            })),
        }
    }

    /// Returns another disk with the same content.
    pub(crate) fn copy(&self) -> Self {
        Self { state: Arc::new(Mutex::new(self.state().clone())) }
    }

    /// Cuts the power: all unsynced data may be lost, entirely or in part.
    pub(crate) fn cut_power(&self) -> Loss {
        self.state().cut_power()
    }

    /// Cuts the power. `fate` decides for each unsynced page and name.
    pub(crate) fn cut_power_by(&self, fate: impl FnMut(Unsynced) -> Fate) -> Loss {
        self.state().cut_power_by(fate)
    }

    /// Ends the process, so that another process can use the disk: injected faults end, written data stays.
    pub(crate) fn kill(&self) {
        self.state().revive();
    }

    /// Kills the process in the `calls`-th change of the disk from now on.
    pub(crate) fn die_after(&self, calls: u64) {
        self.state().faults.dies_after = Some(calls);
    }

    /// Returns whether the process was killed during a call.
    pub(crate) fn is_dead(&self) -> bool {
        self.state().faults.dead
    }

    /// Makes the next write fail.
    pub(crate) fn fail_write(&self) {
        self.state().faults.fail_write = true;
    }

    /// Makes the next sync fail.
    pub(crate) fn fail_sync(&self) {
        self.state().faults.fail_sync = true;
    }

    /// Limits the free space to this number of bytes; `None` for no limit.
    pub(crate) fn set_space(&self, free: Option<u64>) {
        let mut state = self.state();
        let taken = state.taken();
        state.faults.space = free.map(|free| taken + free);
    }

    /// Returns whether the space is limited.
    pub(crate) fn is_bounded(&self) -> bool {
        self.state().faults.space.is_some()
    }

    /// Makes every later sync of a file report success without doing anything.
    pub(crate) fn lie(&self) {
        self.state().faults.lying = true;
    }

    /// Flips one bit, on disk and in memory. The caller chooses file and byte.
    pub(crate) fn flip(&self, name: &str, offset: usize, bit: u8) {
        let mut state = self.state();
        let inode = *state.names.get(name).expect("the file exists");
        let file = state.inodes.get_mut(inode).expect("every name has an inode");
        for bytes in [&mut file.bytes, &mut file.synced] {
            if let Some(byte) = bytes.get_mut(offset) {
                *byte ^= 1 << bit;
            }
        }
    }

    /// Truncates a file, on disk and in memory.
    pub(crate) fn truncate(&self, name: &str, len: usize) {
        let mut state = self.state();
        let inode = *state.names.get(name).expect("the file exists");
        let file = state.inodes.get_mut(inode).expect("every name has an inode");
        file.bytes.truncate(len);
        file.synced.truncate(len);
    }

    /// Zeroes a file from an offset on, on disk and in memory.
    pub(crate) fn blank(&self, name: &str, from: usize) {
        let mut state = self.state();
        let inode = *state.names.get(name).expect("the file exists");
        let file = state.inodes.get_mut(inode).expect("every name has an inode");
        for bytes in [&mut file.bytes, &mut file.synced] {
            bytes.get_mut(from..).unwrap_or(&mut []).fill(0);
        }
    }

    /// Removes a file, on disk and in memory.
    pub(crate) fn erase(&self, name: &str) {
        let mut state = self.state();
        state.names.remove(name);
        state.names_synced.remove(name);
    }

    /// Returns every file with its length, by name.
    pub(crate) fn files(&self) -> BTreeMap<String, u64> {
        let state = self.state();
        let len = |inode: &usize| state.inodes.get(*inode).map_or(0, |it| it.bytes.len());
        let names = state.names.iter();
        names.map(|(name, inode)| (name.clone(), len(inode) as u64)).collect()
    }

    /// Returns the number of calls that changed the disk, or tried to.
    pub(crate) fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Returns the bytes of a file as programs see them.
    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let state = self.state();
        let inode = state.names.get(name).and_then(|at| state.inodes.get(*at));
        inode.map_or_else(Vec::new, |inode| inode.bytes.clone())
    }

    fn state(&self) -> MutexGuard<'_, Storage> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for SimDisk {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let state = self.state();
        let inside = state.names.iter().filter(|(path, _)| parent(path) == folder);
        Ok(inside
            .map(|(path, inode)| {
                let name = path.rsplit('/').next().unwrap_or(path).to_owned();
                let len = state.inodes.get(*inode).map_or(0, |inode| inode.bytes.len());
                (name, len as u64)
            })
            .collect())
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        let mut state = self.state();
        state.enter()?;
        let ends = folder.match_indices('/').map(|(end, _)| end);
        for end in ends.chain([folder.len()]) {
            let folder = folder.get(..end).expect("it ends at a slash").to_owned();
            if !state.folders.contains_key(&folder) {
                let inode = state.inodes.len();
                state.inodes.push(Inode::default());
                state.folders.insert(folder.clone(), inode);
                state.changes.push(Change::Folder(folder, inode));
            }
        }
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        let mut state = self.state();
        state.enter()?;
        if state.names.contains_key(name) {
            return Err(ErrorKind::AlreadyExists.into());
        }
        if !state.folders.contains_key(parent(name)) {
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
        state.changes.push(Change::Rename(from.to_owned(), to.to_owned(), inode));
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
                && !matches!(&change, Change::Folder(path, _) if path == folder)
            {
                state.keep(change);
            } else {
                state.changes.push(change);
            }
        }
        Ok(())
    }

    fn tree(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let mut files = self.files();
        files.retain(|path, _| is_below(folder, path));
        let name = |path: &str| path.get(folder.len() + 1..).unwrap_or(path).to_owned();
        Ok(files.iter().map(|(path, len)| (name(path), *len)).collect())
    }

    fn remove_tree(&self, folder: &str) -> io::Result<()> {
        for (file, _) in self.tree(folder)? {
            self.remove(&format!("{folder}/{file}"))?;
        }
        for folder in self.folders(folder).iter().rev() {
            let mut state = self.state();
            state.enter()?;
            state.folders.remove(folder);
            let later = state.inodes.len();
            state.changes.push(Change::TakeFolder(folder.clone(), later));
        }
        Ok(())
    }

    fn sync_tree(&self, folder: &str) -> io::Result<()> {
        for (file, _) in self.tree(folder)? {
            self.open(&format!("{folder}/{file}"), true)?.sync()?;
        }
        for folder in self.folders(folder).iter().rev() {
            self.sync_folder(folder)?;
        }
        Ok(())
    }
}

impl SimDisk {
    /// Returns a directory, if it exists, and those below it.
    fn folders(&self, folder: &str) -> Vec<String> {
        let state = self.state();
        let folders = state.folders.keys();
        folders.filter(|path| *path == folder || is_below(folder, path)).cloned().collect()
    }

    fn file(&self, inode: usize) -> Box<dyn DiskFile> {
        Box::new(SimFile { disk: self.clone(), inode })
    }
}

struct SimFile {
    disk: SimDisk,
    inode: usize,
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.disk.state();
        let bytes = state.inodes.get(self.inode).map_or(&[][..], |inode| &inode.bytes);
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
        Ok(state.inodes.get(self.inode).map_or(0, |inode| inode.bytes.len()) as u64)
    }
}
