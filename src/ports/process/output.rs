//! Limits the size of output files (see `growth.rs`), and reads records from the output of hooks after they have ended.
//!
//! A separate thread does this. Processes that are not hooks and have no size limit cost nothing here.

use crate::actors::process::Message;
use crate::clock::{Clock as _, SystemClock, Timestamp};
use crate::ids::ProcessId;
use crate::ports::process::files;
use crate::ports::process::growth::{Bound, Growth};
use crate::spine::halt::Sentry;
use crate::thread::JoinHandle;
use crossbeam_channel::{Receiver, Sender, TryRecvError, unbounded};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The interval at which a hook's output is read again after an error, in milliseconds.
const READ_AGAIN_MS: u64 = 1000;

/// The maximum number of times that the output of a hook is read, at intervals of [`READ_AGAIN_MS`], if reading it fails for a reason that may pass,
/// such as a lack of descriptors.
const READS_MAX: u32 = 60;

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

/// A handle to the thread for output files. The thread starts with the first request and ends when the handle is dropped.
pub(super) struct Outputs {
    /// Moved to the thread when it starts.
    report: Option<Report>,
    sentry: Sentry,
    thread: Option<Thread>,
}

struct Thread {
    asks: Option<Sender<Request>>,
    wake: Arc<OwnedFd>,
    is_over: Arc<AtomicBool>,
    handle: Option<JoinHandle<()>>,
}

impl Outputs {
    /// Creates a handle. The thread is not started yet.
    pub(super) const fn new(report: Report, sentry: Sentry) -> Self {
        Self { report: Some(report), sentry, thread: None }
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
            self.thread.iter().for_each(Thread::wake);
        }
    }
}

impl Thread {
    fn start(report: Report, sentry: &Sentry) -> io::Result<Self> {
        let (asks, asked) = unbounded();
        let is_over = Arc::new(AtomicBool::new(false));
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let (over, woken) = (Arc::clone(&is_over), Arc::clone(&wake));
        let thread = sentry.thread("output", move || {
            let mut files = Files::new(report, &over);
            let goes_on = || !over.load(Ordering::Relaxed);
            while goes_on() && files.step(&asked, &goes_on) {
                files.wait(&woken);
            }
            // The thread ends only when its handle is dropped.
            true
        })?;
        Ok(Self { asks: Some(asks), wake, is_over, handle: Some(thread) })
    }

    fn wake(&self) {
        // This fails only if the counter is at its maximum, which wakes the thread as well.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.asks = None;
        self.wake();
        if let Some(thread) = self.handle.take() {
            // A panic of the thread was logged by the panic hook.
            drop(thread.join());
        }
    }
}

#[cfg(feature = "replay")]
use crate::ports::process::hook::read;

/// Reports that the output cannot be read: there is no JSON parser in this build.
#[cfg(not(feature = "replay"))]
#[expect(clippy::unnecessary_wraps, reason = "reading may fail where there is a parser")]
fn read(
    id: ProcessId,
    _: &Path,
    _: bool,
    report: &mut Report,
    _: &dyn Fn() -> bool,
) -> io::Result<()> {
    use crate::actors::process::{HookOutput, Warning};
    let words =
        "this build cannot read records: it was built without the feature `http`".to_owned();
    let found = Box::new(HookOutput {
        broken: 1,
        warnings: vec![Warning { line: 0, words }],
        ..HookOutput::default()
    });
    report(Message::Found { id, found });
    Ok(())
}

/// A hook whose output could not be read so far.
struct Unread {
    id: ProcessId,
    dir: PathBuf,
    tries: u32,
    /// When to try again, in milliseconds.
    at: u64,
}

struct Files {
    growth: Growth,
    clock: SystemClock,
    unread: Vec<Unread>,
    report: Report,
}

impl Files {
    fn new(report: Report, is_over: &Arc<AtomicBool>) -> Self {
        Self {
            growth: Growth::new(Arc::clone(is_over)),
            clock: SystemClock::starting_at(Timestamp(0)),
            unread: Vec::new(),
            report,
        }
    }

    /// Waits for a request, for growth, or for the next check.
    fn wait(&self, wake: &OwnedFd) {
        let now = self.clock.now().0;
        let reads = self.unread.iter().map(|it| it.at.saturating_sub(now));
        let wait = reads.chain(self.growth.wait_ms()).min();
        let wait = wait.map(|ms| Timespec {
            tv_sec: i64::try_from(ms / 1000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(ms % 1000 * 1_000_000).unwrap_or(0),
        });
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        let grown = self.growth.descriptor();
        fds.extend(grown.map(|grown| PollFd::new(grown, PollFlags::IN)));
        // If this fails, everything is checked now.
        let _events = poll(&mut fds, wait.as_ref());
        let mut count = [0; 8];
        // Reset the eventfd so that it is not reported again.
        let _ = rustix::io::read(wake, &mut count);
    }

    /// Handles all requests, and checks the files that grow. Returns whether to continue.
    fn step(&mut self, asked: &Receiver<Request>, goes_on: &dyn Fn() -> bool) -> bool {
        loop {
            match asked.try_recv() {
                Ok(Request::Bound(id, dir, bound)) => self.growth.bound(id, &dir, bound),
                Ok(Request::Release(id)) => self.growth.release(id),
                Ok(Request::Read(id, dir)) => {
                    let (tries, at) = (0, 0);
                    self.unread.push(Unread { id, dir, tries, at });
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
        self.growth.look();
        let now = self.clock.now().0;
        for hook in std::mem::take(&mut self.unread) {
            if hook.at <= now {
                self.read(hook, goes_on);
                // Reading takes time, in which files may grow.
                self.growth.look();
            } else {
                self.unread.push(hook);
            }
        }
        true
    }

    /// Reads the output of a hook. If that fails for a reason that may pass, it is read again later: what it printed is not lost because there
    /// was no descriptor left, for example.
    fn read(&mut self, mut hook: Unread, goes_on: &dyn Fn() -> bool) {
        let path = hook.dir.join(files::STDOUT);
        hook.tries += 1;
        let is_last = hook.tries >= READS_MAX;
        if let Err(error) = read(hook.id, &path, is_last, &mut self.report, goes_on) {
            if hook.tries == 1 {
                tracing::warn!("{} cannot be read yet: {error}", path.display());
            }
            hook.at = self.clock.now().0 + READ_AGAIN_MS;
            self.unread.push(hook);
        }
    }
}
