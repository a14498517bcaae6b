//! Group commit: one write and one sync for all waiting commands.
//!
//! The core (the thread that runs the actors) hands over batches without blocking. The journal thread writes everything that has arrived
//! since its last sync, syncs once, and publishes the last entry that may be answered. When no batch is pending and syncs are fast, the
//! core may instead write and sync the batch itself, which saves two hand-overs between threads. The backlog is bounded, because the number
//! of unanswered commands is limited, and each adds at most one record.

use crate::ids::Seq;
use crate::persist::disk::DirLock;
use crate::persist::error::PersistError;
use crate::persist::format::Batch;
use crate::persist::journal::writer::{Room, Shortage, Writer};
use crate::thread::{self, JoinHandle};
use crossbeam_channel::{Receiver, Sender, select_biased, tick, unbounded};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

/// How often the thread checks whether a full disk has space again.
const LOOK: Duration = Duration::from_millis(250);

/// How often the thread checks whether the directory has been removed.
const CHECK: Duration = Duration::from_secs(1);

/// If the last sync took longer than this, the core does not sync itself: on such a disk, two hand-overs between threads hardly matter, and
/// all clients would have to wait while the core syncs.
const SLOW_SYNC: Duration = Duration::from_millis(1);

/// When changes are synced to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Fsync {
    /// Before the answer is sent.
    #[default]
    Always,
    /// At most this long after the answer. A power cut may lose the changes made during that time; a crash of the process loses nothing.
    Interval(Duration),
    /// Whenever the operating system writes them.
    Never,
}

/// The core's handle to the log. Clones refer to the same log.
#[derive(Clone)]
pub struct Journal {
    shared: Arc<Shared>,
    batches: Sender<Batch>,
}

/// The running journal thread. Stopping it waits for its last sync.
pub struct JournalThread {
    shared: Arc<Shared>,
    batches: Sender<Batch>,
    thread: JoinHandle<()>,
}

struct Shared {
    fsync: Fsync,
    /// `None` once the thread has exited, so that a `Journal` that outlives the thread keeps neither a file open nor a filler thread
    /// running.
    writer: Mutex<Option<Writer>>,
    /// The number of batches handed over and not yet written.
    waiting: AtomicU64,
    waiting_bytes: AtomicU64,
    /// Entries up to this one may be answered.
    released: AtomicU64,
    room: AtomicU8,
    /// The number of bytes that can be written before the reserve (see [`Room`]) is touched.
    space: AtomicU64,
    /// The space left and the space needed. Updated only while the room is not [`Room::Ample`].
    shortage: Mutex<Shortage>,
    ended: AtomicBool,
    /// The lock on the directory that the log is in.
    lock: OnceLock<Weak<DirLock>>,
    failure: Mutex<Option<Arc<PersistError>>>,
    waker: atomic_waker::AtomicWaker,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    writes: AtomicU64,
    syncs: AtomicU64,
    /// The duration of the last sync, in microseconds.
    sync_us: AtomicU64,
}

/// Counters of the journal since startup.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct JournalCounts {
    /// The number of bytes written.
    pub bytes: u64,
    /// The number of writes.
    pub writes: u64,
    /// The number of syncs.
    pub syncs: u64,
    /// The duration of the last sync, in microseconds.
    pub sync_us: u64,
}

impl Journal {
    /// Starts the journal thread.
    pub fn start(writer: Writer, fsync: Fsync) -> Result<(Self, JournalThread), PersistError> {
        let (batches, handed_over) = unbounded();
        let space = writer.space();
        let shortage = Mutex::new(writer.shortage());
        let shared = Arc::new(Shared {
            fsync,
            released: AtomicU64::new(writer.last().0),
            writer: Mutex::new(Some(writer)),
            waiting: AtomicU64::new(0),
            waiting_bytes: AtomicU64::new(0),
            room: AtomicU8::new(0),
            space: AtomicU64::new(space),
            shortage,
            ended: AtomicBool::new(false),
            lock: OnceLock::new(),
            failure: Mutex::new(None),
            waker: atomic_waker::AtomicWaker::new(),
            counters: Counters::default(),
        });
        let theirs = Arc::clone(&shared);
        let end = Arc::clone(&shared);
        let thread = thread::start(
            "sexton-journal",
            move || theirs.run(&handed_over),
            move |ended| end.thread_ended(ended),
        )
        .map_err(PersistError::io("start a thread to write to", "journal"))?;
        let journal = Self { shared: Arc::clone(&shared), batches: batches.clone() };
        Ok((journal, JournalThread { shared, batches, thread }))
    }

    /// Fails the log when the directory that `lock` is on is removed, which is checked once a second.
    pub fn watch_directory(&self, lock: &Arc<DirLock>) {
        // A log is in one directory, so this is called once.
        drop(self.shared.lock.set(Arc::downgrade(lock)));
    }

    /// Hands a batch to the thread.
    pub fn submit(&self, batch: Batch) {
        self.shared.waiting.fetch_add(1, Ordering::AcqRel);
        self.shared.waiting_bytes.fetch_add(batch.len() as u64, Ordering::AcqRel);
        if self.batches.send(batch).is_err() {
            // The thread has exited after a failure. The woken task learns of the failure from `failure`.
            self.shared.waker.wake();
        }
    }

    /// Writes a batch immediately, and syncs it if the policy requires this. Returns false, without writing anything, if the last sync was
    /// slow, or the thread is busy or has exited: the batch must then be handed over instead. Returns true even if the journal has failed,
    /// which [`failure`](Self::failure) reports.
    pub fn write_inline(&self, batch: &mut Batch) -> bool {
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

    /// Returns the last entry that may be answered.
    pub fn released(&self) -> Seq {
        Seq(self.shared.released.load(Ordering::Acquire))
    }

    /// Wakes this task when `released` advances, when the room changes, or when the journal fails.
    pub fn register(&self, waker: &Waker) {
        self.shared.waker.register(waker);
    }

    /// Returns how much room the log still has.
    pub fn room(&self) -> Room {
        match self.shared.room.load(Ordering::Relaxed) {
            0 => Room::Ample,
            1 => Room::Low,
            _ => Room::Scant,
        }
    }

    /// Returns the number of bytes that can be written before the reserve (see [`Room`]) is touched, and the number of bytes handed over
    /// but not yet written.
    pub fn space(&self) -> (u64, u64) {
        let space = self.shared.space.load(Ordering::Relaxed);
        (space, self.shared.waiting_bytes.load(Ordering::Acquire))
    }

    /// Returns the space left and the space needed for the next segment, or `None` while there is ample room.
    pub fn shortage(&self) -> Option<Shortage> {
        let is_low = self.room() != Room::Ample;
        is_low.then(|| *lock(&self.shared.shortage))
    }

    /// Returns the error with which the log failed, if it has. A failed log accepts nothing more.
    pub fn failure(&self) -> Option<Arc<PersistError>> {
        lock(&self.shared.failure).clone()
    }

    /// Returns the durability policy.
    pub fn fsync(&self) -> Fsync {
        self.shared.fsync
    }

    /// Returns the counters since startup.
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
    /// Makes the thread write and sync its pending batches and then exit, and waits until it has.
    ///
    /// # Errors
    /// Returns the error with which the journal failed, if it has.
    pub fn stop(self) -> Result<(), Arc<PersistError>> {
        self.shared.ended.store(true, Ordering::Release);
        // An empty batch wakes the thread, which then checks whether it should exit.
        if self.batches.send(Batch::default()).is_err() {
            tracing::debug!("the journal thread had already ended");
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
        let look = interval.unwrap_or(LOOK).clamp(Duration::from_millis(1), LOOK);
        let looks = tick(look);
        let mut unsynced_for = Duration::ZERO;
        let mut unchecked_for = Duration::ZERO;
        while !self.failed() {
            select_biased! {
                recv(looks) -> _ => {
                    let mut writer = lock(&self.writer);
                    let Some(writer) = writer.as_mut().filter(|_| !self.failed()) else {
                        break;
                    };
                    writer.refill();
                    self.note_room(writer);
                    unchecked_for += look;
                    if unchecked_for >= CHECK {
                        unchecked_for = Duration::ZERO;
                        if let Err(error) = self.check_directory() {
                            self.fail(error);
                            break;
                        }
                    }
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

    /// Checks that the directory of the log has not been removed.
    fn check_directory(&self) -> Result<(), PersistError> {
        let lock = self.lock.get().and_then(Weak::upgrade);
        lock.map_or(Ok(()), |lock| lock.check())
    }

    /// Writes a batch together with all later batches that have been handed over by now.
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
        // The core may write in place again only now, because its next records must follow those of this batch.
        self.waiting.fetch_sub(count, Ordering::AcqRel);
        self.waiting_bytes.fetch_sub(bytes, Ordering::AcqRel);
        if written {
            self.publish(writer);
        }
    }

    /// Writes a batch, and syncs it if the policy requires this. Returns whether the answers to all records up to its last one may now be
    /// sent.
    fn write(&self, writer: &mut Writer, batch: &mut Batch) -> bool {
        if batch.is_empty() {
            return false;
        }
        if let Err(error) = guarded("write", || writer.write(batch)) {
            self.fail(error);
            return false;
        }
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(batch.len() as u64, Ordering::Relaxed);
        match self.fsync {
            // Records that no answer waits for are synced together with the next awaited batch, or at the thread's next check.
            Fsync::Always => batch.is_awaited() && self.sync(writer),
            Fsync::Interval(_) | Fsync::Never => !batch.is_urgent() || self.sync(writer),
        }
    }

    /// Publishes the last entry that may be answered, and wakes the core.
    fn publish(&self, writer: &Writer) {
        self.note_room(writer);
        self.released.store(writer.last().0, Ordering::Release);
        self.waker.wake();
    }

    fn sync(&self, writer: &mut Writer) -> bool {
        let began = now();
        let synced = guarded("sync", || writer.sync());
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
        if room > 0 {
            *lock(&self.shortage) = writer.shortage();
        }
        // The core looks at the room only when it is woken. Without this, it would not notice that a full disk has space again.
        if self.room.swap(room, Ordering::Relaxed) != room {
            self.waker.wake();
        }
    }

    /// Fails the journal if its thread has ended although nobody asked it to: the core would wait for it for ever.
    fn thread_ended(&self, ended: Result<(), String>) {
        let cause = match ended {
            Ok(()) if self.failed() || self.ended.load(Ordering::Acquire) => return,
            Ok(()) => "its thread ended early".to_owned(),
            Err(cause) => cause,
        };
        self.fail(panicked("write", cause));
        drop(lock(&self.writer).take());
    }

    fn fail(&self, error: PersistError) {
        tracing::error!(%error, "the journal failed; nothing more is acknowledged");
        *lock(&self.failure) = Some(Arc::new(error));
        self.waker.wake();
    }

    fn failed(&self) -> bool {
        lock(&self.failure).is_some()
    }
}

/// Calls the writer, and turns a panic into an error. The writer may be called on the core thread, where a panic would end an actor or a task.
fn guarded<T>(
    action: &'static str,
    call: impl FnOnce() -> Result<T, PersistError>,
) -> Result<T, PersistError> {
    thread::guard(call).unwrap_or_else(|cause| Err(panicked(action, cause)))
}

fn panicked(action: &'static str, cause: String) -> PersistError {
    PersistError::Panicked { action, file: "the journal", cause }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the measured duration of a sync decides only which thread syncs next"
)]
fn now() -> Instant {
    Instant::now()
}

/// Locks a mutex even if it is poisoned: the panic was handled where it happened, and the data is still consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
