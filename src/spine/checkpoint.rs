//! The node's checkpoints: when one is due, and the steps that run on the core thread. Blocking work is left to the snapshot thread. A
//! checkpoint writes the pages of every actor into one of two stores (*slots*). A slot is usable once it is *sealed*: once a record that
//! describes its complete content (the *seal*) is written.
//!
//! 1. A slot without a seal or, if both have one, the older slot is unsealed and opened.
//! 2. Each actor in turn reports its watermark (the last entry that its state includes) and sends its pages in slices, between its
//!    messages.
//! 3. The store is closed, read back and synced.
//! 4. A mark (a journal record of the node itself) records the content of the seal; once the mark is durable, so is everything before it.
//! 5. The slot is sealed. Segments that neither slot needs are removed.
//!
//! Guarantees: there is one checkpoint at a time; a crash between any two steps leaves the other slot and the journal it needs intact. If
//! a panic makes an actor's state unusable (*spent*) before all of it is copied, the checkpoint is interrupted. Whatever goes wrong on the
//! snapshot thread (an error, a panic, a step that never ends) is counted, logged, and tried again; it delays neither requests nor a stop
//! without bound.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};
use crate::persist::PersistError;
use crate::persist::journal::Room;
use crate::persist::retention::{self, History, Kept};
use crate::persist::snapshots::{
    BySlot, FOLDER, Manifest, Seal, Sealed, SlotId, Slots, SnapshotThread, Target,
};
pub use crate::spine::due::Rules;
use crate::spine::event::EventBody;
use crate::spine::ledger::{Appended, CheckpointThreshold, Ledger};
use crate::spine::recovery::Past;
use crate::spine::shared::Spine;
use sexton_api::operate::Checkpoint;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{MutexGuard, mpsc, oneshot, watch};
use tokio::time::{Instant, sleep_until};

/// The pause after a failed checkpoint, unless another is requested.
const RETRY: Duration = Duration::from_secs(10);
/// The maximum time for one step of the snapshot thread. A step may read back and sync a large snapshot.
const STEP_MAX: Duration = Duration::from_mins(10);
/// The maximum time for one step once the node is stopping, counted from the stop.
const LAST_STEP_MAX: Duration = Duration::from_secs(30);
/// The pause after an interrupted checkpoint, unless another is requested.
const PAUSE: Duration = Duration::from_millis(50);

/// Why no checkpoint was taken.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The slot could not be written, sealed or read back.
    #[error(transparent)]
    Persist(#[from] Arc<PersistError>),
    /// An actor lost its state to a panic and is being rebuilt; try again.
    #[error("write a snapshot: an actor is being rebuilt")]
    Interrupted,
    /// The node has halted or stopped.
    #[error("write a snapshot: the node has stopped")]
    Stopped,
    /// The node keeps no files.
    #[error("write a snapshot: this node keeps no files")]
    Memory,
}

/// The status of snapshots.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct SnapshotStatus {
    /// The number of checkpoints taken since startup.
    pub taken: u64,
    /// The number of checkpoints that failed since startup.
    pub failed: u64,
    /// Whether a checkpoint is being taken.
    pub running: bool,
    /// The newest checkpoint.
    pub last: Option<Checkpoint>,
    /// Why the newest attempt failed, if it did.
    pub last_failure: Option<String>,
    /// The last sequence number in each slot; `None` for a slot without a seal.
    pub slots: BySlot<Option<Seq>>,
    /// What is kept of the journal although no snapshot needs it, so that tools can show what happened.
    pub history: History,
}

/// The status of snapshots, shared with its readers.
#[derive(Clone, Default)]
pub struct SharedStatus(Arc<Mutex<SnapshotStatus>>);

impl SharedStatus {
    /// Returns the current status.
    pub fn get(&self) -> SnapshotStatus {
        self.lock().clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, SnapshotStatus> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request for a checkpoint, with the channel for its result.
pub type Request = oneshot::Sender<Result<Checkpoint, CheckpointError>>;

/// The node's checkpoints.
pub struct Checkpoints {
    spine: Rc<Spine>,
    rules: Rules,
    shown: SharedStatus,
    /// The totals appended when the newest checkpoint began.
    covered: Cell<Appended>,
    /// The size of the pages in the newest snapshot, in bytes.
    loaded: Cell<u64>,
    /// The number of entries since startup when each of the two newest checkpoints began, the older one first. While the disk is low on
    /// space, a checkpoint is due until both slots include all entries: only then do they hold nothing that has been removed, and the journal
    /// before them is not needed.
    begun: Cell<[Option<u64>; 2]>,
    /// Called on the snapshot thread after each checkpoint.
    after_each: Arc<dyn Fn() + Send + Sync>,
    /// How long a step may take, instead of [`STEP_MAX`] and [`LAST_STEP_MAX`].
    patience: Option<Duration>,
    is_stopping: watch::Sender<bool>,
    /// The end of a snapshot thread that has not finished a step in time. Until it ends, no other may use its slot.
    stuck: RefCell<Option<SnapshotEnd>>,
}

/// The channel on which a snapshot thread reports its end.
type SnapshotEnd = oneshot::Receiver<Result<Option<Seal>, String>>;

impl Checkpoints {
    /// Creates the checkpoints of a node whose recovery returned `past`.
    pub fn new(spine: Rc<Spine>, rules: Rules, past: &Past) -> Self {
        let shown = SharedStatus::default();
        shown.lock().slots = past.sealed;
        if let Some(disk) = spine.disk() {
            // It is only shown, and determined anew at the next checkpoint.
            let history = retention::history(disk.as_ref(), needed_after(past.sealed));
            shown.lock().history = history.unwrap_or_default();
        }
        let snapshot = past.snapshot.as_ref();
        Self {
            spine,
            rules,
            shown,
            covered: Cell::default(),
            loaded: Cell::new(snapshot.map_or(0, |(_, seal)| seal.bytes)),
            begun: Cell::default(),
            after_each: Arc::new(|| {}),
            patience: None,
            is_stopping: watch::Sender::new(false),
            stuck: RefCell::default(),
        }
    }

    /// Sets a function to be called on the snapshot thread after each checkpoint. It is dropped once no thread will call it again.
    #[must_use]
    pub fn and_then(self, after_each: impl Fn() + Send + Sync + 'static) -> Self {
        let after_each = Arc::new(after_each);
        Self { after_each, ..self }
    }

    /// Sets how long a step of the snapshot thread may take; `None` stands for the default.
    #[must_use]
    pub fn with_patience(self, patience: Option<Duration>) -> Self {
        Self { patience, ..self }
    }

    /// Notes that the node stops, so that a snapshot whose store does not answer delays the stop only a little.
    pub fn stopping(&self) {
        self.is_stopping.send_replace(true);
    }

    /// Waits until no task writes a slot, and prevents others from doing so until the guard is dropped. Returns `None` if the slots are
    /// still in use after the time for a step.
    pub async fn until_unused(&self) -> Option<MutexGuard<'_, ()>> {
        tokio::select! {
            biased;
            held = self.spine.hold_slots() => Some(held),
            () = self.until_overdue() => {
                tracing::warn!("stopped while a snapshot is still being read or written");
                None
            }
        }
    }

    /// Resolves when a step that begins now has taken too long.
    async fn until_overdue(&self) {
        let mut stopping = self.is_stopping.subscribe();
        let last = async {
            // The sender is part of `self`, so this does not fail.
            drop(stopping.wait_for(|stopping| *stopping).await);
            sleep_until(Instant::now() + self.patience.unwrap_or(LAST_STEP_MAX)).await;
        };
        tokio::select! {
            () = sleep_until(Instant::now() + self.patience.unwrap_or(STEP_MAX)) => {}
            () = last => {}
        }
    }

    /// Returns a handle to the status.
    pub fn shown(&self) -> SharedStatus {
        self.shown.clone()
    }

    /// Takes a checkpoint whenever one is due or requested. If `now` is true, because recovery found damage, takes the first one
    /// immediately. Returns when `requests` is closed.
    pub async fn run(&self, mut requests: mpsc::UnboundedReceiver<Request>, now: bool) {
        let mut not_before = Instant::now();
        let mut wanted = now;
        loop {
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => {
                        // One checkpoint serves all requests made before it began.
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
                    let taken = self.take().await;
                    wanted &= taken.is_err();
                    not_before = Instant::now()
                        + match taken {
                            Ok(_) => Duration::ZERO,
                            Err(CheckpointError::Interrupted) => PAUSE,
                            Err(_) => RETRY,
                        };
                }
            }
        }
    }

    /// Waits until `not_before` and then, unless a checkpoint is `wanted` in any case, until one is due.
    async fn until_due(&self, wanted: bool, not_before: Instant) {
        sleep_until(not_before).await;
        if !wanted {
            let begun = self.begun.get();
            let frees = |ledger: &Ledger| {
                begun.contains(&None)
                    || begun != [Some(ledger.counts().all()); 2]
                    || self.shown.lock().history.bytes > 0
            };
            self.spine.until_appended(self.threshold(), frees).await;
        }
    }

    fn threshold(&self) -> CheckpointThreshold {
        self.rules.threshold_after(self.covered.get(), self.loaded.get())
    }

    /// Takes a checkpoint if one is due already, because the previous run ended before it could take it. Otherwise the journal would grow
    /// with each of many short runs.
    pub async fn take_overdue(&self) {
        let is_due = self.spine.ledger().appended().is(self.threshold());
        if is_due {
            tracing::info!("taking the snapshot that is overdue");
            // A failure is logged and counted, and the next checkpoint is due at once.
            drop(self.take().await);
        }
    }

    /// Returns the totals appended since the newest checkpoint began.
    pub fn uncovered(&self) -> Appended {
        let (appended, covered) = (self.spine.ledger().appended(), self.covered.get());
        Appended {
            records: appended.records - covered.records,
            bytes: appended.bytes - covered.bytes,
        }
    }

    /// Takes a checkpoint as soon as no actor is being rebuilt and no other task is using the slots.
    pub async fn take(&self) -> Result<Checkpoint, CheckpointError> {
        let slots = self.spine.slots().ok_or(CheckpointError::Memory)?;
        // An actor that is being rebuilt reads a slot, which may be the one about to be written.
        self.spine.until_rebuilt().await;
        let held = self.spine.hold_slots().await;
        // Checked only now: the node may have stopped or halted while the slots were held elsewhere.
        if self.spine.is_over() {
            return Err(CheckpointError::Stopped);
        }
        self.shown.lock().running = true;
        let taken = if self.is_stuck() {
            let cause = "the thread of an earlier snapshot still uses its slot";
            Err(failed("write", FOLDER, cause))
        } else {
            self.take_into(slots).await
        };
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
                self.spine.publish("node", happening(taken));
            }
            Err(CheckpointError::Persist(error)) => {
                tracing::warn!(%error, "no snapshot was taken; the journal is kept");
                shown.failed += 1;
                shown.last_failure = Some(error.to_string());
            }
            Err(error) => tracing::info!(%error, "a snapshot was abandoned"),
        }
        taken
    }

    /// Returns what to write next. On a disk that is low on space, the history is removed first.
    fn target(&self) -> Target {
        let sealed = self.shown.lock().slots;
        let slot = slot_to_write(sealed);
        let is_low = self.spine.ledger().room() != Room::Ample;
        Target {
            slot,
            relied_on: sealed[slot].is_some(),
            frees: is_low.then(|| needed_after(sealed)),
        }
    }

    async fn take_into(&self, slots: Slots) -> Result<Checkpoint, CheckpointError> {
        let disk = self.spine.disk().ok_or(CheckpointError::Memory)?;
        let target = self.target();
        let slot = target.slot;
        let began = self.spine.ledger().now();
        let (appended, entries) = {
            let ledger = self.spine.ledger();
            (ledger.appended(), ledger.counts().all())
        };
        let (opened, open) = oneshot::channel();
        let (ended, end) = oneshot::channel();
        let after_each = Arc::clone(&self.after_each);
        let thread = SnapshotThread::start(
            disk,
            slots,
            target,
            Box::new(|done| drop(opened.send(done))),
            Box::new(move |seal| {
                after_each();
                drop(after_each);
                drop(ended.send(seal));
            }),
        )
        .map_err(Arc::new)?;
        self.shown.lock().slots[slot] = None;
        if target.frees.is_some() {
            // It is gone, whether or not there is room for the snapshot.
            self.shown.lock().history = History::default();
        }
        let older = self.shown.lock().slots[slot.other()];
        let steps = self.steps(thread, slot, open, older.unwrap_or_default());
        let taken = tokio::select! {
            biased;
            () = self.spine.until_halted() => Err(CheckpointError::Stopped),
            taken = steps => taken,
        };
        if taken.is_err() {
            for actor in self.spine.page_sources() {
                actor.abort();
            }
        }
        // Whatever the result, waits until the snapshot thread has released the slot, because another task may use it next.
        let seal = self.until_ended(end, slot).await;
        let begun = seal.as_ref().ok().and_then(Option::as_ref);
        self.shown.lock().slots[slot] = begun.map(|seal| seal.manifest.begun);
        // A panic of the thread is the cause of whatever else went wrong.
        seal?;
        let Sealed { seal, trimmed, history } = taken?;
        self.shown.lock().history = history;
        let at = self.spine.ledger().now();
        self.covered.set(appended);
        let [_, newer] = self.begun.get();
        self.begun.set([newer, Some(entries)]);
        self.loaded.set(seal.bytes);
        Ok(Checkpoint {
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

    /// Waits until a snapshot thread has ended, and returns the seal of its slot, if it has one. Returns an error if the thread panicked, or
    /// if it does not end in time: no other checkpoint begins before it has.
    async fn until_ended(
        &self,
        mut end: SnapshotEnd,
        slot: SlotId,
    ) -> Result<Option<Seal>, CheckpointError> {
        let ended = tokio::select! {
            biased;
            ended = &mut end => ended,
            () = self.until_overdue() => {
                *self.stuck.borrow_mut() = Some(end);
                return Err(failed("write", &slot.folder(), OVERDUE));
            }
        };
        let ended = ended.unwrap_or_else(|_| Err("its thread could not report its end".to_owned()));
        ended.map_err(|cause| failed("write", &slot.folder(), &format!("it panicked: {cause}")))
    }

    /// Returns whether the thread of an earlier checkpoint has not ended yet.
    fn is_stuck(&self) -> bool {
        let mut stuck = self.stuck.borrow_mut();
        let is_running = |end: &mut SnapshotEnd| matches!(end.try_recv(), Err(TryRecvError::Empty));
        if !stuck.as_mut().is_some_and(is_running) {
            *stuck = None;
        }
        stuck.is_some()
    }

    /// Awaits the snapshot thread's answer. There is none if the checkpoint was abandoned, or if the thread panicked.
    async fn answer<T>(
        &self,
        done: oneshot::Receiver<Result<T, PersistError>>,
        slot: SlotId,
    ) -> Result<T, CheckpointError> {
        tokio::select! {
            biased;
            done = done => match done {
                Ok(done) => Ok(done.map_err(Arc::new)?),
                Err(_) => Err(CheckpointError::Stopped),
            },
            () = self.until_overdue() => Err(failed("write", &slot.folder(), OVERDUE)),
        }
    }

    /// Returns how much of the journal is kept as history. On a disk that is low on space, it is nothing.
    fn kept(&self) -> Kept {
        let mut ledger = self.spine.ledger();
        if ledger.room() != Room::Ample {
            return Kept::default();
        }
        Kept {
            since: Timestamp(ledger.now().0.saturating_sub(self.rules.history_ms)),
            bytes_max: self.rules.history_bytes_max,
        }
    }

    /// Performs every step from opening the slot to sealing it. Dropping the future abandons the slot.
    async fn steps(
        &self,
        thread: SnapshotThread,
        slot: SlotId,
        open: oneshot::Receiver<Result<Option<Manifest>, PersistError>>,
        older: Seq,
    ) -> Result<Sealed, CheckpointError> {
        let before = self.answer(open, slot).await?.unwrap_or_default();
        let mut manifest = begin(&mut self.spine.ledger());
        for actor in self.spine.page_sources() {
            let begun = actor.begin(since(&before, actor.actor())).await;
            let state = begun.map_err(|_| CheckpointError::Stopped)?;
            manifest.states.push(state.ok_or(CheckpointError::Interrupted)?);
            loop {
                let slice = actor.next().await.map_err(|_| CheckpointError::Stopped)?;
                let (pages, done) = slice.ok_or(CheckpointError::Interrupted)?;
                let (put, written) = oneshot::channel();
                thread.put(pages, Box::new(|done| drop(put.send(done))));
                self.answer(written, slot).await?;
                if done {
                    break;
                }
            }
        }
        let states = manifest.states.clone();
        let (close, closed) = oneshot::channel();
        thread.close(manifest, Box::new(|done| drop(close.send(done))));
        self.answer(closed, slot).await?;
        let mark = self.spine.ledger().checkpoint(slot.number(), states).seq;
        self.spine.write();
        self.spine.until_durable(mark).await;
        let (seal, sealed) = oneshot::channel();
        let kept = self.kept();
        thread.seal(mark, older, kept, Box::new(|done| drop(seal.send(done))));
        self.answer(sealed, slot).await
    }
}

fn happening(taken: &Checkpoint) -> EventBody {
    EventBody::new("checkpoint")
        .text("slot", taken.slot.clone())
        .number("upto", taken.upto.0)
        .number("file_bytes", taken.file_bytes)
        .number("ms", taken.ms)
}

/// Returns the slot to write: one without a seal, or else the older one. `sealed` holds the last sequence number in each.
pub fn slot_to_write(sealed: BySlot<Option<Seq>>) -> SlotId {
    if sealed[SlotId::B] < sealed[SlotId::A] { SlotId::B } else { SlotId::A }
}

/// Returns the last entry that both slots include. `sealed` holds the last sequence number in each.
fn needed_after(sealed: BySlot<Option<Seq>>) -> Seq {
    let upto = |slot| sealed[slot].unwrap_or_default();
    upto(SlotId::A).min(upto(SlotId::B))
}

/// Returns the manifest of a checkpoint that begins now, without the states of the actors.
pub fn begin(ledger: &mut Ledger) -> Manifest {
    Manifest {
        begun: ledger.last(),
        states: Vec::new(),
        at: ledger.now(),
        reserved: ledger.reserved(),
        marked: ledger.marked().clone(),
    }
}

/// Returns the last entry that the actor's state in a slot with the manifest `before` includes; zero if the slot has no state of the actor.
pub fn since(before: &Manifest, actor: ActorId) -> Seq {
    before.state(actor).map_or(Seq(0), |state| state.upto)
}

/// What is wrong with a step that is not done in time.
const OVERDUE: &str = "the store has not answered for too long";

fn failed(action: &'static str, folder: &str, cause: &str) -> CheckpointError {
    let (folder, cause) = (folder.to_owned(), cause.to_owned());
    let error = PersistError::Store { action, folder, cause };
    CheckpointError::Persist(Arc::new(error))
}
