//! What launches need from paths at which another user may keep a process that opens them waiting, as on a FUSE or NFS file system whose
//! server does not answer. Each path is used by a thread of its own, so that nothing else waits for it, and with a time limit. A thread
//! that has not come back by then is left behind: it can be neither interrupted nor killed.
//!
//! It never waits itself. The caller passes the time.

use crate::actors::process::{Failure, Step};
use crate::ids::ProcessId;
use crate::ports::process::files;
use crate::thread;
use crossbeam_channel::{Receiver, Sender, unbounded};
use rustix::event::{EventfdFlags, eventfd};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The epoll token of the eventfd that announces results.
pub(super) const FETCHED: u64 = 5;

/// How long a path is waited for, from when its thread is started, in milliseconds.
const LIMIT_MS: u64 = 10_000;

/// The maximum number of threads, including those that were left behind.
const THREADS_MAX: usize = 16;

/// What is needed from a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// The working directory is to be made.
    Directory,
    /// The variables of the environment file.
    Variables,
    /// Why the kernel did not execute the program.
    Program,
}

impl Need {
    const fn step(self) -> Step {
        match self {
            Self::Directory => Step::Directory,
            Self::Variables => Step::Environment,
            Self::Program => Step::Exec,
        }
    }
}

/// What was found at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Directory,
    Variables(Vec<(String, Vec<u8>)>),
    Words(Option<String>),
}

/// What was found, or why the launch fails.
type Answer = Result<Found, Failure>;

/// What a thread does with a path.
type Use = Box<dyn FnOnce() -> Answer + Send>;

type Key = (ProcessId, Need);

/// The number of a thread, and its answer.
type End = (u64, Answer);

/// A thread that uses a path.
#[derive(Debug)]
struct Running {
    number: u64,
    path: PathBuf,
    /// For whom, until the thread is left behind.
    key: Option<Key>,
    until: u64,
}

/// The paths that are being used, and what was found.
pub(super) struct Fetches {
    /// What was asked for; `None` while it is waited for.
    answers: BTreeMap<Key, Option<Answer>>,
    running: Vec<Running>,
    /// What is used when another thread has come back.
    queue: VecDeque<(Key, PathBuf, Use)>,
    next: u64,
    report: Sender<End>,
    ended: Receiver<End>,
    wake: Arc<OwnedFd>,
}

impl Fetches {
    pub(super) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (report, ended) = unbounded();
        Ok(Self {
            answers: BTreeMap::new(),
            running: Vec::new(),
            queue: VecDeque::new(),
            next: 0,
            report,
            ended,
            wake: Arc::new(wake),
        })
    }

    /// Returns the descriptor that becomes readable when a thread has come back.
    pub(super) fn wake(&self) -> &OwnedFd {
        &self.wake
    }

    /// Has a path used for a process, unless that has been asked for. Returns whether there is no answer yet.
    pub(super) fn ask(&mut self, key: Key, path: PathBuf, now: u64, run: Use) -> bool {
        if let Entry::Vacant(entry) = self.answers.entry(key) {
            entry.insert(None);
            self.begin(key, path, now, run);
        }
        self.answers.get(&key).is_some_and(Option::is_none)
    }

    /// Takes an answer; `None` if nothing was asked for, or there is no answer yet.
    pub(super) fn take(&mut self, key: Key) -> Option<Answer> {
        self.answers.remove(&key).flatten()
    }

    /// Forgets what was asked for a process.
    pub(super) fn forget(&mut self, id: ProcessId) {
        for need in [Need::Directory, Need::Variables, Need::Program] {
            self.answers.remove(&(id, need));
        }
        self.queue.retain(|((asked, _), ..)| *asked != id);
    }

    /// Returns when [`settle`](Self::settle) must be called, if it is not called before.
    pub(super) fn deadline(&self) -> Option<u64> {
        let waited = self.running.iter().filter(|it| it.key.is_some());
        waited.map(|it| it.until).min()
    }

    /// Takes the results of the threads that have come back, and leaves those behind that are late. Returns the processes with new answers.
    pub(super) fn settle(&mut self, now: u64) -> Vec<ProcessId> {
        // Reset the eventfd so that it is not reported again.
        let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
        let ended: Vec<End> = self.ended.try_iter().collect();
        let mut settled: Vec<ProcessId> = Vec::new();
        for (number, answer) in ended {
            if let Some(at) = self.running.iter().position(|it| it.number == number)
                && let Some(key) = self.running.swap_remove(at).key
            {
                settled.extend(self.answer(key, answer));
            }
        }
        let late = self.running.iter_mut().filter(|it| it.until <= now);
        let late: Vec<_> = late.filter_map(|it| it.key.take().zip(Some(it.path.clone()))).collect();
        for (key, path) in late {
            let words = format!("it was not answered within {} s", LIMIT_MS / 1000);
            settled.extend(self.answer(key, Err(silent(key, &path, &words))));
        }
        for (key, path, run) in std::mem::take(&mut self.queue) {
            self.begin(key, path, now, run);
            let is_answered = self.answers.get(&key).is_some_and(Option::is_some);
            settled.extend(is_answered.then_some(key.0));
        }
        settled
    }

    /// Keeps an answer, unless nobody waits for it any more.
    fn answer(&mut self, key: Key, answer: Answer) -> Option<ProcessId> {
        *self.answers.get_mut(&key)? = Some(answer);
        Some(key.0)
    }

    /// Starts a thread, or has the path wait for one, or refuses it. A path that is not answered takes one thread, however often it is asked
    /// for.
    fn begin(&mut self, key: Key, path: PathBuf, now: u64, run: Use) {
        let same = self.running.iter().find(|it| it.path == path);
        let left = self.running.iter().filter(|it| it.key.is_none()).count();
        if same.is_some_and(|it| it.key.is_none()) {
            let words = "an earlier launch has not been answered yet";
            self.answer(key, Err(silent(key, &path, words)));
        } else if left >= THREADS_MAX {
            let words = format!("{THREADS_MAX} other paths have not been answered yet");
            self.answer(key, Err(silent(key, &path, &words)));
        } else if same.is_some() || self.running.len() >= THREADS_MAX {
            self.queue.push_back((key, path, run));
        } else if let Err(error) = self.start(key, path.clone(), now, run) {
            let failure = files::failure(key.1.step(), &error, &path);
            self.answer(key, Err(failure));
        }
    }

    fn start(&mut self, key: Key, path: PathBuf, now: u64, run: Use) -> io::Result<()> {
        self.next += 1;
        let number = self.next;
        let (sender, wake, step) = (self.report.clone(), Arc::clone(&self.wake), key.1.step());
        let report = move |answer: Result<Answer, String>| {
            let failed = |words| Err(Failure { step, errno: 0, about: Some(words) });
            // Nobody receives this if the port has ended.
            drop(sender.send((number, answer.unwrap_or_else(failed))));
            // This fails only if the counter is at its maximum, which wakes the port as well.
            let _ = rustix::io::write(&*wake, &1_u64.to_ne_bytes());
        };
        thread::start("launch-files", run, report)?;
        self.running.push(Running { number, path, key: Some(key), until: now + LIMIT_MS });
        Ok(())
    }
}

/// Returns the failure of a launch whose path is not answered.
fn silent((_, need): Key, path: &Path, words: &str) -> Failure {
    let about = format!("{}: {words}: its file system may not respond", path.display());
    Failure { step: need.step(), errno: 0, about: Some(about) }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Fetches, Found, LIMIT_MS, Need, THREADS_MAX, Use};
    use crate::actors::process::Step;
    use crate::ids::ProcessId;
    use crossbeam_channel::{Receiver, Sender, bounded};
    use rustix::event::{PollFd, PollFlags, poll};
    use std::path::PathBuf;

    const DONE: Answer = Ok(Found::Directory);

    /// Keeps those who use a path waiting, until it is dropped.
    struct Server {
        silence: Receiver<()>,
        _ends: Sender<()>,
    }

    impl Server {
        fn new() -> Self {
            let (ends, silence) = bounded(0);
            Self { silence, _ends: ends }
        }

        fn silent(&self) -> Use {
            let silence = self.silence.clone();
            Box::new(move || {
                let _ = silence.recv();
                DONE
            })
        }
    }

    fn prompt() -> Use {
        Box::new(|| DONE)
    }

    const fn key(id: u128) -> (ProcessId, Need) {
        (ProcessId(id), Need::Variables)
    }

    fn path(number: u128) -> PathBuf {
        PathBuf::from(format!("/mnt/x/{number}"))
    }

    /// Waits until threads have come back, and returns the processes with new answers.
    fn settled(fetches: &mut Fetches, now: u64) -> Vec<u128> {
        poll(&mut [PollFd::new(fetches.wake(), PollFlags::IN)], None).expect("it can be polled");
        ids(fetches.settle(now))
    }

    fn ids(found: Vec<ProcessId>) -> Vec<u128> {
        found.into_iter().map(|it| it.0).collect()
    }

    fn about(answer: Option<Answer>) -> String {
        let failure = answer.expect("it is answered").expect_err("it failed");
        assert_eq!(failure.step, Step::Environment);
        failure.about.expect("it says why")
    }

    #[test]
    fn a_path_that_is_not_answered_holds_up_no_other_and_fails_when_its_time_is_over() {
        let mut fetches = Fetches::new().expect("an eventfd can be created");
        let server = Server::new();
        assert!(fetches.ask(key(1), path(1), 0, server.silent()));
        assert!(fetches.ask(key(2), path(2), 5, prompt()));
        assert_eq!(settled(&mut fetches, 5), [2]);
        assert!(!fetches.ask(key(2), path(2), 5, prompt()), "it is there");
        assert_eq!(fetches.take(key(2)), Some(DONE));
        assert_eq!(fetches.deadline(), Some(LIMIT_MS));
        assert_eq!(ids(fetches.settle(LIMIT_MS - 1)), []);
        assert_eq!(ids(fetches.settle(LIMIT_MS)), [1]);
        let why = about(fetches.take(key(1)));
        assert!(why.starts_with("/mnt/x/1: it was not answered within 10 s"), "{why}");
        assert_eq!(fetches.deadline(), None);
        // The same path takes no further thread. When it has been answered, it is used again.
        assert!(!fetches.ask(key(3), path(1), LIMIT_MS, prompt()));
        let why = about(fetches.take(key(3)));
        assert!(why.starts_with("/mnt/x/1: an earlier launch"), "{why}");
        drop(server);
        assert_eq!(settled(&mut fetches, LIMIT_MS), []);
        assert!(fetches.ask(key(4), path(1), LIMIT_MS, prompt()));
        assert_eq!(settled(&mut fetches, LIMIT_MS), [4]);
    }

    #[test]
    fn the_threads_are_bounded_and_what_does_not_get_one_waits_or_fails() {
        let mut fetches = Fetches::new().expect("an eventfd can be created");
        let server = Server::new();
        let most = THREADS_MAX as u128;
        for id in 1..=most {
            assert!(fetches.ask(key(id), path(id), 0, server.silent()));
        }
        for id in [100, 101] {
            assert!(fetches.ask(key(id), path(id), 0, prompt()), "it waits for a thread");
        }
        fetches.forget(ProcessId(101));
        assert_eq!(fetches.running.len(), THREADS_MAX);
        let late = ids(fetches.settle(LIMIT_MS));
        assert_eq!(late, (1..=most).chain([100]).collect::<Vec<_>>());
        let why = about(fetches.take(key(100)));
        assert!(why.starts_with("/mnt/x/100: 16 other paths"), "{why}");
        assert!(!fetches.ask(key(102), path(102), LIMIT_MS, prompt()));
        drop(server);
        while !fetches.running.is_empty() {
            assert_eq!(settled(&mut fetches, LIMIT_MS), []);
        }
        assert!(fetches.ask(key(103), path(103), LIMIT_MS, prompt()));
        assert_eq!(settled(&mut fetches, LIMIT_MS), [103]);
    }

    #[test]
    fn a_path_that_is_not_answered_takes_one_thread_of_however_many_launches() {
        let mut fetches = Fetches::new().expect("an eventfd can be created");
        let server = Server::new();
        for id in 1..=100 {
            assert!(fetches.ask(key(id), path(1), 0, server.silent()));
        }
        assert_eq!(fetches.running.len(), 1);
        let late = ids(fetches.settle(LIMIT_MS));
        assert_eq!(late, (1..=100).collect::<Vec<_>>());
        assert!(fetches.ask(key(101), path(2), LIMIT_MS, prompt()));
        assert_eq!(settled(&mut fetches, LIMIT_MS), [101]);
    }

    #[test]
    fn what_waits_for_a_thread_gets_one_that_has_come_back() {
        let mut fetches = Fetches::new().expect("an eventfd can be created");
        let server = Server::new();
        let most = THREADS_MAX as u128;
        for id in 1..=most {
            assert!(fetches.ask(key(id), path(id), 0, server.silent()));
        }
        assert!(fetches.ask(key(100), path(100), 0, prompt()));
        drop(server);
        let mut all = Vec::new();
        while all.len() <= THREADS_MAX {
            all.extend(settled(&mut fetches, 1));
        }
        all.sort_unstable();
        assert_eq!(all, (1..=most).chain([100]).collect::<Vec<_>>());
    }
}
