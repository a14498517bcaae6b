//! Reading the memory of processes that may not let go of it, without waiting for them.
//!
//! To read `environ`, `cmdline`, `maps` or `auxv`, the kernel takes locks of the process, and a process can keep these for ever: it unmaps a
//! file of a FUSE file system of its own that never answers the write. The reader then waits too, and can be neither interrupted nor killed.
//! So a helper thread reads the files of other users' processes, and is left behind if one does not answer in time. It ends when the process
//! lets go; until then, that process is not asked again.

use crate::thread;
use std::io;
use std::mem::replace;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a process is waited for, from when the reading begins.
pub(super) const LIMIT: Duration = Duration::from_millis(250);

/// How many times as long as it was waited for one of its processes, no further one of a user is waited for: no user takes more than a
/// tenth of the time of a thread.
const REST: u32 = 10;

/// The maximum number of threads that are left behind. Beyond it, no process of another user is asked.
const STUCK_MAX: usize = 16;

/// The content of a file; `None` if the process does not exist.
pub(super) type Content = io::Result<Option<Vec<u8>>>;

/// A process is identified by its PID and its start time.
type Process = (u32, u64);

/// The threads that read: one that is used again and again, and those that were left behind.
pub(super) struct Readers {
    /// The one that waits for something to read. Only one thread at a time has it read.
    free: Mutex<Option<Arc<Handoff>>>,
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

/// What one helper thread and the thread that it reads for pass to each other.
#[derive(Default)]
struct Handoff {
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

impl Readers {
    pub(super) fn new(limit: Duration) -> Self {
        Self { free: Mutex::default(), waits: Arc::default(), limit }
    }

    /// Has a helper read; returns `None` if there is no answer in time.
    pub(super) fn ask(
        &self,
        process: Process,
        user: u32,
        read: Box<dyn FnOnce() -> Content + Send>,
    ) -> Option<Content> {
        let mut free = lock(&self.free);
        if !lock(&self.waits).may_ask(process, user) {
            return None;
        }
        let handoff = match free.take() {
            Some(handoff) => handoff,
            None => self.start().ok()?,
        };
        let mut slot = lock(&handoff.slot);
        *slot = Slot::Asked(read, process);
        handoff.changed.notify_all();
        // The time limit begins with the reading, so that a busy machine is not taken for a process that does not answer.
        while matches!(*slot, Slot::Asked(..)) {
            slot = handoff.changed.wait(slot).unwrap_or_else(PoisonError::into_inner);
        }
        let is_reading = |slot: &mut Slot| matches!(slot, Slot::Reading);
        let waited = handoff.changed.wait_timeout_while(slot, self.limit, is_reading);
        let (mut slot, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if let Slot::Read(content) = replace(&mut *slot, Slot::Free) {
            drop(slot);
            *free = Some(handoff);
            return Some(content);
        }
        *slot = Slot::Left;
        // The slot is still locked, so the helper removes the process only afterwards.
        lock(&self.waits).leave(process, user, self.limit);
        None
    }

    fn start(&self) -> io::Result<Arc<Handoff>> {
        let handoff = Arc::new(Handoff::default());
        let (its, waits) = (Arc::clone(&handoff), Arc::clone(&self.waits));
        thread::start("processes-read", move || its.serve(&waits), drop)?;
        Ok(handoff)
    }
}

impl Handoff {
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
mod tests {
    // Tests against directories in place of `/proc`. Opening a pipe in place of a file blocks, as does reading the file of a process that keeps
    // its memory locked.
    use super::{Readers, STUCK_MAX, Waits, lock};
    use crate::kernel::proc::{Files, Unanswered, Variable, variable_in};
    use rustix::fs::{CWD, Mode, OFlags, mkfifoat, open};
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    const AGES: Duration = Duration::from_hours(1);

    /// Returns processes that all belong to another user than the own one.
    fn others(root: &Path) -> Files {
        let own = rustix::process::geteuid().as_raw() + 1;
        Files { root: root.to_owned(), own, readers: Readers::new(AGES) }
    }

    impl Files {
        fn add(&self, pid: u32) {
            let place = self.of(pid);
            fs::create_dir(&place).expect("a new directory");
            let zeroes = "0 ".repeat(15);
            let stat = format!("{pid} (sh) S 1 {zeroes} 1 0 {pid} 0 0\n");
            fs::write(place.join("stat"), stat).expect("a new file");
            fs::write(place.join("auxv"), [6; 16]).expect("a new file");
            fs::write(place.join("status"), "Uid:\t1\t1\t1\t1\n").expect("a new file");
            self.answer(pid);
        }

        fn answer(&self, pid: u32) {
            let environment = format!("A=b\0ID={pid}\0");
            fs::write(self.of(pid).join("environ"), environment).expect("it can be written");
        }

        fn block(&self, pid: u32) {
            let pipe = self.of(pid).join("environ");
            fs::remove_file(&pipe).expect("it is there");
            mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a new pipe");
        }

        fn id(&self, pid: u32) -> Result<Option<String>, Unanswered> {
            let text = |it: Variable| String::from_utf8_lossy(it.value.as_bytes()).into_owned();
            Ok(variable_in(self, pid, "ID")?.map(text))
        }

        /// Has the threads that wait for these come back, until only `left` of all threads are stuck.
        fn release(&self, pids: &[u32], left: usize) {
            while self.stuck() > left {
                for pid in pids {
                    // Nobody may have opened the pipe yet.
                    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
                    drop(open(self.of(*pid).join("environ"), flags, Mode::empty()));
                }
                std::thread::yield_now();
            }
        }

        fn stuck(&self) -> usize {
            lock(&self.readers.waits).stuck.len()
        }
    }

    #[test]
    fn one_that_does_not_answer_is_unknown_and_asked_again_when_it_has_let_go() {
        let root = tempfile::tempdir().expect("a directory can be created");
        let mut files = others(root.path());
        for pid in [1, 2, 3] {
            files.add(pid);
        }
        files.block(2);
        files.readers.limit = Duration::ZERO;
        assert_eq!(files.id(2), Err(Unanswered));
        assert_eq!(files.stuck(), 1);
        // From now on, one that is waited for is waited for during the whole test.
        files.readers.limit = AGES;
        let found: Vec<_> = (1..=4).map(|pid| files.id(pid)).collect();
        let id = |id: &str| Ok(Some(id.to_owned()));
        assert_eq!(found, [id("1"), Err(Unanswered), id("3"), Ok(None)]);
        // Another process with the same PID is asked.
        let stat = files.of(2).join("stat");
        let text = fs::read_to_string(&stat).expect("it is there");
        fs::write(&stat, text.replace(" 2 0 0\n", " 5 0 0\n")).expect("it is there");
        files.readers.limit = Duration::ZERO;
        assert_eq!(files.id(2), Err(Unanswered));
        assert_eq!(files.stuck(), 2);
        fs::write(&stat, text).expect("it is there");
        files.release(&[2], 0);
        files.readers.limit = AGES;
        fs::remove_file(files.of(2).join("environ")).expect("it is there");
        files.answer(2);
        assert_eq!(files.id(2), id("2"));
    }

    #[test]
    fn the_threads_that_are_left_behind_are_bounded_and_own_processes_are_read_all_the_same() {
        let root = tempfile::tempdir().expect("a directory can be created");
        let mut files = others(root.path());
        files.readers.limit = Duration::ZERO;
        for pid in 1..100 {
            files.add(pid);
            files.block(pid);
            assert_eq!(files.id(pid), Err(Unanswered));
        }
        assert_eq!(files.stuck(), STUCK_MAX);
        files.add(100);
        assert_eq!(files.id(100), Err(Unanswered));
        files.own -= 1;
        assert_eq!(files.id(100), Ok(Some("100".to_owned())));
        files.own += 1;
        // One lets go, so there is room for another.
        files.release(&[1], STUCK_MAX - 1);
        files.readers.limit = AGES;
        assert_eq!(files.id(100), Ok(Some("100".to_owned())));
        let rest: Vec<u32> = (2..=16).collect();
        files.release(&rest, 0);
    }

    #[test]
    fn of_the_environment_of_another_user_only_the_beginning_is_read() {
        let root = tempfile::tempdir().expect("a directory can be created");
        let mut files = others(root.path());
        files.add(1);
        let found = |files: &Files, text: String| {
            fs::write(files.of(1).join("environ"), text).expect("it can be written");
            files.id(1)
        };
        let (id, much) = (Ok(Some("7".to_owned())), format!("A={}\0", "b".repeat(1 << 17)));
        assert_eq!(found(&files, format!("ID=7\0{much}")), id);
        assert_eq!(found(&files, format!("{much}ID=7\0")), Err(Unanswered));
        assert_eq!(found(&files, much.clone()), Err(Unanswered));
        // What is cut may go on.
        assert_eq!(found(&files, format!("ID={much}")), Err(Unanswered));
        files.own -= 1;
        assert_eq!(found(&files, format!("{much}ID=7\0")), id);
    }

    #[test]
    fn one_thread_reads_for_all_that_answer() {
        let root = tempfile::tempdir().expect("a directory can be created");
        let files = others(root.path());
        let helper = || lock(&files.readers.free).clone().expect("it has read");
        files.add(1);
        assert_eq!(files.id(1), Ok(Some("1".to_owned())));
        let first = helper();
        for pid in 2..600 {
            files.add(pid);
            assert_eq!(files.id(pid), Ok(Some(pid.to_string())));
        }
        assert!(Arc::ptr_eq(&first, &helper()));
    }

    #[test]
    fn a_user_whose_process_was_waited_for_in_vain_takes_no_more_time_for_a_while() {
        let mut waits = Waits::default();
        waits.leave((1, 1), 1000, AGES);
        assert!(!waits.may_ask((2, 2), 1000));
        assert!(waits.may_ask((2, 2), 1001));
        waits.leave((3, 3), 1002, Duration::ZERO);
        assert!(waits.may_ask((4, 4), 1002), "the time is over");
        assert!(!waits.may_ask((3, 3), 1002), "it has not answered yet");
        waits.come_back((3, 3));
        assert!(waits.may_ask((3, 3), 1002));
    }
}
