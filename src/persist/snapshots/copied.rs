//! Stores that open a copy of a slot and never the slot itself, for inspecting a data directory that belongs to another process.
//!
//! sled writes to every store that it opens, if only a little. So a slot is copied first, and the copy is checked against the slot's seal.
//! A copy that does not match is not opened: either the slot is damaged, or a running coordinator is writing to it. The slot itself is
//! never written to.

use crate::persist::backup::copy_slot;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::snapshots::seal::{self, Seal, SealRead, sum_files};
use crate::persist::snapshots::{SlotId, Store, Stores};
use std::sync::Arc;

/// Stores that open copies of slots.
#[derive(Clone)]
pub struct CopiedStores {
    from: Arc<dyn Disk>,
    to: Arc<dyn Disk>,
    stores: Arc<dyn Stores>,
}

impl CopiedStores {
    /// Creates stores that copy slots from the disk `from` to the disk `to`. `stores` opens the copies on `to`. A copy is kept and used
    /// again until it no longer matches the slot's seal.
    pub fn new(from: Arc<dyn Disk>, to: Arc<dyn Disk>, stores: Arc<dyn Stores>) -> Self {
        Self { from, to, stores }
    }

    fn copy(&self, slot: SlotId, seal: &Seal) -> Result<(), PersistError> {
        let folder = slot.folder();
        if sum_files(self.to.as_ref(), &folder)? == seal.files {
            return Ok(());
        }
        self.to.remove_tree(&folder).map_err(PersistError::io("remove a copy of", &folder))?;
        let (from, to) = (self.from.as_ref(), self.to.as_ref());
        copy_slot(from, to, (slot, seal), &mut |_| {})
    }
}

impl Stores for CopiedStores {
    fn open(&self, folder: &str) -> Result<Box<dyn Store>, PersistError> {
        let refused = |cause: &str| PersistError::Store {
            action: "copy",
            folder: folder.to_owned(),
            cause: cause.to_owned(),
        };
        let slot = SlotId::ALL.into_iter().find(|slot| slot.folder() == folder);
        let slot = slot.ok_or_else(|| refused("it is not a snapshot"))?;
        match seal::read(self.from.as_ref(), &slot.seal())? {
            Some(SealRead::Good(seal)) => self.copy(slot, &seal)?,
            Some(SealRead::Bad | SealRead::TooNew(_)) | None => {
                return Err(refused("it is not sealed"));
            }
        }
        self.stores.open(folder)
    }
}
