//! The snapshot thread, which carries out the blocking steps of a checkpoint. There is one thread per checkpoint, so that the memory of the
//! store is released when the thread exits.
//!
//! The caller sends orders, each with a callback that is called when the order is done. Dropping the handle before the slot is sealed
//! abandons the checkpoint, and removes everything in the slot.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::retention::Kept;
use crate::persist::snapshots::{Manifest, Page, Seal, Sealed, Slots, Target, Writing};
use crate::thread;
use crossbeam_channel::{Sender, unbounded};
use std::sync::Arc;

/// The niceness of this thread, so that threads that answer clients go first.
const NICE: i32 = 10;

/// Called on the snapshot thread with the result of an order.
pub type Completion<T> = Box<dyn FnOnce(Result<T, PersistError>) + Send>;

enum Order {
    Put(Vec<Page>, Completion<()>),
    Close(Manifest, Completion<()>),
    Seal { mark: Seq, older: Seq, kept: Kept, done: Completion<Sealed> },
}

/// A checkpoint being written. Dropping it before it is sealed abandons it.
pub struct SnapshotThread {
    orders: Sender<Order>,
}

impl SnapshotThread {
    /// Starts a thread that opens a slot for writing (see [`Writing::open`]). Returns an error if the thread cannot be started.
    ///
    /// The thread calls `opened` with the slot's previous manifest, with `None` if the slot is written from scratch, or with an error if
    /// opening failed. When about to exit, it calls `ended` with the slot's seal, with `None` if the slot was not sealed, or with the message
    /// of the panic if it panicked; orders may then be left without an answer.
    pub fn start(
        disk: Arc<dyn Disk>,
        slots: Slots,
        target: Target,
        opened: Completion<Option<Manifest>>,
        ended: Box<dyn FnOnce(Result<Option<Seal>, String>) + Send>,
    ) -> Result<Self, PersistError> {
        let (orders, received) = unbounded();
        let run = move || {
            lower_priority();
            let mut writing = match Writing::open(disk, slots, target) {
                Ok(writing) => {
                    opened(Ok(writing.before().cloned()));
                    writing
                }
                Err(error) => {
                    opened(Err(error));
                    return None;
                }
            };
            while received.recv().is_ok_and(|order| carry_out(&mut writing, order)) {}
            writing.end()
        };
        thread::start("sexton-snapshot", run, ended)
            .map_err(PersistError::io("start a thread to write", &target.slot.folder()))?;
        Ok(Self { orders })
    }

    /// Writes pages.
    pub fn put(&self, pages: Vec<Page>, done: Completion<()>) {
        self.order(Order::Put(pages, done));
    }

    /// Writes the manifest, closes the slot, reads it back and makes it durable.
    pub fn close(&self, manifest: Manifest, done: Completion<()>) {
        self.order(Order::Close(manifest, done));
    }

    /// Seals the slot, and removes the journal segments that neither this slot nor the other one needs, except for those `kept`. `older` is
    /// the last entry that the other slot covers. `mark` must be durable in the journal.
    pub fn seal(&self, mark: Seq, older: Seq, kept: Kept, done: Completion<Sealed>) {
        self.order(Order::Seal { mark, older, kept, done });
    }

    fn order(&self, order: Order) {
        // If the thread has exited, it has reported the reason. The order is then dropped with its callback, which the caller detects.
        drop(self.orders.send(order));
    }
}

/// Carries out an order. Returns whether another order may follow it.
fn carry_out(writing: &mut Writing, order: Order) -> bool {
    match order {
        Order::Put(pages, done) => complete(done, writing.put(&pages)),
        Order::Close(manifest, done) => complete(done, writing.close(&manifest)),
        Order::Seal { mark, older, kept, done } => {
            done(writing.seal(mark, older, kept));
            false
        }
    }
}

/// Reports the result of an order, and returns whether it succeeded.
fn complete(done: Completion<()>, came: Result<(), PersistError>) -> bool {
    let carried_out = came.is_ok();
    done(came);
    carried_out
}

/// Lowers the priority of the calling thread. Threads that it starts, such as those of sled, inherit this.
pub(crate) fn lower_priority() {
    if let Err(error) = rustix::process::nice(NICE) {
        tracing::debug!(%error, "failed to lower the priority of a thread");
    }
}
