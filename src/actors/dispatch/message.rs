//! What can be asked of the `DispatchActor`, and what it is told.
//!
//! Messages are stored: see the change rule in `persist/format.rs`.

use crate::actors::binding;
use crate::actors::dispatch::outcome::Refused;
use crate::actors::dispatch::remote::{FarEnd, Remote};
use crate::actors::dispatch::server::{Group, Pause};
use crate::actors::dispatch::task::{Priority, RunStatus, Task, Terms};
use crate::actors::dispatch::view::{GroupView, ServerView, Standing, TaskView, Tasks, Totals};
use crate::actors::lock::{Held, Name};
use crate::actors::process::Launching;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Configuration of the `DispatchActor`. Noted in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The most tasks, those that are over among them.
    pub tasks_max: u32,
    /// The most servers.
    pub servers_max: u32,
    /// The most groups for which something is set.
    pub groups_max: u32,
    /// Threads of the server that is made with the first task.
    pub local_threads: u32,
    /// Tasks that are under way at a time, for each thread of an enabled server: no other is started beyond that.
    pub tasks_per_thread: u32,
    /// The most bytes that a task saves.
    pub saved_bytes_max: u32,
    /// Milliseconds for which a task is kept that is over.
    pub kept_ms: u64,
    /// The most tasks that are kept after they are over: one at least.
    pub kept_max: u32,
    /// What holds for a task that does not say otherwise.
    pub terms: Terms,
    /// Milliseconds without a word from here after which an attempt on another machine is stopped there, by itself; a little later
    /// its thread is free again.
    pub lost_after_ms: u64,
    /// How many tasks of a group are under way at a time of which nothing is said; none is started if 0.
    pub group_max: u32,
}

impl Rules {
    /// The longest that a task may be kept after it is over, in milliseconds: ten years.
    pub const KEPT_MS_MAX: u64 = 3653 * 24 * 3_600_000;

    /// The longest that an attempt on another machine may go on without a word from here, in milliseconds: a day.
    pub const LOST_AFTER_MS_MAX: u64 = 24 * 3_600_000;

    /// What of them cannot be, in words; `None` if nothing.
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

/// What may change tasks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A client: this is to be done.
    Add(Box<Adding>),
    /// A client: this is to become of a task.
    Act {
        /// Which.
        task: u64,
        /// What.
        act: Act,
    },
    /// A command: what it has to say of the burst that it runs.
    Report {
        /// The process of its attempt.
        process: ProcessId,
        /// What it says.
        report: Report,
        /// Its number, if it comes from another machine: each is heard once.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        nth: Option<u64>,
    },
    /// An operator: so much is held back.
    Pause {
        /// Of which group, that of tasks that name none if empty; of all tasks, if `None`.
        group: Option<Name>,
        /// How much.
        pause: Pause,
    },
    /// An operator: so many tasks of a group are under way at a time.
    Limit {
        /// Which group; that of tasks that name none, if empty.
        group: Name,
        /// How many; none is started if 0.
        max: u32,
    },
    /// An operator: this is to become of a server.
    Server {
        /// Which.
        name: Name,
        /// What.
        change: ServerChange,
    },
    /// An inventory: these servers there are, and no others.
    Inventory {
        /// Them.
        hosts: Vec<Host>,
    },
    /// A client: forget tasks that are over.
    Prune {
        /// Those that were over before this.
        before: Option<Date>,
        /// The newest that stay, however old.
        keep: u32,
        /// At most so many at once; the answer says whether there may be more.
        limit: u32,
    },
    /// The `ProcessActor`: the tree of an attempt is gone.
    Gone(binding::Gone),
    /// The `ProcessActor`: the launch of an attempt is taken on.
    Launched(ProcessId),
    /// The `LockActor`: how an attempt stands with a lock.
    Held(Held),
    /// Time acts on the task in this slot.
    Lapse {
        /// Which.
        slot: Slot,
    },
    /// A task is ready and a thread is free.
    Dispatch,
}

/// A task that is to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Adding {
    /// What it works on; no two tasks of one work id are under way at a time. Empty for nothing in particular.
    pub work: Name,
    /// Its group; [`super::Group::DEFAULT`] if empty.
    pub group: Name,
    /// What people call it.
    pub name: Name,
    /// How urgent it is.
    pub priority: Priority,
    /// What is run for each burst.
    pub command: Arc<Launching>,
    /// What is run after each attempt, apart from it.
    pub cleanup: Option<Arc<Launching>>,
    /// How it is run; as the configuration says, if `None`.
    pub terms: Option<Terms>,
    /// Whether it waits for [`Act::Ready`] before it starts.
    pub not_ready: bool,
    /// Whether an operator holds it back from the beginning.
    pub paused: bool,
}

/// What may become of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// It may be started.
    Ready,
    /// No burst of it begins.
    Pause,
    /// Bursts begin again.
    Resume,
    /// It waits no longer: its next burst begins as soon as it can.
    Wake,
    /// It ends with its next burst, or at once if it has not started or if `now`.
    Terminate {
        /// Whether an attempt that is under way is stopped, and no last burst is run.
        now: bool,
    },
    /// It is over and runs again.
    Restart,
}

/// What a command says of the burst that it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Report {
    /// How far the task has come: what the next burst goes on from.
    Save(Bytes),
    /// It goes on.
    Beat,
    /// The task is done.
    Done {
        /// Whether with a warning.
        warning: bool,
        /// What there is to say.
        words: String,
    },
    /// The burst is over, and the next is to come.
    Wait {
        /// Milliseconds until then.
        ms: u64,
    },
    /// The task has failed.
    Fail {
        /// Why.
        words: String,
    },
    /// What became of it on another machine, from the process that waits for that here.
    Far(FarEnd),
}

/// What may become of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerChange {
    /// It has so many threads; it is added if it is not there.
    Threads(u32),
    /// Tasks are given to it, or none are any more.
    Enabled(bool),
    /// It is removed: what runs there comes to its end.
    Removed,
    /// Its number of threads, and how it is reached; it is added if it is not there.
    Reached {
        /// How many threads.
        threads: u32,
        /// How.
        remote: Remote,
    },
}

/// A server, as an inventory has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: Name,
    /// How many attempts run there at a time; 0 counts as 1.
    pub threads: u32,
    /// How it is reached, if it is another machine. One that is there stays as it is if this is `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<Remote>,
}

/// Which tasks are asked for. What is left out lets all through.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskFilter {
    /// Those with this run status.
    pub status: Option<RunStatus>,
    /// Those of this group.
    pub group: Option<Name>,
    /// Those of this work id.
    pub work: Option<Name>,
}

impl TaskFilter {
    /// Whether a task is let through.
    pub(super) fn takes(&self, task: &Task) -> bool {
        self.status.is_none_or(|status| task.status == status)
            && self.group.as_ref().is_none_or(|group| task.group == *group)
            && self.work.as_ref().is_none_or(|work| task.work == *work)
    }
}

/// A question about tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One task.
    Task(u64),
    /// Tasks by number, after this one.
    Tasks {
        /// Which.
        filter: TaskFilter,
        /// After this number.
        after: Option<u64>,
        /// At most so many.
        limit: u32,
    },
    /// What the task has saved whose attempt has this process.
    Saved(ProcessId),
    /// All servers, by name.
    Servers,
    /// What an inventory would come to.
    Inventory(Vec<Host>),
    /// All groups that have tasks under way or something set, by name.
    Groups,
    /// How many tasks there are.
    Totals,
    /// What holds for a task that does not say otherwise.
    Terms,
    /// All that is under way.
    Standing,
    /// Tasks that are not over: those that run first, then those that wait for their next burst, then those that have not begun.
    /// Of very many, some are looked at.
    Stirring {
        /// At most so many.
        most: u32,
    },
}

/// What a request may wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The task is over, or gone: answered with it, or with its absence.
    Over(u64),
    /// No attempt is under way: answered with how many tasks there are.
    Idle,
    /// It is time to look which servers there are: an attempt comes to nothing for the sake of its server, or tasks could run
    /// and there is no server that is enabled.
    ServersWanted,
}

/// An answer of the `DispatchActor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The task.
    Task(Box<TaskView>),
    /// Tasks by number.
    Tasks(Box<Tasks>),
    /// What a task has saved: how often, and the newest of it.
    Saved(u64, Option<Bytes>),
    /// Servers by name.
    Servers(Vec<ServerView>),
    /// Groups by name.
    Groups(Vec<GroupView>),
    /// How many there are.
    Totals(Totals),
    /// What holds for a task that does not say otherwise.
    Terms(Terms),
    /// All that is under way.
    Standing(Box<Standing>),
    /// So many servers were added, removed, or have another number of threads.
    Reconciled {
        /// Added.
        added: u32,
        /// Removed.
        removed: u32,
        /// With another number of threads.
        changed: u32,
    },
    /// So many tasks were forgotten, and whether there may be more.
    Pruned(u32, bool),
    /// It is done.
    Done,
    /// There is no such task, attempt or server.
    Absent,
    /// Not done, and why.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
