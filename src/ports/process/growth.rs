//! Watches the size of the output files that have a limit. A file that grows is checked so often that it cannot outgrow its limit by much
//! before it is rotated or its content is discarded; one that does not grow costs nothing, since the kernel reports when it grows again.
//!
//! A rotation takes place on a thread of its own, so a slow disk, or one service that writes much, delays no other file.

use crate::clock::{Clock as _, SystemClock, Timestamp};
use crate::ids::ProcessId;
use crate::ports::process::files;
use crate::ports::process::rotation::{Log, Rotated};
use crate::thread;
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The shortest interval between two checks of a file, in milliseconds.
const LOOK_MS: u64 = 5;

/// The longest interval between two checks of a file that grows, in milliseconds.
const LOOK_MS_MAX: u64 = 100;

/// The interval at which a rotation that has failed is repeated, in milliseconds.
const AGAIN_MS: u64 = 1000;

/// The number of bytes per millisecond that a fast writer is expected to write at most. It determines how soon a file is checked again.
const FAST_BYTES: u64 = 2 << 20;

/// The number of checks without growth after which only the kernel watches a file.
const QUIET: u32 = 10;

/// The maximum number of rotations at a time.
const ROTATIONS_MAX: usize = 16;

/// The number of bytes by which a file may exceed its limit before its content is discarded, if that is more than the limit itself. A burst
/// of that size is compressed in a fraction of a second.
const SLACK_BYTES: u64 = 16 << 20;

/// The maximum size of an output file, and the number of rotated files to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) bytes_max: u64,
    pub(super) kept: u8,
}

/// All output files with a limit, by process: standard output and standard error.
pub(super) struct Growth {
    all: BTreeMap<ProcessId, [Growing; 2]>,
    inotify: Option<OwnedFd>,
    watches: BTreeMap<i32, (ProcessId, usize)>,
    is_over: Arc<AtomicBool>,
    clock: SystemClock,
}

/// An output file with a limit.
struct Growing {
    path: PathBuf,
    bound: Bound,
    /// When it was last checked, in milliseconds.
    now: u64,
    /// `None` until the file exists.
    log: Option<Arc<Log>>,
    /// Receives the result of the rotation in progress, or the message of its panic.
    rotation: Option<Receiver<Result<io::Result<Rotated>, String>>>,
    /// The size at the last check.
    length: u64,
    /// The number of checks without growth.
    quiet: u32,
    /// Whether the kernel reports when the file grows.
    is_watched: bool,
    stage: Stage,
    /// After a rotation has failed, when to try again, in milliseconds.
    rotates_at: u64,
    /// Whether an error has been logged since the last success.
    is_logged: bool,
    /// Whether it was logged that the file was removed or renamed.
    is_missed: bool,
}

impl Bound {
    /// Returns the size at which a file is discarded, although it is being rotated.
    fn outgrown(self) -> u64 {
        self.bytes_max.saturating_add(self.bytes_max.max(SLACK_BYTES))
    }
}

/// How much longer a file is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its process is running.
    Open,
    /// Its process has ended: only the last rotation is left.
    Last,
    /// The last rotation is over, or is not needed.
    Done,
}

impl Growth {
    /// Creates an empty set. `is_over` is set when the thread ends: rotations are then abandoned.
    pub(super) fn new(is_over: Arc<AtomicBool>) -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        Self {
            all: BTreeMap::new(),
            inotify: inotify.ok(),
            watches: BTreeMap::new(),
            is_over,
            clock: SystemClock::starting_at(Timestamp(0)),
        }
    }

    /// Returns the descriptor that becomes readable when a file has grown.
    pub(super) const fn descriptor(&self) -> Option<&OwnedFd> {
        self.inotify.as_ref()
    }

    /// Starts to limit the output in a directory.
    pub(super) fn bound(&mut self, id: ProcessId, dir: &Path, bound: Bound) {
        let all = [files::STDOUT, files::STDERR].map(|name| Growing::new(dir.join(name), bound));
        self.all.insert(id, all);
    }

    /// Ends the limit on the output of a process that has ended, after a last check.
    pub(super) fn release(&mut self, id: ProcessId) {
        for file in self.all.get_mut(&id).into_iter().flatten() {
            file.stage = Stage::Last;
            file.wake();
        }
    }

    /// Returns how long to wait before the next check; `None` if no file has to be checked until the kernel reports growth.
    pub(super) fn wait_ms(&self) -> Option<u64> {
        let files = self.all.values().flatten();
        files.filter_map(Growing::wait_ms).min()
    }

    /// Checks the files that grow, after the kernel's reports have been read.
    pub(super) fn look(&mut self) {
        self.take_events();
        let (mut rotating, now) = (self.rotating(), self.clock.now().0);
        for (id, files) in &mut self.all {
            for (nth, file) in files.iter_mut().enumerate() {
                if file.is_watched {
                    continue;
                }
                file.now = now;
                rotating += usize::from(file.look(rotating < ROTATIONS_MAX, &self.is_over));
                let is_quiet = file.quiet >= QUIET && file.rotation.is_none();
                if let Some(inotify) = self.inotify.as_ref().filter(|_| is_quiet)
                    && let Some(watch) = file.watch(inotify)
                {
                    self.watches.insert(watch, (*id, nth));
                }
            }
        }
        self.all.retain(|_, files| files.iter().any(|file| !file.is_finished()));
        let all = &self.all;
        self.watches.retain(|_, (id, _)| all.contains_key(id));
    }

    fn rotating(&self) -> usize {
        let files = self.all.values().flatten();
        files.filter(|file| file.rotation.is_some()).count()
    }

    fn take_events(&mut self) {
        let Some(inotify) = &self.inotify else {
            return;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        while let Ok(event) = reader.next() {
            // An event without a watch may mean that the queue has overflowed.
            match self.watches.remove(&event.wd()) {
                Some((id, nth)) => {
                    let files = self.all.get_mut(&id);
                    if let Some(file) = files.and_then(|files| files.get_mut(nth)) {
                        file.wake();
                    }
                }
                None if event.wd() < 0 => self.all.values_mut().flatten().for_each(Growing::wake),
                None => {}
            }
        }
    }

    #[cfg(test)]
    fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

impl Drop for Growth {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for file in self.all.values_mut().flatten() {
            if let Some(rotation) = file.rotation.take() {
                // Its result is not needed, but its thread must have ended.
                drop(rotation.recv());
            }
        }
    }
}

impl Growing {
    const fn new(path: PathBuf, bound: Bound) -> Self {
        Self {
            path,
            bound,
            now: 0,
            log: None,
            rotation: None,
            length: 0,
            quiet: 0,
            is_watched: false,
            stage: Stage::Open,
            rotates_at: 0,
            is_logged: false,
            is_missed: false,
        }
    }

    /// Notes that nothing is left to do if the process has ended.
    fn settle(&mut self) {
        if self.stage == Stage::Last {
            self.stage = Stage::Done;
        }
    }

    const fn wake(&mut self) {
        (self.is_watched, self.quiet) = (false, 0);
    }

    fn is_finished(&self) -> bool {
        self.stage == Stage::Done && self.rotation.is_none()
    }

    /// Returns how long to wait before the next check, in milliseconds: at most as long as a fast writer takes to reach the size at which
    /// the file is rotated or discarded.
    fn wait_ms(&self) -> Option<u64> {
        if self.is_watched {
            return None;
        }
        let limit = self.bound.bytes_max;
        let next = if self.length > limit { self.bound.outgrown() } else { limit };
        let room = next.saturating_sub(self.length);
        Some((room / FAST_BYTES).clamp(LOOK_MS, LOOK_MS_MAX))
    }

    /// Asks the kernel to report when the file grows, is renamed or removed. Returns `None` if it cannot, or the file has grown meanwhile.
    fn watch(&mut self, inotify: &OwnedFd) -> Option<i32> {
        let flags = WatchFlags::MODIFY | WatchFlags::MOVE_SELF | WatchFlags::ATTRIB;
        let flags = flags | WatchFlags::ONESHOT | WatchFlags::DONT_FOLLOW;
        let watch = inotify::add_watch(inotify, &self.path, flags).ok()?;
        let is_same = self.log.as_ref().is_some_and(|log| {
            log.has_its_name() && log.length().is_ok_and(|length| length == self.length)
        });
        self.is_watched = is_same;
        // If it has grown, the watch stays until its one event, which is then ignored.
        is_same.then_some(watch)
    }

    /// Checks the file once. Returns whether it has started a rotation, which it may do only if `may_rotate`.
    fn look(&mut self, may_rotate: bool, is_over: &Arc<AtomicBool>) -> bool {
        self.finish();
        if self.log.is_none() {
            self.log = Log::open(self.path.clone()).ok().map(Arc::new);
        }
        let Some(log) = self.log.clone() else {
            self.settle();
            return false;
        };
        let length = log.length().unwrap_or(0);
        let has_grown = length != self.length;
        self.quiet = if has_grown { 0 } else { self.quiet.saturating_add(1) };
        self.length = length;
        let unused = log.reserved().unwrap_or(0).saturating_sub(length);
        if unused > self.bound.outgrown() {
            self.give_back(&log, unused);
        }
        let has_its_name = log.has_its_name();
        if !has_its_name {
            self.note_missing();
        }
        let limit = self.bound.bytes_max;
        if length <= limit {
            self.settle();
            return false;
        }
        if !has_its_name || length > self.bound.outgrown() && self.stage == Stage::Open {
            self.discard(&log);
            return false;
        }
        if self.rotation.is_some() || !may_rotate || self.now < self.rotates_at {
            self.quiet = 0;
            return false;
        }
        self.rotate(log, is_over)
    }

    fn rotate(&mut self, log: Arc<Log>, is_over: &Arc<AtomicBool>) -> bool {
        let (kept, is_over) = (self.bound.kept, Arc::clone(is_over));
        let (report, rotation) = bounded(1);
        let rotate = move || log.rotate(kept, &|| !is_over.load(Ordering::Relaxed));
        let started = thread::start("rotation", rotate, move |end| drop(report.try_send(end)));
        match started {
            Ok(_thread) => {
                (self.rotation, self.quiet) = (Some(rotation), 0);
                true
            }
            Err(error) => {
                self.log_error(&error);
                false
            }
        }
    }

    /// Takes the result of a rotation that is over.
    fn finish(&mut self) {
        let end = match self.rotation.as_ref().map(Receiver::try_recv) {
            None | Some(Err(TryRecvError::Empty)) => return,
            Some(Ok(end)) => end,
            Some(Err(TryRecvError::Disconnected)) => Err("its thread ended early".to_owned()),
        };
        (self.rotation, self.quiet) = (None, 0);
        match end {
            Ok(Ok(Rotated { bytes, is_cut })) => {
                tracing::debug!(bytes, is_cut, "{} was rotated", self.path.display());
                self.is_logged = false;
            }
            // It was abandoned because the content was discarded.
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(Err(error)) => self.log_error(&error),
            Err(panic) => self.log_error(&io::Error::other(panic)),
        }
    }

    fn discard(&mut self, log: &Log) {
        match log.discard() {
            Ok(bytes) if !self.is_logged => {
                tracing::warn!(
                    bytes,
                    "{} grew faster than it could be rotated, so its content was discarded",
                    self.path.display()
                );
                self.is_logged = true;
            }
            Ok(_) => {}
            Err(error) => self.log_error(&error),
        }
    }

    /// Gives back the space that a process has reserved beyond its output, which no limit on the size of the file includes.
    fn give_back(&mut self, log: &Log, bytes: u64) {
        match log.give_back() {
            Ok(()) if !self.is_logged => {
                tracing::warn!(
                    bytes,
                    "a process reserved disk space for {} beyond its limit, and the space was freed",
                    self.path.display()
                );
                self.is_logged = true;
            }
            Ok(()) => {}
            Err(error) => self.log_error(&error),
        }
    }

    fn log_error(&mut self, error: &io::Error) {
        // What failed for a process that has ended is not repeated.
        self.settle();
        self.rotates_at = self.now + AGAIN_MS;
        if !self.is_logged {
            tracing::warn!("{} cannot be rotated: {error}", self.path.display());
            self.is_logged = true;
        }
    }

    fn note_missing(&mut self) {
        if !self.is_missed {
            tracing::warn!(
                "{} was removed or renamed while a process has it open: what the process writes is lost, until it is launched again",
                self.path.display()
            );
            self.is_missed = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Growth, SLACK_BYTES};
    use crate::ids::ProcessId;
    use crate::ports::process::rotation::rotated;
    use std::fs::{File, OpenOptions};
    use std::io::Write as _;
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    const BOUND: Bound = Bound { bytes_max: 10_000, kept: 2 };

    fn growth(dir: &Path) -> Growth {
        let mut growth = Growth::new(Arc::new(AtomicBool::new(false)));
        growth.bound(ProcessId(7), dir, BOUND);
        growth
    }

    fn writer(path: &Path) -> File {
        let opened = OpenOptions::new().create(true).append(true).open(path);
        opened.expect("the file can be created")
    }

    /// Checks the files until a condition holds.
    fn until(growth: &mut Growth, holds: &dyn Fn(&Growth) -> bool) {
        while !holds(growth) {
            growth.look();
            std::thread::yield_now();
        }
    }

    fn length(path: &Path) -> u64 {
        std::fs::metadata(path).expect("the file exists").len()
    }

    #[test]
    fn a_file_that_is_too_long_is_rotated_and_one_that_does_not_grow_is_left_to_the_kernel() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let mut growth = growth(dir.path());
        let mut writer = writer(&path);
        // Both files must exist to be watched.
        std::fs::write(dir.path().join("stderr.log"), "").expect("the file can be written");
        writer.write_all(&[b'a'; 9000]).expect("the file can be written");
        until(&mut growth, &|growth| growth.wait_ms().is_none());
        assert!(!rotated(&path, 1).exists());
        writer.write_all(&[b'a'; 9000]).expect("the file can be written");
        until(&mut growth, &|_| rotated(&path, 1).exists());
        until(&mut growth, &|_| length(&path) <= BOUND.bytes_max);
        until(&mut growth, &|growth| growth.wait_ms().is_none());
    }

    #[test]
    fn the_last_look_is_when_a_process_has_ended() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stderr.log");
        let mut growth = growth(dir.path());
        std::fs::write(&path, vec![b'a'; 25_000]).expect("the file can be written");
        growth.release(ProcessId(7));
        until(&mut growth, &Growth::is_empty);
        assert!(rotated(&path, 1).exists() && length(&path) <= BOUND.bytes_max);
    }

    #[test]
    fn what_is_written_faster_than_it_is_rotated_is_discarded_and_that_is_noted() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let mut growth = growth(dir.path());
        let writer = writer(&path);
        for _ in 0..50 {
            // The hole takes no space on the disk.
            let long = length(&path) + SLACK_BYTES + BOUND.bytes_max + 1;
            writer.set_len(long).expect("the file can be written");
            growth.look();
            assert!(length(&path) < BOUND.bytes_max, "{}", length(&path));
        }
        let noted = std::fs::read_to_string(&path).expect("the file can be read");
        assert!(noted.contains("bytes of output were discarded"), "{noted}");
    }

    #[test]
    fn space_that_is_reserved_beyond_the_output_is_freed() {
        use rustix::fs::{FallocateFlags, fallocate};
        use std::os::unix::fs::MetadataExt as _;
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let mut writer = writer(&path);
        writer.write_all(b"output").expect("the file can be written");
        let taken = || std::fs::metadata(&path).expect("the file exists").blocks() * 512;
        let most = BOUND.outgrown();
        let reserved = |bytes: u64| {
            fallocate(&writer, FallocateFlags::KEEP_SIZE, 0, bytes).is_ok() && taken() >= bytes
        };
        if !reserved(most + (1 << 20)) {
            // The file system cannot reserve space, so no process can.
            return;
        }
        let mut growth = growth(dir.path());
        // While its process runs, and also if that has ended.
        growth.look();
        assert!(taken() <= most, "{}", taken());
        assert!(reserved(most + (1 << 20)));
        growth.release(ProcessId(7));
        until(&mut growth, &Growth::is_empty);
        assert!(taken() <= most, "{}", taken());
        assert!(std::fs::read(&path).expect("the file exists") == b"output");
    }

    #[test]
    fn a_file_that_lost_its_name_stays_bounded() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let mut growth = growth(dir.path());
        let mut writer = writer(&path);
        growth.look();
        std::fs::rename(&path, dir.path().join("moved")).expect("the file exists");
        writer.write_all(&[b'a'; 15_000]).expect("the file can be written");
        growth.look();
        assert_eq!(length(&dir.path().join("moved")), 0);
        std::fs::remove_file(dir.path().join("moved")).expect("the file exists");
        writer.write_all(&[b'a'; 15_000]).expect("the file can be written");
        growth.look();
        assert_eq!(writer.metadata().expect("the file is open").len(), 0);
    }

    #[test]
    fn a_pipe_in_place_of_an_output_file_or_a_rotated_one_blocks_nothing() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let pipe = |path: &Path| {
            rustix::fs::mkfifoat(rustix::fs::CWD, path, mode).expect("a pipe can be created");
        };
        let mut growth = growth(dir.path());
        pipe(&dir.path().join("stderr.log"));
        for name in ["stdout.log.0.gz", "stdout.log.trial", "stdout.log.at"] {
            pipe(&dir.path().join(name));
        }
        std::fs::write(&path, vec![b'a'; 15_000]).expect("the file can be written");
        until(&mut growth, &|_| rotated(&path, 1).exists());
        until(&mut growth, &|_| length(&path) <= BOUND.bytes_max);
    }
}
