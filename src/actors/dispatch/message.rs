//! The messages, queries and replies of the `DispatchActor`.
//!
//! Messages are stored: see the change rule in `persist/format.rs`.

use crate::actors::binding;
use crate::actors::dispatch::outcome::Refused;
use crate::actors::dispatch::remote::{Remote, RemoteEnd};
use crate::actors::dispatch::server::{Group, Pause};
use crate::actors::dispatch::task::{Priority, RunStatus, Task, Terms};
use crate::actors::dispatch::view::{
    GroupView, ServerView, TaskView, Tasks, Totals, WorkInProgress,
};
use crate::actors::lock::{LockState, Name};
use crate::actors::process::Launching;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The configuration of the `DispatchActor`. Recorded in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The maximum number of tasks, including those that are over.
    pub tasks_max: u32,
    /// The maximum number of servers.
    pub servers_max: u32,
    /// The maximum number of groups that have their own settings.
    pub groups_max: u32,
    /// The number of threads of the server that is created with the first task if no server has ever been added; 0 counts as 1.
    pub local_threads: u32,
    /// The maximum number of tasks in progress, per thread of an enabled server; paused tasks are not counted. When it is reached, no
    /// further task is started.
    pub tasks_per_thread: u32,
    /// The maximum size of a task's saved state, in bytes.
    pub saved_bytes_max: u32,
    /// How long a task is kept after it is over, in milliseconds.
    pub kept_ms: u64,
    /// The maximum number of tasks kept after they are over; from 1 to `tasks_max`.
    pub kept_max: u32,
    /// The default terms of a task.
    pub terms: Terms,
    /// How long an attempt on another machine continues without contact with the coordinator before it stops itself, in milliseconds.
    /// Shortly after that, its thread is free again.
    pub lost_after_ms: u64,
    /// The maximum number of tasks in progress in a group that has no limit of its own; if 0, no task of such a group is started.
    pub group_max: u32,
    /// The maximum total size of the commands, names, messages and saved states of all tasks, in bytes; at this limit, tasks are refused, and
    /// so is saved state that is larger than the one it replaces.
    pub bytes_max: u64,
}

impl Rules {
    /// The maximum time for which tasks may be kept after they are over, in milliseconds: ten years.
    pub const KEPT_MS_MAX: u64 = 3653 * 24 * 3_600_000;

    /// The maximum time for which an attempt on another machine may continue without contact, in milliseconds: a day.
    pub const LOST_AFTER_MS_MAX: u64 = 24 * 3_600_000;

    /// Returns a description of the first flaw in these rules, or `None` if they are valid.
    pub fn flaw(&self) -> Option<String> {
        let terms = &self.terms;
        let spans = [
            ("burst", terms.burst_ms, Terms::SPAN_MS_MAX),
            ("fail_after", terms.fail_after_ms, Terms::SPAN_MS_MAX),
            ("progress", terms.progress_ms, Terms::SPAN_MS_MAX),
            ("keep", self.kept_ms, Self::KEPT_MS_MAX),
            ("server_lost_after", self.lost_after_ms, Self::LOST_AFTER_MS_MAX),
        ];
        let is_wrong = |(_, ms, max): &(&str, u64, u64)| !(1..=*max).contains(ms);
        if let Some((name, ms, max)) = spans.into_iter().find(is_wrong) {
            let days = max / (24 * 3_600_000);
            return Some(format!("{name}: {ms} ms is out of range: expected 1 ms to {days} days"));
        }
        let (kept, max) = (self.kept_max, self.tasks_max);
        let fits = (1..=max).contains(&kept);
        (!fits).then(|| format!("keep_max: {kept} is out of range: expected 1 to {max}"))
    }
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            tasks_max: 1_000_000,
            servers_max: 10_000,
            groups_max: 10_000,
            local_threads: 4,
            tasks_per_thread: 4,
            saved_bytes_max: 65_536,
            kept_ms: 30 * 24 * 3_600_000,
            kept_max: 100_000,
            terms: Terms::default(),
            lost_after_ms: 120_000,
            group_max: Group::MAX,
            bytes_max: 512 << 20,
        }
    }
}

/// The maximum number of tasks that one [`Message::Prune`] forgets.
pub(super) const PRUNED_MAX: u32 = 1000;

/// A message that may change tasks, servers or groups.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From a client: add a task.
    Add(Box<NewTask>),
    /// From a client: change a task.
    Act {
        /// The id of the task.
        task: u64,
        /// The change.
        act: Act,
    },
    /// From a command: a report about the burst that it runs.
    Report {
        /// The process of the attempt that runs the burst.
        process: ProcessId,
        report: Report,
        /// The number of the report if it comes from another machine. A report whose number is not higher than that of the last accepted
        /// one changes nothing.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nth: Option<u64>,
    },
    /// From an operator: pause or resume tasks.
    Pause {
        /// The group; [`super::Group::DEFAULT`] if empty. `None` means all tasks.
        group: Option<Name>,
        /// The new pause; [`Pause::Off`] resumes the tasks.
        pause: Pause,
    },
    /// From an operator: limit how many tasks of a group are in progress at a time.
    Limit {
        /// The group; [`super::Group::DEFAULT`] if empty.
        group: Name,
        /// The limit; if 0, no task of the group is started.
        max: u32,
    },
    /// From an operator: change a server.
    Server {
        /// The name of the server.
        name: Name,
        change: ServerChange,
    },
    /// From a client: make the servers match an inventory, except those that an operator disabled.
    Inventory {
        /// The servers.
        hosts: Vec<Host>,
    },
    /// From a client: forget tasks that are over.
    Prune {
        /// If given, only tasks that ended before this date are forgotten.
        before: Option<Date>,
        /// How many of the tasks that ended last are kept, however long ago they ended.
        keep: u32,
        /// The maximum number of tasks to forget; values above 1000 count as 1000. The reply states whether there may be more to forget.
        limit: u32,
    },
    /// From the `ProcessActor`: the process tree of an attempt or a cleanup has ended.
    Gone(binding::EndNotice),
    /// From the `ProcessActor`: the launch of an attempt or a cleanup was accepted.
    Launched(ProcessId),
    /// From the `LockActor`: an attempt was granted a lock, or waits for it.
    Held(LockState),
    /// From the timer: a deadline of the task in this slot has passed.
    Lapse {
        /// The slot of the task.
        slot: Slot,
    },
    /// From the timer: a task is ready and a thread is free, so a burst can begin.
    Dispatch,
}

/// A task to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NewTask {
    /// The work id: only one task with a given work id is in progress at a time. Empty if the task has none.
    pub work: Name,
    /// The group; [`super::Group::DEFAULT`] if empty.
    pub group: Name,
    /// A name for users.
    pub name: Name,
    /// The priority.
    pub priority: Priority,
    /// The command that is run for each burst.
    pub command: Arc<Launching>,
    /// The command that is run after each attempt that was granted the execute lock, as a process of its own.
    pub cleanup: Option<Arc<Launching>>,
    /// The terms on which the task is run; the configured ones if `None`.
    pub terms: Option<Terms>,
    /// Whether the task must wait for [`Act::Ready`] before it starts.
    pub not_ready: bool,
    /// Whether the task is paused when it is added.
    pub paused: bool,
}

impl NewTask {
    /// Returns the size of its texts in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let names = [&self.work, &self.group, &self.name];
        let names: usize = names.iter().map(|it| it.as_bytes().len()).sum();
        let cleanup = self.cleanup.as_ref().map_or(0, |it| it.bytes());
        self.command.bytes() + cleanup + names as u64
    }
}

/// A change to a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Allow the task to start.
    Ready,
    /// Pause the task: begin no more bursts.
    Pause,
    /// Resume the task: begin bursts again.
    Resume,
    /// End the task's wait: its next burst begins as soon as possible.
    Wake,
    /// End the task with its next burst, or immediately if it has not started or `now` is set.
    Terminate {
        /// Whether to stop the current attempt, if there is one, and skip the last burst.
        now: bool,
    },
    /// Restart the task, which must be over. It continues from its saved state.
    Restart,
}

/// A report from a command about the burst that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The state to save for the task, from which its next burst continues.
    Save(Bytes),
    /// A heartbeat.
    Beat,
    /// The task is done.
    Done {
        /// Whether there was a warning.
        warning: bool,
        /// A message.
        words: String,
    },
    /// The burst is over, and another burst will follow.
    Wait {
        /// The wait from this report to the next burst, in milliseconds.
        ms: u64,
    },
    /// The task has failed.
    Fail {
        /// The reason.
        words: String,
    },
    /// The result of the attempt on another machine, from the local process that waits for it.
    Far(RemoteEnd),
    /// The machine was reached, from the local process of an attempt on another machine.
    Reached,
}

/// A change to a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerChange {
    /// Set the number of threads; the server is added if it does not exist.
    Threads(u32),
    /// Enable or disable the assignment of tasks to the server.
    Enabled(bool),
    /// Remove the server; attempts running there are stopped.
    Removed,
    /// Set the number of threads and how the server is reached; the server is added if it does not exist.
    Reached {
        /// The number of threads.
        threads: u32,
        /// How the server is reached.
        remote: Remote,
    },
}

/// A server in an inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// The name.
    pub name: Name,
    /// The maximum number of attempts that run on the server at a time; 0 counts as 1.
    pub threads: u32,
    /// How the server is reached, if it is another machine. `None` leaves an existing server's setting unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

/// A filter for tasks. A task matches if all fields that are set match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Tasks with this run status.
    pub status: Option<RunStatus>,
    /// Tasks of this group.
    pub group: Option<Name>,
    /// Tasks with this work id.
    pub work: Option<Name>,
}

impl TaskFilter {
    /// Returns whether a task matches.
    pub(super) fn takes(&self, task: &Task) -> bool {
        self.status.is_none_or(|status| task.status == status)
            && self.group.as_ref().is_none_or(|group| task.group == *group)
            && self.work.as_ref().is_none_or(|work| task.work == *work)
    }
}

/// A query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    Task(u64),
    /// Tasks in order of id.
    Tasks {
        filter: TaskFilter,
        /// Only tasks with an id greater than this one.
        after: Option<u64>,
        /// The maximum number of tasks in the reply; values above 1000 count as 1000.
        limit: u32,
    },
    /// The saved state of the task whose current attempt has this process.
    Saved(ProcessId),
    /// All servers, by name.
    Servers,
    /// How many servers an inventory would add, remove and change.
    Inventory(Vec<Host>),
    /// Groups that have settings, or tasks that are ready or in progress: the first 1000 of them by name.
    Groups,
    /// The number of tasks in each state.
    Totals,
    /// The default terms of a task.
    Terms,
    WorkInProgress,
    /// An overview of tasks: first those with a burst running, then those that wait for their next burst, then those that could begin their
    /// first burst. At most 8192 of the tasks in progress are considered.
    Active {
        /// The maximum number of tasks in the reply; values above 1000 count as 1000.
        most: u32,
    },
}

/// A condition to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The task is over, or does not exist. Answered with [`Reply::Task`] or [`Reply::Absent`].
    Over(u64),
    /// No task has an attempt. Answered with [`Reply::Totals`].
    Idle,
    /// The servers should be updated: an attempt failed because of its server, or tasks could run but no server is enabled. Answered with
    /// [`Reply::Done`].
    ServersWanted,
}

/// A reply of the `DispatchActor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Task(Box<TaskView>),
    /// Tasks, in the order that the query specifies.
    Tasks(Box<Tasks>),
    /// How many times a task has saved its state, and the latest state; `None` if it has never saved any.
    Saved(u64, Option<Bytes>),
    /// Servers by name.
    Servers(Vec<ServerView>),
    /// Groups by name.
    Groups(Vec<GroupView>),
    /// The number of tasks in each state.
    Totals(Totals),
    /// The default terms of a task.
    Terms(Terms),
    WorkInProgress(Box<WorkInProgress>),
    /// How many servers an inventory adds, removes and changes. In the reply to [`Query::Inventory`], nothing has changed yet.
    Reconciled {
        /// Servers added.
        added: u32,
        /// Servers removed.
        removed: u32,
        /// Servers with a new number of threads or a new way to reach them.
        changed: u32,
    },
    /// The number of tasks forgotten, and whether there may be more to forget.
    Pruned(u32, bool),
    /// The request was carried out.
    Done,
    /// The task, attempt or server does not exist.
    Absent,
    /// The request was refused.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
