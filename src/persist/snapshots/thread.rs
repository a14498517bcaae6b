//! The snapshot thread: carries out what of a checkpoint blocks. One thread a checkpoint, so that what the store held
//! goes with it.
//!
//! Whoever drives it gives orders and is called back when each is done; letting go of it gives the checkpoint up, and
//! with it the slot.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::snapshots::{Manifest, Page, Seal, Sealed, SlotId, Slots, Writing};
use crossbeam_channel::{Sender, unbounded};
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

/// A checkpoint being written. Dropping it before it is sealed gives it up.
pub struct SnapshotThread {
    orders: Sender<Order>,
}

impl SnapshotThread {
    /// Opens a slot for writing on a thread of its own, afresh if it was not `relied_on`. `opened` is told what the slot had before, if that is kept;
    /// `ended` is called at the very end, with the slot's seal if it has one.
    pub fn start(
        disk: Arc<dyn Disk>,
        slots: Slots,
        (slot, relied_on): (SlotId, bool),
        opened: Done<Option<Manifest>>,
        ended: Box<dyn FnOnce(Option<Seal>) + Send>,
    ) -> Result<Self, PersistError> {
        let (orders, received) = unbounded();
        std::thread::Builder::new()
            .name("sexton-snapshot".to_owned())
            .spawn(move || {
                give_way();
                let mut writing = match Writing::open(disk, slots, slot, relied_on) {
                    Ok(writing) => {
                        opened(Ok(writing.before().cloned()));
                        writing
                    }
                    Err(error) => {
                        opened(Err(error));
                        return ended(None);
                    }
                };
                while received
                    .recv()
                    .is_ok_and(|order| carry_out(&mut writing, order))
                {}
                ended(writing.end());
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

/// Carries an order out. False if there is nothing to be done after it.
fn carry_out(writing: &mut Writing, order: Order) -> bool {
    match order {
        Order::Put(pages, done) => tell(done, writing.put(&pages)),
        Order::Close(manifest, done) => tell(done, writing.close(&manifest)),
        Order::Seal { mark, older, done } => {
            done(writing.seal(mark, older));
            false
        }
    }
}

/// Says what came of an order, and whether it was carried out.
fn tell(done: Done<()>, came: Result<(), PersistError>) -> bool {
    let carried_out = came.is_ok();
    done(came);
    carried_out
}

/// Lets other threads go first. sled's own threads, which this one starts, do likewise.
pub(crate) fn give_way() {
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!(%error, "a thread keeps its priority");
    }
}
