//! The node's checkpoints: when one is due, and its steps, on the core; what blocks is the snapshot thread's.
//!
//! 1. The slot that is older, or has none, is unsealed and opened.
//! 2. One actor after the other says what its state is and hands over its pages in slices, between its messages.
//! 3. The store is closed, read back and synced.
//! 4. A mark in the journal says what the slot will be sealed with; it is durable, and with it all that came before.
//! 5. The slot is sealed. Segments that neither slot needs go.
//!
//! Promises: one at a time; a crash between any two steps leaves the other slot and the journal it needs as they were.
//! An actor whose state is spent before all of it was copied interrupts the checkpoint.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};
use crate::persist::PersistError;
use crate::persist::mark::Watermark;
use crate::persist::snapshots::{
    BySlot, Manifest, Page, Seal, Sealed, SlotId, Slots, SnapshotThread,
};
use crate::spine::event::Happening;
use crate::spine::ledger::{Appended, Enough, Ledger};
use crate::spine::recovery::Past;
use crate::spine::shared::Spine;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep_until};

/// How long a failed one is not tried again, but when asked for.
const RETRY: Duration = Duration::from_secs(10);
/// The same for one that was given up.
const PAUSE: Duration = Duration::from_millis(50);

/// When a checkpoint is due: when a start would have much to repeat, also beside what it has to load. Then the work of
/// checkpoints stays in proportion to that of the journal, however large the state is.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// After so many entries since the last,
    pub records: u64,
    /// or so many bytes of the journal since the last,
    pub bytes: u64,
    /// but not before these bytes are so many hundredths of what the newest snapshot holds.
    pub growth_percent: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            records: 200_000,
            bytes: 64 << 20,
            growth_percent: 100,
        }
    }
}

impl Rules {
    /// What must have been appended in all, if a snapshot of so many bytes covers this much.
    fn enough_after(&self, covered: Appended, loaded: u64) -> Enough {
        let share = u128::from(loaded) * u128::from(self.growth_percent);
        let share = u64::try_from(share.div_ceil(100)).unwrap_or(u64::MAX);
        Enough {
            records: covered.records.saturating_add(self.records),
            bytes: covered.bytes.saturating_add(self.bytes),
            bytes_min: covered.bytes.saturating_add(share),
        }
    }

    /// After so many entries, whatever there is.
    pub fn every(records: u64) -> Self {
        Self {
            records,
            growth_percent: 0,
            ..Self::default()
        }
    }
}

/// An actor whose pages can be asked for. What it is asked, it answers among its messages; a lost answer means that it
/// has ended.
pub trait Paged {
    /// Which.
    fn actor(&self) -> ActorId;
    /// Begins a checkpoint of what changed after `since`.
    fn begin(&self, since: Seq) -> oneshot::Receiver<Option<Watermark>>;
    /// The next slice.
    fn next(&self) -> oneshot::Receiver<Option<(Vec<Page>, bool)>>;
    /// Gives it up.
    fn abort(&self);
}

/// Why there was no checkpoint.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The slot could not be written, sealed or read back.
    #[error(transparent)]
    Persist(#[from] Arc<PersistError>),
    /// An actor lost its state to a panic and is being rebuilt; ask again.
    #[error("write a snapshot: an actor is being rebuilt")]
    Interrupted,
    /// The node has halted or stopped.
    #[error("write a snapshot: the node has stopped")]
    Stopped,
    /// There is nowhere to write it to.
    #[error("write a snapshot: this node keeps no files")]
    Memory,
}

/// What a checkpoint came to.
#[cfg_attr(
    feature = "http",
    derive(schemars::JsonSchema),
    schemars(rename = "Checkpoint", extend("x-open" = true))
)]
#[derive(Clone, Debug, serde::Serialize)]
pub struct Taken {
    /// The slot that was written.
    pub slot: String,
    /// Every entry up to here is in it.
    pub upto: Seq,
    /// Pages in the slot.
    pub pages: u64,
    /// Bytes of their content.
    pub bytes: u64,
    /// Bytes of its files.
    pub file_bytes: u64,
    /// When it was sealed, in node time.
    pub at: Timestamp,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Journal segments that were dropped afterwards.
    pub segments_dropped: u64,
}

/// What is known of snapshots, for the status.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SnapshotStatus {
    /// Checkpoints that were taken since the start.
    pub taken: u64,
    /// Checkpoints that failed since the start.
    pub failed: u64,
    /// Whether one is being taken.
    pub running: bool,
    /// The newest.
    pub last: Option<Taken>,
    /// Why the newest failed, if it did.
    pub last_failure: Option<String>,
    /// Up to where each sealed slot goes.
    pub slots: BySlot<Option<Seq>>,
}

/// The status, shared with whoever shows it.
#[derive(Clone, Default)]
pub struct Shown(Arc<Mutex<SnapshotStatus>>);

impl Shown {
    /// What is known now.
    pub fn get(&self) -> SnapshotStatus {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, SnapshotStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks for a checkpoint, and waits for it.
pub type Request = oneshot::Sender<Result<Taken, CheckpointError>>;

/// The node's checkpoints.
pub struct Checkpoints {
    spine: Rc<Spine>,
    rules: Rules,
    shown: Shown,
    /// What had been appended when the newest was begun.
    covered: Cell<Appended>,
    /// Bytes of pages in the newest snapshot.
    loaded: Cell<u64>,
    /// Called on the thread of each behind it.
    behind: Option<fn()>,
}

impl Checkpoints {
    /// Checkpoints of this node, after a start that found this.
    pub fn new(spine: Rc<Spine>, rules: Rules, past: &Past) -> Self {
        let shown = Shown::default();
        shown.lock().slots = past.sealed;
        let snapshot = past.snapshot.as_ref();
        Self {
            spine,
            rules,
            shown,
            covered: Cell::default(),
            loaded: Cell::new(snapshot.map_or(0, |(_, seal)| seal.bytes)),
            behind: None,
        }
    }

    /// The same, with something to be called on the thread of each behind it.
    #[must_use]
    pub fn and_then(self, behind: Option<fn()>) -> Self {
        Self { behind, ..self }
    }

    /// What is known of them.
    pub fn shown(&self) -> Shown {
        self.shown.clone()
    }

    /// Takes one whenever it is due or asked for. `now` is for a start that found something wrong with a slot.
    pub async fn run(&self, mut requests: mpsc::UnboundedReceiver<Request>, now: bool) {
        let mut not_before = Instant::now();
        let mut wanted = now;
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => {
                        // One does for all who asked before it began.
                        let mut waiting = vec![request];
                        waiting.extend(std::iter::from_fn(|| requests.try_recv().ok()));
                        let taken = self.take().await;
                        for request in waiting {
                            drop(request.send(taken.clone()));
                        }
                    }
                    None => return,
                },
                () = self.until_due(wanted, not_before) => {
                    wanted = false;
                    not_before = Instant::now()
                        + match self.take().await {
                            Ok(_) => Duration::ZERO,
                            Err(CheckpointError::Interrupted) => PAUSE,
                            Err(_) => RETRY,
                        };
                }
            }
        }
    }

    /// Waits until a start would have much to repeat, or only until it may be tried, if one is wanted anyway.
    async fn until_due(&self, wanted: bool, not_before: Instant) {
        sleep_until(not_before).await;
        if !wanted {
            let enough = self
                .rules
                .enough_after(self.covered.get(), self.loaded.get());
            self.spine.until_appended(enough).await;
        }
    }

    /// What was appended since the newest was begun.
    pub fn uncovered(&self) -> Appended {
        let (appended, covered) = (self.spine.ledger().appended(), self.covered.get());
        Appended {
            records: appended.records - covered.records,
            bytes: appended.bytes - covered.bytes,
        }
    }

    /// Takes one now.
    pub async fn take(&self) -> Result<Taken, CheckpointError> {
        let slots = self.spine.slots().ok_or(CheckpointError::Memory)?;
        // Who is being rebuilt reads a slot, perhaps the one that would be written.
        self.spine.until_rebuilt().await;
        let held = self.spine.hold_slots().await;
        // Not before: whoever held the slots may have been the end.
        if self.spine.is_over() {
            return Err(CheckpointError::Stopped);
        }
        self.shown.lock().running = true;
        let taken = self.take_into(slots).await;
        drop(held);
        let mut shown = self.shown.lock();
        shown.running = false;
        match &taken {
            Ok(taken) => {
                tracing::info!(
                    slot = taken.slot,
                    upto = taken.upto.0,
                    pages = taken.pages,
                    ms = taken.ms,
                    "took a snapshot"
                );
                shown.taken += 1;
                shown.last = Some(taken.clone());
                shown.last_failure = None;
                self.spine.happened("node", happening(taken));
            }
            Err(CheckpointError::Persist(error)) => {
                tracing::warn!(%error, "no snapshot was taken; the journal is kept");
                shown.failed += 1;
                shown.last_failure = Some(error.to_string());
            }
            Err(error) => tracing::info!(%error, "a snapshot was given up"),
        }
        taken
    }

    async fn take_into(&self, slots: Slots) -> Result<Taken, CheckpointError> {
        let disk = self.spine.disk().ok_or(CheckpointError::Memory)?;
        let sealed = self.shown.lock().slots;
        let slot = slot_to_write(sealed);
        let began = self.spine.ledger().now();
        let appended = self.spine.ledger().appended();
        let (opened, open) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let behind = self.behind;
        let thread = SnapshotThread::start(
            disk,
            slots,
            (slot, sealed[slot].is_some()),
            Box::new(|done| drop(opened.send(done))),
            Box::new(move |seal| {
                if let Some(behind) = behind {
                    behind();
                }
                drop(ended.send(seal));
            }),
        )
        .map_err(Arc::new)?;
        self.shown.lock().slots[slot] = None;
        let older = self.shown.lock().slots[slot.other()];
        let steps = self.steps(thread, slot, open, older.unwrap_or_default());
        let taken = tokio::select! {
            biased;
            () = self.spine.until_halted() => Err(CheckpointError::Stopped),
            taken = steps => taken,
        };
        if taken.is_err() {
            for actor in self.spine.paged() {
                actor.abort();
            }
        }
        // Whatever came of it, the slot is let go of before anybody else may have it.
        let seal: Option<Seal> = end.await.unwrap_or_default();
        self.shown.lock().slots[slot] = seal.map(|seal| seal.manifest.begun);
        let Sealed { seal, trimmed } = taken?;
        let at = self.spine.ledger().now();
        self.covered.set(appended);
        self.loaded.set(seal.bytes);
        Ok(Taken {
            slot: slot.to_string(),
            upto: seal.manifest.begun,
            pages: seal.pages,
            bytes: seal.bytes,
            file_bytes: seal.file_bytes(),
            at,
            ms: at.0.saturating_sub(began.0),
            segments_dropped: trimmed.segments,
        })
    }

    /// Everything from the open slot to the sealed one. Dropping it gives the slot up.
    async fn steps(
        &self,
        thread: SnapshotThread,
        slot: SlotId,
        open: oneshot::Receiver<Result<Option<Manifest>, PersistError>>,
        older: Seq,
    ) -> Result<Sealed, CheckpointError> {
        let before = answer(open).await?.unwrap_or_default();
        let mut manifest = begin(&mut self.spine.ledger());
        for actor in self.spine.paged() {
            let begun = actor.begin(since(&before, actor.actor())).await;
            let state = begun.map_err(|_| CheckpointError::Stopped)?;
            manifest
                .states
                .push(state.ok_or(CheckpointError::Interrupted)?);
            loop {
                let slice = actor.next().await.map_err(|_| CheckpointError::Stopped)?;
                let (pages, done) = slice.ok_or(CheckpointError::Interrupted)?;
                let (put, written) = oneshot::channel();
                thread.put(pages, Box::new(|done| drop(put.send(done))));
                answer(written).await?;
                if done {
                    break;
                }
            }
        }
        let states = manifest.states.clone();
        let (close, closed) = oneshot::channel();
        thread.close(manifest, Box::new(|done| drop(close.send(done))));
        answer(closed).await?;
        let mark = self.spine.ledger().checkpoint(slot.number(), states).seq;
        self.spine.write();
        self.spine.until_durable(mark).await;
        let (seal, sealed) = oneshot::channel();
        thread.seal(mark, older, Box::new(|done| drop(seal.send(done))));
        answer(sealed).await
    }
}

fn happening(taken: &Taken) -> Happening {
    Happening::new("checkpoint")
        .text("slot", taken.slot.clone())
        .number("upto", taken.upto.0)
        .number("file_bytes", taken.file_bytes)
        .number("ms", taken.ms)
}

/// The slot to write: one without a seal, else the older. `sealed` says up to where each goes.
pub fn slot_to_write(sealed: BySlot<Option<Seq>>) -> SlotId {
    if sealed[SlotId::B] < sealed[SlotId::A] {
        SlotId::B
    } else {
        SlotId::A
    }
}

/// A manifest without any state yet: the checkpoint begins here.
pub fn begin(ledger: &mut Ledger) -> Manifest {
    Manifest {
        begun: ledger.last(),
        states: Vec::new(),
        at: ledger.now(),
        reserved: ledger.reserved(),
        marked: ledger.marked().clone(),
    }
}

/// Which of an actor's changes a slot lacks that holds `before`: those of entries behind this one.
pub fn since(before: &Manifest, actor: ActorId) -> Seq {
    before.state(actor).map_or(Seq(0), |state| state.upto)
}

/// What the snapshot thread answered. It never goes without: an answer that is lost was not waited for.
async fn answer<T>(done: oneshot::Receiver<Result<T, PersistError>>) -> Result<T, CheckpointError> {
    match done.await {
        Ok(done) => Ok(done.map_err(Arc::new)?),
        Err(_) => Err(CheckpointError::Stopped),
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;
    use crate::spine::ledger::Appended;

    #[test]
    fn a_checkpoint_is_due_after_many_records_or_bytes_that_are_much_beside_the_snapshot() {
        let rules = Rules {
            records: 100,
            bytes: 1_000,
            growth_percent: 50,
        };
        let covered = Appended {
            records: 10,
            bytes: 200,
        };
        // Of 401 bytes that are loaded, half is 201.
        let enough = rules.enough_after(covered, 401);
        let due = |records, bytes| Appended { records, bytes }.is(enough);
        assert!(!due(10, 200), "nothing since");
        assert!(!due(109, 1_199), "one short of both");
        assert!(due(110, 401) && due(20, 1_200));
        assert!(!due(110, 400), "little beside what is loaded");
        assert!(rules.enough_after(covered, u64::MAX).bytes_min > u64::MAX / 2);
    }
}
