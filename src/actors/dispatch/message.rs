//! The messages, queries and replies of the `DispatchActor`.
//!
//! Messages are stored: see the change rule in `persist/format.rs`.

use crate::actors::binding;
use crate::actors::dispatch::outcome::Refused;
use crate::actors::dispatch::remote::{FarEnd, Remote};
use crate::actors::dispatch::server::{Group, Pause};
use crate::actors::dispatch::task::{Priority, RunStatus, Task, Terms};
use crate::actors::dispatch::view::{GroupView, ServerView, Standing, TaskView, Tasks, Totals};
use crate::actors::lock::{LockState, Name};
use crate::actors::process::Launching;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The configuration of the `DispatchActor`. Noted in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The most tasks, including those that are over.
    pub tasks_max: u32,
    /// The most servers.
    pub servers_max: u32,
    /// The most groups with settings of their own.
    pub groups_max: u32,
    /// The number of threads of the server that is created with the first task.
    pub local_threads: u32,
    /// The most tasks under way at a time, per thread of an enabled server; beyond that, no other is started.
    pub tasks_per_thread: u32,
    /// The maximum size of what a task saves, in bytes.
    pub saved_bytes_max: u32,
    /// How long a task is kept after it is over, in milliseconds.
    pub kept_ms: u64,
    /// The most tasks kept after they are over; at least one.
    pub kept_max: u32,
    /// The default terms of a task.
    pub terms: Terms,
    /// How long an attempt on another machine continues without contact before it stops itself, in milliseconds; a little later its thread
    /// is free again.
    pub lost_after_ms: u64,
    /// The most tasks under way at a time in a group without a limit of its own; if 0, none is started.
    pub group_max: u32,
}

impl Rules {
    /// The longest time for which tasks may be kept after they are over, in milliseconds: ten years.
    pub const KEPT_MS_MAX: u64 = 3653 * 24 * 3_600_000;

    /// The longest time that an attempt on another machine may continue without contact, in milliseconds: a day.
    pub const LOST_AFTER_MS_MAX: u64 = 24 * 3_600_000;

    /// Describes a flaw in these rules; `None` if they are valid.
    pub fn flaw(&self) -> Option<String> {
        let terms = &self.terms;
        let spans = [
            ("burst", terms.burst_ms, Terms::SPAN_MS_MAX),
            ("fail_after", terms.fail_after_ms, Terms::SPAN_MS_MAX),
            ("progress", terms.progress_ms, Terms::SPAN_MS_MAX),
            ("keep", self.kept_ms, Self::KEPT_MS_MAX),
            (
                "server_lost_after",
                self.lost_after_ms,
                Self::LOST_AFTER_MS_MAX,
            ),
        ];
        let is_wrong = |(_, ms, max): &(&str, u64, u64)| !(1..=*max).contains(ms);
        if let Some((name, ms, max)) = spans.into_iter().find(is_wrong) {
            let days = max / (24 * 3_600_000);
            return Some(format!("{name}: {ms} ms is not within 1 ms to {days} days"));
        }
        let (kept, max) = (self.kept_max, self.tasks_max);
        let fits = (1..=max).contains(&kept);
        (!fits).then(|| format!("keep_max: {kept} is not within 1 to {max}"))
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
        }
    }
}

/// A message that may change tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From a client: add a task.
    Add(Box<Adding>),
    /// From a client: change a task.
    Act {
        /// The id of the task.
        task: u64,
        /// The change.
        act: Act,
    },
    /// From a command: a report about the burst that it runs.
    Report {
        /// The process of its attempt.
        process: ProcessId,
        /// The report.
        report: Report,
        /// Its number if it comes from another machine; each number is accepted once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nth: Option<u64>,
    },
    /// From an operator: pause or resume tasks.
    Pause {
        /// The group, with the empty name meaning that of tasks that name none; `None` for all tasks.
        group: Option<Name>,
        /// The pause in effect.
        pause: Pause,
    },
    /// From an operator: limit the tasks of a group that are under way at a time.
    Limit {
        /// The group, with the empty name meaning that of tasks that name none.
        group: Name,
        /// The limit; if 0, none is started.
        max: u32,
    },
    /// From an operator: change a server.
    Server {
        /// The name of the server.
        name: Name,
        /// The change.
        change: ServerChange,
    },
    /// From an inventory: these are all the servers.
    Inventory {
        /// The servers.
        hosts: Vec<Host>,
    },
    /// From a client: forget tasks that are over.
    Prune {
        /// Only tasks that were over before this date.
        before: Option<Date>,
        /// How many of the newest are kept, however old.
        keep: u32,
        /// The most tasks to forget at once; the reply tells whether there may be more.
        limit: u32,
    },
    /// From the `ProcessActor`: the tree of an attempt is gone.
    Gone(binding::EndNotice),
    /// From the `ProcessActor`: the launch of an attempt was accepted.
    Launched(ProcessId),
    /// From the `LockActor`: an attempt was granted a lock, or waits for it.
    Held(LockState),
    /// From the timer: time acts on the task in this slot.
    Lapse {
        /// The slot of the task.
        slot: Slot,
    },
    /// From the timer: a task is ready and a thread is free.
    Dispatch,
}

/// A task to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Adding {
    /// The work id; no two tasks with the same one are under way at a time. Empty for none.
    pub work: Name,
    /// Its group; [`super::Group::DEFAULT`] if empty.
    pub group: Name,
    /// A name for users.
    pub name: Name,
    /// Its priority.
    pub priority: Priority,
    /// The command that is run for each burst.
    pub command: Arc<Launching>,
    /// The command that is run after each attempt, separately from it.
    pub cleanup: Option<Arc<Launching>>,
    /// The terms on which it is run; the configured ones if `None`.
    pub terms: Option<Terms>,
    /// Whether it must wait for [`Act::Ready`] before it starts.
    pub not_ready: bool,
    /// Whether it is paused from the beginning.
    pub paused: bool,
}

/// A change of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// Allow it to start.
    Ready,
    /// Begin no more bursts of it.
    Pause,
    /// Begin bursts again.
    Resume,
    /// Stop waiting: its next burst begins as soon as it can.
    Wake,
    /// End it with its next burst, or at once if it has not started or `now` is set.
    Terminate {
        /// Whether a current attempt is stopped, and no last burst is run.
        now: bool,
    },
    /// Run it again, after it was over.
    Restart,
}

/// A report of a command about the burst that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// The progress of the task, from which the next burst continues.
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
    /// The burst is over, and another is to follow.
    Wait {
        /// Milliseconds until the next burst.
        ms: u64,
    },
    /// The task has failed.
    Fail {
        /// The reason.
        words: String,
    },
    /// The result of the attempt on another machine, from the local process that waits for it.
    Far(FarEnd),
}

/// A change of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerChange {
    /// Set the number of threads; the server is added if it does not exist.
    Threads(u32),
    /// Enable or disable the assignment of tasks to it.
    Enabled(bool),
    /// Remove it; attempts running there are stopped.
    Removed,
    /// Set the number of threads, and how it is reached; the server is added if it does not exist.
    Reached {
        /// The number of threads.
        threads: u32,
        /// How it is reached.
        remote: Remote,
    },
}

/// A server in an inventory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: Name,
    /// The number of attempts that run there at a time; 0 counts as 1.
    pub threads: u32,
    /// How it is reached, if it is another machine. `None` leaves an existing server's setting as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

/// A filter for tasks. Fields that are not set match everything.
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
    /// One task.
    Task(u64),
    /// Tasks in order of id.
    Tasks {
        /// The filter.
        filter: TaskFilter,
        /// Only tasks after this id.
        after: Option<u64>,
        /// The most tasks in the reply.
        limit: u32,
    },
    /// What was saved by the task whose attempt has this process.
    Saved(ProcessId),
    /// All servers, by name.
    Servers,
    /// The changes that an inventory would cause.
    Inventory(Vec<Host>),
    /// All groups that have tasks under way or settings, by name.
    Groups,
    /// The number of tasks in each state.
    Totals,
    /// The default terms of a task.
    Terms,
    /// Everything that is under way.
    Standing,
    /// Tasks that are not over: first those with a burst running, then those waiting for their next burst, then those that have not begun.
    /// If there are very many, only some are considered.
    Stirring {
        /// The most tasks in the reply.
        most: u32,
    },
}

/// A condition to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The task is over, or forgotten: answered by the task, or its absence.
    Over(u64),
    /// No attempt is under way: answered by the number of tasks in each state.
    Idle,
    /// It is time to update the servers: an attempt failed because of its server, or tasks could run and no server is enabled.
    ServersWanted,
}

/// A reply of the `DispatchActor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A task.
    Task(Box<TaskView>),
    /// Tasks in order of id.
    Tasks(Box<Tasks>),
    /// What a task has saved: how many times, and the latest.
    Saved(u64, Option<Bytes>),
    /// Servers by name.
    Servers(Vec<ServerView>),
    /// Groups by name.
    Groups(Vec<GroupView>),
    /// The number of tasks in each state.
    Totals(Totals),
    /// The default terms of a task.
    Terms(Terms),
    /// Everything that is under way.
    Standing(Box<Standing>),
    /// The numbers of servers that were added, removed or changed.
    Reconciled {
        /// Servers added.
        added: u32,
        /// Servers removed.
        removed: u32,
        /// Servers with a new number of threads, or reached in another way.
        changed: u32,
    },
    /// The number of tasks forgotten, and whether there may be more.
    Pruned(u32, bool),
    /// The request was carried out.
    Done,
    /// There is no such task, attempt or server.
    Absent,
    /// The request was refused.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
