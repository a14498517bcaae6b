//! The snapshot thread: everything about a checkpoint that blocks. One thread a checkpoint, so that what the store
//! held goes with it.
//!
//! Whoever drives it gives orders and is called back when each is done; letting go of it gives the checkpoint up, and
//! with it the slot.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::retention::{Trimmed, trim};
use crate::persist::snapshots::{Manifest, Page, Seal, SlotId, SlotWriter, Slots};
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::sync::Arc;

/// How much this thread gives way to those that answer.
const NICE: i32 = 10;

/// Called on the snapshot thread when an order was carried out, or not.
pub type Done<T> = Box<dyn FnOnce(Result<T, PersistError>) + Send>;

enum Order {
    Put(Vec<Page>, Done<()>),
    Close(Manifest, Done<()>),
    Seal {
        mark: Seq,
        older: Seq,
        done: Done<Sealed>,
    },
}

/// What sealing came to.
#[derive(Debug)]
pub struct Sealed {
    /// The seal.
    pub seal: Seal,
    /// What the journal no longer needs to keep.
    pub trimmed: Trimmed,
}

/// A checkpoint being written. Dropping it before it is sealed gives it up.
pub struct SnapshotThread {
    orders: Sender<Order>,
}

impl SnapshotThread {
    /// Opens a slot for writing on a thread of its own. `opened` is told what the slot had before, if that is kept;
    /// `ended` is called at the very end, with the slot's seal if it has one.
    pub fn start(
        disk: Arc<dyn Disk>,
        slots: Slots,
        slot: SlotId,
        opened: Done<Option<Manifest>>,
        ended: Box<dyn FnOnce(Option<Seal>) + Send>,
    ) -> Result<Self, PersistError> {
        let (orders, received) = unbounded();
        std::thread::Builder::new()
            .name("sexton-snapshot".to_owned())
            .spawn(move || {
                give_way();
                let writer = match slots.write(slot) {
                    Ok(writer) => {
                        opened(Ok(writer.before().cloned()));
                        writer
                    }
                    Err(error) => {
                        opened(Err(error));
                        return ended(None);
                    }
                };
                ended(run(disk.as_ref(), &slots, writer, &received));
            })
            .map_err(PersistError::io("start a thread to write", &slot.folder()))?;
        Ok(Self { orders })
    }

    /// Writes pages.
    pub fn put(&self, pages: Vec<Page>, done: Done<()>) {
        self.order(Order::Put(pages, done));
    }

    /// Closes the slot, reads it back and makes it durable.
    pub fn close(&self, manifest: Manifest, done: Done<()>) {
        self.order(Order::Close(manifest, done));
    }

    /// Seals the slot, once `mark` is durable in the journal, and drops what neither this slot nor one of `older` needs.
    pub fn seal(&self, mark: Seq, older: Seq, done: Done<Sealed>) {
        self.order(Order::Seal { mark, older, done });
    }

    fn order(&self, order: Order) {
        // A thread that has ended has said why; its order is dropped, and whoever waits sees that.
        drop(self.orders.send(order));
    }
}

/// Carries orders out until the slot is sealed, something fails or nobody gives any more.
fn run(
    disk: &dyn Disk,
    slots: &Slots,
    mut writer: SlotWriter,
    orders: &Receiver<Order>,
) -> Option<Seal> {
    let slot = writer.slot();
    while let Ok(order) = orders.recv() {
        match order {
            Order::Put(pages, done) => {
                let put = pages.iter().try_for_each(|page| writer.put(page));
                let failed = put.is_err();
                done(put);
                if failed {
                    break;
                }
            }
            Order::Close(manifest, done) => {
                let closed = match writer.close(&manifest) {
                    Ok(closed) => {
                        done(Ok(()));
                        closed
                    }
                    Err(error) => {
                        done(Err(error));
                        give_up(slots.discard(slot));
                        return None;
                    }
                };
                let Ok(Order::Seal { mark, older, done }) = orders.recv() else {
                    give_up(slots.discard(slot));
                    return None;
                };
                let begun = manifest.begun.min(older);
                let sealed = slots.seal(closed, mark);
                let seal = sealed.as_ref().ok().cloned();
                done(sealed.and_then(|seal| {
                    let trimmed = trim(disk, begun)?;
                    Ok(Sealed { seal, trimmed })
                }));
                return seal;
            }
            Order::Seal { .. } => unreachable!("a slot is closed before it is sealed"),
        }
    }
    give_up(writer.abandon());
    None
}

/// Nothing waits for an answer any more.
fn give_up(done: Result<(), PersistError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "a snapshot that was given up could not be removed");
    }
}

/// Lets other threads go first. sled's own threads, which this one starts, do likewise.
fn give_way() {
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!(%error, "the snapshot thread keeps its priority");
    }
}
