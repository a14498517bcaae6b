//! The kinds of disagreement, their descriptions, and their remedies.

use crate::actors;
use crate::actors::lock::Name;
use crate::ids::{ActorId, ProcessId, Token};
use std::fmt;

/// Identifies an attempt of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AttemptId {
    /// The task.
    pub task: u64,
    /// The attempt; during a cleanup, the attempt being cleaned up.
    pub attempt: Token,
    /// The process of the attempt, or of its cleanup.
    pub process: ProcessId,
}

/// A disagreement between two actors, or between an actor and the operating system.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disagreement {
    /// A task is processing but has no attempt, or has an attempt but is not processing.
    Status {
        task: u64,
        /// The task's run status.
        status: &'static str,
    },
    /// A task is overdue: its attempt has taken too long, or its wake time has passed.
    Late {
        task: u64,
        /// The attempt; 0 if there is none.
        attempt: Token,
    },
    /// An attempt has a thread, but its request for the execute lock was not answered.
    Unlocked(AttemptId),
    /// The launch of an attempt or of its cleanup was requested, but was not answered.
    Unlaunched(AttemptId),
    /// The process of an attempt, or of its cleanup, has ended, but the task actor was not notified.
    Unended(AttemptId),
    /// An attempt runs on a server that does not exist.
    NoServer(AttemptId),
    /// An attempt lacks a lock that it should have.
    LockMissing {
        which: AttemptId,
        /// The key of the lock.
        key: &'static str,
    },
    /// A task lock is held or waited for without a matching attempt.
    LockLeft {
        /// The key of the lock.
        key: Name,
        /// The index of the lock.
        index: Name,
        /// The owner of the lock.
        owner: Name,
    },
    /// A process is still alive although the attempt it was launched for is over.
    Unattended { process: ProcessId },
    /// The number of threads taken on a server differs from the number of attempts on it.
    Threads {
        server: Name,
        /// The number of threads taken.
        used: u32,
        /// The number of attempts that run on the server.
        attempts: u32,
    },
    /// A group's count of tasks differs from the number of tasks that count towards its limit.
    Group {
        group: Name,
        /// The group's count.
        used: u32,
        /// The number of tasks that count towards the group's limit.
        tasks: u32,
    },
    /// Two tasks with the same work id are under way.
    WorkTwice {
        /// The work id.
        work: Name,
        /// The ids of the two tasks.
        tasks: (u64, u64),
    },
    /// A process recorded as running no longer exists in the kernel.
    Gone { process: ProcessId },
    /// The keeper has a live process without a record.
    Stranger {
        /// The id under which it was launched.
        process: ProcessId,
        pid: u32,
    },
    /// A right is bound to a process that has ended.
    Bound {
        /// The actor that owns the right.
        actor: ActorId,
        process: ProcessId,
    },
}

impl Disagreement {
    /// Returns the machine-readable name of the kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::Late { .. } => "late",
            Self::Unlocked(_) => "unlocked",
            Self::Unlaunched(_) => "unlaunched",
            Self::Unended(_) => "unended",
            Self::NoServer(_) => "no-server",
            Self::LockMissing { .. } => "lock-missing",
            Self::LockLeft { .. } => "lock-left",
            Self::Unattended { .. } => "unattended",
            Self::Threads { .. } => "threads",
            Self::Group { .. } => "group",
            Self::WorkTwice { .. } => "work-twice",
            Self::Gone { .. } => "gone",
            Self::Stranger { .. } => "stranger",
            Self::Bound { .. } => "bound",
        }
    }

    /// Returns the task, attempt and process concerned, each `None` if the disagreement names none. Of two tasks, returns the second.
    pub const fn about(&self) -> (Option<u64>, Option<Token>, Option<ProcessId>) {
        match self {
            Self::Unlocked(of)
            | Self::Unlaunched(of)
            | Self::Unended(of)
            | Self::NoServer(of)
            | Self::LockMissing { which: of, .. } => {
                (Some(of.task), Some(of.attempt), Some(of.process))
            }
            Self::Late { task, attempt } if attempt.0 > 0 => (Some(*task), Some(*attempt), None),
            Self::Status { task, .. } | Self::Late { task, .. } => (Some(*task), None, None),
            Self::WorkTwice { tasks, .. } => (Some(tasks.1), None, None),
            Self::Unattended { process }
            | Self::Gone { process }
            | Self::Stranger { process, .. }
            | Self::Bound { process, .. } => (None, None, Some(*process)),
            Self::LockLeft { .. } | Self::Threads { .. } | Self::Group { .. } => (None, None, None),
        }
    }

    /// Describes the remedy, for users; `None` if the audit offers none.
    pub const fn fix(&self) -> Option<&'static str> {
        match self {
            Self::Unlocked(_) | Self::Unlaunched(_) => {
                Some("the task actor repeats its unanswered requests")
            }
            Self::Unended(_) => Some("the task actor is notified again that the process has ended"),
            Self::LockMissing { .. } => Some("the lock is requested again"),
            Self::LockLeft { .. } => Some("the lock is released"),
            Self::Unattended { .. } => Some("the process is stopped, with all that it started"),
            Self::Gone { .. } => {
                Some("the process is looked for again, and the keeper is asked how it ended")
            }
            Self::Bound { .. } => Some("the actor is notified again that the process has ended"),
            Self::Status { .. }
            | Self::Late { .. }
            | Self::NoServer(_)
            | Self::Threads { .. }
            | Self::Group { .. }
            | Self::WorkTwice { .. }
            | Self::Stranger { .. } => None,
        }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlocked(of) => {
                write!(f, "{of} has a thread but was neither granted nor refused its execute lock")
            }
            Self::Unlaunched(of) => {
                write!(f, "the request to launch {of}, or its cleanup, was not answered")
            }
            Self::Unended(of) => {
                write!(f, "{of}, or its cleanup, is under way although its process has ended")
            }
            Self::NoServer(of) => write!(f, "{of} runs on a server that does not exist"),
            Self::LockMissing { which, key } => write!(f, "{which} does not have its lock {key}"),
            Self::Unattended { process } => {
                write!(f, "process {process} is alive although its attempt is over")
            }
            Self::Gone { process } => {
                write!(f, "process {process} no longer exists although it is recorded as running")
            }
            Self::Stranger { process, pid } => {
                write!(f, "the keeper has process {process}, PID {pid}, which has no record")
            }
            Self::Bound { actor, process } => {
                let name = actors::name_of(*actor).unwrap_or("unknown");
                write!(f, "a right of actor {name} is bound to process {process}, which has ended")
            }
            Self::Status { .. }
            | Self::Late { .. }
            | Self::LockLeft { .. }
            | Self::Threads { .. }
            | Self::Group { .. }
            | Self::WorkTwice { .. } => f.write_str(&self.counted()),
        }
    }
}

impl Disagreement {
    /// Describes the kinds that hold neither an [`AttemptId`] nor a process id; returns an empty string for all others.
    fn counted(&self) -> String {
        match self {
            Self::Status { task, status: "processing" } => {
                format!("task {task} is processing but has no attempt")
            }
            Self::Status { task, status } => format!("task {task} has an attempt but is {status}"),
            Self::Late { task, attempt: Token(0) } => {
                format!("task {task} is waiting although its wake time has passed")
            }
            Self::Late { task, attempt } => {
                format!(
                    "attempt {attempt} of task {task} is still under way although it has taken too long"
                )
            }
            Self::LockLeft { key, index, owner } => {
                let [key, index, owner] = [key, index, owner].map(Name::to_text);
                format!(
                    "lock {key} {index} is held or waited for by {owner}, which is not under way"
                )
            }
            Self::Threads { server, used, attempts } => {
                let server = server.to_text();
                format!(
                    "server {server} counts {used} threads in use, but {attempts} attempts run on it"
                )
            }
            Self::Group { group, used, tasks } => {
                let group = group.to_text();
                format!("group {group} counts {used} tasks under way, but there are {tasks}")
            }
            Self::WorkTwice { work, tasks } => {
                let ((one, other), work) = (tasks, work.to_text());
                format!("tasks {one} and {other} with work id {work} are both under way")
            }
            Self::Unlocked(_)
            | Self::Unlaunched(_)
            | Self::Unended(_)
            | Self::NoServer(_)
            | Self::LockMissing { .. }
            | Self::Unattended { .. }
            | Self::Gone { .. }
            | Self::Stranger { .. }
            | Self::Bound { .. } => String::new(),
        }
    }
}

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of task {}", self.attempt, self.task)
    }
}
