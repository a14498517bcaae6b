//! Group commit: one write and one sync for every command that waits.
//!
//! The core hands over batches and never blocks; a thread writes all that has come since its last sync, syncs once,
//! and says up to where the log can be relied on. When nothing is on its way, the core may write and sync in place,
//! which saves a quiet connection two hand-overs between threads. What waits is bounded by the directory: nobody
//! may have more commands open than it allows, and an open command is at most one record.

use crate::ids::Seq;
use crate::persist::error::PersistError;
use crate::persist::format::Batch;
use crate::persist::journal::writer::{Room, Writer};
use crossbeam_channel::{Receiver, Sender, select_biased, tick, unbounded};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the thread looks whether a full disk has space again.
const LOOK: Duration = Duration::from_millis(250);

/// A disk that syncs slower than this is not waited for on the core: there the two hand-overs do not matter, while
/// everybody else would wait too.
const SLOW_SYNC: Duration = Duration::from_millis(1);

/// When what was acknowledged is on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fsync {
    /// Before the answer.
    #[default]
    Always,
    /// At most this long after it: a power cut may take that much, a crash of the process nothing.
    Interval(Duration),
    /// When the operating system likes.
    Never,
}

/// The log as the core sees it. Cloning gives another handle on the same log.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
    batches: Sender<Batch>,
}

/// Waits for the thread's end, and for the last sync with it.
pub struct JournalThread {
    shared: Arc<Shared>,
    batches: Sender<Batch>,
    thread: JoinHandle<()>,
}

struct Shared {
    fsync: Fsync,
    /// Nothing once the thread has ended: what a `Journal` outlives has no file open, and no thread that fills one.
    writer: Mutex<Option<Writer>>,
    /// Batches handed over and not yet written.
    waiting: AtomicU64,
    waiting_bytes: AtomicU64,
    /// Entries up to here may be answered.
    released: AtomicU64,
    room: AtomicU8,
    /// Bytes that can be written before the reserve is touched.
    space: AtomicU64,
    ended: AtomicBool,
    failure: Mutex<Option<Arc<PersistError>>>,
    waker: atomic_waker::AtomicWaker,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    /// How long the newest sync took, in microseconds.
    sync_us: AtomicU64,
}

/// What the journal has done since the start.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalCounts {
    /// Bytes written.
    pub bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// How long the newest sync took, in microseconds.
    pub sync_us: u64,
}

impl Journal {
    /// Starts the thread.
    pub fn start(writer: Writer, fsync: Fsync) -> Result<(Self, JournalThread), PersistError> {
        let (batches, handed_over) = unbounded();
        let space = writer.space();
        let shared = Arc::new(Shared {
            fsync,
            released: AtomicU64::new(writer.last().0),
            writer: Mutex::new(Some(writer)),
            waiting: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            room: AtomicU8::new(0),
            space: AtomicU64::new(space),
            ended: AtomicBool::new(false),
            failure: Mutex::new(None),
            waker: atomic_waker::AtomicWaker::new(),
            counters: Counters::default(),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("sexton-journal".to_owned())
            .spawn(move || theirs.run(&handed_over))
            .map_err(PersistError::io("start a thread to write", "journal"))?;
        let journal = Self {
            shared: Arc::clone(&shared),
            batches: batches.clone(),
        };
        Ok((
            journal,
            JournalThread {
                shared,
                batches,
                thread,
            },
        ))
    }

    /// Hands a batch to the thread.
    pub fn hand_over(&self, batch: Batch) {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        self.shared
            .waiting_bytes
            .fetch_add(batch.len() as u64, Ordering::AcqRel);
        if self.batches.send(batch).is_err() {
            // The thread has ended after a failure, which every caller learns from `failure`.
            self.shared.waker.wake();
        }
    }

    /// Writes a batch at once, and syncs it if the policy says so; false if the thread has work of its own or the
    /// disk is slow, and the batch must be handed over instead.
    pub fn write_here(&self, batch: &mut Batch) -> bool {
        let sync_us = self.shared.counters.sync_us.load(Ordering::Relaxed);
        let slow = Duration::from_micros(sync_us) > SLOW_SYNC;
        if slow || self.shared.waiting.load(Ordering::Acquire) > 0 {
            return false;
        }
        let Ok(mut writer) = self.shared.writer.try_lock() else {
            return false;
        };
        let Some(writer) = writer.as_mut() else {
            return false;
        };
        if self.failure().is_none() && self.shared.write(writer, batch) {
            self.shared.publish(writer);
        }
        true
    }

    /// Entries up to here may be answered.
    pub fn released(&self) -> Seq {
        Seq(self.shared.released.load(Ordering::Acquire))
    }

    /// Wakes this task when `released` moves on, or when the journal fails.
    pub fn register(&self, waker: &Waker) {
        self.shared.waker.register(waker);
    }

    /// What the log can still take.
    pub fn room(&self) -> Room {
        match self.shared.room.load(Ordering::Relaxed) {
            0 => Room::Ample,
            1 => Room::Low,
            _ => Room::Scant,
        }
    }

    /// Bytes that can be written before the reserve is touched, and bytes on their way.
    pub fn space(&self) -> (u64, u64) {
        let space = self.shared.space.load(Ordering::Relaxed);
        (space, self.shared.waiting_bytes.load(Ordering::Acquire))
    }

    /// Why the log takes nothing any more, if it does not.
    pub fn failure(&self) -> Option<Arc<PersistError>> {
        lock(&self.shared.failure).clone()
    }

    /// Whether this log is written before each answer.
    pub fn fsync(&self) -> Fsync {
        self.shared.fsync
    }

    /// What it has done.
    pub fn counts(&self) -> JournalCounts {
        let counters = &self.shared.counters;
        JournalCounts {
            bytes: counters.bytes.load(Ordering::Relaxed),
            writes: counters.writes.load(Ordering::Relaxed),
            syncs: counters.syncs.load(Ordering::Relaxed),
            sync_us: counters.sync_us.load(Ordering::Relaxed),
        }
    }
}

impl JournalThread {
    /// Lets the thread write and sync what it has, and waits for its end.
    pub fn stop(self) -> Result<(), Arc<PersistError>> {
        self.shared.ended.store(true, Ordering::Release);
        // An empty batch wakes the thread, which then sees that it is to end.
        if self.batches.send(Batch::default()).is_err() {
            tracing::debug!("the journal thread has ended before");
        }
        if self.thread.join().is_err() {
            tracing::error!("the journal thread panicked");
        }
        lock(&self.shared.failure).clone().map_or(Ok(()), Err)
    }
}

impl Shared {
    fn run(&self, batches: &Receiver<Batch>) {
        let interval = match self.fsync {
            Fsync::Interval(interval) => Some(interval),
            Fsync::Always | Fsync::Never => None,
        };
        let look = interval
            .unwrap_or(LOOK)
            .clamp(Duration::from_millis(1), LOOK);
        let looks = tick(look);
        let mut unsynced_for = Duration::ZERO;
        while !self.failed() {
            select_biased! {
                recv(looks) -> _ => {
                    let mut writer = lock(&self.writer);
                    let Some(writer) = writer.as_mut().filter(|_| !self.failed()) else {
                        break;
                    };
                    writer.refill();
                    self.note_room(writer);
                    unsynced_for += look;
                    let owed = match self.fsync {
                        Fsync::Always => true,
                        Fsync::Interval(interval) => unsynced_for >= interval,
                        Fsync::Never => false,
                    };
                    if owed {
                        unsynced_for = Duration::ZERO;
                        if writer.is_dirty() && self.sync(writer) {
                            self.publish(writer);
                        }
                    }
                }
                recv(batches) -> batch => match batch {
                    Ok(batch) => self.write_all(batch, batches),
                    Err(_) => break,
                }
            }
            if self.ended.load(Ordering::Acquire) && batches.is_empty() {
                break;
            }
        }
        let Some(mut writer) = lock(&self.writer).take() else {
            return;
        };
        if !self.failed() && writer.is_dirty() {
            self.sync(&mut writer);
        }
    }

    /// Writes this batch and all that came while the last one was being synced.
    fn write_all(&self, mut batch: Batch, batches: &Receiver<Batch>) {
        let mut count = 1;
        for more in batches.try_iter() {
            batch.merge(&more);
            count += 1;
        }
        let bytes = batch.len() as u64;
        let mut writer = lock(&self.writer);
        let Some(writer) = writer.as_mut().filter(|_| !self.failed()) else {
            return;
        };
        let written = self.write(writer, &mut batch);
        // Only now may the core write in place again: what it has is younger.
        self.waiting.fetch_sub(count, Ordering::AcqRel);
        self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if written {
            self.publish(writer);
        }
    }

    /// Writes a batch, and syncs it if it must be; whether something can be relied on that could not before.
    fn write(&self, writer: &mut Writer, batch: &mut Batch) -> bool {
        if batch.is_empty() {
            return false;
        }
        if let Err(error) = writer.write(batch) {
            self.fail(error);
            return false;
        }
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters
            .bytes
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        match self.fsync {
            // What nobody waits for is synced with the next that somebody does, or when the thread next looks.
            Fsync::Always => batch.is_awaited() && self.sync(writer),
            Fsync::Interval(_) | Fsync::Never => !batch.is_urgent() || self.sync(writer),
        }
    }

    /// Says how far answers may go. What was on its way is no longer counted as such.
    fn publish(&self, writer: &Writer) {
        self.note_room(writer);
        self.released.store(writer.last().0, Ordering::Release);
        self.waker.wake();
    }

    fn sync(&self, writer: &mut Writer) -> bool {
        let began = now();
        let synced = writer.sync();
        let took = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.counters.sync_us.store(took, Ordering::Relaxed);
        match synced {
            Ok(()) => true,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    fn note_room(&self, writer: &Writer) {
        self.space.store(writer.space(), Ordering::Relaxed);
        let room = match writer.room(self.waiting_bytes.load(Ordering::Acquire)) {
            Room::Ample => 0,
            Room::Low => 1,
            Room::Scant => 2,
        };
        // The core asks only when something was written: a disk that has space again must be told.
        if self.room.swap(room, Ordering::Relaxed) != room {
            self.waker.wake();
        }
    }

    fn fail(&self, error: PersistError) {
        tracing::error!(%error, "the journal failed, nothing is acknowledged any more");
        *lock(&self.failure) = Some(Arc::new(error));
        self.waker.wake();
    }

    fn failed(&self) -> bool {
        lock(&self.failure).is_some()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a sync takes is no node time: nothing depends on it"
)]
fn now() -> Instant {
    Instant::now()
}

/// A panic while the lock was held has been answered where it happened; what it guards is still whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
