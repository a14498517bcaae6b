//! The state of a task and its attempts. Stored: see the change rule in `persist/format.rs`.

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

/// The status of a task between its bursts: Wip's run status, with its numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// 99: it must not start yet.
    NotReady,
    /// 0: it has never run.
    #[default]
    NotStarted,
    /// 1: it is waiting for its next burst.
    Waiting,
    /// 2: an attempt at a burst is under way.
    Processing,
    /// 3: it is over.
    Complete,
    /// 4: it was over, and runs again.
    Restarted,
}

impl RunStatus {
    /// All statuses.
    pub const ALL: [Self; 6] = [
        Self::NotReady,
        Self::NotStarted,
        Self::Waiting,
        Self::Processing,
        Self::Complete,
        Self::Restarted,
    ];

    /// Returns Wip's number for it.
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

    /// Returns its name.
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

    /// Returns whether the task is about to be started for the first time, or again from the beginning.
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::NotStarted | Self::Restarted)
    }

    /// Returns whether the task keeps others with its work id from being started.
    pub const fn is_under_way(self) -> bool {
        matches!(self, Self::Waiting | Self::Processing)
    }
}

/// How a task ended: Wip's exit status, with its numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// 0: it has not ended.
    #[default]
    NotFinished,
    /// 1: completed, with a warning.
    Warning,
    /// 2: failed for a reason outside the command.
    SystemError,
    /// 3: terminated by an operator.
    Terminated,
    /// 4: completed.
    Completed,
    /// 5: failed according to the command.
    UserError,
}

impl ExitStatus {
    /// Returns Wip's number for it.
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

    /// Returns its name.
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

    /// Returns whether the task failed.
    pub const fn is_failure(self) -> bool {
        matches!(self, Self::SystemError | Self::UserError)
    }
}

/// The priority of a task, with Wip's numbers: lower numbers go first.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Priority {
    /// 0: before all others.
    Critical,
    /// 1: before the default.
    High,
    /// 2: the default.
    #[default]
    Medium,
    /// 3: after all others.
    Low,
}

impl Priority {
    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// The terms on which a task is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// How long a burst should take, in milliseconds. The command is informed of this but not held to it.
    pub burst_ms: u64,
    /// How long after its claim an attempt is stopped and the task failed, in milliseconds.
    pub fail_after_ms: u64,
    /// The longest interval between two heartbeats in milliseconds, once there has been one.
    pub progress_ms: u64,
    /// Whether a task fails if its command dies before saving anything; otherwise it is run again.
    pub abort_on_failure: bool,
    /// Whether the command must report the end of a burst; its exit status is then ignored.
    pub report_required: bool,
}

impl Terms {
    /// The longest span, in milliseconds.
    pub const SPAN_MS_MAX: u64 = 366 * 24 * 3_600_000;
}

impl Default for Terms {
    /// The defaults of Wip.
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

/// A task and its state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says something of its own"
)]
pub struct Task {
    /// Its id: the number of the entry that added it.
    pub id: u64,
    /// Its work id: no two tasks with the same one are under way at a time. Empty if it has none.
    pub work: Name,
    /// Its group.
    pub group: Name,
    /// A name for users.
    pub name: Name,
    /// Its priority.
    pub priority: Priority,
    /// The command that is run for each burst.
    pub command: Arc<Launching>,
    /// The command that is run after each attempt, separately from it.
    pub cleanup: Option<Arc<Launching>>,
    /// The terms on which it is run.
    pub terms: Terms,
    /// When it was added.
    pub created: Timestamp,
    /// When its first attempt since it was added or restarted was claimed.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Its run status.
    pub status: RunStatus,
    /// How it ended.
    pub exit: ExitStatus,
    /// A message: the reason of a failure, or what the command reported.
    pub words: String,
    /// When its wait ends.
    pub wake: Date,
    /// Whether that time has come.
    pub is_due: bool,
    /// Whether it is paused by an operator.
    pub paused: bool,
    /// Whether its next burst is its last.
    pub terminating: bool,
    /// Whether it was woken while an attempt was under way, so that it will not wait afterwards.
    pub woken: bool,
    /// Whether it counts towards the limit of its group: from its first claim until it is over.
    pub counts: bool,
    /// How many times it has saved something.
    pub revision: u64,
    /// The latest that it saved.
    pub saved: Option<Saved>,
    /// The current attempt.
    pub attempt: Option<Attempt>,
    /// The newest of the ended attempts, in order of their ends.
    pub past: Vec<Past>,
    /// The number of attempts so far.
    pub attempts: u64,
    /// The number of failed attempts in a row.
    pub setbacks: u32,
    /// The attempt that keeps a position in line for the execute lock, if another holder had that.
    pub blocked: Option<Token>,
    /// When it is forgotten, once it is over.
    pub forgotten: Option<Date>,
    /// The latest cleanup, until it has ended.
    pub cleaning: Option<Cleaning>,
}

/// A cleanup after an attempt. It uses no thread, and nothing waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaning {
    /// The id of its process's record.
    pub process: ProcessId,
    /// The attempt that it cleans up after.
    pub token: Token,
    /// Whether its launch was accepted.
    pub taken: bool,
}

/// The state that a task has saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// When it was saved.
    pub at: Timestamp,
    /// The saved bytes.
    pub body: Bytes,
}

/// The stage of a current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// It has a thread, and requests the execute lock.
    Claimed,
    /// It has the lock, and its launch is requested.
    Locked,
    /// Its launch was accepted.
    Launched,
}

impl Stage {
    /// Returns its name.
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
    /// Its fencing token: the number of the entry that claimed the task.
    pub token: Token,
    /// The server that it runs on.
    pub server: Slot,
    /// The id of its process's record.
    pub process: ProcessId,
    /// Its stage.
    pub stage: Stage,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When its launch was accepted.
    pub launched: Option<Timestamp>,
    /// How many times the task had saved something when it was claimed.
    pub revision: u64,
    /// Whether it has the update lock, without which nothing is saved.
    pub updates: bool,
    /// Its latest heartbeat.
    pub beat: Option<Timestamp>,
    /// How the burst ended according to the command; the latest report counts.
    pub said: Option<BurstReport>,
    /// Why it is being stopped, if it is.
    pub stopping: Option<Cause>,
    /// Whether it is the last attempt of a task that is being terminated.
    pub last: bool,
    /// The state of reaching it, if it runs on another machine.
    pub reach: Option<Box<Reach>>,
    /// Further data about it, for users.
    #[serde(default, skip_serializing_if = "Trace::is_empty")]
    pub trace: Trace,
}

impl Attempt {
    /// Returns when it is stopped and why, if spans last began again at `epoch`.
    fn stops_at(&self, terms: &Terms, epoch: Timestamp) -> (Timestamp, Cause) {
        let overdue = self.claimed.plus_ms(terms.fail_after_ms);
        let silent = |beat: Timestamp| beat.max(epoch).plus_ms(terms.progress_ms);
        match self.beat.map(silent) {
            Some(silent) if silent < overdue => (silent, Cause::Silent),
            _ => (overdue, Cause::Overdue),
        }
    }
}

/// Data about an attempt for users, which no decision depends on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// The wake time that the task had waited for; `None` before its first burst.
    pub wake: Option<Date>,
    /// How many threads of its server were in use when it was claimed.
    pub used: u32,
    /// How many threads its server had.
    pub threads: u32,
    /// When it got the execute lock.
    pub locked: Option<Timestamp>,
    /// When it saved for the first time.
    pub saved: Option<Timestamp>,
    /// When its cleanup had ended.
    pub cleaned: Option<Timestamp>,
}

impl Trace {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a burst ended according to its command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BurstReport {
    /// The task is done.
    Done {
        /// Whether there was a warning.
        warning: bool,
        /// A message.
        words: String,
    },
    /// Another burst is to follow.
    Wait {
        /// When it may begin.
        until: Date,
    },
    /// The task has failed.
    Fail {
        /// The reason.
        words: String,
    },
}

/// Why an attempt failed, or why it is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It could not be launched.
    NotLaunched,
    /// Another holder has the execute lock.
    ExecuteLock,
    /// Another holder has the update lock, so nothing can be saved.
    UpdateLock,
    /// The command died, or it is not known how it ended.
    Died,
    /// It ended successfully without reporting the end of the burst, although it must.
    Unreported,
    /// It took longer than allowed.
    Overdue,
    /// It sent heartbeats, and then none for too long.
    Silent,
    /// It was terminated by an operator.
    Terminated,
    /// Its server was removed.
    ServerGone,
    /// Its server could not be reached for so long that the attempt must have stopped there.
    ServerLost,
}

impl Cause {
    /// Returns its stable name, for programs.
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

/// The verdict on an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The task is over.
    Ended(ExitStatus),
    /// Another burst is to follow, as the command reported.
    Waits,
    /// The attempt failed for this reason, and the task continues from what it saved.
    Reset(Cause),
    /// The attempt failed for this reason, and so did the task.
    FailedOut(Cause),
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// Its fencing token.
    pub token: Token,
    /// The server that it ran on, by name.
    pub server: Name,
    /// The id of its process's record, if the attempt got as far as having one.
    pub process: Option<ProcessId>,
    /// When it was claimed.
    pub claimed: Timestamp,
    /// When its launch was accepted.
    pub launched: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// How its process ended, if it had one.
    pub exit: Option<Exit>,
    /// Whether it saved something.
    pub saved: bool,
    /// The verdict on it.
    pub verdict: Verdict,
    /// How its cleanup ended, once it has.
    pub cleanup: Option<Exit>,
    /// Further data about it, for users.
    #[serde(default, skip_serializing_if = "Trace::is_empty")]
    pub trace: Trace,
}

impl Task {
    /// The most past attempts that are kept.
    pub const PAST_MAX: usize = 8;
    /// The maximum length of a message, in bytes.
    pub const WORDS_BYTES_MAX: usize = 1024;
    /// The environment variable that holds the secret of an attempt, without which it can report nothing.
    pub const SECRET: &'static str = "SEXTON_TASK_SECRET";
    /// The longest wait after failed attempts, in milliseconds.
    const BACKOFF_MS_MAX: u64 = 60_000;

    /// Returns how long it waits after another failed attempt, in milliseconds: not at all after the first, then a second, then twice as
    /// long each time, up to a minute.
    pub(super) fn backoff_ms(&self) -> u64 {
        match self.setbacks {
            0 => 0,
            more => (1000_u64 << (more - 1).min(16)).min(Self::BACKOFF_MS_MAX),
        }
    }

    /// Returns the number of an attempt, counted from 1.
    pub(super) fn number_of(&self, token: Token) -> u64 {
        let past = self.past.iter().map(|it| it.token);
        let all = past.chain(self.attempt.as_ref().map(|it| it.token));
        let later = all.filter(|other| *other > token).count() as u64;
        self.attempts.saturating_sub(later)
    }

    /// Returns whether its next burst may begin as far as the task itself is concerned.
    pub(super) fn is_set_to_go(&self) -> bool {
        let is_due = self.status.is_fresh() || self.status == RunStatus::Waiting && self.is_due;
        is_due && !self.paused && self.blocked.is_none()
    }

    /// Returns the current attempt if this is its process.
    pub(super) fn attempt_of(&self, process: ProcessId) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|it| it.process == process)
    }

    /// Returns when its attempt is stopped and why, if spans last began again at `epoch`.
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
