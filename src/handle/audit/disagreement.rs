//! What may not agree, in words, and what would put it right.

use crate::actors;
use crate::actors::lock::Name;
use crate::ids::{ActorId, ProcessId, Token};
use std::fmt;

/// An attempt of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Which {
    /// The task.
    pub task: u64,
    /// Its attempt, or the one that is cleaned up after.
    pub attempt: Token,
    /// Its process.
    pub process: ProcessId,
}

/// Something that two actors, or an actor and the machine, do not agree about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Disagreement {
    /// A task is processing and has no attempt, or has one and is not.
    Status {
        /// The task.
        task: u64,
        /// Its run status.
        status: &'static str,
    },
    /// Time should have acted on a task: its attempt takes too long, or its wake time has come.
    Late {
        /// The task.
        task: u64,
        /// Its attempt; 0 if there is none.
        attempt: Token,
    },
    /// An attempt has a thread, and nothing came of its request for the execute lock.
    Unlocked(Which),
    /// Its launch, or that of what cleans up, was asked for, and nothing came of it.
    Unlaunched(Which),
    /// Its process is over, and it was not told so.
    Unended(Which),
    /// It runs on a server that is not there.
    NoServer(Which),
    /// It should have a lock, and has not.
    LockMissing {
        /// The attempt.
        which: Which,
        /// The key of the lock.
        key: &'static str,
    },
    /// A lock of tasks is held or waited for, and no attempt is meant.
    LockLeft {
        /// Its key.
        key: Name,
        /// Its index.
        index: Name,
        /// Its owner.
        owner: Name,
    },
    /// A process lives that was launched for an attempt that is over.
    Unattended {
        /// The process.
        process: ProcessId,
    },
    /// As many threads of a server are taken as there are no attempts on it.
    Threads {
        /// The server.
        server: Name,
        /// Threads that are taken.
        used: u32,
        /// Attempts that run there.
        attempts: u32,
    },
    /// As many tasks count in a group as there are not under way.
    Group {
        /// The group.
        group: Name,
        /// Tasks that count.
        used: u32,
        /// Tasks that are under way.
        tasks: u32,
    },
    /// Two tasks of a work id are under way.
    WorkTwice {
        /// The work id.
        work: Name,
        /// Two of them.
        tasks: (u64, u64),
    },
    /// A record says that a process runs, and the kernel no longer has it.
    Gone {
        /// The process.
        process: ProcessId,
    },
    /// The keeper has a process that lives, and there is no record of it.
    Stranger {
        /// Under which id it was launched.
        process: ProcessId,
        /// Its PID.
        pid: u32,
    },
    /// A right is bound to a process that has ended.
    Bound {
        /// Whose right: the actor.
        actor: ActorId,
        /// The process.
        process: ProcessId,
    },
}

impl Disagreement {
    /// The word for it that programs compare.
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

    /// The task, the attempt and the process that it is about, as far as it is about them.
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

    /// What puts it right, in words; `None` if nothing here does.
    pub const fn mend(&self) -> Option<&'static str> {
        match self {
            Self::Unlocked(_) | Self::Unlaunched(_) => {
                Some("the tasks' actor asks again for what it waits for")
            }
            Self::Unended(_) => Some("the tasks' actor is told the end again"),
            Self::LockMissing { .. } => Some("the lock is asked for again"),
            Self::LockLeft { .. } => Some("the lock is given back"),
            Self::Unattended { .. } => Some("the process is stopped, with all that it started"),
            Self::Gone { .. } => {
                Some("the process is looked for again, and the keeper asked how it ended")
            }
            Self::Bound { .. } => Some("the actor is told the end again"),
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
            Self::Unlocked(of) => write!(
                f,
                "{of} has a thread and neither has its execute lock nor is refused it"
            ),
            Self::Unlaunched(of) => write!(f, "{of} was to be launched, and nothing came of it"),
            Self::Unended(of) => write!(f, "{of} is under way although its process is over"),
            Self::NoServer(of) => write!(f, "{of} runs on a server that is not there"),
            Self::LockMissing { which, key } => write!(f, "{which} does not have its lock {key}"),
            Self::Unattended { process } => {
                write!(f, "process {process} lives although its attempt is over")
            }
            Self::Gone { process } => write!(
                f,
                "process {process} is gone although its record says that it runs"
            ),
            Self::Stranger { process, pid } => write!(
                f,
                "the keeper has process {process}, PID {pid}, of which there is no record"
            ),
            Self::Bound { actor, process } => {
                let name = actors::name_of(*actor).unwrap_or("unknown");
                write!(
                    f,
                    "a right of actor {name} is bound to process {process}, which has ended"
                )
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
    /// The words for what is about more, or less, than an attempt or a process.
    fn counted(&self) -> String {
        match self {
            Self::Status {
                task,
                status: "processing",
            } => format!("task {task} is processing and has no attempt"),
            Self::Status { task, status } => format!("task {task} has an attempt and is {status}"),
            Self::Late {
                task,
                attempt: Token(0),
            } => format!("task {task} waits although its wake time has come"),
            Self::Late { task, attempt } => {
                format!("attempt {attempt} of task {task} goes on although it takes too long")
            }
            Self::LockLeft { key, index, owner } => {
                let [key, index, owner] = [key, index, owner].map(Name::to_text);
                format!("lock {key} {index} is taken by {owner}, which is not under way")
            }
            Self::Threads {
                server,
                used,
                attempts,
            } => {
                let server = server.to_text();
                format!("server {server} has {used} threads taken and {attempts} attempts")
            }
            Self::Group { group, used, tasks } => {
                let group = group.to_text();
                format!("group {group} counts {used} tasks and has {tasks} under way")
            }
            Self::WorkTwice { work, tasks } => {
                let ((one, other), work) = (tasks, work.to_text());
                format!("tasks {one} and {other} of work id {work} are both under way")
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

impl fmt::Display for Which {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {} of task {}", self.attempt, self.task)
    }
}
