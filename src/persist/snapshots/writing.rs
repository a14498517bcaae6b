//! The blocking side of a checkpoint, step by step: open a slot, put pages, close it, seal it, trim the journal.
//!
//! Promises: a slot whose writing fails, or is given up before the seal, is removed; segments go only once the slot is
//! sealed, and only those that neither this slot nor the other one needs. Never here: threads, and the order of the
//! steps, which is for whoever drives them.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::retention::{Trimmed, trim};
use crate::persist::snapshots::slots::Closed;
use crate::persist::snapshots::{Manifest, Page, Seal, SlotId, SlotWriter, Slots};
use std::sync::Arc;

/// What sealing came to.
#[derive(Debug)]
pub struct Sealed {
    /// The seal.
    pub seal: Seal,
    /// What the journal no longer needs to keep.
    pub trimmed: Trimmed,
}

/// A slot being written.
pub struct Writing {
    disk: Arc<dyn Disk>,
    slots: Slots,
    slot: SlotId,
    stage: Stage,
}

/// How far a slot has come.
enum Stage {
    Open(SlotWriter),
    Closed(Closed),
    Sealed(Seal),
    /// A step failed in the middle.
    Failed,
}

impl Writing {
    /// Opens a slot, its seal taken away. One that is not relied on is written afresh, also if it is as it was sealed:
    /// it did not read, or is of another log, and what is put on top of that would be no better.
    pub fn open(
        disk: Arc<dyn Disk>,
        slots: Slots,
        slot: SlotId,
        relied_on: bool,
    ) -> Result<Self, PersistError> {
        if !relied_on {
            slots.discard(slot)?;
        }
        let writer = slots.write(slot)?;
        Ok(Self {
            disk,
            slots,
            slot,
            stage: Stage::Open(writer),
        })
    }

    /// What the slot had before, unless it is written afresh.
    pub fn before(&self) -> Option<&Manifest> {
        match &self.stage {
            Stage::Open(writer) => writer.before(),
            Stage::Closed(_) | Stage::Sealed(_) | Stage::Failed => None,
        }
    }

    /// Writes pages. After an error there is nothing to be done but to end it.
    pub fn put(&mut self, pages: &[Page]) -> Result<(), PersistError> {
        let Stage::Open(writer) = &mut self.stage else {
            unreachable!("pages are put while the slot is open");
        };
        pages.iter().try_for_each(|page| writer.put(page))
    }

    /// Closes the slot, reads it back and makes it durable.
    pub fn close(&mut self, manifest: &Manifest) -> Result<(), PersistError> {
        let Stage::Open(writer) = std::mem::replace(&mut self.stage, Stage::Failed) else {
            unreachable!("a slot is open until it is closed");
        };
        self.stage = Stage::Closed(writer.close(manifest)?);
        Ok(())
    }

    /// Seals the slot, once `mark` is durable in the journal, and drops what neither it nor the other slot needs,
    /// which goes up to `older`.
    pub fn seal(&mut self, mark: Seq, older: Seq) -> Result<Sealed, PersistError> {
        let Stage::Closed(closed) = std::mem::replace(&mut self.stage, Stage::Failed) else {
            unreachable!("a slot is closed before it is sealed");
        };
        let seal = self.slots.seal(closed, mark)?;
        self.stage = Stage::Sealed(seal.clone());
        let trimmed = trim(self.disk.as_ref(), seal.manifest.begun.min(older))?;
        Ok(Sealed { seal, trimmed })
    }

    /// Lets go of the slot: its seal if it has one, else it is removed.
    pub fn end(self) -> Option<Seal> {
        let removed = match self.stage {
            Stage::Sealed(seal) => return Some(seal),
            Stage::Open(writer) => writer.abandon(),
            Stage::Closed(_) | Stage::Failed => self.slots.discard(self.slot),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "a snapshot that was given up could not be removed");
        }
        None
    }
}
