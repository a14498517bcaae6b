//! The views of tasks, servers and groups: what queries return. Most of them are built in `look.rs` and `work_in_progress.rs`.

use crate::actors::dispatch::remote::Remote;
use crate::actors::dispatch::server::{Outage, Pause};
use crate::actors::dispatch::task::{Attempt, Cleaning, RunStatus, Task};
use crate::actors::lock::Name;
use crate::clock::Date;
use crate::ids::Token;
use crate::text;
use serde::Serialize;
use std::fmt;

/// The view of a task: its state, its server, and what prevents its next burst.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TaskView {
    /// The task itself.
    #[serde(flatten)]
    pub task: Task,
    /// The name of the server that the current attempt runs on; `None` if there is no attempt, or if the server no longer exists.
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
    /// All tasks are paused. A soft pause holds back only tasks that have not started.
    AllPaused(Pause),
    /// The task's group is paused. A soft pause holds back only tasks that have not started.
    GroupPaused(Name, Pause),
    /// The limit of the group is 0.
    GroupDisabled(Name),
    /// The limit of the group is reached.
    GroupFull {
        group: Name,
        /// How many tasks of the group are in progress.
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
        /// The total number of threads of all enabled servers, except those that could not be reached.
        threads: u32,
    },
    /// No enabled server could be reached. They are tried again, one attempt at a time.
    NotReached {
        /// The total number of threads of all enabled servers.
        threads: u32,
    },
    /// The limit on the number of tasks in progress, counted over all servers, is reached.
    TooManyUnderWay {
        /// How many tasks are in progress and not paused.
        used: u32,
        /// The limit.
        max: u32,
    },
    /// Nothing prevents the burst except that another task is ahead of this one.
    InLine,
    /// The coordinator is draining.
    Draining,
    /// The coordinator's disk is low on space, so no process can be recorded. `DispatchMachine` never returns this obstacle;
    /// `TaskView::held_for_space` sets it afterwards.
    DiskLow {
        /// The number of bytes that can still be written to the journal.
        left: u64,
        /// The number of bytes that must be free on the disk for the journal's next segment.
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
                write!(
                    f,
                    "task {task} with work id {} is under way",
                    work.to_text()
                )
            }
            Self::NoServer => f.write_str("no server is enabled"),
            Self::NoThread { threads } => {
                write!(f, "all threads are in use: {threads} of {threads}")
            }
            Self::NotReached { .. } => f.write_str(
                "no enabled server can be reached: `sexton server list` shows why, and when each is tried again",
            ),
            Self::TooManyUnderWay { used, max } => {
                write!(f, "too many tasks are under way: {used} (limit {max})")
            }
            Self::InLine => f.write_str("other tasks go first"),
            Self::Draining => f.write_str("the coordinator is draining"),
            Self::DiskLow { left, needed } => write!(
                f,
                "disk space is low: the journal has {} left, and its next segment needs {} free",
                text::bytes(*left),
                text::bytes(*needed)
            ),
        }
    }
}

impl TaskView {
    /// Sets the obstacle to [`Obstacle::DiskLow`] with these values if low disk space is what holds the task back: either nothing else
    /// prevents its next burst, or its attempt waits for its process to be recorded.
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

/// A list of tasks, or one page of a longer list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tasks {
    /// The tasks, in the order that the query defines.
    pub tasks: Vec<TaskView>,
    /// The id of the task after which to continue; `None` if there are no more tasks. The reply to `Query::Active` cannot be continued:
    /// if there are more tasks, this is 0.
    pub next: Option<u64>,
}

/// The view of a server: its settings, and how many of its threads are in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ServerView {
    /// The name.
    pub name: Name,
    /// The maximum number of attempts that run on the server at a time.
    pub threads: u32,
    /// The number of attempts running on the server now.
    pub used: u32,
    /// Whether the server is enabled: only then are new attempts assigned to it.
    pub enabled: bool,
    /// Whether the server is being removed; it disappears when its last attempt has ended.
    pub leaves: bool,
    /// How the server is reached if it is another machine; `None` if it is the coordinator's own.
    pub remote: Option<Remote>,
    /// The latest failures to reach the server; `None` if it was reached since.
    pub outage: Option<Outage>,
}

/// The view of a group: its settings, and how many of its tasks are in progress or ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// The name.
    pub name: Name,
    /// The maximum number of tasks of the group that may be in progress at a time.
    pub max: u32,
    /// The number of tasks of the group that are in progress.
    pub used: u32,
    /// The pause of the group itself. A pause of all tasks applies in addition.
    pub pause: Pause,
    /// The number of the group's tasks that could begin their next burst if a thread were free and neither a limit nor a pause of the group
    /// or of all tasks prevented it. Of unstarted tasks with the same work id, at most one is counted.
    pub ready: u32,
}

/// The number of tasks in each state, and the pause of all tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Tasks that have not started since they were added or restarted, including those that are not ready.
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

/// All work in progress at one moment, for an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkInProgress {
    /// Tasks that are in progress or have requests outstanding at other actors, ordered by slot.
    pub tasks: Vec<UnderWay>,
    /// Servers by name.
    pub servers: Vec<ServerView>,
    /// Groups with tasks in progress, ordered by name.
    pub groups: Vec<GroupView>,
    /// Whether `tasks` is complete. At most 100,000 tasks are listed, and an incomplete list must not be used for counting.
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
    /// The name of the server that the attempt runs on; `None` if there is no attempt, or if the server no longer exists.
    pub server: Option<Name>,
    /// The token of an ended attempt in whose name the task still waits for the execute lock, if it does; see [`Task::blocked`].
    pub blocked: Option<Token>,
    /// The current cleanup.
    pub cleaning: Option<Cleaning>,
    /// Whether a deadline of the task, or its wake time, has passed without having been handled.
    pub late: bool,
}

#[cfg(test)]
mod tests {
    use super::{Obstacle, TaskView};
    use crate::actors::dispatch::task::{Attempt, RunStatus, Stage, Task, Trace};
    use crate::clock::Timestamp;
    use crate::ids::{ProcessId, Slot, Token};

    fn held(task: Task, obstacle: Option<Obstacle>) -> Option<String> {
        let mut view = TaskView { task, server: None, obstacle };
        view.held_for_space((3 << 19, 2 << 20));
        view.obstacle.map(|it| it.to_string())
    }

    #[test]
    fn only_what_waits_for_nothing_else_waits_for_space() {
        let low = "disk space is low: the journal has 1.5 MiB left, and its next segment needs 2.0 MiB free";
        let of = |status| Task { status, ..Task::default() };
        for obstacle in [None, Some(Obstacle::InLine)] {
            let ready = held(of(RunStatus::NotStarted), obstacle);
            assert_eq!(ready.as_deref(), Some(low));
        }
        let paused = held(of(RunStatus::Waiting), Some(Obstacle::Paused));
        assert_eq!(paused.as_deref(), Some("it is paused"));
        assert_eq!(held(of(RunStatus::Complete), None), None);
        // Once the launch is accepted, the process has a record, and low disk space no longer holds the task back.
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
            let task = Task { attempt: Some(attempt), ..of(RunStatus::Processing) };
            assert_eq!(held(task, None).as_deref(), why);
        }
    }
}
