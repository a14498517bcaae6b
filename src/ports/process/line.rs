//! Watches output for lines that mark a process as ready. The kernel reports when a file has grown. A file is watched only while such a
//! line is awaited.

use crate::ids::ProcessId;
use crate::kernel::file;
use crate::ports::process::files;
use rustix::event::epoll;
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{Mode, OFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// The file that stores the offset at which the output of the process begins, so that a restarted coordinator can search from there.
const BEGIN: &str = "stdout.begin";

/// How many bytes are searched before other events are handled.
const AT_ONCE_BYTES: usize = 1 << 20;

/// The interval at which a file that the kernel does not watch is checked, in milliseconds.
const LOOK_MS: u64 = 100;

/// An awaited line, and how far the output has been searched for it.
#[derive(Debug)]
pub(super) struct Line {
    path: PathBuf,
    text: Vec<u8>,
    /// The offset up to which the file has been searched.
    at: u64,
    /// The last bytes that were searched. They are kept since the text may begin in them and end in later output.
    before: Vec<u8>,
    watch: Option<i32>,
    /// When the file is next checked without waiting for a notification, by `World::clock`; `None` for never.
    next: Option<u64>,
}

/// All awaited lines.
#[derive(Debug, Default)]
pub(super) struct Lines {
    inotify: Option<OwnedFd>,
    all: BTreeMap<ProcessId, Line>,
    watches: BTreeMap<i32, ProcessId>,
}

/// The result of a search.
enum Look {
    Ready,
    Nothing,
    /// There may be more output to search, after other events have been handled.
    More,
}

impl Line {
    /// Creates the output file of a process that is about to be launched, or truncates it unless `appends`, and stores the offset at which
    /// the output of the process will begin.
    pub(super) fn begin(dir: &Path, appends: bool) -> io::Result<()> {
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let mode = Mode::RUSR | Mode::WUSR;
        let output = file::own(&dir.join(files::STDOUT), flags, mode)?;
        let length = if appends {
            rustix::fs::fstat(&output)?.st_size
        } else {
            rustix::fs::ftruncate(&output, 0)?;
            0
        };
        files::replace(&dir.join(BEGIN), 0o600, length.to_string().as_bytes())
    }

    /// Returns the state for awaiting a line that contains this text in the output file in `dir`.
    pub(super) fn of(dir: &Path, text: &str) -> Self {
        Self {
            path: dir.join(files::STDOUT),
            text: text.as_bytes().to_vec(),
            at: begin_of(dir).unwrap_or(0),
            before: Vec::new(),
            watch: None,
            next: None,
        }
    }

    /// Searches the part of the file that has not been searched yet, at most about [`AT_ONCE_BYTES`] of it at a time.
    fn look(&mut self) -> io::Result<Look> {
        let file = file::own(&self.path, OFlags::RDONLY, Mode::empty())?;
        let length = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        if length < self.at {
            // The file was truncated.
            self.at = 0;
            self.before.clear();
        }
        let mut looked = 0;
        let mut chunk = vec![0; 64 << 10];
        loop {
            let count = rustix::io::pread(&file, chunk.as_mut_slice(), self.at)?;
            let new = chunk.get(..count).unwrap_or_default();
            if new.is_empty() {
                return Ok(Look::Nothing);
            }
            if self.is_in(new) {
                return Ok(Look::Ready);
            }
            self.at += new.len() as u64;
            looked += new.len();
            if looked >= AT_ONCE_BYTES {
                return Ok(Look::More);
            }
        }
    }

    /// Returns whether an occurrence of the text ends in the new part. The text contains no line break, so it never spans two lines.
    fn is_in(&mut self, new: &[u8]) -> bool {
        self.before.extend_from_slice(new);
        let mut places = self.before.windows(self.text.len());
        let is_there = places.any(|place| place == self.text);
        let keep = self.text.len().saturating_sub(1).min(self.before.len());
        self.before.drain(..self.before.len() - keep);
        is_there
    }
}

impl Lines {
    /// Creates an empty set of awaited lines. `epoll` delivers the kernel's notifications under this token; if they are unavailable, files
    /// are checked periodically.
    pub(super) fn open(epoll: &OwnedFd, token: u64) -> Self {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        let waited = inotify.and_then(|inotify| {
            let (data, flags) = (epoll::EventData::new_u64(token), epoll::EventFlags::IN);
            epoll::add(epoll, &inotify, data, flags)?;
            Ok(inotify)
        });
        Self { inotify: waited.ok(), ..Self::default() }
    }

    /// Starts to wait for a line.
    pub(super) fn follow(&mut self, id: ProcessId, mut line: Line) {
        let watched = self.inotify.as_ref().map(|inotify| {
            // `DONT_FOLLOW`: a link in place of the file must not be followed.
            let flags = WatchFlags::MODIFY | WatchFlags::DONT_FOLLOW;
            inotify::add_watch(inotify, &line.path, flags)
        });
        // If the limit on watches is reached, the file is checked periodically instead.
        if let Some(Ok(watch)) = watched {
            self.watches.insert(watch, id);
            line.watch = Some(watch);
        }
        // The line may already be in the file.
        line.next = Some(0);
        self.all.insert(id, line);
    }

    /// Stops waiting for the line of a process.
    pub(super) fn forget(&mut self, id: ProcessId) {
        let watch = self.all.remove(&id).and_then(|line| line.watch);
        // By now the watch may belong to another process that writes to the same file.
        let its = watch.filter(|watch| self.watches.get(watch) == Some(&id));
        if let (Some(watch), Some(inotify)) = (its, &self.inotify) {
            self.watches.remove(&watch);
            // The file may have been removed, and its watch with it.
            let _gone = inotify::remove_watch(inotify, watch);
        }
    }

    /// Returns when a file must next be checked without waiting for a notification; `None` if there is no such file.
    pub(super) fn next(&self) -> Option<u64> {
        self.all.values().filter_map(|line| line.next).min()
    }

    /// Searches files that have grown and those that are due. Returns the processes whose lines were found; those lines are no longer
    /// awaited.
    pub(super) fn grown(&mut self, now: u64) -> Vec<ProcessId> {
        let mut grown = self.grown_files();
        let due = self.all.iter().filter(|(_, line)| line.next.is_some_and(|at| at <= now));
        grown.extend(due.map(|(id, _)| *id));
        let mut ready = Vec::new();
        for id in grown {
            let Some(line) = self.all.get_mut(&id) else {
                continue;
            };
            line.next = match line.look() {
                Ok(Look::Ready) => {
                    ready.push(id);
                    None
                }
                Ok(Look::More) => Some(now),
                Ok(Look::Nothing) if line.watch.is_some() => None,
                Ok(Look::Nothing) => Some(now + LOOK_MS),
                Err(error) => {
                    tracing::debug!("{}: {error}", line.path.display());
                    Some(now + LOOK_MS)
                }
            };
        }
        for id in &ready {
            self.forget(*id);
        }
        ready
    }

    /// Returns the processes whose output has grown according to the kernel.
    fn grown_files(&self) -> BTreeSet<ProcessId> {
        let mut grown_files = BTreeSet::new();
        let Some(inotify) = &self.inotify else {
            return grown_files;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        // An event without a known watch may mean that the queue has overflowed, so all files are searched.
        while let Ok(event) = reader.next() {
            match self.watches.get(&event.wd()) {
                Some(id) => {
                    grown_files.insert(*id);
                }
                None => grown_files.extend(self.all.keys().copied()),
            }
        }
        grown_files
    }
}

/// Returns the offset at which the output of the process begins; `None` if it was not stored.
fn begin_of(dir: &Path) -> Option<u64> {
    let file = file::own(&dir.join(BEGIN), OFlags::RDONLY, Mode::empty()).ok()?;
    let mut text = [0; 20];
    let count = rustix::io::read(&file, &mut text).ok()?;
    std::str::from_utf8(text.get(..count)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Line, Lines};
    use crate::ids::ProcessId;
    use std::fs::OpenOptions;
    use std::io::Write as _;

    const ID: ProcessId = ProcessId(7);

    #[test]
    fn a_text_is_found_wherever_it_is_cut_and_not_before_it_begins() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        std::fs::write(&path, "ready to serve, said one before\n")
            .expect("the file can be written");
        Line::begin(dir.path(), true).expect("the offset can be stored");
        let mut lines = Lines::default();
        lines.follow(ID, Line::of(dir.path(), "ready to serve"));
        assert!(lines.grown(0).is_empty());
        let mut file = OpenOptions::new().append(true).open(&path).expect("the file exists");
        for (at, part) in (1..).zip(["rea", "dy\nready", " to", " serv"]) {
            file.write_all(part.as_bytes()).expect("the file can be written");
            assert!(lines.grown(at * 1000).is_empty(), "{part}");
        }
        file.write_all(b"e").expect("the file can be written");
        assert_eq!(lines.grown(9000), [ID]);
        assert_eq!((lines.grown(9999), lines.next()), (vec![], None));
    }

    #[test]
    fn a_file_that_is_begun_anew_is_looked_through_from_its_beginning() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        std::fs::write(&path, "much that is old\n").expect("the file can be written");
        Line::begin(dir.path(), true).expect("the offset can be stored");
        let mut lines = Lines::default();
        lines.follow(ID, Line::of(dir.path(), "up"));
        std::fs::write(&path, "up\n").expect("the file can be written");
        assert_eq!(lines.grown(0), [ID]);
    }
}
