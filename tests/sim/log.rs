//! The journal thread, divided into steps: hand over a batch, write it, sync it, and report up to which entry answers may
//! be released.
//!
//! Follows `persist/journal/thread.rs` with the same writer. Each of the thread's actions is a separate step here, so
//! that a crash may happen between any two.

use crate::disk::SimDisk;
use crate::setting::{Policy, Setting};
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::format::Batch;
use sexton::persist::journal::{InlineFiller, Room, Tail, Writer};
use std::collections::VecDeque;
use std::sync::Arc;

/// The journal of a node.
pub(crate) struct Log {
    writer: Writer,
    policy: Policy,
    handed: VecDeque<Batch>,
    /// Whether something was written that must be synced before anything else is written.
    syncing: bool,
    /// The sequence number up to which answers may be released.
    pub(crate) released: Seq,
    /// The sequence number up to which a power cut removes nothing.
    pub(crate) synced: Seq,
}

impl Log {
    pub(crate) fn open(
        disk: &SimDisk,
        setting: &Setting,
        tail: &Tail,
    ) -> Result<Self, PersistError> {
        let filler = InlineFiller::new(Arc::new(disk.clone()));
        let writer = Writer::open(Arc::new(disk.clone()), setting.sizes, Box::new(filler), tail)?;
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

    /// Writes all batches that were handed over, in one write. Does nothing while the previous write still has to be
    /// synced.
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

    /// Syncs the previous write, if its answers wait for that.
    pub(crate) fn sync(&mut self) -> Result<(), PersistError> {
        if self.syncing {
            self.writer.sync()?;
            self.syncing = false;
            self.synced = self.writer.last();
            self.released = self.synced;
        }
        Ok(())
    }

    /// Handles the end of the sync interval: syncs what was written, if the policy is to sync at intervals.
    pub(crate) fn interval(&mut self) -> Result<(), PersistError> {
        if self.policy == Policy::Interval && !self.syncing && self.writer.is_dirty() {
            self.writer.sync()?;
            self.synced = self.writer.last();
        }
        Ok(())
    }

    /// Writes and syncs everything that was handed over, in order.
    pub(crate) fn drain(&mut self) -> Result<(), PersistError> {
        self.sync()?;
        self.write()?;
        self.sync()
    }

    /// Writes and syncs everything for a clean stop.
    pub(crate) fn close(&mut self) -> Result<(), PersistError> {
        self.drain()?;
        self.writer.sync()?;
        self.synced = self.writer.last();
        Ok(())
    }

    /// Prepares the next segments, and returns how much room there is for the batches that were handed over.
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
