//! A store for slots on the simulated disk that behaves as sled was measured to behave.
//!
//! It has several files, one of them in a subdirectory, which grow, appear and disappear. It writes in parts, at any
//! time, and never syncs. It also writes when it is closed, and the next one or two times it is opened. If it cannot read
//! its files, it fails, or silently loses or garbles items. It counts such openings, because a node must only open stores
//! that a node closed. The store has no notion of pages or seals.

use crate::chance::Chance;
use crate::disk::SimDisk;
use sexton::persist::PersistError;
use sexton::persist::disk::Disk as _;
use sexton::persist::snapshots::{Store, Stores, Visit};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const CONFIG: &[u8] = b"a store of the simulation";
/// Files grow in steps of this size.
const GROWTH_BYTES: usize = 512;
/// The maximum size of a value in the log, in bytes. A longer value is written to a separate file.
const VALUE_BYTES_MAX: usize = 200;
/// The size of an item's header, in bytes: checksum, length of the key, length of the value.
const HEADER_BYTES: usize = 12;

type Items = BTreeMap<Vec<u8>, Vec<u8>>;

/// The stores of one process.
pub(crate) struct SimStores {
    disk: SimDisk,
    shared: Arc<Shared>,
}

struct Shared {
    chance: Mutex<Chance>,
    open: Mutex<BTreeSet<String>>,
    spoiled: AtomicU64,
}

impl SimStores {
    /// Creates the set of stores on this disk, with all of them closed.
    pub(crate) fn new(disk: &SimDisk, chance: Chance) -> Self {
        let shared = Shared {
            chance: Mutex::new(chance),
            open: Mutex::default(),
            spoiled: AtomicU64::new(0),
        };
        Self { disk: disk.clone(), shared: Arc::new(shared) }
    }

    /// Returns how often a store was opened although its files had been changed.
    pub(crate) fn spoiled(&self) -> u64 {
        self.shared.spoiled.load(Ordering::Relaxed)
    }
}

impl Stores for SimStores {
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError> {
        let alone = lock(&self.shared.open).insert(folder.to_owned());
        assert!(alone, "the store in {folder} is open already");
        let mut store = SimStore {
            disk: self.disk.clone(),
            shared: Arc::clone(&self.shared),
            folder: folder.to_owned(),
            items: Items::new(),
            waiting: Vec::new(),
            about: About::default(),
            changed: false,
        };
        store.load()?;
        Ok(Box::new(store))
    }
}

/// The content of the latest `about` file. Each change writes a new one, under another name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct About {
    /// The number of this `about` file, which is part of its name.
    edition: u32,
    /// The number of the `log` file that contains the items.
    log: u32,
    /// The number of bytes of that file that are in use.
    used: u32,
    items: u32,
    /// The number of openings that will still change files.
    unsettled: u32,
}

impl About {
    fn encode(self) -> Vec<u8> {
        let fields = [self.edition, self.log, self.used, self.items, self.unsettled];
        let mut bytes: Vec<u8> = fields.iter().flat_map(|it| it.to_le_bytes()).collect();
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let words: Vec<u32> = bytes.chunks(4).filter_map(word).collect();
        let [edition, log, used, items, unsettled, crc] = *words else {
            return None;
        };
        let about = Self { edition, log, used, items, unsettled };
        (crc32c::crc32c(bytes.get(..20)?) == crc).then_some(about)
    }
}

struct SimStore {
    disk: SimDisk,
    shared: Arc<Shared>,
    folder: String,
    items: Items,
    /// Keys of items that are only in memory.
    waiting: Vec<Vec<u8>>,
    about: About,
    /// Whether an item was put since the store was opened.
    changed: bool,
}

impl SimStore {
    fn load(&mut self) -> Result<(), PersistError> {
        let files = self.disk.tree(&self.folder).unwrap_or_default();
        if files.is_empty() {
            return self.create().map_err(self.failed("create"));
        }
        let Some(about) = self.find_about(&files) else {
            return self.spoil("it has no state");
        };
        self.about = about;
        if self.bytes("config") != CONFIG {
            return self.spoil("it has no configuration");
        }
        self.items = self.parse();
        if self.items.len() != about.items as usize {
            return self.spoil("items are missing");
        }
        if about.unsettled > 0 {
            self.settle().map_err(self.failed("open"))?;
        }
        Ok(())
    }

    fn create(&mut self) -> io::Result<()> {
        self.disk.create_folder(&format!("{}/heap", self.folder))?;
        self.write_new("config", CONFIG)?;
        self.write_new("log.0", &[])?;
        self.write_about()
    }

    /// Counts an opening of a store with changed files, and then fails, keeps the items, or garbles one, by chance.
    fn spoil(&mut self, how: &str) -> Result<(), PersistError> {
        self.shared.spoiled.fetch_add(1, Ordering::Relaxed);
        match lock(&self.shared.chance).below(3) {
            0 => Err(PersistError::Store {
                action: "open",
                folder: self.folder.clone(),
                cause: format!("the store panicked: {how}"),
            }),
            1 => Ok(()),
            _ => {
                if let Some(value) = self.items.values_mut().next() {
                    value.reverse();
                }
                Ok(())
            }
        }
    }

    fn find_about(&self, files: &[(String, u64)]) -> Option<About> {
        let abouts = files.iter().filter(|(name, _)| name.starts_with("about."));
        let read = abouts.filter_map(|(name, _)| About::decode(&self.bytes(name)));
        read.max_by_key(|about| about.edition)
    }

    /// Reads the items of the log until one of them is unreadable.
    fn parse(&self) -> Items {
        let log = self.bytes(&format!("log.{}", self.about.log));
        let mut rest = log.get(..self.about.used as usize).unwrap_or(&log);
        let mut items = Items::new();
        while let Some((key, value, size)) = self.item(rest) {
            items.insert(key, value);
            rest = rest.get(size..).unwrap_or(&[]);
        }
        items
    }

    fn item(&self, bytes: &[u8]) -> Option<(Vec<u8>, Vec<u8>, usize)> {
        let header = bytes.get(..HEADER_BYTES)?;
        let mut words = header.chunks(4).filter_map(word);
        let (crc, key_len, value_len) = (words.next()?, words.next()?, words.next()?);
        let value_at = HEADER_BYTES + usize::try_from(key_len).ok()?;
        let key = bytes.get(HEADER_BYTES..value_at)?;
        let size = value_at + usize::try_from(value_len & !OUTSIDE).ok()?;
        let mut value = bytes.get(value_at..size)?.to_vec();
        if value_len & OUTSIDE != 0 {
            value = self.bytes(&String::from_utf8(value).ok()?);
        }
        (sum(key, &value) == crc).then(|| (key.to_vec(), value, size))
    }

    /// Writes pending items, in parts that need not end where an item ends.
    fn flush(&mut self) -> io::Result<()> {
        let mut bytes = Vec::new();
        for key in std::mem::take(&mut self.waiting) {
            self.lay_out(&key, &mut bytes)?;
        }
        let name = self.name(&format!("log.{}", self.about.log));
        let file = self.disk.open(&name, true)?;
        while !bytes.is_empty() {
            let end = self.about.used as usize + bytes.len();
            let len = usize::try_from(file.len()?).expect("files fit in memory");
            if len < end {
                file.write_at(&vec![0; (end - len).max(GROWTH_BYTES)], len as u64)?;
            }
            let piece = 1 + lock(&self.shared.chance).index(bytes.len());
            let rest = bytes.split_off(piece);
            file.write_at(&bytes, self.about.used.into())?;
            self.about.used += u32::try_from(piece).expect("stores are small");
            bytes = rest;
        }
        Ok(())
    }

    /// Encodes an item for the log. A long value is written to a separate file.
    fn lay_out(&self, key: &[u8], bytes: &mut Vec<u8>) -> io::Result<()> {
        let value = self.items.get(key).expect("a waiting key has an item");
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("items are short");
        let (inside, outside) = if value.len() > VALUE_BYTES_MAX {
            let name =
                format!("heap/{}.{}", self.about.log, self.about.used as usize + bytes.len());
            self.write_new(&name, value)?;
            (name.into_bytes(), OUTSIDE)
        } else {
            (value.clone(), 0)
        };
        bytes.extend(sum(key, value).to_le_bytes());
        bytes.extend(len(key).to_le_bytes());
        bytes.extend((len(&inside) | outside).to_le_bytes());
        bytes.extend(key);
        bytes.extend(inside);
        Ok(())
    }

    /// Changes files when the store is opened, as after every close of a changed store. The first of two such openings
    /// moves all items to a new log.
    fn settle(&mut self) -> io::Result<()> {
        if self.about.unsettled > 1 {
            let old = self.disk.tree(&self.folder)?;
            let is_old = |name: &str| name.starts_with("log.") || name.starts_with("heap/");
            self.about.log += 1;
            self.about.used = 0;
            self.write_new(&format!("log.{}", self.about.log), &[])?;
            self.waiting = self.items.keys().cloned().collect();
            self.flush()?;
            for (name, _) in old.iter().filter(|(name, _)| is_old(name)) {
                self.disk.remove(&self.name(name))?;
            }
        }
        self.about.unsettled -= 1;
        self.write_about()
    }

    fn write_about(&mut self) -> io::Result<()> {
        let before = self.name(&format!("about.{}", self.about.edition));
        self.about.edition += 1;
        self.about.items = u32::try_from(self.items.len()).expect("stores are small");
        let name = format!("about.{}", self.about.edition);
        self.write_new(&name, &self.about.encode())?;
        match self.disk.remove(&before) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn write_new(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.disk.create(&self.name(name))?.write_at(bytes, 0)
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        self.disk.bytes(&self.name(name))
    }

    fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.folder)
    }

    fn failed(&self, action: &'static str) -> impl FnOnce(io::Error) -> PersistError + use<> {
        let file = self.folder.clone();
        move |source| PersistError::Io { action, file, source }
    }
}

impl Store for SimStore {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), PersistError> {
        self.items.insert(key.to_vec(), value.to_vec());
        self.waiting.push(key.to_vec());
        self.changed = true;
        let flushes = lock(&self.shared.chance).per_mille(400);
        if flushes {
            self.flush().map_err(self.failed("write"))?;
        }
        Ok(())
    }

    fn each(&mut self, visit: Visit<'_>) -> Result<(), PersistError> {
        self.items.iter().try_for_each(|(key, value)| visit(key, value))
    }

    fn close(mut self: Box<Self>) -> Result<(), PersistError> {
        if !self.changed {
            return Ok(());
        }
        self.flush().map_err(self.failed("flush"))?;
        self.about.unsettled =
            u32::try_from(lock(&self.shared.chance).within(1, 2)).expect("it is one or two");
        self.write_about().map_err(self.failed("close"))
    }
}

impl Drop for SimStore {
    fn drop(&mut self) {
        lock(&self.shared.open).remove(&self.folder);
    }
}

/// Marks a value as the number of a file that contains it.
const OUTSIDE: u32 = 1 << 31;

fn sum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(key), value)
}

fn word(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
