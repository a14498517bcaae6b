//! The outcomes of messages. These types are stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Exit;
use crate::actors::dispatch::remote::Remote;
use crate::actors::dispatch::server::{Outage, Pause};
use crate::actors::dispatch::task::{Cause, ExitStatus, Terms, Verdict};
use crate::actors::lock::{LockState, Name};
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::{DISK_FULL, Refusal};
use serde::{Deserialize, Serialize};

/// The decision about a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Something changes, as the steps describe.
    Changed {
        /// The changes, in order.
        steps: Vec<Step>,
        /// Why the request is refused, if it is refused although something changes: for example, a save without the update lock is refused,
        /// and its attempt is stopped.
        refused: Option<Refused>,
    },
    /// The task or server does not exist: nothing changes.
    Absent,
    /// The message has no effect: nothing changes.
    Unchanged,
    /// The request is refused: nothing changes.
    Refused(Refused),
}

/// A single change to the state, or the release of a leftover lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// A change to the task in this slot.
    Task(Slot, TaskStep),
    /// A server is added, or one that was being removed is restored.
    ServerMade {
        name: Name,
        /// The number of its threads.
        threads: u32,
        /// How the server is reached, if it is another machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<Remote>,
    },
    /// The number of threads of a server is set.
    ServerThreads(Slot, u32),
    /// The assignment of tasks to a server is enabled (`true`) or disabled (`false`).
    ServerEnabled(Slot, bool),
    /// A server is removed: at once if no attempt is running on it, otherwise when its last attempt has ended.
    ServerRemoved(Slot),
    /// The settings of a group are set.
    GroupSet {
        /// The slot of the group; a free slot if the group has no settings yet.
        slot: Slot,
        name: Name,
        /// The maximum number of tasks of the group that may be in progress; the configured default if `None`.
        max: Option<u32>,
        /// Which bursts of the group are paused.
        pause: Pause,
    },
    /// The pause for all tasks is set.
    Paused(Pause),
    /// No burst begins until the next startup, since the coordinator is draining.
    Rests,
    /// An attempt that has ended or is unknown still holds or waits for a lock: the lock is released, or the request withdrawn.
    GivesBack(LockState),
    /// The connection settings of a server are set.
    ServerReached(Slot, Remote),
    /// A server could not be reached.
    ServerFailed(Slot, Outage),
    /// A server that could not be reached was reached again.
    ServerAnswered(Slot),
}

/// A change to a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStep {
    /// The task is added, as the message describes.
    Added { terms: Terms },
    /// The task is claimed for an attempt at its next burst.
    Claimed {
        /// The server that the attempt runs on.
        server: Slot,
        /// The id of the process record.
        process: ProcessId,
        /// How long the attempt continues without contact with the coordinator before it stops itself, in milliseconds; `None` if it runs
        /// on this machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost_after_ms: Option<u64>,
    },
    /// The attempt is granted the execute lock, and its launch is requested.
    Locked,
    /// The attempt is granted the update lock.
    Updates,
    /// Another holder has the execute lock: the attempt ends, but its request for the lock stays in the queue.
    Blocked,
    /// The execute lock that the task was waiting for has been granted: the task releases it, and may be claimed again.
    Unblocked,
    /// The launch of the attempt was accepted.
    Launched,
    /// A report about the attempt was accepted; the message contains it.
    Reported {
        /// The earliest date of the next burst, if the report requests another burst.
        until: Option<Date>,
    },
    /// The attempt is to be stopped for this reason.
    Stopping(Cause),
    /// That heartbeats are missing was noticed too late, because the coordinator itself was slow: the interval begins again.
    Excused,
    /// The attempt has ended.
    Ended {
        /// How the attempt's process ended; `None` if no launch was requested.
        exit: Option<Exit>,
        /// The verdict on the attempt.
        verdict: Verdict,
        /// The earliest date of the next burst, if the task is not over.
        wake: Date,
        /// Whether that date has been reached already.
        is_due: bool,
        /// When the task will be forgotten, if it is over.
        forgotten: Date,
        /// The id of the cleanup's process record, if there is a cleanup.
        cleanup: Option<ProcessId>,
        /// Whether the task is as if it had not started, because the server of its first attempt could not be reached.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        unstarted: bool,
    },
    /// The launch of the cleanup was accepted.
    CleanupLaunched,
    /// The cleanup has ended.
    CleanupEnded(Exit),
    /// The task is over: it was terminated while it had no attempt.
    Over {
        /// How the task ended.
        exit: ExitStatus,
        /// When the task will be forgotten.
        forgotten: Date,
    },
    /// The task is allowed to start.
    Ready,
    /// The task is paused (`true`) or resumed (`false`).
    Paused(bool),
    /// A waiting task stops waiting, and its wake time becomes this date unless it is earlier. If an attempt is running instead, the task
    /// will not wait after it.
    Woken(Date),
    /// The next burst is the task's last.
    Terminating,
    /// The task, which was over, will run again.
    Restarted,
    /// The task is forgotten: it is removed from the state.
    Forgotten,
    /// The local process has ended, and it is not known what happened to the attempt on the other machine. A new process is launched to
    /// find out.
    Reattached {
        /// The id of the new process record.
        process: ProcessId,
    },
}

impl Step {
    /// Returns whether this step ends an attempt with a failure that suggests a problem with its server: the attempt could not be launched,
    /// or the server could not be reached.
    pub(super) const fn blames_server(&self) -> bool {
        matches!(
            self,
            Self::Task(
                _,
                TaskStep::Ended {
                    verdict: Verdict::Reset(Cause::NotLaunched | Cause::ServerLost)
                        | Verdict::FailedOut(Cause::NotLaunched | Cause::ServerLost),
                    ..
                }
            )
        )
    }
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    #[error(
        "the limit on tasks, or on the size of their texts, is reached: remove those that are over with `sexton task prune`, or raise --text-bytes"
    )]
    Full,
    /// The limit on servers is reached.
    #[error("the limit on servers is reached")]
    ServersFull,
    /// The limit on groups with their own settings is reached.
    #[error("the limit on groups with their own settings is reached")]
    GroupsFull,
    /// The coordinator is draining.
    #[error("the coordinator is draining and accepts no tasks")]
    Draining,
    /// The command or the cleanup command is invalid.
    #[error("{0}")]
    Command(crate::actors::process::Flaw),
    /// A time limit or a wait is too short or too long.
    #[error(
        "the time limits of a task must be between 1 ms and 366 days, and its waits must not exceed 366 days"
    )]
    Span,
    /// The name of a server is empty.
    #[error("the name of a server is empty")]
    NoName,
    /// An inventory names a server twice.
    #[error("an inventory must not name a server twice")]
    NamedTwice,
    /// The number of threads of a server is out of range.
    #[error("a server must have 1 to {} threads", super::Server::THREADS_MAX)]
    Threads,
    /// The connection settings of a server are invalid.
    #[error(
        "a server needs an ssh address without spaces: HOST, USER@HOST or ssh://USER@HOST:PORT; its ssh config must be an absolute path"
    )]
    Remote,
    /// The task is over.
    #[error("the task is over")]
    Over,
    /// The task is not over.
    #[error("the task is not over")]
    NotOver,
    /// The task is not waiting to be made ready.
    #[error("the task is not waiting to be made ready")]
    NotHeld,
    /// The report does not come from the process of a current attempt.
    #[error("the attempt is over")]
    Stale,
    /// The attempt is being stopped.
    #[error("the attempt is being stopped: {}", .0.name())]
    Stopping(Cause),
    /// Another holder has the update lock of the task.
    #[error("another holder has the update lock of the task")]
    Locked,
    /// The data to be saved is too large.
    #[error("the data to save is larger than allowed")]
    TooLarge,
    /// The message is too long.
    #[error("a message must not exceed {} bytes", super::Task::WORDS_BYTES_MAX)]
    Words,
    /// The disk is full.
    #[error("{}", DISK_FULL)]
    DiskFull,
    /// The idempotency key was already used for a different request.
    #[error("the idempotency key was already used for a different request")]
    KeyReused,
    /// The limit on idempotency keys is reached.
    #[error(
        "too many idempotency keys were used in the last ten minutes: repeat the request later, or without a key"
    )]
    ReceiptsFull,
    /// It would start or end a process, or change what a process depends on, which the sender may not do.
    #[error(
        "this would start or end a process, or change what one depends on: it requires the scope run"
    )]
    Forbidden,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
            Refusal::KeyReused => Self::KeyReused,
            Refusal::ReceiptsFull => Self::ReceiptsFull,
            Refusal::Forbidden => Self::Forbidden,
        }
    }
}
