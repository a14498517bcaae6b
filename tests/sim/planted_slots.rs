//! Faults planted in checkpoints, and the tests that show that each of them is caught.
//!
//! This code only runs with a planted fault: a run of the campaign has none.

use crate::disk::SimDisk;
use crate::node::Node;
use crate::planted::{caught, caught_as};
use crate::setting::Plant;
use crate::violation::Promise;
use sexton::ids::Seq;
use sexton::persist::disk::{Disk, DiskFile};
use sexton::persist::retention::Trimmed;
use sexton::persist::{PersistError, retention};
use sexton::spine::ledger::Ledger;
use std::io;
use std::sync::Arc;

/// Returns the disk to which snapshots are written.
pub(crate) fn disk(plant: Option<Plant>, disk: &SimDisk) -> Arc<dyn Disk> {
    match plant {
        Some(plant @ (Plant::SealBeforeSync | Plant::SealKept)) => {
            Arc::new(Careless { disk: disk.clone(), plant })
        }
        _ => Arc::new(disk.clone()),
    }
}

/// Returns the entry since which changed pages are copied: with the fault, the last one.
pub(crate) fn since(plant: Option<Plant>, since: Seq, ledger: &Ledger) -> Seq {
    match plant {
        Some(Plant::LeftOut) if since > Seq(0) => ledger.last(),
        _ => since,
    }
}

/// Returns the entry up to which the older slot is believed to contain the state: with the fault, the whole log.
pub(crate) fn older(plant: Option<Plant>, older: Seq) -> Seq {
    match plant {
        Some(Plant::TrimToNewer) => Seq(u64::MAX),
        _ => older,
    }
}

/// Removes the segments that are not needed with the slot being written, although that slot is not sealed yet.
pub(crate) fn trim(node: &Node, begun: Seq) -> Result<Trimmed, PersistError> {
    retention::trim(node.snapshots_disk().as_ref(), begun)
}

/// A disk for snapshots that omits some of its calls.
struct Careless {
    disk: SimDisk,
    plant: Plant,
}

impl Disk for Careless {
    fn list(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.disk.list(folder)
    }

    fn create_folder(&self, folder: &str) -> io::Result<()> {
        self.disk.create_folder(folder)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn DiskFile>> {
        self.disk.create(name)
    }

    fn open(&self, name: &str, write: bool) -> io::Result<Box<dyn DiskFile>> {
        self.disk.open(name, write)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        if self.plant == Plant::SealKept {
            return Ok(());
        }
        self.disk.remove(name)
    }

    fn sync_folder(&self, folder: &str) -> io::Result<()> {
        self.disk.sync_folder(folder)
    }

    fn tree(&self, folder: &str) -> io::Result<Vec<(String, u64)>> {
        self.disk.tree(folder)
    }

    fn remove_tree(&self, folder: &str) -> io::Result<()> {
        self.disk.remove_tree(folder)
    }

    fn sync_tree(&self, folder: &str) -> io::Result<()> {
        if self.plant == Plant::SealBeforeSync {
            return Ok(());
        }
        self.disk.sync_tree(folder)
    }
}

#[test]
fn a_trim_before_the_seal_is_caught() {
    // The removed segments were still needed, and neither slot contains their changes. A failed startup, a failed check
    // of a single slot, or lost data may be reported first.
    caught(Plant::TrimBeforeSeal, &[Promise::Starts, Promise::Spare, Promise::Kept], 40);
}

#[test]
fn a_trim_up_to_the_newer_slot_is_caught() {
    // The newer slot does not replace the segments that the older slot needs. This is found when the older slot is
    // checked alone, or when the newer one is damaged.
    caught(Plant::TrimToNewer, &[Promise::Spare, Promise::DamageNamed], 160);
}

#[test]
fn a_seal_before_the_files_are_synced_is_caught() {
    // If both slots were lost in this way, the node cannot start.
    let others = [Promise::Starts];
    caught_as(Plant::SealBeforeSync, Promise::Sealed, &others, 120);
}

#[test]
fn a_seal_before_its_mark_is_durable_is_caught() {
    caught(Plant::SealBeforeMark, &[Promise::Starts], 240);
}

#[test]
fn a_seal_that_stands_while_its_slot_is_written_is_caught() {
    // This disk does not remove anything, not even segments. If no slot was damaged, the left-over segments are found at
    // the end.
    caught(Plant::SealKept, &[Promise::Sealed, Promise::NoLeak], 40);
}

#[test]
fn a_page_copied_after_it_changed_is_caught() {
    // Pages that contradict each other make a slot unreadable, which the check of each slot alone may find first.
    caught_as(Plant::CopiedLate, Promise::Sealed, &[Promise::Spare], 40);
}

#[test]
fn a_changed_page_that_is_left_out_is_caught() {
    // The check of the snapshot finds it, or a startup that has no other slot.
    caught(Plant::LeftOut, &[Promise::Sealed, Promise::Starts], 40);
}
