//! What can come of a message. Stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Exit;
use crate::actors::dispatch::remote::Remote;
use crate::actors::dispatch::server::Pause;
use crate::actors::dispatch::task::{Cause, ExitStatus, Terms, Verdict};
use crate::actors::lock::{Held, Name};
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};

/// What was decided about a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// This becomes of tasks, servers and groups, in order.
    Changed {
        /// What.
        steps: Vec<Step>,
        /// Why the sender is refused all the same.
        refused: Option<Refused>,
    },
    /// Nothing of the kind is there. Changes nothing.
    Absent,
    /// The message says nothing new. Changes nothing.
    Unchanged,
    /// Not done, and why. Changes nothing.
    Refused(Refused),
}

/// Something that becomes of what there is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Of a task.
    Task(Slot, TaskStep),
    /// A server is made, with so many threads; or comes back that was to go.
    ServerMade {
        /// Its name.
        name: Name,
        /// Its threads.
        threads: u32,
        /// How it is reached, if it is another machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remote: Option<Remote>,
    },
    /// A server has so many threads.
    ServerThreads(Slot, u32),
    /// A server is given tasks, or is not.
    ServerEnabled(Slot, bool),
    /// A server goes, at once or when its last attempt has ended.
    ServerRemoved(Slot),
    /// A group is as it was set.
    GroupSet {
        /// Where it stands, or is made.
        slot: Slot,
        /// Its name.
        name: Name,
        /// How many of its tasks are under way at a time; as is usual, if `None`.
        max: Option<u32>,
        /// What of it is held back.
        pause: Pause,
    },
    /// So much of all tasks is held back.
    Paused(Pause),
    /// No burst begins until the next start: the coordinator drains.
    Rests,
    /// A lock is given back that an attempt still has after its end.
    GivesBack(Held),
    /// A server is another machine, and reached so by attempts from now on.
    ServerReached(Slot, Remote),
}

/// Something that becomes of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskStep {
    /// It is added, as the message says.
    Added {
        /// How it is run.
        terms: Terms,
    },
    /// An attempt at its next burst begins.
    Claimed {
        /// The server that it runs on.
        server: Slot,
        /// The record that its process gets.
        process: ProcessId,
        /// On another machine: how many milliseconds without a word from here it goes on there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        lost_after_ms: Option<u64>,
    },
    /// Its attempt has the execute lock, and is launched.
    Locked,
    /// Its attempt has the update lock.
    Updates,
    /// Another has the execute lock: the attempt has ended, and its place in line stands.
    Blocked,
    /// The execute lock is free again.
    Unblocked,
    /// Its launch is taken on.
    Launched,
    /// Its command says something of the burst.
    Reported {
        /// When the next is to come, if that is what it says.
        until: Option<Date>,
    },
    /// Its attempt is to end.
    Stopping(Cause),
    /// Its attempt has ended.
    Ended {
        /// How its process did, if it had one.
        exit: Option<Exit>,
        /// What it came to.
        verdict: Verdict,
        /// When the next burst may begin.
        wake: Date,
        /// Whether that is now.
        is_due: bool,
        /// When it is forgotten, if it is over.
        forgotten: Date,
        /// The record of what cleans up after it, if something does.
        cleanup: Option<ProcessId>,
    },
    /// The launch of what cleans up is taken on.
    CleanupLaunched,
    /// What cleaned up has ended.
    CleanupEnded(Exit),
    /// It is over without an attempt.
    Over {
        /// How.
        exit: ExitStatus,
        /// When it is forgotten.
        forgotten: Date,
    },
    /// It may be started.
    Ready,
    /// An operator holds it back, or no longer.
    Paused(bool),
    /// It waits no longer than until then, which has come.
    Woken(Date),
    /// Its next burst is its last.
    Terminating,
    /// It is to run again.
    Restarted,
    /// It is forgotten.
    Forgotten,
    /// What became of its attempt on another machine is not known, and its process here has ended: another takes its place.
    Reattached {
        /// The record of that.
        process: ProcessId,
    },
}

impl Step {
    /// Whether an attempt came to nothing for the sake of its server, as far as anybody can tell.
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

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// There are as many tasks as are allowed.
    #[error("there are as many tasks as are allowed")]
    Full,
    /// There are as many servers as are allowed.
    #[error("there are as many servers as are allowed")]
    ServersFull,
    /// There are as many groups as are allowed.
    #[error("as many groups have settings of their own as are allowed")]
    GroupsFull,
    /// The coordinator drains.
    #[error("the coordinator drains and takes no tasks")]
    Draining,
    /// The command cannot be run.
    #[error("{0}")]
    Command(crate::actors::process::Flaw),
    /// A span is too short or too long.
    #[error("a span of a task is 1 ms to 366 days")]
    Span,
    /// The name of a server is empty.
    #[error("the name of a server is empty")]
    NoName,
    /// An inventory names a server twice.
    #[error("an inventory names each server once")]
    NamedTwice,
    /// Too many threads, or none.
    #[error("a server has 1 to {} threads", super::Server::THREADS_MAX)]
    Threads,
    /// How a server is reached is not to be understood.
    #[error(
        "a server is reached by words of ssh without spaces: HOST, USER@HOST or ssh://USER@HOST:PORT; its configuration is an absolute path"
    )]
    Remote,
    /// The task is over.
    #[error("the task is over")]
    Over,
    /// The task is not over.
    #[error("the task is not over")]
    NotOver,
    /// The task is ready already.
    #[error("the task is not held back from its start")]
    NotHeld,
    /// The attempt is over, or another has taken its place.
    #[error("the attempt is over")]
    Stale,
    /// The attempt is being stopped.
    #[error("the attempt is being stopped: {}", .0.name())]
    Stopping(Cause),
    /// Another has the update lock of the task.
    #[error("another has the update lock of the task")]
    Locked,
    /// Too much is to be saved.
    #[error("more is to be saved than is allowed")]
    TooLarge,
    /// Too much is said.
    #[error("words have at most {} bytes", super::Task::WORDS_BYTES_MAX)]
    Words,
    /// The disk is full.
    #[error("the disk is full")]
    DiskFull,
    /// The key came before, with another request.
    #[error("the key came before, with another request")]
    KeyReused,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
            Refusal::KeyReused => Self::KeyReused,
        }
    }
}
