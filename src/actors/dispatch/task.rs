//! The state of a task and its attempts. These types are stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Exit;
use crate::actors::dispatch::remote::RemoteAttempt;
use crate::actors::lock::Name;
use crate::actors::process::Launching;
use crate::bytes::Bytes;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{ProcessId, Slot, Token};
use crate::lookup::durable::Plain;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The status of a task: Wip's run status, with Wip's numbers.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// 99: the task must not start yet.
    NotReady,
    /// 0: the task has never run.
    #[default]
    NotStarted,
    /// 1: the task is waiting for its next burst.
    Waiting,
    /// 2: an attempt at a burst is running.
    Processing,
    /// 3: the task is over.
    Complete,
    /// 4: the task was over, and will run again. It keeps its saved state.
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

    /// Returns Wip's number for this value.
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

    /// Returns the name.
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

    /// Returns whether the task has not begun a burst since it was added or restarted, and need not be made ready first.
    pub const fn is_fresh(self) -> bool {
        matches!(self, Self::NotStarted | Self::Restarted)
    }

    /// Returns whether the task is in progress: it has started and is not over. Other tasks with its work id must not start meanwhile.
    pub const fn is_under_way(self) -> bool {
        matches!(self, Self::Waiting | Self::Processing)
    }
}

/// How a task ended: Wip's exit status, with Wip's numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    /// 0: the task has not ended.
    #[default]
    NotFinished,
    /// 1: completed, with a warning.
    Warning,
    /// 2: failed without a report from the command: for example, the command died or took too long.
    SystemError,
    /// 3: terminated by an operator.
    Terminated,
    /// 4: completed.
    Completed,
    /// 5: failed according to the command's report or exit status.
    UserError,
}

impl ExitStatus {
    /// Returns Wip's number for this value.
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

    /// Returns the name.
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
    /// Returns the name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "critical",
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
        }
    }
}

/// The time limits of a task, and how its failures are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Terms {
    /// How long a burst should take, in milliseconds. The command is informed of this but not held to it.
    pub burst_ms: u64,
    /// The maximum duration of an attempt, counted from its claim, in milliseconds. An attempt that exceeds it is stopped, and the task
    /// fails.
    pub fail_after_ms: u64,
    /// The maximum interval between two heartbeats, in milliseconds. It applies once the attempt has sent a heartbeat. An attempt that
    /// exceeds it is stopped, and the task fails.
    pub progress_ms: u64,
    /// Whether a task fails if its command dies before the attempt has saved anything. If false, such a task is run again.
    pub abort_on_failure: bool,
    /// Whether the command must report the end of a burst. If so, an exit status without a report is not taken as the result of the burst.
    pub report_required: bool,
}

impl Terms {
    /// The maximum value of any of these times, in milliseconds: 366 days.
    pub const SPAN_MS_MAX: u64 = 366 * 24 * 3_600_000;
}

impl Default for Terms {
    /// Wip's defaults.
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
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent of each other")]
pub struct Task {
    /// The id: the sequence number of the journal entry that added the task.
    pub id: u64,
    /// The work id: only one task with a given work id is in progress at a time. Empty if the task has none.
    pub work: Name,
    /// The group.
    pub group: Name,
    /// A name for users, which need not be unique.
    pub name: Name,
    /// The priority.
    pub priority: Priority,
    /// The command that is run for each burst.
    pub command: Arc<Launching>,
    /// The command that is run after each attempt that was granted the execute lock, as a process of its own.
    pub cleanup: Option<Arc<Launching>>,
    /// The terms on which the task is run.
    pub terms: Terms,
    /// When the task was added.
    pub created: Timestamp,
    /// When the task was first claimed since it was added or restarted.
    pub started: Option<Timestamp>,
    /// When the task ended.
    pub ended: Option<Timestamp>,
    /// The run status.
    pub status: RunStatus,
    /// How the task ended.
    pub exit: ExitStatus,
    /// A message about the result of the latest attempt: the reason for a failure, or the message that the command reported. Empty
    /// if there is none.
    pub words: String,
    /// The wake time: when the wait for the next burst ends.
    pub wake: Date,
    /// Whether the wake time has come.
    pub is_due: bool,
    /// Whether an operator has paused the task.
    pub paused: bool,
    /// Whether the next burst is the last.
    pub terminating: bool,
    /// Whether the task was woken during an attempt, so that it will not wait when the attempt has ended.
    pub woken: bool,
    /// Whether the task counts towards the limit of its group: from its first claim until it is over.
    pub counts: bool,
    /// How many times the task has saved its state.
    pub revision: u64,
    /// The latest saved state.
    pub saved: Option<Saved>,
    /// The current attempt.
    pub attempt: Option<Attempt>,
    /// The most recent past attempts, at most [`Task::PAST_MAX`], in the order in which they ended.
    pub past: Vec<Past>,
    /// The number of attempts so far.
    pub attempts: u64,
    /// The number of attempts in a row that failed without having saved anything.
    pub setbacks: u32,
    /// The token of an attempt that ended because another holder had the execute lock, and in whose name the task still waits for the lock.
    pub blocked: Option<Token>,
    /// When the task will be forgotten; `None` until it is over.
    pub forgotten: Option<Date>,
    /// The current cleanup.
    pub cleaning: Option<Cleaning>,
}

/// A cleanup after an attempt. It occupies no thread, and nothing waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaning {
    /// The id of the process record.
    pub process: ProcessId,
    /// The token of the attempt that the cleanup follows.
    pub token: Token,
    /// Whether the launch was accepted.
    pub taken: bool,
}

/// The state that a task has saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// When the state was saved.
    pub at: Timestamp,
    /// The saved bytes.
    pub body: Bytes,
}

/// The stage of a current attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The attempt has a thread, and has requested the execute lock.
    Claimed,
    /// The attempt has the lock, and its launch has been requested.
    Locked,
    /// The launch of the attempt was accepted.
    Launched,
}

impl Stage {
    /// Returns the name.
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
    /// The fencing token: the sequence number of the journal entry that claimed the task.
    pub token: Token,
    /// The server that the attempt runs on.
    pub server: Slot,
    /// The id of the process record.
    pub process: ProcessId,
    /// The stage.
    pub stage: Stage,
    /// When the task was claimed for the attempt.
    pub claimed: Timestamp,
    /// When the launch was accepted.
    pub launched: Option<Timestamp>,
    /// How many times the task had saved its state when it was claimed.
    pub revision: u64,
    /// Whether the attempt has the update lock, without which nothing is saved.
    pub updates: bool,
    /// The latest heartbeat, or when its interval began again because the coordinator was slow.
    pub beat: Option<Timestamp>,
    /// How the burst ended according to the command's latest report.
    pub said: Option<BurstReport>,
    /// Why the attempt is being stopped, if it is.
    pub stopping: Option<Cause>,
    /// Whether this is the last attempt of a task that is being terminated.
    pub last: bool,
    /// The state of the connection to the attempt, if it runs on another machine.
    pub reach: Option<Box<RemoteAttempt>>,
    /// Data that is only shown to users.
    #[serde(default, skip_serializing_if = "Trace::is_empty")]
    pub trace: Trace,
}

impl Attempt {
    /// Returns when and why the attempt will be stopped. A heartbeat interval begins at the last heartbeat, or at `epoch` if that is later.
    fn stops_at(&self, terms: &Terms, epoch: Timestamp) -> (Timestamp, Cause) {
        let overdue = self.claimed.plus_ms(terms.fail_after_ms);
        let silent = |beat: Timestamp| beat.max(epoch).plus_ms(terms.progress_ms);
        match self.beat.map(silent) {
            Some(silent) if silent < overdue => (silent, Cause::Silent),
            _ => (overdue, Cause::Overdue),
        }
    }
}

/// Data about an attempt that is only shown to users. No decision depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// The wake time that the task had waited for; `None` for its first burst since it was added or restarted.
    pub wake: Option<Date>,
    /// How many threads of the server were in use by other attempts when the task was claimed.
    pub used: u32,
    /// How many threads the server had when the task was claimed.
    pub threads: u32,
    /// When the attempt got the execute lock.
    pub locked: Option<Timestamp>,
    /// When the attempt first saved the task's state.
    pub saved: Option<Timestamp>,
    /// When the cleanup ended.
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
    /// Another burst follows.
    Wait {
        /// When that burst may begin.
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
    /// The attempt could not be launched.
    NotLaunched,
    /// Another holder has the execute lock.
    ExecuteLock,
    /// Another holder has the update lock, so nothing can be saved.
    UpdateLock,
    /// The command was killed, or exited with a nonzero status without the report that the task's terms require, or it is not known how the
    /// command ended.
    Died,
    /// The command exited successfully without the report that the task's terms require.
    Unreported,
    /// The attempt took longer than [`Terms::fail_after_ms`].
    Overdue,
    /// The command sent heartbeats, but then none for [`Terms::progress_ms`].
    Silent,
    /// The task was terminated by an operator.
    Terminated,
    /// The server was removed.
    ServerGone,
    /// The server could not be reached in time. By now, the attempt there has stopped itself.
    ServerLost,
}

impl Cause {
    /// Returns the name by which programs identify the cause. It never changes.
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
    /// Another burst follows, as the command reported.
    Waits,
    /// The attempt failed for this reason, and the task continues from its saved state.
    Reset(Cause),
    /// The attempt failed for this reason, and the task fails with it.
    FailedOut(Cause),
}

/// An attempt that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The fencing token.
    pub token: Token,
    /// The name of the server that the attempt ran on.
    pub server: Name,
    /// The id of the process record, if the launch was accepted.
    pub process: Option<ProcessId>,
    /// When the task was claimed for the attempt.
    pub claimed: Timestamp,
    /// When the launch was accepted.
    pub launched: Option<Timestamp>,
    /// When the attempt ended.
    pub ended: Timestamp,
    /// How the attempt's process ended; `None` if no launch was requested.
    pub exit: Option<Exit>,
    /// Whether the attempt saved the task's state.
    pub saved: bool,
    /// The verdict on the attempt.
    pub verdict: Verdict,
    /// How the cleanup ended; `None` if there is none, or if its end has not been recorded.
    pub cleanup: Option<Exit>,
    /// Data that is only shown to users.
    #[serde(default, skip_serializing_if = "Trace::is_empty")]
    pub trace: Trace,
}

impl Task {
    /// Returns the size of its texts in bytes: its commands, names, message and saved state.
    pub(super) fn bytes(&self) -> u64 {
        let names = [&self.work, &self.group, &self.name];
        let names: usize = names.iter().map(|it| it.as_bytes().len()).sum();
        let saved = self.saved.as_ref().map_or(0, |it| it.body.as_bytes().len());
        let cleanup = self.cleanup.as_ref().map_or(0, |it| it.bytes());
        self.command.bytes() + cleanup + (names + self.words.len() + saved) as u64
    }

    /// The maximum number of past attempts that are kept.
    pub const PAST_MAX: usize = 8;
    /// The maximum length of a message, in bytes.
    pub const WORDS_BYTES_MAX: usize = 1024;
    /// The name of the environment variable that holds the secret of an attempt. The secret proves that the reports of a command belong to
    /// its attempt; reports without it are refused.
    pub const SECRET: &'static str = "SEXTON_TASK_SECRET";
    /// The maximum wait after failed attempts, in milliseconds: a minute.
    const BACKOFF_MS_MAX: u64 = 60_000;

    /// Returns how long the task waits, in milliseconds, if one more attempt fails without having saved anything: not at all after the
    /// first such failure in a row, one second after the second, and then twice as long each time, up to a minute.
    pub(super) fn backoff_ms(&self) -> u64 {
        match self.setbacks {
            0 => 0,
            more => (1000_u64 << (more - 1).min(16)).min(Self::BACKOFF_MS_MAX),
        }
    }

    /// Returns the number of a current or remembered attempt: the first attempt of the task has number 1.
    pub(super) fn number_of(&self, token: Token) -> u64 {
        let past = self.past.iter().map(|it| it.token);
        let all = past.chain(self.attempt.as_ref().map(|it| it.token));
        let later = all.filter(|other| *other > token).count() as u64;
        self.attempts.saturating_sub(later)
    }

    /// Returns whether the task itself permits its next burst to begin: it may start or its wake time has come, and it is neither paused
    /// nor waiting for the execute lock. Groups, work ids and servers are not considered.
    pub(super) fn is_ready(&self) -> bool {
        let is_due = self.status.is_fresh() || self.status == RunStatus::Waiting && self.is_due;
        is_due && !self.paused && self.blocked.is_none()
    }

    /// Returns the current attempt if it has this process, and `None` otherwise.
    pub(super) fn attempt_of(&self, process: ProcessId) -> Option<&Attempt> {
        self.attempt.as_ref().filter(|it| it.process == process)
    }

    /// Returns when and why the current attempt will be stopped; `None` if the task has no attempt, or if the attempt is being stopped
    /// already. `epoch` is the latest startup of the coordinator.
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
