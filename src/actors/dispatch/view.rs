//! The types of the views of tasks, servers and groups. `look.rs` fills them.

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
    /// The name of the server that the current attempt runs on.
    pub server: Option<Name>,
    /// Why the next burst does not begin. `None` if the task is over, if a burst is running, or if nothing prevents the next one.
    pub obstacle: Option<Obstacle>,
}

/// The reason why the next burst of a task does not begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// The task must not start until it is made ready.
    NotReady,
    /// The task is paused by an operator.
    Paused,
    /// The task waits until this date.
    Waits(Date),
    /// Another holder has the task's execute lock.
    Locked,
    /// All tasks are paused.
    AllPaused(Pause),
    /// The task's group is paused.
    GroupPaused(Name, Pause),
    /// The limit of the group is 0.
    GroupDisabled(Name),
    /// The limit of the group is reached.
    GroupFull {
        /// The group.
        group: Name,
        /// How many tasks are in progress.
        used: u32,
        /// The limit.
        max: u32,
    },
    /// Another task with the same work id is in progress.
    WorkUnderWay {
        /// The work id.
        work: Name,
        /// The id of the other task.
        task: u64,
    },
    /// No server is enabled.
    NoServer,
    /// No enabled server has a free thread.
    NoThread {
        /// The number of threads of all enabled servers.
        threads: u32,
    },
    /// The limit on tasks in progress on all servers together is reached.
    TooManyUnderWay {
        /// How many tasks are in progress.
        used: u32,
        /// The limit.
        max: u32,
    },
    /// Another task begins its burst first.
    InLine,
    /// The coordinator is draining.
    Draining,
    /// The disk of the coordinator is low on space, so no process can be recorded. The machine never returns this; it is set when a view is
    /// shown.
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
            Self::Locked => f.write_str("another holder has its execute lock"),
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
            Self::Draining => f.write_str("the coordinator is draining"),
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
    /// Sets the obstacle to low disk space if that is why the task does not run: either nothing else prevents its next burst, or its
    /// attempt waits for a process to be recorded.
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

/// A list of tasks, or a page of one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tasks {
    /// The tasks, in the order that the query defines.
    pub tasks: Vec<TaskView>,
    /// The id after which to continue; `None` if there are no more tasks. After `Query::Stirring` it is 0 if there are more.
    pub next: Option<u64>,
}

/// The view of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerView {
    /// The name.
    pub name: Name,
    /// The maximum number of attempts that run on the server at a time.
    pub threads: u32,
    /// The number of attempts running on the server now.
    pub used: u32,
    /// Whether tasks are assigned to the server.
    pub enabled: bool,
    /// Whether the server is being removed; it disappears when its last attempt has ended.
    pub leaves: bool,
    /// How the server is reached, if it is another machine.
    pub remote: Option<Remote>,
}

/// The view of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// The name.
    pub name: Name,
    /// The maximum number of tasks in progress.
    pub max: u32,
    /// The number of tasks in progress.
    pub used: u32,
    /// The pause in effect.
    pub pause: Pause,
    /// The number of tasks that could begin their next burst, if a thread is free and no limit or pause prevents it.
    pub ready: u32,
}

/// The number of tasks in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Tasks that have not started, including those that are not ready.
    pub fresh: u64,
    /// Tasks between two bursts.
    pub waiting: u64,
    /// Tasks that are running a burst.
    pub processing: u64,
    /// Tasks that are over, including those that failed.
    pub complete: u64,
    /// Tasks that are over because they failed.
    pub failed: u64,
    /// The pause that applies to all tasks.
    pub pause: Pause,
}

/// All work in progress, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// Tasks that are in progress or have requests outstanding at other actors, by slot.
    pub tasks: Vec<UnderWay>,
    /// Servers by name.
    pub servers: Vec<ServerView>,
    /// Groups with tasks in progress, by name.
    pub groups: Vec<GroupView>,
    /// Whether `tasks` is complete. It is not if there are more than 100,000, and must then not be used for counting.
    pub whole: bool,
}

/// A task that is in progress, or has requests outstanding at other actors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnderWay {
    /// The id.
    pub id: u64,
    /// The work id; empty if the task has none.
    pub work: Name,
    /// The group.
    pub group: Name,
    /// The run status.
    pub status: RunStatus,
    /// Whether the task counts towards the limit of its group.
    pub counts: bool,
    /// The current attempt.
    pub attempt: Option<Attempt>,
    /// The name of the server that the attempt runs on; `None` without an attempt, or if the server does not exist.
    pub server: Option<Name>,
    /// The attempt that keeps a position in line for the execute lock.
    pub blocked: Option<Token>,
    /// The current cleanup.
    pub cleaning: Option<Cleaning>,
    /// Whether a deadline of the task has passed without being handled.
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
        // Once the launch is accepted, the process has a record, and low disk space no longer prevents anything.
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
