//! The views of tasks, servers and groups.

use crate::actors::dispatch::remote::Remote;
use crate::actors::dispatch::server::Pause;
use crate::actors::dispatch::task::{Attempt, Cleaning, RunStatus, Task};
use crate::actors::lock::Name;
use crate::clock::Date;
use crate::ids::Token;
use crate::text;
use serde::Serialize;
use std::fmt;

/// The view of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskView {
    /// The task itself.
    #[serde(flatten)]
    pub task: Task,
    /// The name of the server that its attempt runs on.
    pub server: Option<Name>,
    /// Why its next burst does not begin. `None` if it is over, under way, or about to begin.
    pub obstacle: Option<Obstacle>,
}

/// The reason why the next burst of a task does not begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// It must not start yet.
    NotReady,
    /// It is paused by an operator.
    Paused,
    /// It waits until this date.
    Waits(Date),
    /// Another holder has its execute lock.
    Locked,
    /// All tasks are paused.
    AllPaused(Pause),
    /// Its group is paused.
    GroupPaused(Name, Pause),
    /// The limit of its group is 0.
    GroupDisabled(Name),
    /// The limit of its group is reached.
    GroupFull {
        /// The group.
        group: Name,
        /// How many tasks are under way.
        used: u32,
        /// The limit.
        max: u32,
    },
    /// Another task with its work id is under way.
    WorkUnderWay {
        /// The work id.
        work: Name,
        /// The id of that task.
        task: u64,
    },
    /// No server is enabled.
    NoServer,
    /// No thread of a server is free.
    NoThread {
        /// How many threads there are.
        threads: u32,
    },
    /// Too many tasks are under way for the threads available.
    TooManyUnderWay {
        /// How many tasks are under way.
        used: u32,
        /// The limit.
        max: u32,
    },
    /// Other tasks go first.
    InLine,
    /// The coordinator is draining.
    Draining,
    /// The disk of the coordinator is low on space, so that no process can be recorded. Known to the handle, not to the machine.
    DiskLow {
        /// The number of bytes that the journal can still write.
        left: u64,
        /// The number of bytes that must be free on the disk.
        needed: u64,
    },
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
            Self::DiskLow { left, needed } => write!(
                f,
                "disk space is low: the journal has {} left, and its disk must have {} free",
                text::bytes(*left),
                text::bytes(*needed)
            ),
        }
    }
}

impl TaskView {
    /// Notes that the disk is low on space, if that is what the task waits for: nothing else prevents its next burst, or the process of
    /// its attempt could not be recorded.
    pub(crate) fn held_for_space(&mut self, (left, needed): (u64, u64)) {
        let is_held = match (&self.task.attempt, self.task.status) {
            (Some(attempt), _) => attempt.launched.is_none(),
            (None, RunStatus::Complete) => false,
            (None, _) => matches!(self.obstacle, None | Some(Obstacle::InLine)),
        };
        if is_held {
            self.obstacle = Some(Obstacle::DiskLow { left, needed });
        }
    }
}

/// A page of tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tasks {
    /// The tasks, in order of id.
    pub tasks: Vec<TaskView>,
    /// The id after which to continue, if there may be more.
    pub next: Option<u64>,
}

/// The view of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerView {
    /// Its name.
    pub name: Name,
    /// The number of attempts that run there at a time.
    pub threads: u32,
    /// The number of attempts running there now.
    pub used: u32,
    /// Whether tasks are assigned to it.
    pub enabled: bool,
    /// Whether it was removed; it disappears when its last attempt has ended.
    pub leaves: bool,
    /// How it is reached, if it is another machine.
    pub remote: Option<Remote>,
}

/// The view of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// Its name.
    pub name: Name,
    /// The most tasks under way at a time.
    pub max: u32,
    /// The number of tasks under way.
    pub used: u32,
    /// The pause in effect.
    pub pause: Pause,
    /// The number of its tasks that could begin and wait for a thread.
    pub ready: u32,
}

/// The number of tasks in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Not started, including those that are not ready.
    pub fresh: u64,
    /// Between two bursts.
    pub waiting: u64,
    /// Running a burst.
    pub processing: u64,
    /// Over, including those that failed.
    pub complete: u64,
    /// Over because of a failure.
    pub failed: u64,
    /// The pause that applies to all tasks.
    pub pause: Pause,
}

/// Everything that is under way, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Tasks that are under way or for which other actors have something to do, by slot.
    pub tasks: Vec<UnderWay>,
    /// Servers by name.
    pub servers: Vec<ServerView>,
    /// Groups with tasks under way, by name.
    pub groups: Vec<GroupView>,
    /// Whether the list is complete; it is not if there are more than 100,000 tasks, and then counts must not be relied on.
    pub whole: bool,
}

/// A task that is under way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// Its id.
    pub id: u64,
    /// Its work id; empty if it has none.
    pub work: Name,
    /// Its group.
    pub group: Name,
    /// Its run status.
    pub status: RunStatus,
    /// Whether it counts towards the limit of its group.
    pub counts: bool,
    /// Its current attempt.
    pub attempt: Option<Attempt>,
    /// The name of the server it runs on; `None` if there is no such server.
    pub server: Option<Name>,
    /// The attempt that keeps a position in line for the execute lock.
    pub blocked: Option<Token>,
    /// Its current cleanup.
    pub cleaning: Option<Cleaning>,
    /// Whether time should have acted on it, and has not.
    pub late: bool,
}

#[cfg(test)]
mod tests {
    use super::{Obstacle, TaskView};
    use crate::actors::dispatch::task::{Attempt, RunStatus, Stage, Task, Trace};
    use crate::clock::Timestamp;
    use crate::ids::{ProcessId, Slot, Token};

    fn held(task: Task, obstacle: Option<Obstacle>) -> Option<String> {
        let mut view = TaskView {
            task,
            server: None,
            obstacle,
        };
        view.held_for_space((3 << 19, 2 << 20));
        view.obstacle.map(|it| it.to_string())
    }

    #[test]
    fn only_what_waits_for_nothing_else_waits_for_space() {
        let low =
            "disk space is low: the journal has 1.5 MiB left, and its disk must have 2.0 MiB free";
        let of = |status| Task {
            status,
            ..Task::default()
        };
        for obstacle in [None, Some(Obstacle::InLine)] {
            let ready = held(of(RunStatus::NotStarted), obstacle);
            assert_eq!(ready.as_deref(), Some(low));
        }
        let paused = held(of(RunStatus::Waiting), Some(Obstacle::Paused));
        assert_eq!(paused.as_deref(), Some("it is paused"));
        assert_eq!(held(of(RunStatus::Complete), None), None);
        // The process of an attempt is recorded before it is launched.
        for (launched, why) in [(None, Some(low)), (Some(Timestamp(2)), None)] {
            let attempt = Attempt {
                token: Token(1),
                server: Slot(0),
                process: ProcessId(1),
                stage: Stage::Locked,
                claimed: Timestamp(1),
                launched,
                revision: 0,
                updates: true,
                beat: None,
                said: None,
                stopping: None,
                last: false,
                reach: None,
                trace: Trace::default(),
            };
            let task = Task {
                attempt: Some(attempt),
                ..of(RunStatus::Processing)
            };
            assert_eq!(held(task, None).as_deref(), why);
        }
    }
}
