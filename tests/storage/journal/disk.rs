//! A disk in memory for which tests can inject every kind of fault.

use sexton::persist::disk::{Disk, DiskFile};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// A disk in memory. Cloning gives another handle on the same disk; [`MemoryDisk::copy`] gives another disk.
#[derive(Clone, Default)]
pub(crate) struct MemoryDisk {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    files: BTreeMap<String, Bytes>,
    /// The maximum size of all files together, in bytes; `None` for no limit.
    capacity: Option<usize>,
    /// The number of changes before the power is cut; `None` if it is not cut.
    changes_left: Option<usize>,
    /// Whether syncs are held back, and the number of callers that wait for one.
    held: bool,
    waiting: usize,
    /// Whether syncs fail.
    failing: bool,
    syncs: usize,
}

struct MemoryFile {
    bytes: Bytes,
    shared: Arc<Shared>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("not poisoned")
}

impl Shared {
    /// Called before a change; returns an error once the power is off.
    fn change(&self) -> io::Result<()> {
        match &mut lock(&self.state).changes_left {
            Some(0) => Err(io::Error::other("the power is gone")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl State {
    fn used(&self) -> usize {
        self.files.values().map(|bytes| lock(bytes).len()).sum()
    }
}

impl MemoryDisk {
    /// Returns another disk with the same files and no faults.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self::default();
        for (name, bytes) in &lock(&self.shared.state).files {
            let bytes = Arc::new(Mutex::new(lock(bytes).clone()));
            lock(&copy.shared.state).files.insert(name.clone(), bytes);
        }
        copy
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        lock(&self.file(name)).clone()
    }

    fn file(&self, name: &str) -> Bytes {
        let state = lock(&self.shared.state);
        Arc::clone(state.files.get(name).expect("tests name files that exist"))
    }

    /// Puts a complete file on the disk.
    pub(crate) fn put(&self, name: &str, bytes: Vec<u8>) {
        let bytes = Arc::new(Mutex::new(bytes));
        lock(&self.shared.state).files.insert(name.to_owned(), bytes);
    }

    /// Changes the bytes of a file, as damage would.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(&mut lock(&self.file(name)));
    }

    pub(crate) fn delete(&self, name: &str) {
        lock(&self.shared.state).files.remove(name);
    }

    pub(crate) fn names(&self) -> Vec<String> {
        lock(&self.shared.state).files.keys().cloned().collect()
    }

    /// Limits the free space to `more` bytes; `None` removes the limit.
    pub(crate) fn leave(&self, more: Option<usize>) {
        let mut state = lock(&self.shared.state);
        state.capacity = more.map(|more| state.used() + more);
    }

    /// Cuts the power after this number of further changes.
    pub(crate) fn cut_power_after(&self, changes: usize) {
        lock(&self.shared.state).changes_left = Some(changes);
    }

    /// Holds syncs back, or releases them.
    pub(crate) fn hold_syncs(&self, held: bool) {
        lock(&self.shared.state).held = held;
        self.shared.changed.notify_all();
    }

    /// Waits until a caller is waiting for a sync.
    pub(crate) fn until_a_sync_waits(&self) {
        let state = lock(&self.shared.state);
        let waited = self.shared.changed.wait_while(state, |state| state.waiting == 0);
        drop(waited.expect("not poisoned"));
    }

    pub(crate) fn fail_syncs(&self) {
        lock(&self.shared.state).failing = true;
    }

    pub(crate) fn syncs(&self) -> usize {
        lock(&self.shared.state).syncs
    }
}

impl Disk for MemoryDisk {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        let state = lock(&self.shared.state);
        let inside = state.files.iter().filter_map(|(name, bytes)| {
            let file = name.strip_prefix(folder)?.strip_prefix('/')?;
            Some((file.to_owned(), lock(bytes).len() as u64))
        });
        Ok(inside.collect())
    }

    fn create_folder(&self, _folder: &str) -> io::Result<()> {
        Ok(())
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.shared.change()?;
        let bytes = Bytes::default();
        let before = lock(&self.shared.state).files.insert(name.to_owned(), Arc::clone(&bytes));
        if before.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MemoryFile { bytes, shared }))
    }

    fn open(&self, name: &str, _write: bool) -> io::Result<Box<dyn DiskFile>> {
        let state = lock(&self.shared.state);
        let bytes = Arc::clone(state.files.get(name).ok_or(io::ErrorKind::NotFound)?);
        let shared = Arc::clone(&self.shared);
        Ok(Box::new(MemoryFile { bytes, shared }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.shared.change()?;
        let mut state = lock(&self.shared.state);
        let bytes = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.files.insert(to.to_owned(), bytes);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.shared.change()?;
        let removed = lock(&self.shared.state).files.remove(name);
        removed.map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn sync_folder(&self, _folder: &str) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = lock(&self.bytes);
        let start = usize::try_from(offset).expect("small files").min(bytes.len());
        let rest = bytes.get(start..).unwrap_or(&[]);
        let len = rest.len().min(buf.len());
        buf.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        Ok(len)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.shared.change()?;
        let end = usize::try_from(offset).expect("small files") + bytes.len();
        let state = lock(&self.shared.state);
        let grows = end.saturating_sub(lock(&self.bytes).len());
        if grows > 0 && state.capacity.is_some_and(|capacity| state.used() + grows > capacity) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        drop(state);
        let mut file = lock(&self.bytes);
        let len = file.len().max(end);
        file.resize(len, 0);
        let place = file.get_mut(end - bytes.len()..end).expect("it was made long enough");
        place.copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = lock(&self.shared.state);
        state.waiting += 1;
        self.shared.changed.notify_all();
        let waited = self.shared.changed.wait_while(state, |state| state.held);
        let mut state = waited.expect("not poisoned");
        state.waiting -= 1;
        state.syncs += 1;
        if state.failing {
            return Err(io::Error::other("the sync failed"));
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(lock(&self.bytes).len() as u64)
    }
}
