//! Rotates output files that have become too long, and reads records from the output of hooks after they have ended.
//!
//! Both take time, so a separate thread does them. Processes that are not hooks and have no size limit cost nothing here.

use crate::actors::process::Message;
use crate::ids::ProcessId;
use crate::ports::process::files;
use crate::ports::process::rotation::{Rotated, rotate};
use crate::spine::halt::Sentry;
use crate::thread::JoinHandle;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, unbounded};
use rustix::fs::{AtFlags, CWD, statat};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The interval at which growing files are checked. A file may exceed its limit by the amount written between two checks.
const LOOK: Duration = Duration::from_secs(1);

/// The maximum interval at which a file that does not grow is checked, in units of `LOOK`.
const LOOKS_MAX: u32 = 8;

/// A request to the thread.
enum Request {
    /// Limit the output in this directory from now on.
    Bound(ProcessId, PathBuf, Bound),
    /// The process has ended: check its output one last time, then stop limiting it.
    Release(ProcessId),
    /// Read the output of a hook that has ended, in this directory.
    Read(ProcessId, PathBuf),
}

/// A callback that sends a message to the actor.
type Report = Box<dyn FnMut(Message) + Send>;

/// The maximum size of an output file, and the number of rotated files to keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) bytes_max: u64,
    pub(super) kept: u8,
}

/// A handle to the thread for output files. The thread starts with the first request and ends when the handle is dropped.
pub(super) struct Outputs {
    /// Moved to the thread when it starts.
    report: Option<Report>,
    sentry: Sentry,
    thread: Option<Thread>,
}

struct Thread {
    asks: Option<Sender<Request>>,
    is_over: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Outputs {
    /// Creates a handle. The thread is not started yet.
    pub(super) const fn new(report: Report, sentry: Sentry) -> Self {
        Self {
            report: Some(report),
            sentry,
            thread: None,
        }
    }

    /// Asks the thread to read the output of a hook that has ended, in this directory.
    pub(super) fn read(&mut self, id: ProcessId, dir: &Path) {
        self.ask(Request::Read(id, dir.to_owned()));
    }

    /// Asks the thread to limit the size of the output files in this directory.
    pub(super) fn bound(&mut self, id: ProcessId, dir: &Path, bound: Bound) {
        self.ask(Request::Bound(id, dir.to_owned(), bound));
    }

    /// Ends the limit on the output of a process that has ended, after a last check.
    pub(super) fn release(&mut self, id: ProcessId) {
        if self.thread.is_some() {
            self.ask(Request::Release(id));
        }
    }

    fn ask(&mut self, asked: Request) {
        if let Some(report) = self.report.take() {
            match Thread::start(report, &self.sentry) {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    return tracing::error!("failed to start the thread for output files: {error}");
                }
            }
        }
        if let Some(asks) = self.thread.as_ref().and_then(|it| it.asks.as_ref()) {
            // The thread ends only when this handle is dropped, so sending fails only if the thread has panicked.
            drop(asks.send(asked));
        }
    }
}

impl Thread {
    fn start(report: Report, sentry: &Sentry) -> io::Result<Self> {
        let (asks, asked) = unbounded();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = sentry.thread("output", move || {
            let mut files = Files::new(report);
            let goes_on = || !over.load(Ordering::Relaxed);
            while goes_on() && files.step(&asked, &goes_on) {}
            // The thread ends only when its handle is dropped.
            true
        })?;
        Ok(Self {
            asks: Some(asks),
            is_over,
            handle: Some(thread),
        })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.asks = None;
        if let Some(thread) = self.handle.take() {
            // A panic of the thread was logged by the panic hook.
            drop(thread.join());
        }
    }
}

#[cfg(any(feature = "http", feature = "replay"))]
use crate::ports::process::hook::read;

/// Reports that the output cannot be read: there is no JSON parser in this build.
#[cfg(not(any(feature = "http", feature = "replay")))]
fn read(id: ProcessId, _: &Path, report: &mut Report, _: &dyn Fn() -> bool) {
    use crate::actors::process::{HookOutput, Warning};
    let words =
        "this build cannot read records: it was built without the feature `http`".to_owned();
    let found = Box::new(HookOutput {
        broken: 1,
        warnings: vec![Warning { line: 0, words }],
        ..HookOutput::default()
    });
    report(Message::Found { id, found });
}

/// A file whose size is limited.
struct Bounded {
    path: PathBuf,
    bound: Bound,
    /// The size at the last check.
    length: u64,
    /// The number of checks still to skip.
    skips: u32,
    /// The current interval between checks, in units of [`LOOK`].
    span: u32,
    /// Whether an error has been logged since the last success.
    is_logged: bool,
}

struct Files {
    all: BTreeMap<ProcessId, [Bounded; 2]>,
    report: Report,
}

impl Files {
    const fn new(report: Report) -> Self {
        Self {
            all: BTreeMap::new(),
            report,
        }
    }

    /// Waits for a request or the next check. Returns whether to continue.
    fn step(&mut self, asked: &Receiver<Request>, goes_on: &dyn Fn() -> bool) -> bool {
        let next = if self.all.is_empty() {
            asked.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            asked.recv_timeout(LOOK)
        };
        match next {
            Ok(Request::Bound(id, dir, bound)) => {
                let files = [files::STDOUT, files::STDERR];
                let files = files.map(|name| Bounded::new(dir.join(name), bound));
                self.all.insert(id, files);
            }
            Ok(Request::Release(id)) => {
                for mut file in self.all.remove(&id).into_iter().flatten() {
                    file.skips = 0;
                    file.look(goes_on);
                }
            }
            Ok(Request::Read(id, dir)) => {
                read(id, &dir.join(files::STDOUT), &mut self.report, goes_on);
            }
            Err(RecvTimeoutError::Timeout) => {
                for file in self.all.values_mut().flatten() {
                    file.look(goes_on);
                }
            }
            Err(RecvTimeoutError::Disconnected) => return false,
        }
        true
    }
}

impl Bounded {
    const fn new(path: PathBuf, bound: Bound) -> Self {
        Self {
            path,
            bound,
            length: 0,
            skips: 0,
            span: 1,
            is_logged: false,
        }
    }

    fn look(&mut self, goes_on: &dyn Fn() -> bool) {
        if self.skips > 0 {
            self.skips -= 1;
            return;
        }
        let stat = statat(CWD, &self.path, AtFlags::SYMLINK_NOFOLLOW);
        let length = stat.map_or(0, |stat| u64::try_from(stat.st_size).unwrap_or(0));
        if length == self.length {
            (self.skips, self.span) = (self.span - 1, (self.span * 2).min(LOOKS_MAX));
        } else {
            self.span = 1;
        }
        self.length = length;
        if length <= self.bound.bytes_max {
            return;
        }
        match rotate(&self.path, self.bound.kept, goes_on) {
            Ok(Rotated { bytes, is_cut }) => {
                tracing::debug!(bytes, is_cut, "{} was rotated", self.path.display());
                self.is_logged = false;
            }
            Err(error) if !self.is_logged && goes_on() => {
                tracing::warn!("{} cannot be rotated: {error}", self.path.display());
                self.is_logged = true;
            }
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Bound, Bounded, Files, Request, unbounded};
    use crate::ids::ProcessId;
    use crate::ports::process::rotation::rotated;

    const BOUND: Bound = Bound {
        bytes_max: 10_000,
        kept: 2,
    };

    #[test]
    fn a_file_that_is_too_long_is_rotated_and_one_that_does_not_grow_is_seldom_looked_at() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stdout.log");
        let mut file = Bounded::new(path.clone(), BOUND);
        std::fs::write(&path, vec![b'a'; 9000]).expect("the file can be written");
        file.look(&|| true);
        assert!(!rotated(&path, 1).exists());
        std::fs::write(&path, vec![b'a'; 20_000]).expect("the file can be written");
        file.look(&|| true);
        assert!(rotated(&path, 1).exists());
        let mut skipped = Vec::new();
        for _ in 0..40 {
            file.look(&|| true);
            skipped.push(file.skips);
        }
        assert_eq!(skipped.iter().max(), Some(&7), "{skipped:?}");
    }

    #[test]
    fn the_last_look_is_when_a_process_has_ended() {
        let dir = tempfile::tempdir().expect("a directory can be created");
        let path = dir.path().join("stderr.log");
        let (asks, asked) = unbounded();
        let mut files = Files::new(Box::new(|_| {}));
        let bounded = Request::Bound(ProcessId(7), dir.path().to_owned(), BOUND);
        asks.send(bounded).expect("the receiver exists");
        assert!(files.step(&asked, &|| true));
        std::fs::write(&path, vec![b'a'; 20_000]).expect("the file can be written");
        asks.send(Request::Release(ProcessId(7)))
            .expect("the receiver exists");
        assert!(files.step(&asked, &|| true));
        assert!(rotated(&path, 1).exists() && files.all.is_empty());
        drop(asks);
        assert!(!files.step(&asked, &|| true));
    }
}
