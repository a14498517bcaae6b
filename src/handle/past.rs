//! Queries about the past of a running node: its state after any entry of the journal, and the history of an item, even from before the
//! events that the node keeps in memory.
//!
//! Requests are answered one at a time, by a thread that reads the journal while another one writes it. No actor is queried, and the core
//! thread does no work for the requests. The thread exits, and frees its memory, after five minutes without requests, or when the last
//! handle to the node is dropped.

use super::{Command, Facts, Handle};
use crate::ids::Seq;
use crate::persist::PersistError;
use crate::persist::disk::{Disk, RealDisk};
use crate::persist::journal::Journal;
use crate::persist::snapshots::thread::lower_priority;
use crate::persist::snapshots::{CopiedStores, SledStores, Slots};
use crate::refusal::Reason;
use crate::replay::{Bounds, FollowedItem, History, ReplayError, StateAt, Timeline, TimelineError};
use crate::spine::guard::guard;
use crate::spine::recovery::RecoveryError;
use crate::thread;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The time for which the replayed states are kept after the last request.
const IDLE: Duration = Duration::from_mins(5);

/// The maximum time a request waits before it is answered with the progress of the thread instead.
const TIMEOUT: Duration = Duration::from_millis(800);

/// The maximum number of requests that wait while another is answered.
const WAITING_MAX: usize = 4;

/// The maximum number of item histories (stories) kept, so that they can be shown again without another pass through the journal.
const STORIES_MAX: usize = 16;

/// The number of new journal entries after which a kept story is read again.
const STALE: u64 = 10_000;

/// The directory below the data directory to which snapshots are copied in order to be read.
const SCRATCH: &str = "past";

/// A handle for queries about the past of a node.
#[derive(Clone)]
pub struct Past {
    handle: Handle,
}

/// An answer, or the progress of reading the journal for it.
#[derive(Clone, Debug)]
pub enum Answered<T> {
    /// The answer.
    Ready(T),
    /// The journal is still being read: repeat the request later.
    Reading {
        /// The last entry read so far.
        reached: Seq,
        /// The last entry of the journal.
        last: Seq,
    },
}

/// Why a request about the past was not answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PastError {
    /// The node keeps no journal.
    #[error("this coordinator keeps no journal, so its past cannot be shown")]
    Memory,
    /// Four requests are waiting already.
    #[error("too many requests about the past are waiting: try again in a moment")]
    Busy,
    /// The answer would take too much memory.
    #[error("{0}; `sexton replay` can show it, in a separate process")]
    TooLarge(String),
    /// The journal cannot be read.
    #[error("failed to show the past: {0}")]
    Unreadable(String),
    /// The node has stopped or halted.
    #[error("the coordinator is stopping")]
    Stopped,
}

impl PastError {
    /// Returns the machine-readable reason.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Memory => Reason::NoFiles,
            Self::Busy => Reason::Busy,
            Self::TooLarge(_) => Reason::TooBig,
            Self::Unreadable(_) => Reason::Failed,
            Self::Stopped => Reason::Stopped,
        }
    }
}

impl From<TimelineError> for PastError {
    fn from(error: TimelineError) -> Self {
        match error {
            TimelineError::TooLarge { .. } => Self::TooLarge(error.to_string()),
            TimelineError::Abandoned => Self::Stopped,
            TimelineError::Replay(_)
            | TimelineError::NoBeginning(_)
            | TimelineError::Waypoint(_) => Self::Unreadable(error.to_string()),
        }
    }
}

type Answer<T> = oneshot::Sender<Result<T, PastError>>;

/// A request to the thread that reads the past.
enum Question {
    State(Option<Seq>, Answer<Box<StateAt>>),
    History(FollowedItem, Answer<Arc<History>>),
}

impl Question {
    /// Answers with an error.
    fn refuse(self, error: PastError) {
        match self {
            Self::State(_, answer) => drop(answer.send(Err(error))),
            Self::History(_, answer) => drop(answer.send(Err(error))),
        }
    }

    /// Returns whether the caller no longer waits.
    fn is_closed(&self) -> bool {
        match self {
            Self::State(_, answer) => answer.is_closed(),
            Self::History(_, answer) => answer.is_closed(),
        }
    }
}

impl Handle {
    /// Returns a handle for queries about the node's past, as far back as its journal goes.
    pub fn past(&self) -> Past {
        Past { handle: self.clone() }
    }
}

impl Past {
    /// Returns the state after entry `at`, or the current state if `at` is `None`, with the entries before and after it. A number outside
    /// the range for which the state is known is replaced by the nearest one within it.
    pub async fn state(&self, at: Option<Seq>) -> Result<Answered<Box<StateAt>>, PastError> {
        self.ask(|answer| Question::State(at, answer)).await
    }

    /// Returns the history of an item. The newest events may be missing; they can be read from [`Handle::events`].
    pub async fn history(&self, item: FollowedItem) -> Result<Answered<Arc<History>>, PastError> {
        self.ask(|answer| Question::History(item, answer)).await
    }

    async fn ask<T>(
        &self,
        question: impl FnOnce(Answer<T>) -> Question,
    ) -> Result<Answered<T>, PastError> {
        let facts = &self.handle.facts;
        let last = facts.journal.as_ref().ok_or(PastError::Memory)?.released();
        if facts.commands.is_closed() {
            return Err(PastError::Stopped);
        }
        let (answer, answered) = oneshot::channel();
        facts.past.ask(question(answer), facts)?;
        tokio::select! {
            biased;
            answer = answered => match answer {
                Ok(answer) => answer.map(Answered::Ready),
                Err(_) if facts.commands.is_closed() => Err(PastError::Stopped),
                // The thread drops a request whose answer panicked, and logs the cause.
                Err(_) => Err(PastError::Unreadable("the reading panicked".to_owned())),
            },
            paused = self.handle.pause(TIMEOUT) => {
                paused.map_err(|_| PastError::Stopped)?;
                let reached = Seq(facts.past.0.reached.load(Ordering::Relaxed));
                Ok(Answered::Reading { reached, last })
            }
        }
    }
}

/// The queue of requests to the thread that reads the past. The thread is started by the first request, and again by a request after it has
/// exited.
#[derive(Default)]
pub(crate) struct Readers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    asked: Condvar,
    /// The last entry that the thread has read for the current request.
    reached: AtomicU64,
}

#[derive(Default)]
struct Waiting {
    questions: VecDeque<Question>,
    /// Whether a thread is running.
    is_read: bool,
    /// Whether all handles have been dropped.
    is_closed: bool,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers the waiting requests after the thread has panicked. The next request starts another.
    fn fail(&self, cause: &str) {
        let mut waiting = self.waiting();
        waiting.is_read = false;
        for question in waiting.questions.drain(..) {
            question.refuse(PastError::Unreadable(cause.to_owned()));
        }
    }

    /// Waits for the next request. Returns `None` if the thread should exit, after [`IDLE`] without requests or when all handles were
    /// dropped.
    fn next(&self) -> Option<Question> {
        let is_idle = |it: &mut Waiting| it.questions.is_empty() && !it.is_closed;
        let waiting = self.waiting();
        let waited = self.asked.wait_timeout_while(waiting, IDLE, is_idle);
        let (mut waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = waiting.questions.pop_front();
        waiting.is_read = next.is_some() && !waiting.is_closed;
        next.filter(|_| waiting.is_read)
    }
}

impl Readers {
    /// Queues a request, and starts a thread if none is running. Returns [`PastError::Busy`] if [`WAITING_MAX`] requests are waiting.
    fn ask(&self, question: Question, facts: &Facts) -> Result<(), PastError> {
        let mut waiting = self.0.waiting();
        waiting.questions.retain(|question| !question.is_closed());
        if waiting.questions.len() >= WAITING_MAX {
            return Err(PastError::Busy);
        }
        waiting.questions.push_back(question);
        if waiting.is_read {
            self.0.asked.notify_one();
            return Ok(());
        }
        let reader = Reader::new(Arc::clone(&self.0), facts)?;
        let shared = Arc::clone(&self.0);
        let started = thread::start(
            "sexton-past",
            move || reader.read(),
            move |ended| {
                if let Err(cause) = ended {
                    shared.fail(&cause);
                }
            },
        );
        started
            .map_err(|error| PastError::Unreadable(format!("could not start a thread: {error}")))?;
        waiting.is_read = true;
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.0.waiting().is_closed = true;
        self.0.asked.notify_one();
    }
}

/// The state owned by the thread that answers the requests: what it reads, and the states and stories that it keeps for later requests.
struct Reader {
    shared: Arc<Shared>,
    journal: Journal,
    /// A channel to the core thread, closed once that thread has exited.
    core: mpsc::UnboundedSender<Command>,
    data: PathBuf,
    timeline: Timeline,
    stories: VecDeque<(FollowedItem, Arc<History>)>,
}

impl Reader {
    fn new(shared: Arc<Shared>, facts: &Facts) -> Result<Self, PastError> {
        let (Some(data), Some(journal)) = (facts.data.clone(), facts.journal.clone()) else {
            return Err(PastError::Memory);
        };
        let timeline = timeline(&data);
        Ok(Self {
            shared,
            journal,
            core: facts.commands.clone(),
            data,
            timeline,
            stories: VecDeque::new(),
        })
    }

    fn read(mut self) {
        lower_priority();
        self.tidy();
        let shared = Arc::clone(&self.shared);
        while let Some(question) = shared.next() {
            if question.is_closed() {
                continue;
            }
            let answered = guard(|| self.answer(question));
            if let Err(cause) = answered {
                tracing::warn!(%cause, "failed to answer a request about the past");
                self.timeline = timeline(&self.data);
            }
            self.tidy();
        }
    }

    /// Answers a request. The states reached while reading are kept for later requests, even if the caller no longer waits.
    fn answer(&mut self, question: Question) {
        match question {
            Question::State(at, answer) => {
                let state = self.with(|timeline, last, watch| timeline.state_at(at, last, watch));
                drop(answer.send(state.map(Box::new)));
            }
            Question::History(item, answer) => drop(answer.send(self.history(item))),
        }
    }

    fn history(&mut self, item: FollowedItem) -> Result<Arc<History>, PastError> {
        let last = self.journal.released();
        let is_fresh = |history: &History| last.0.saturating_sub(history.upto.0) < STALE;
        let mut kept = self.stories.iter();
        if let Some((_, history)) = kept.find(|(it, history)| *it == item && is_fresh(history)) {
            return Ok(Arc::clone(history));
        }
        let history = self.with(|timeline, last, watch| timeline.history(&item, last, watch))?;
        let history = Arc::new(history);
        self.stories.retain(|(it, _)| *it != item);
        self.stories.truncate(STORIES_MAX - 1);
        self.stories.push_front((item, Arc::clone(&history)));
        Ok(history)
    }

    /// Calls `look` with the last durable entry. If it fails, possibly because segments were removed while they were being read, calls it
    /// once more.
    fn with<T>(
        &mut self,
        look: impl Fn(&mut Timeline, Seq, &mut dyn FnMut(Seq) -> bool) -> Result<T, TimelineError>,
    ) -> Result<T, PastError> {
        let (shared, core) = (&self.shared, &self.core);
        let mut watch = |seq: Seq| {
            shared.reached.store(seq.0, Ordering::Relaxed);
            !core.is_closed()
        };
        let last = self.journal.released();
        match look(&mut self.timeline, last, &mut watch) {
            Err(error) if is_gone(&error) => {
                let last = self.journal.released();
                Ok(look(&mut self.timeline, last, &mut watch)?)
            }
            looked => Ok(looked?),
        }
    }

    /// Removes the copies of snapshots.
    fn tidy(&self) {
        if let Err(error) = RealDisk::new(&self.data).remove_tree(SCRATCH) {
            tracing::warn!(%error, "failed to remove the copy of a snapshot from the data directory");
        }
    }
}

fn timeline(data: &Path) -> Timeline {
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::new(data));
    let scratch = data.join(SCRATCH);
    let copies = CopiedStores::new(
        Arc::clone(&disk),
        Arc::new(RealDisk::new(&scratch)),
        Arc::new(SledStores::new(&scratch)),
    );
    let slots = Slots::new(Arc::clone(&disk), Arc::new(copies));
    Timeline::new(disk, slots, Bounds::default())
}

/// Returns whether the error may have been caused by a file that was removed while it was being read.
fn is_gone(error: &TimelineError) -> bool {
    let TimelineError::Replay(ReplayError::Recovery(RecoveryError::Persist(error))) = error else {
        return false;
    };
    matches!(
        error,
        PersistError::Gone { .. } | PersistError::Missing { .. } | PersistError::Io { .. }
    )
}
