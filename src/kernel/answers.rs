//! Files in `/proc/PID` that show the memory of a process, read without waiting for a process that does not let go of its memory.
//!
//! To read `environ`, `cmdline`, `maps` or `auxv`, the kernel takes locks of the process, and a process can keep these for ever: it unmaps a
//! file of a FUSE file system of its own that never answers the write. The reader then waits too, and can be neither interrupted nor killed.
//! So a helper thread reads the files of other users' processes, and is left behind if one does not answer in time. It ends when the process
//! lets go; until then, that process is not asked again. Files of processes of the own user are read directly.

use crate::kernel::proc::{gone_is_none, stat_in};
use crate::thread;
use rustix::fs::{Mode, OFlags, openat};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::mem::replace;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

/// How long a process is waited for, from when the reading begins.
const LIMIT: Duration = Duration::from_millis(250);

/// How many times as long as it was waited for one of its processes, no further one of a user is waited for: no user takes more than a
/// tenth of the time of a thread.
const REST: u32 = 10;

/// The maximum number of threads that are left behind. Beyond it, no process of another user is asked.
const STUCK_MAX: usize = 16;

/// The content of a file; `None` if the process does not exist.
type Content = io::Result<Option<Vec<u8>>>;

/// A process is identified by its PID and its start time.
type Process = (u32, u64);

/// The files of all processes.
pub(super) struct Files {
    /// `/proc`, except in tests.
    root: PathBuf,
    /// The user whose processes are read directly.
    own: u32,
    helpers: Helpers,
}

impl Files {
    /// Returns those of this machine.
    pub(super) fn all() -> &'static Self {
        static ALL: OnceLock<Files> = OnceLock::new();
        ALL.get_or_init(|| Self {
            root: PathBuf::from("/proc"),
            own: rustix::process::geteuid().as_raw(),
            helpers: Helpers::new(LIMIT),
        })
    }

    /// Returns the directory of a process.
    pub(super) fn of(&self, pid: u32) -> PathBuf {
        self.root.join(pid.to_string())
    }

    /// Reads a file that shows the memory of a process. A main thread that has ended has none, so if the process lives on in other threads,
    /// it is read through one of these.
    ///
    /// # Errors
    /// Returns `TimedOut` if the process does not answer in time, or is not asked because it did not before. Returns an error if the file
    /// may not be read.
    pub(super) fn read(&self, pid: u32, name: &'static str) -> Content {
        let path = self.of(pid);
        // The open directory stays that of this process, whichever has the PID later.
        let Some(place) = gone_is_none(File::open(&path))? else {
            return Ok(None);
        };
        let user = place.metadata()?.uid();
        if user == self.own {
            return read_memory(&place, &path, name);
        }
        let Some(stat) = stat_in(&path)? else {
            return Ok(None);
        };
        let job = move || read_memory(&place, &path, name);
        let read = self.helpers.ask((pid, stat.start_ticks), user, Box::new(job));
        read.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
    }
}

fn read_memory(place: &File, path: &Path, name: &str) -> Content {
    let bytes = gone_is_none(read_at(place, name))?;
    if bytes.as_ref().is_some_and(|bytes| !bytes.is_empty()) {
        return Ok(bytes);
    }
    let lives_on = stat_in(path)?.is_some_and(|it| it.has_no_main_thread() && !it.is_zombie());
    if lives_on && let Some(threads) = gone_is_none(fs::read_dir(path.join("task")))? {
        let mut texts =
            threads.flatten().filter_map(|thread| fs::read(thread.path().join(name)).ok());
        return Ok(texts.find(|text| !text.is_empty()).or(bytes));
    }
    Ok(bytes)
}

fn read_at(place: &File, name: &str) -> io::Result<Vec<u8>> {
    let file = openat(place, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The threads that read: one that is used again and again, and those that were left behind.
struct Helpers {
    /// The one that waits for something to read. Only one thread at a time has it read.
    free: Mutex<Option<Arc<Desk>>>,
    waits: Arc<Mutex<Waits>>,
    limit: Duration,
}

/// What was waited for in vain.
#[derive(Default)]
struct Waits {
    /// The processes that have not answered yet, each with a thread that still waits.
    stuck: Vec<Process>,
    /// The users of whose processes none is waited for until a time, in milliseconds since boot.
    resting: Vec<(u32, u64)>,
    is_stuck_told: bool,
    is_full_told: bool,
}

/// What one helper and the thread that it reads for pass to each other.
#[derive(Default)]
struct Desk {
    slot: Mutex<Slot>,
    changed: Condvar,
}

#[derive(Default)]
enum Slot {
    #[default]
    Free,
    Asked(Box<dyn FnOnce() -> Content + Send>, Process),
    Reading,
    Read(Content),
    /// Nobody waits any more.
    Left,
}

impl Helpers {
    fn new(limit: Duration) -> Self {
        Self { free: Mutex::default(), waits: Arc::default(), limit }
    }

    /// Has a helper read; returns `None` if there is no answer in time.
    fn ask(
        &self,
        process: Process,
        user: u32,
        read: Box<dyn FnOnce() -> Content + Send>,
    ) -> Option<Content> {
        let mut free = lock(&self.free);
        if !lock(&self.waits).may_ask(process, user) {
            return None;
        }
        let desk = match free.take() {
            Some(desk) => desk,
            None => self.start().ok()?,
        };
        let mut slot = lock(&desk.slot);
        *slot = Slot::Asked(read, process);
        desk.changed.notify_all();
        // However busy the machine is, the helper begins some time.
        while matches!(*slot, Slot::Asked(..)) {
            slot = desk.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        let is_reading = |slot: &mut Slot| matches!(slot, Slot::Reading);
        let waited = desk.changed.wait_timeout_while(slot, self.limit, is_reading);
        let (mut slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Slot::Read(content) = replace(&mut *slot, Slot::Free) {
            drop(slot);
            *free = Some(desk);
            return Some(content);
        }
        *slot = Slot::Left;
        // The slot is still locked, so the helper removes the process only afterwards.
        lock(&self.waits).leave(process, user, self.limit);
        None
    }

    fn start(&self) -> io::Result<Arc<Desk>> {
        let desk = Arc::new(Desk::default());
        let (its, waits) = (Arc::clone(&desk), Arc::clone(&self.waits));
        thread::start("processes-read", move || its.serve(&waits), drop)?;
        Ok(desk)
    }
}

impl Desk {
    /// Reads whatever is asked for, until nobody waits for an answer any more.
    fn serve(&self, waits: &Mutex<Waits>) {
        loop {
            let mut slot = lock(&self.slot);
            while !matches!(*slot, Slot::Asked(..)) {
                slot = self.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
            }
            let Slot::Asked(read, process) = replace(&mut *slot, Slot::Reading) else {
                return;
            };
            self.changed.notify_all();
            drop(slot);
            let content = read();
            let mut slot = lock(&self.slot);
            if matches!(*slot, Slot::Left) {
                drop(slot);
                return lock(waits).come_back(process);
            }
            *slot = Slot::Read(content);
            self.changed.notify_all();
        }
    }
}

impl Waits {
    fn may_ask(&mut self, process: Process, user: u32) -> bool {
        let is_full = self.stuck.len() >= STUCK_MAX;
        if is_full && !replace(&mut self.is_full_told, true) {
            tracing::warn!(
                "{STUCK_MAX} processes do not let their environment be read: what others of other users are is unknown until some end"
            );
        }
        let now = now_ms();
        let rests = self.resting.iter().any(|(resting, until)| *resting == user && now < *until);
        !is_full && !rests && !self.stuck.contains(&process)
    }

    fn leave(&mut self, process: Process, user: u32, waited: Duration) {
        self.stuck.push(process);
        let now = now_ms();
        self.resting.retain(|(_, until)| now < *until);
        let rest = (waited * REST).as_millis().try_into().unwrap_or(u64::MAX);
        self.resting.push((user, now.saturating_add(rest)));
        if !replace(&mut self.is_stuck_told, true) {
            let pid = process.0;
            tracing::warn!(
                "process {pid} of user {user} does not let its environment or command line be read: what it belongs to is unknown"
            );
        }
    }

    fn come_back(&mut self, process: Process) {
        if let Some(at) = self.stuck.iter().position(|it| *it == process) {
            self.stuck.swap_remove(at);
        }
    }
}

fn now_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
#[path = "answers_tests.rs"]
mod tests;
