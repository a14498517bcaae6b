//! Tasks, servers and groups, as they are shown.

use crate::actors::dispatch::remote::Remote;
use crate::actors::dispatch::server::Pause;
use crate::actors::dispatch::task::{Attempt, Cleaning, RunStatus, Task};
use crate::actors::lock::Name;
use crate::clock::Date;
use crate::ids::Token;
use serde::Serialize;
use std::fmt;

/// A task, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskView {
    /// The task.
    #[serde(flatten)]
    pub task: Task,
    /// The server that its attempt runs on.
    pub server: Option<Name>,
    /// Why its next burst does not begin. `None` if it is over, under way, or about to begin.
    pub obstacle: Option<Obstacle>,
}

/// Why the next burst of a task does not begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// It is not ready.
    NotReady,
    /// An operator holds it back.
    Paused,
    /// It waits until then.
    Waits(Date),
    /// Another has its execute lock.
    Locked,
    /// All tasks are held back.
    AllPaused(Pause),
    /// Its group is held back.
    GroupPaused(Name, Pause),
    /// No task of its group is ever started.
    GroupDisabled(Name),
    /// As many tasks of its group are under way as may be.
    GroupFull {
        /// The group.
        group: Name,
        /// How many are under way.
        used: u32,
        /// How many may be.
        max: u32,
    },
    /// Another task of its work id is under way.
    WorkUnderWay {
        /// The work id.
        work: Name,
        /// That task.
        task: u64,
    },
    /// There is no server that tasks are given to.
    NoServer,
    /// No thread of a server is free.
    NoThread {
        /// How many there are.
        threads: u32,
    },
    /// As many tasks are under way, for the threads that there are, as may be.
    TooManyUnderWay {
        /// How many are under way.
        used: u32,
        /// How many may be.
        max: u32,
    },
    /// Others go first.
    InLine,
    /// No burst begins: the coordinator drains.
    Draining,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady => f.write_str("it is not ready"),
            Self::Paused => f.write_str("it is paused"),
            Self::Waits(_) => f.write_str("its wake time has not come"),
            Self::Locked => f.write_str("its execute lock is held by another"),
            Self::AllPaused(pause) => write!(f, "all tasks are paused ({})", pause.name()),
            Self::GroupPaused(group, pause) => {
                write!(f, "group {} is paused ({})", group.to_text(), pause.name())
            }
            Self::GroupDisabled(group) => {
                write!(f, "group {} is disabled: its limit is 0", group.to_text())
            }
            Self::GroupFull { group, used, max } => {
                write!(f, "group {} is full: {used} of {max}", group.to_text())
            }
            Self::WorkUnderWay { work, task } => {
                write!(f, "task {task} of work id {} is under way", work.to_text())
            }
            Self::NoServer => f.write_str("no server is enabled"),
            Self::NoThread { threads } => {
                write!(f, "all threads are in use: {threads} of {threads}")
            }
            Self::TooManyUnderWay { used, max } => {
                write!(f, "too many tasks are under way: {used} of {max}")
            }
            Self::InLine => f.write_str("other tasks go first"),
            Self::Draining => f.write_str("the coordinator drains"),
        }
    }
}

/// Some tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tasks {
    /// Them, by number.
    pub tasks: Vec<TaskView>,
    /// The number to go on after, if there may be more.
    pub next: Option<u64>,
}

/// A server, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerView {
    /// Its name.
    pub name: Name,
    /// How many attempts run there at a time.
    pub threads: u32,
    /// How many do.
    pub used: u32,
    /// Whether tasks are given to it.
    pub enabled: bool,
    /// Whether it was removed, and goes when its last attempt has ended.
    pub leaves: bool,
    /// How it is reached, if it is another machine.
    pub remote: Option<Remote>,
}

/// A group, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// Its name.
    pub name: Name,
    /// How many of its tasks are under way at a time.
    pub max: u32,
    /// How many are.
    pub used: u32,
    /// What of it is held back.
    pub pause: Pause,
    /// Tasks of it that wait for a thread and could begin.
    pub ready: u32,
}

/// What is counted of all tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Not over and not started, those that are not ready among them.
    pub fresh: u64,
    /// Between two bursts.
    pub waiting: u64,
    /// With an attempt under way.
    pub processing: u64,
    /// Over, those that failed among them.
    pub complete: u64,
    /// Over, and failed.
    pub failed: u64,
    /// What of all tasks is held back.
    pub pause: Pause,
}

/// All that is under way, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Tasks that are under way, or of which other actors have something to do, by slot.
    pub tasks: Vec<UnderWay>,
    /// Servers by name.
    pub servers: Vec<ServerView>,
    /// Groups with tasks under way, by name.
    pub groups: Vec<GroupView>,
    /// Whether those are all: not if there are more than 100,000 tasks. What is counted says nothing then.
    pub whole: bool,
}

/// A task that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// Its number.
    pub id: u64,
    /// Its work id; empty if it has none.
    pub work: Name,
    /// Its group.
    pub group: Name,
    /// Where it is.
    pub status: RunStatus,
    /// Whether it counts in its group.
    pub counts: bool,
    /// Its attempt.
    pub attempt: Option<Attempt>,
    /// The server of that, by name; `None` if there is no such server.
    pub server: Option<Name>,
    /// The attempt whose place in line for the execute lock stands.
    pub blocked: Option<Token>,
    /// What cleans up after an attempt.
    pub cleaning: Option<Cleaning>,
    /// Whether time should have acted on it, and has not.
    pub late: bool,
}
