//! What is known of a task and of its attempts. Stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Exit;
use crate::actors::dispatch::remote::Reach;
use crate::actors::lock::Name;
use crate::actors::process::Launching;
use crate::bytes::Bytes;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{ProcessId, Slot, Token};
use crate::lookup::kept::Plain;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Where a task is between its bursts: Wip's run status, with its numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// 99: it is not to be started yet.
    NotReady,
    /// 0: it has never run.
    #[default]
    NotStarted,
    /// 1: it waits for its next burst.
    Waiting,
    /// 2: an attempt at a burst is under way.
    Processing,
    /// 3: it is over.
    Complete,
    /// 4: it was over, and is to run again.
    Restarted,
}

impl RunStatus {
    /// Each of them.
    pub const ALL: [Self; 6] = [
        Self::NotReady,
        Self::NotStarted,
        Self::Waiting,
        Self::Processing,
        Self::Complete,
        Self::Restarted,
    ];

    /// Wip's number for it.
    pub const fn number(self) -> u8 {
        match self {
            Self::NotReady => 99,
            Self::NotStarted => 0,
            Self::Waiting => 1,
            Self::Processing => 2,
            Self::Complete => 3,
            Self::Restarted => 4,
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotReady => "not-ready",
            Self::NotStarted => "not-started",
            Self::Waiting => "waiting",
            Self::Processing => "processing",
            Self::Complete => "complete",
            Self::Restarted => "restarted",
        }
    }

    /// Whether it is about to be started for the first time, or again from its beginning.
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::NotStarted | Self::Restarted)
    }

    /// Whether it keeps others of its work id from being started.
    pub const fn is_under_way(self) -> bool {
        matches!(self, Self::Waiting | Self::Processing)
    }
}

/// How a task ended: Wip's exit status, with its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// 0: it has not.
    #[default]
    NotFinished,
    /// 1: completed, with a warning.
    Warning,
    /// 2: failed by what happened to it.
    SystemError,
    /// 3: ended by an operator.
    Terminated,
    /// 4: completed.
    Completed,
    /// 5: failed by its own word.
    UserError,
}

impl ExitStatus {
    /// Wip's number for it.
    pub const fn number(self) -> u8 {
        match self {
            Self::NotFinished => 0,
            Self::Warning => 1,
            Self::SystemError => 2,
            Self::Terminated => 3,
            Self::Completed => 4,
            Self::UserError => 5,
        }
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotFinished => "not-finished",
            Self::Warning => "warning",
            Self::SystemError => "system-error",
            Self::Terminated => "terminated",
            Self::Completed => "completed",
            Self::UserError => "user-error",
        }
    }

    /// Whether what was to be done was not.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::SystemError | Self::UserError)
    }
}

/// How urgent a task is, with Wip's numbers: the smaller goes first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// 0
    Critical,
    /// 1
    High,
    /// 2
    #[default]
    Medium,
    /// 3
    Low,
}

impl Priority {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// How a task is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// How many milliseconds a burst is to take. The command is told and is not held to it.
    pub burst_ms: u64,
    /// Milliseconds from the claim after which an attempt is stopped and the task failed.
    pub fail_after_ms: u64,
    /// Milliseconds between two heartbeats, at the most, once there has been one.
    pub progress_ms: u64,
    /// Whether a task is failed whose command died before it saved anything; if not, it is run again.
    pub abort_on_failure: bool,
    /// Whether a burst has ended only if the command says so; its exit status means nothing then.
    pub report_required: bool,
}

impl Terms {
    /// The longest span.
    pub const SPAN_MS_MAX: u64 = 366 * 24 * 3_600_000;
}

impl Default for Terms {
    /// Those of Wip as it is shipped.
    fn default() -> Self {
        Self {
            burst_ms: 30_000,
            fail_after_ms: 300_000,
            progress_ms: 1000,
            abort_on_failure: true,
            report_required: false,
        }
    }
}

/// What a task is, and how it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says something of its own"
)]
pub struct Task {
    /// Its number: the entry that added it.
    pub id: u64,
    /// What it works on: no two tasks of one work id are under way at a time. Empty if it has none.
    pub work: Name,
    /// Its group.
    pub group: Name,
    /// What people call it.
    pub name: Name,
    /// How urgent it is.
    pub priority: Priority,
    /// What is run for each burst.
    pub command: Arc<Launching>,
    /// What is run after each attempt, apart from it.
    pub cleanup: Option<Arc<Launching>>,
    /// How it is run.
    pub terms: Terms,
    /// When it was added.
    pub created: Timestamp,
    /// When its first attempt was claimed since it was added or restarted.
    pub started: Option<Timestamp>,
    /// When it was over.
    pub ended: Option<Timestamp>,
    /// Where it is.
    pub status: RunStatus,
    /// How it ended.
    pub exit: ExitStatus,
    /// Why, or what was said of it.
    pub words: String,
    /// When it waits no longer.
    pub wake: Date,
    /// Whether that has come.
    pub is_due: bool,
    /// Whether an operator holds it back.
    pub paused: bool,
    /// Whether its next burst is its last.
    pub terminating: bool,
    /// Whether it was asked to wake while an attempt was under way, so that it does not wait after it.
    pub woken: bool,
    /// Whether it counts in its group: from its first claim until it is over.
    pub counts: bool,
    /// How often it has saved something.
    pub revision: u64,
    /// The newest of that.
    pub saved: Option<Saved>,
    /// The attempt that is under way.
    pub attempt: Option<Attempt>,
    /// The newest attempts that have ended, the oldest of them first.
    pub past: Vec<Past>,
    /// How many attempts there were.
    pub attempts: u64,
    /// Attempts in a row that brought nothing.
    pub setbacks: u32,
    /// The attempt whose place in line for the execute lock still stands, if that was held by another.
    pub blocked: Option<Token>,
    /// When it is forgotten, once it is over.
    pub forgotten: Option<Date>,
    /// The newest run of its cleanup, until that has ended.
    pub cleaning: Option<Cleaning>,
}

/// A run of what cleans up after an attempt. It holds no thread, and nothing waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaning {
    /// The record of its process.
    pub process: ProcessId,
    /// The attempt that it cleans up after.
    pub token: Token,
    /// Whether its launch is taken on.
    pub taken: bool,
}

/// What a task has saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// When.
    pub at: Timestamp,
    /// What.
    pub body: Bytes,
}

/// How far an attempt is that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It has a thread, and asks for the execute lock.
    Claimed,
    /// It has the lock, and its launch is asked for.
    Locked,
    /// Its launch is taken on.
    Launched,
}

impl Stage {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Locked => "locked",
            Self::Launched => "launched",
        }
    }
}

/// An attempt at a burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Its fencing token: the entry that claimed the task.
    pub token: Token,
    /// The server that it runs on.
    pub server: Slot,
    /// The record of its process.
    pub process: ProcessId,
    /// How far it is.
    pub stage: Stage,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When its launch was taken on.
    pub launched: Option<Timestamp>,
    /// What the task had saved by then: how often.
    pub revision: u64,
    /// Whether it has the update lock, without which nothing is saved.
    pub updates: bool,
    /// Its newest heartbeat.
    pub beat: Option<Timestamp>,
    /// How the command says that the burst ended: the newest word counts.
    pub said: Option<Said>,
    /// Why it is being stopped, if it is.
    pub stopping: Option<Cause>,
    /// Whether it is the last of a task that is being terminated.
    pub last: bool,
    /// How it is reached, if it runs on another machine.
    pub reach: Option<Box<Reach>>,
    /// What is told of it.
    #[serde(default, skip_serializing_if = "Trace::is_empty")]
    pub trace: Trace,
}

impl Attempt {
    /// When it is stopped, if spans began again at `epoch`, and why.
    fn stops_at(&self, terms: &Terms, epoch: Timestamp) -> (Timestamp, Cause) {
        let overdue = self.claimed.plus_ms(terms.fail_after_ms);
        let silent = |beat: Timestamp| beat.max(epoch).plus_ms(terms.progress_ms);
        match self.beat.map(silent) {
            Some(silent) if silent < overdue => (silent, Cause::Silent),
            _ => (overdue, Cause::Overdue),
        }
    }
}

/// What is told of an attempt beside what it goes by: for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// The wake time for which the task had waited; none before its first burst.
    pub wake: Option<Date>,
    /// How many threads of its server were taken when it was claimed.
    pub used: u32,
    /// How many that had.
    pub threads: u32,
    /// When it had the execute lock.
    pub locked: Option<Timestamp>,
    /// When it saved for the first time.
    pub saved: Option<Timestamp>,
    /// When what cleaned up after it had ended.
    pub cleaned: Option<Timestamp>,
}

impl Trace {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a command says that its burst ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// The task is done.
    Done {
        /// Whether with a warning.
        warning: bool,
        /// What there is to say.
        words: String,
    },
    /// Another burst is to come.
    Wait {
        /// When.
        until: Date,
    },
    /// The task has failed.
    Fail {
        /// Why.
        words: String,
    },
}

/// What an attempt came to nothing by, or why it is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It could not be launched.
    NotLaunched,
    /// Another has the execute lock.
    ExecuteLock,
    /// Another has the update lock: nothing can be saved.
    UpdateLock,
    /// The command died, or nobody knows how it ended.
    Died,
    /// It ended well and did not say how the burst did.
    Unreported,
    /// It took longer than it may.
    Overdue,
    /// It gave heartbeats, and then none for too long.
    Silent,
    /// An operator ended it.
    Terminated,
    /// Its server is gone.
    ServerGone,
    /// Its server could not be reached for so long that it must have stopped there.
    ServerLost,
}

impl Cause {
    /// The word for it that programs compare.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotLaunched => "not-launched",
            Self::ExecuteLock => "execute-lock",
            Self::UpdateLock => "update-lock",
            Self::Died => "died",
            Self::Unreported => "unreported",
            Self::Overdue => "overdue",
            Self::Silent => "silent",
            Self::Terminated => "terminated",
            Self::ServerGone => "server-gone",
            Self::ServerLost => "server-lost",
        }
    }
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The task is over, by the command's own account.
    Ended(ExitStatus),
    /// Another burst is to come, by its own account.
    Waits,
    /// The attempt came to nothing by this, and the task goes on from what it saved.
    Reset(Cause),
    /// The same, and the task is over.
    FailedOut(Cause),
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Its fencing token.
    pub token: Token,
    /// The server that it ran on, by name.
    pub server: Name,
    /// The record of its process, if it came so far that there is one.
    pub process: Option<ProcessId>,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When its launch was taken on.
    pub launched: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// How its process did, if it had one.
    pub exit: Option<Exit>,
    /// Whether something was saved by it.
    pub saved: bool,
    /// What it came to.
    pub verdict: Verdict,
    /// How what cleaned up after it ended, once it has.
    pub cleanup: Option<Exit>,
    /// What is told of it.
    #[serde(default, skip_serializing_if = "Trace::is_empty")]
    pub trace: Trace,
}

impl Task {
    /// Past attempts that are kept.
    pub const PAST_MAX: usize = 8;
    /// The longest words, in bytes.
    pub const WORDS_BYTES_MAX: usize = 1024;
    /// The name under which an attempt finds its secret: without it, it can report nothing.
    pub const SECRET: &'static str = "SEXTON_TASK_SECRET";
    /// The longest that is waited after attempts that came to nothing.
    const BACKOFF_MS_MAX: u64 = 60_000;

    /// Milliseconds that it waits after one more attempt that came to nothing: none after the first, then a second, and twice
    /// as long each time, at most a minute.
    pub(super) fn backoff_ms(&self) -> u64 {
        match self.setbacks {
            0 => 0,
            more => (1000_u64 << (more - 1).min(16)).min(Self::BACKOFF_MS_MAX),
        }
    }

    /// Which of its attempts this is, counted from 1.
    pub(super) fn number_of(&self, token: Token) -> u64 {
        let past = self.past.iter().map(|it| it.token);
        let all = past.chain(self.attempt.as_ref().map(|it| it.token));
        let later = all.filter(|other| *other > token).count() as u64;
        self.attempts.saturating_sub(later)
    }

    /// Whether its next burst may begin as far as it alone is concerned.
    pub(super) fn is_set_to_go(&self) -> bool {
        let is_due = self.status.is_fresh() || self.status == RunStatus::Waiting && self.is_due;
        is_due && !self.paused && self.blocked.is_none()
    }

    /// The attempt that is under way, if this is its process.
    pub(super) fn attempt_of(&self, process: ProcessId) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|it| it.process == process)
    }

    /// When its attempt is stopped, and why, if spans began again at `epoch`.
    pub(super) fn stops_at(&self, epoch: Timestamp) -> Option<(Timestamp, Cause)> {
        let attempt = self.attempt.as_ref()?;
        let is_stopping = attempt.stopping.is_some();
        (!is_stopping).then(|| attempt.stops_at(&self.terms, epoch))
    }
}

impl Plain for Task {
    const KIND: u8 = 0;
    const SLOTS: u32 = 4;

    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        match self.status {
            RunStatus::Waiting if !self.is_due => Some(Deadline::Date(self.wake)),
            RunStatus::Processing => self.stops_at(epoch).map(|(at, _)| Deadline::Time(at)),
            RunStatus::Complete => self.forgotten.map(Deadline::Removal),
            RunStatus::NotReady
            | RunStatus::NotStarted
            | RunStatus::Waiting
            | RunStatus::Restarted => None,
        }
    }
}
