//! The blocking side of a checkpoint, step by step: open a slot, put pages, close it, seal it, trim the journal.
//!
//! Guarantees: a slot whose writing fails, or is abandoned before it is sealed, is removed; segments that the slot's former content needs are
//! removed only once the slot is sealed, and only those needed by neither this slot nor the other one. The caller provides the thread and the
//! order of the steps.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::retention::{self, History, Kept, Trimmed, trim, trim_but};
use crate::persist::snapshots::slots::Closed;
use crate::persist::snapshots::{Manifest, Page, Seal, SlotId, SlotWriter, Slots};
use std::sync::Arc;

/// The result of sealing a slot.
#[derive(Debug)]
pub struct Sealed {
    /// The seal.
    pub seal: Seal,
    /// The journal segments that were removed.
    pub trimmed: Trimmed,
    /// What is left of the journal beyond what the snapshots need.
    pub history: History,
}

/// What to write a slot for.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The slot.
    pub slot: SlotId,
    /// Whether the slot's content may be reused. If not, it was unreadable, or belongs to another log.
    pub relied_on: bool,
    /// If the disk is low on space: the last entry that both slots cover. The journal that neither needs is removed first, because writing a
    /// slot takes space, too.
    pub frees: Option<Seq>,
}

/// A slot being written.
pub struct Writing {
    disk: Arc<dyn Disk>,
    slots: Slots,
    slot: SlotId,
    stage: Stage,
}

/// The stages of writing a slot.
enum Stage {
    Open(SlotWriter),
    Closed(Closed),
    Sealed(Seal),
    /// A step failed.
    Failed,
}

impl Writing {
    /// Removes a slot's seal and opens the slot for writing. A slot that is not relied on is rewritten from scratch even if it matches its
    /// seal.
    pub fn open(
        disk: Arc<dyn Disk>,
        slots: Slots,
        Target { slot, relied_on, frees }: Target,
    ) -> Result<Self, PersistError> {
        if let Some(upto) = frees {
            trim(disk.as_ref(), upto)?;
        }
        if !relied_on {
            slots.discard(slot)?;
        }
        let writer = slots.write(slot)?;
        Ok(Self { disk, slots, slot, stage: Stage::Open(writer) })
    }

    /// Returns the slot's previous manifest. Returns `None` if the slot is being rewritten from scratch, or is no longer open.
    pub fn before(&self) -> Option<&Manifest> {
        match &self.stage {
            Stage::Open(writer) => writer.before(),
            Stage::Closed(_) | Stage::Sealed(_) | Stage::Failed => None,
        }
    }

    /// Writes pages. After an error, only [`end`](Self::end) may follow.
    pub fn put(&mut self, pages: &[Page]) -> Result<(), PersistError> {
        let Stage::Open(writer) = &mut self.stage else {
            unreachable!("pages are put while the slot is open");
        };
        pages.iter().try_for_each(|page| writer.put(page))
    }

    /// Writes the manifest, closes the slot, reads it back and makes it durable.
    pub fn close(&mut self, manifest: &Manifest) -> Result<(), PersistError> {
        let Stage::Open(writer) = std::mem::replace(&mut self.stage, Stage::Failed) else {
            unreachable!("a slot is closed only once, and only if no step has failed");
        };
        self.stage = Stage::Closed(writer.close(manifest)?);
        Ok(())
    }

    /// Seals the slot, and removes the journal segments that neither this slot nor the other one needs, except for those `kept`. `older` is
    /// the last entry that the other slot covers. `mark` must be durable in the journal.
    pub fn seal(&mut self, mark: Seq, older: Seq, kept: Kept) -> Result<Sealed, PersistError> {
        let Stage::Closed(closed) = std::mem::replace(&mut self.stage, Stage::Failed) else {
            unreachable!("a slot is closed before it is sealed");
        };
        let seal = self.slots.seal(closed, mark)?;
        self.stage = Stage::Sealed(seal.clone());
        let upto = seal.manifest.begun.min(older);
        let trimmed = trim_but(self.disk.as_ref(), upto, kept)?;
        let history = retention::history(self.disk.as_ref(), upto)?;
        Ok(Sealed { seal, trimmed, history })
    }

    /// Finishes the write. Returns the seal if the slot was sealed; otherwise removes everything in the slot, and returns `None`.
    pub fn end(self) -> Option<Seal> {
        let removed = match self.stage {
            Stage::Sealed(seal) => return Some(seal),
            Stage::Open(writer) => writer.abandon(),
            Stage::Closed(_) | Stage::Failed => self.slots.discard(self.slot),
        };
        if let Err(error) = removed {
            tracing::warn!(%error, "failed to remove an abandoned snapshot");
        }
        None
    }
}
