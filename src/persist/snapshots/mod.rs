//! Snapshots: the state of the actors up to a sequence number, so that recovery need not replay the whole journal.
//!
//! Two slots are written in turn. Each is a separate store, and is sealed when it is closed: the seal names every file with its length and
//! checksum. A slot whose seal does not match is not opened, but rewritten from scratch. The journal is kept from the state of
//! the older slot on, so losing either slot costs replay time, but never an acknowledged command.
//!
//! | file | holds |
//! |---|---|
//! | `page.rs` | conversion of pages, each with a checksum, to items of a store; the manifest |
//! | `seal.rs` | the seal, which vouches for a closed slot |
//! | `slots.rs` | inspecting, reading, writing and sealing slots |
//! | `copied.rs` | stores that open a copy, for callers that must not change a byte |
//! | `writing.rs` | the blocking side of a checkpoint, step by step |
//! | `thread.rs` | the thread on which a checkpoint is written |
//! | `sled.rs` | the store; the only file that names sled |

pub mod copied;
pub mod page;
pub mod seal;
pub mod sled;
pub mod slots;
pub mod thread;
pub mod writing;

pub use copied::CopiedStores;
pub use page::{Manifest, Page};
pub use seal::{FileCheck, Seal};
pub use sled::SledStores;
pub use slots::{Contents, SlotDetails, SlotStatus, SlotWriter, Slots};
pub use thread::SnapshotThread;
pub use writing::{Sealed, Target, Writing};

use crate::persist::error::PersistError;
use std::fmt;
use std::ops::{Index, IndexMut};

/// The folder of the slots, in the data directory.
pub const FOLDER: &str = "snapshots";

/// One of the two snapshot slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotId {
    /// The first.
    A,
    /// The second.
    B,
}

impl SlotId {
    /// Both slots.
    pub const ALL: [Self; 2] = [Self::A, Self::B];

    /// Returns the number by which marks name the slot: 0 or 1.
    pub const fn number(self) -> u8 {
        match self {
            Self::A => 0,
            Self::B => 1,
        }
    }

    /// Returns the other slot.
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }

    /// Returns the folder of the slot's store.
    pub fn folder(self) -> String {
        format!("{FOLDER}/{self}")
    }

    /// Returns the file name of the slot's seal.
    pub fn seal(self) -> String {
        format!("{FOLDER}/{self}.seal")
    }
}

/// A value for each slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[serde(transparent)]
pub struct BySlot<T>([T; 2]);

impl<T> Index<SlotId> for BySlot<T> {
    type Output = T;

    fn index(&self, slot: SlotId) -> &T {
        let [a, b] = &self.0;
        match slot {
            SlotId::A => a,
            SlotId::B => b,
        }
    }
}

impl<T> IndexMut<SlotId> for BySlot<T> {
    fn index_mut(&mut self, slot: SlotId) -> &mut T {
        let [a, b] = &mut self.0;
        match slot {
            SlotId::A => a,
            SlotId::B => b,
        }
    }
}

impl fmt::Display for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::A => "a",
            Self::B => "b",
        })
    }
}

/// Opens stores. The simulation has its own implementation.
pub trait Stores: Send + Sync {
    /// Opens the store in a folder, which is created if it does not exist. The store must not be open already.
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError>;
}

/// A function that is called with the key and value of each item in a store.
pub type Visit<'v> = &'v mut dyn FnMut(&[u8], &[u8]) -> Result<(), PersistError>;

/// An open store: items in the order of their keys.
pub trait Store {
    /// Writes an item, replacing one with the same key.
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), PersistError>;
    /// Visits all items in the order of their keys.
    fn each(&mut self, visit: Visit<'_>) -> Result<(), PersistError>;
    /// Closes the store. When this returns, its files are no longer in use, but not necessarily synced.
    fn close(self: Box<Self>) -> Result<(), PersistError>;
}
