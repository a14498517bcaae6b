//! The journal thread, divided into steps: hand over, write, sync, report how far answers may be released.
//!
//! Follows `persist/journal/thread.rs` with the same writer, but each of its moves is a separate step, so that a crash may
//! fall between any two.

use crate::disk::SimDisk;
use crate::setting::{Policy, Setting};
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::format::Batch;
use sexton::persist::journal::{InlineFiller, Room, Tail, Writer};
use std::collections::VecDeque;
use std::sync::Arc;

/// The journal as a node has it.
pub(crate) struct Log {
    writer: Writer,
    policy: Policy,
    handed: VecDeque<Batch>,
    /// Whether something was written that must be synced before anything else is written.
    syncing: bool,
    /// The number up to which answers may be released.
    pub(crate) released: Seq,
    /// The number up to which a power cut removes nothing.
    pub(crate) synced: Seq,
}

impl Log {
    pub(crate) fn open(
        disk: &SimDisk,
        setting: &Setting,
        tail: &Tail,
    ) -> Result<Self, PersistError> {
        let filler = InlineFiller::new(Arc::new(disk.clone()));
        let writer = Writer::open(
            Arc::new(disk.clone()),
            setting.sizes,
            Box::new(filler),
            tail,
        )?;
        Ok(Self {
            writer,
            policy: setting.policy,
            handed: VecDeque::new(),
            syncing: false,
            released: tail.last,
            synced: Seq(0),
        })
    }

    pub(crate) fn hand(&mut self, batch: Batch) {
        if !batch.is_empty() {
            self.handed.push_back(batch);
        }
    }

    /// Writes the batch that was handed over, in one write, unless the last one is still being synced.
    pub(crate) fn write(&mut self) -> Result<(), PersistError> {
        if self.syncing {
            return Ok(());
        }
        let Some(mut batch) = self.handed.pop_front() else {
            return Ok(());
        };
        for later in self.handed.drain(..) {
            batch.merge(&later);
        }
        self.writer.write(&mut batch)?;
        if self.policy == Policy::Always || batch.is_urgent() {
            self.syncing = true;
        } else {
            self.released = self.writer.last();
        }
        Ok(())
    }

    /// Syncs what must be synced.
    pub(crate) fn sync(&mut self) -> Result<(), PersistError> {
        if self.syncing {
            self.writer.sync()?;
            self.syncing = false;
            self.synced = self.writer.last();
            self.released = self.synced;
        }
        Ok(())
    }

    /// Handles the end of the sync interval.
    pub(crate) fn interval(&mut self) -> Result<(), PersistError> {
        if self.policy == Policy::Interval && !self.syncing && self.writer.is_dirty() {
            self.writer.sync()?;
            self.synced = self.writer.last();
        }
        Ok(())
    }

    /// Does everything that is left, in order.
    pub(crate) fn drain(&mut self) -> Result<(), PersistError> {
        self.sync()?;
        self.write()?;
        self.sync()
    }

    /// Makes the last sync of a clean stop.
    pub(crate) fn close(&mut self) -> Result<(), PersistError> {
        self.drain()?;
        self.writer.sync()?;
        self.synced = self.writer.last();
        Ok(())
    }

    /// Checks the free space of the disk.
    pub(crate) fn look(&mut self) -> Room {
        self.writer.refill();
        let waiting = self.handed.iter().map(|batch| batch.len() as u64).sum();
        self.writer.room(waiting)
    }

    pub(crate) fn is_unsynced(&self) -> bool {
        self.writer.is_dirty()
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.syncing || !self.handed.is_empty()
    }
}
