//! The store of a slot, implemented with sled 0.34. No other file uses sled.
//!
//! This design follows from measurements of sled. A store is open only while its slot is read or written, since an open store takes a
//! hundred megabytes of memory and several threads. sled panics on damaged files, even in its own threads, so it is never given damaged
//! files, and is called under `catch_unwind` as a precaution. Its threads continue for a while after a store is closed, so closing a store
//! waits for them. If it cannot start its threads, it waits for ever for work that none of them does, so a store is opened only if threads
//! can be started. Its flush does not sync, so the files are synced before a slot is sealed.

use crate::persist::error::PersistError;
use crate::persist::snapshots::{Store, Stores, Visit};
use crate::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

const CACHE_BYTES: u64 = 1 << 20;
const FLUSH_MS: u64 = 200;
/// The maximum number of items written at a time.
const BATCH: usize = 64;
/// The maximum number of times to check, once per millisecond, whether sled's threads have released a closed store.
const LOOKS_MAX: u32 = 30_000;
/// The number of threads that sled may start with a store: seven that it shares among all stores, and one for each.
const THREADS: usize = 8;

/// Opens sled stores in folders below a root folder.
#[derive(Clone, Debug)]
pub struct SledStores {
    root: PathBuf,
}

impl SledStores {
    /// Returns a `SledStores` that opens stores in folders below `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl Stores for SledStores {
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError> {
        check_threads().map_err(PersistError::io("start threads to open", folder))?;
        let path = self.root.join(folder);
        let config = sled::Config::new()
            .path(&path)
            .cache_capacity(CACHE_BYTES)
            .flush_every_ms(Some(FLUSH_MS));
        let db = guard("open", folder, || config.open())?;
        Ok(Box::new(SledStore {
            db,
            batch: sled::Batch::default(),
            batched: 0,
            folder: folder.to_owned(),
            path,
        }))
    }
}

struct SledStore {
    db: sled::Db,
    batch: sled::Batch,
    batched: usize,
    folder: String,
    path: PathBuf,
}

impl SledStore {
    fn apply(&mut self) -> Result<(), PersistError> {
        if self.batched == 0 {
            // sled would write even an empty batch, but a store that is only read must not change.
            return Ok(());
        }
        self.batched = 0;
        let batch = std::mem::take(&mut self.batch);
        guard("write", &self.folder, || self.db.apply_batch(batch))
    }
}

impl Store for SledStore {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), PersistError> {
        self.batch.insert(key, value);
        self.batched += 1;
        if self.batched == BATCH {
            self.apply()?;
        }
        Ok(())
    }

    fn each(&mut self, visit: Visit<'_>) -> Result<(), PersistError> {
        self.apply()?;
        let mut items = self.db.iter();
        while let Some((key, value)) = guard("read", &self.folder, || items.next().transpose())? {
            visit(&key, &value)?;
        }
        Ok(())
    }

    fn close(mut self: Box<Self>) -> Result<(), PersistError> {
        self.apply()?;
        let Self { db, folder, path, .. } = *self;
        guard("flush", &folder, || db.flush())?;
        guard("close", &folder, || {
            drop(db);
            Ok(())
        })?;
        wait_until_stable(&path).map_err(PersistError::io("close", &folder))
    }
}

/// Checks that as many threads can be started now as sled may need.
fn check_threads() -> std::io::Result<()> {
    let (end, ended) = crossbeam_channel::bounded::<()>(0);
    let mut started = Vec::with_capacity(THREADS);
    let mut failed = Ok(());
    for _ in 0..THREADS {
        let ended = ended.clone();
        // The channel closes when all have been started.
        let run = move || ended.recv().is_err();
        match thread::start("sexton-probe", run, drop) {
            Ok(thread) => started.push(thread),
            Err(error) => {
                failed = Err(error);
                break;
            }
        }
    }
    drop(end);
    for thread in started {
        // Nothing in these threads panics.
        drop(thread.join());
    }
    failed
}

/// Waits until none of sled's threads uses the store: sled holds a lock on the store's file until then. Returns an error if that takes more
/// than [`LOOKS_MAX`] checks.
#[expect(clippy::disallowed_methods, reason = "sled's threads do not report when they end")]
fn wait_until_stable(path: &std::path::Path) -> std::io::Result<()> {
    let file = std::fs::File::open(path.join("db"))?;
    for _ in 0..LOOKS_MAX {
        match file.try_lock() {
            Ok(()) => return file.unlock(),
            Err(std::fs::TryLockError::WouldBlock) => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(std::io::ErrorKind::TimedOut.into())
}

/// Calls sled, and turns its errors and panics into an error that names the slot.
fn guard<T>(
    action: &'static str,
    folder: &str,
    call: impl FnOnce() -> Result<T, sled::Error>,
) -> Result<T, PersistError> {
    let cause = match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(sled::Error::Io(source))) => {
            return Err(PersistError::Io { action, file: folder.to_owned(), source });
        }
        Ok(Err(error)) => error.to_string(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("sled panicked: {}", words.unwrap_or("without a message"))
        }
    };
    // If a panic or another error of sled was caused by an error of the operating system, its text contains the debug output of the latter.
    Err(match system_error(&cause) {
        Some(source) => PersistError::Io { action, file: folder.to_owned(), source },
        None => PersistError::Store { action, folder: folder.to_owned(), cause },
    })
}

/// Extracts an error of the operating system from text that contains the error's debug output. Returns `None` if the text contains no such
/// output.
fn system_error(words: &str) -> Option<std::io::Error> {
    let (_, behind) = words.split_once("Os { code: ")?;
    let (code, _) = behind.split_once(',')?;
    code.parse().ok().map(std::io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::system_error;
    use std::io::{Error, ErrorKind};

    #[test]
    fn what_the_system_said_is_found_in_what_sled_says() {
        let full = Error::from_raw_os_error(28);
        let words = format!("called `Result::unwrap()` on an `Err` value: Io({full:?})");
        let found = system_error(&words).expect("the text contains an error");
        assert_eq!(found.kind(), ErrorKind::StorageFull);
        assert!(system_error("a page is not where it should be").is_none());
    }
}
