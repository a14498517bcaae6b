//! Typed access to a node's tasks: the API for programs that embed the node, and the basis of the listeners. A task runs in *bursts*. A
//! burst is one run of the task's command on a thread of a server. See `docs/tasks.md`.
//!
//! Calls can be awaited in any runtime, and made from a plain thread through [`crate::block_on`]. A change is answered once it is in the
//! journal.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is an error")]

use crate::actors::dispatch::{
    Act, DispatchMachine, GroupView, Host, Message, NewTask, Pause, Query, Refused, Reply, Report,
    Rules, ServerChange, ServerView, TaskFilter, TaskView, Tasks as Page, Terms, Totals, Watch,
    WorkInProgress,
};
use crate::actors::lock::Name;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::handle::pruning::{PRUNED_AT_ONCE, together};
use crate::handle::unexpected::{reason_of, unexpected};
use crate::ids::{ProcessId, RequestKey};
use crate::persist::journal::{Journal, Shortage};
pub use crate::ports::process::Fault;
use crate::ports::process::{ProcessPortHandle, variable_for};
use crate::refusal::Reason;
use crate::spine::delivery::{Failed, Item};
use crate::spine::runtime::{Mailbox, Stopped};
use std::sync::Arc;

/// Why a task operation failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// There is no such task, attempt or server.
    #[error("there is no such task, attempt or server")]
    Absent,
    /// The operation was refused, for this reason.
    #[error("{0}")]
    Refused(Refused),
    /// The configuration does not allow faults to be injected.
    #[error(
        "fault injection is not allowed here: set `[tasks] allow_fault_injection = true` in the coordinator's configuration"
    )]
    NoFaults,
    /// The actor panicked while it handled the request, which was not applied, or only in part ([`Failed::Interrupted`]). The actor continues.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The rules are invalid, for this reason.
    #[error("{0}")]
    Rules(String),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl TaskError {
    /// Returns the machine-readable reason, which determines the HTTP status and the command line's exit status.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Absent => Reason::Absent,
            Self::Refused(refused) => match refused {
                Refused::Full
                | Refused::ServersFull
                | Refused::GroupsFull
                | Refused::ReceiptsFull => Reason::Full,
                Refused::Draining => Reason::Draining,
                Refused::Command(_)
                | Refused::Span
                | Refused::NoName
                | Refused::NamedTwice
                | Refused::Threads
                | Refused::Remote
                | Refused::TooLarge
                | Refused::Words => Reason::Field,
                Refused::Over | Refused::NotHeld => Reason::Ended,
                Refused::NotOver => Reason::Running,
                Refused::Stale | Refused::Stopping(_) => Reason::Stale,
                Refused::Locked => Reason::Held,
                Refused::DiskFull => Reason::DiskFull,
                Refused::KeyReused => Reason::KeyReused,
                Refused::Forbidden => Reason::OutOfScope,
            },
            Self::NoFaults => Reason::NoFaults,
            Self::Rules(_) => Reason::Field,
            Self::Failed(failed) => reason_of(*failed),
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// How many servers an inventory changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventoried {
    /// The number of servers added.
    pub added: u32,
    /// The number of servers removed.
    pub removed: u32,
    /// Servers whose number of threads changed.
    pub changed: u32,
}

/// A handle to the tasks of a node, usable from any thread. Clones share the node.
#[derive(Clone)]
pub struct Tasks {
    mailbox: Mailbox<DispatchMachine>,
    port: ProcessPortHandle,
    journal: Option<Journal>,
    key: Option<RequestKey>,
}

impl Tasks {
    pub(super) const fn new(
        mailbox: Mailbox<DispatchMachine>,
        port: ProcessPortHandle,
        journal: Option<Journal>,
    ) -> Self {
        let key = None;
        Self { mailbox, port, journal, key }
    }

    /// Returns a handle that sends `key` with each change: a change that is repeated with the same key is carried out only once, and is
    /// answered as before.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self { key: Some(key), ..self.clone() }
    }

    /// Adds a task. Its first burst begins as soon as a thread is free, even if the caller no longer waits then.
    ///
    /// # Errors
    /// Returns [`Refused::Draining`], [`Refused::Full`], or the [`Refused`] that describes what is invalid in the task.
    pub async fn add(&self, adding: NewTask) -> Result<TaskView, TaskError> {
        self.task(self.send(Message::Add(Box::new(adding))).await?)
    }

    /// Adds a task with a fault that the coordinator injects into the first attempt, to test how the task recovers.
    ///
    /// # Errors
    /// Returns [`TaskError::NoFaults`] if the configuration does not allow faults, or an error of [`Self::add`].
    pub async fn add_with_fault(
        &self,
        mut adding: NewTask,
        fault: Fault,
    ) -> Result<TaskView, TaskError> {
        if self.port.faults().is_none() {
            return Err(TaskError::NoFaults);
        }
        let launched = std::iter::once(&mut adding.command).chain(&mut adding.cleanup);
        for launching in launched {
            let launching = Arc::make_mut(launching);
            launching.spec.env.push(variable_for(fault));
        }
        self.add(adding).await
    }

    /// Returns the default terms of tasks.
    pub async fn terms(&self) -> Result<Terms, TaskError> {
        match self.query(Query::Terms).await? {
            Reply::Terms(terms) => Ok(terms),
            other => Err(refusal(&other)),
        }
    }

    /// Replaces the rules until the node restarts, which applies the rules of its configuration again. Rules apply when a task is added,
    /// when a task ends, and when the next task to run is chosen.
    ///
    /// # Errors
    /// Returns [`TaskError::Rules`] if the rules are invalid; nothing changes then.
    pub async fn set_rules(&self, rules: Rules) -> Result<(), TaskError> {
        match rules.flaw() {
            Some(flaw) => Err(TaskError::Rules(flaw)),
            None => Ok(self.mailbox.set_rules(rules).await?),
        }
    }

    /// Applies an action to a task.
    ///
    /// # Errors
    /// Returns [`Refused::Over`] if the task is over, [`Refused::NotOver`] if the action would restart a task that is not over, or
    /// [`Refused::NotHeld`] if the action would make a task ready that is not waiting for that.
    pub async fn act(&self, task: u64, act: Act) -> Result<TaskView, TaskError> {
        self.task(self.send(Message::Act { task, act }).await?)
    }

    /// Returns a task.
    pub async fn get(&self, id: u64) -> Result<TaskView, TaskError> {
        self.task(self.query(Query::Task(id)).await?)
    }

    /// Resolves with the task when it is over.
    pub async fn over(&self, id: u64) -> Result<TaskView, TaskError> {
        self.task(self.mailbox.watch(Watch::Over(id)).await??)
    }

    /// Resolves when the server list should be refreshed: when an attempt could not be launched or its server is lost, and immediately
    /// while tasks could run but no server is enabled. See [`Handle::keep_servers_fresh`](super::Handle::keep_servers_fresh).
    pub async fn servers_wanted(&self) -> Result<(), TaskError> {
        self.mailbox.watch(Watch::ServersWanted).await??;
        Ok(())
    }

    /// Returns up to `limit` of the tasks that match a filter, ordered by id, but never more than 1000. If `after` is given, only tasks
    /// with higher ids are returned.
    pub async fn list(
        &self,
        filter: TaskFilter,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Page, TaskError> {
        let list = Query::Tasks { filter, after, limit };
        match self.query(list).await? {
            Reply::Tasks(tasks) => Ok(self.page(*tasks)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns the tasks in progress, the servers and the groups, all as of the same moment.
    pub(super) async fn work_in_progress(&self) -> Result<WorkInProgress, TaskError> {
        let asked = vec![Item::Query(Query::WorkInProgress)];
        match self.mailbox.scan(asked).await?.pop().ok_or(Stopped)?? {
            Reply::WorkInProgress(standing) => Ok(*standing),
            other => Err(refusal(&other)),
        }
    }

    /// Returns up to `most` tasks that are not over, but never more than 1000, and whether there are more. The running tasks come first,
    /// longest-running first; then those that wait for their next burst, soonest first; then those that are ready for their first burst, by
    /// group. At most 8192 of the tasks in progress are examined.
    pub async fn active(&self, most: u32) -> Result<(Vec<TaskView>, bool), TaskError> {
        match self.query(Query::Active { most }).await? {
            Reply::Tasks(tasks) => {
                let page = self.page(*tasks);
                Ok((page.tasks, page.next.is_some()))
            }
            other => Err(refusal(&other)),
        }
    }

    /// Returns the number of tasks, by state.
    pub async fn totals(&self) -> Result<Totals, TaskError> {
        match self.query(Query::Totals).await? {
            Reply::Totals(totals) => Ok(totals),
            other => Err(refusal(&other)),
        }
    }

    /// Pauses a group, or all tasks if `group` is `None`, to the extent given by `pause`.
    pub async fn pause(&self, group: Option<Name>, pause: Pause) -> Result<(), TaskError> {
        done(&self.send(Message::Pause { group, pause }).await?)
    }

    /// Sets the maximum number of tasks of a group that are in progress at a time; if it is 0, no task of the group is started.
    pub async fn limit(&self, group: Name, max: u32) -> Result<(), TaskError> {
        done(&self.send(Message::Limit { group, max }).await?)
    }

    /// Returns the groups that have settings of their own, or tasks that are ready or in progress: the first 1000 of them, ordered by name.
    pub async fn groups(&self) -> Result<Vec<GroupView>, TaskError> {
        match self.query(Query::Groups).await? {
            Reply::Groups(groups) => Ok(groups),
            other => Err(refusal(&other)),
        }
    }

    /// Returns all servers, sorted by name.
    pub async fn servers(&self) -> Result<Vec<ServerView>, TaskError> {
        match self.query(Query::Servers).await? {
            Reply::Servers(servers) => Ok(servers),
            other => Err(refusal(&other)),
        }
    }

    /// Changes a server. A change that sets the number of threads adds the server if it does not exist.
    ///
    /// # Errors
    /// Returns [`TaskError::Absent`] if there is no such server and the change does not add it.
    pub async fn server(&self, name: Name, change: ServerChange) -> Result<(), TaskError> {
        done(&self.send(Message::Server { name, change }).await?)
    }

    /// Makes the set of servers match an inventory: adds the servers that are new, updates those that differ, and removes those that the
    /// inventory does not contain. Disabled servers are left alone. With `check`, nothing is changed, and the result shows what would
    /// change.
    pub async fn inventory(&self, hosts: Vec<Host>, check: bool) -> Result<Inventoried, TaskError> {
        let came = if check {
            self.query(Query::Inventory(hosts)).await?
        } else {
            self.send(Message::Inventory { hosts }).await?
        };
        match came {
            Reply::Reconciled { added, removed, changed } => {
                Ok(Inventoried { added, removed, changed })
            }
            other => Err(refusal(&other)),
        }
    }

    /// Removes the tasks that ended before `before`, or all tasks that are over if `before` is `None`. The `keep` tasks that ended last are
    /// kept. Returns the number of tasks removed.
    pub async fn prune(&self, before: Option<Date>, keep: u32) -> Result<u64, TaskError> {
        let limit = PRUNED_AT_ONCE;
        // Without a date, a message leaves what ended in the millisecond in which it is carried out.
        let before = Some(before.unwrap_or(Date(u64::MAX)));
        let prune = Message::Prune { before, keep, limit };
        let mut all = 0;
        loop {
            let items = (0..together(self.key)).map(|nth| self.item(prune.clone(), nth));
            let mut is_over = true;
            for answer in self.mailbox.call(items.collect()).await? {
                match answer? {
                    Reply::Pruned(count, more) => {
                        all += u64::from(count);
                        is_over = !more;
                    }
                    other => return Err(refusal(&other)),
                }
            }
            if is_over || self.key.is_some() {
                return Ok(all);
            }
        }
    }

    /// Handles a report that the command of an attempt makes about its burst. `process` is the process of the attempt. Returns how often
    /// the task has saved data so far. A report from another machine is numbered by `nth`, so that it counts only once even if it arrives
    /// again.
    ///
    /// # Errors
    /// Returns [`Refused::Stale`] if the attempt is over, [`Refused::Stopping`] if it is being stopped, or
    /// [`Refused::Locked`] if another attempt has the update lock.
    pub async fn report(
        &self,
        process: ProcessId,
        report: Report,
        nth: Option<u64>,
    ) -> Result<u64, TaskError> {
        let message = Message::Report { process, report, nth };
        Ok(self.task(self.send(message).await?)?.task.revision)
    }

    /// Returns how often the task of an attempt has saved data, and the newest saved data, if there is any.
    pub async fn saved(&self, process: ProcessId) -> Result<(u64, Option<Bytes>), TaskError> {
        match self.query(Query::Saved(process)).await? {
            Reply::Saved(revision, body) => Ok((revision, body)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns the process of the attempt with this secret, if the secret was made by this node.
    pub fn process_of(&self, secret: &str) -> Option<ProcessId> {
        self.port.reporting()?.process_of(secret)
    }

    /// Returns how much space is left and how much is needed if the disk is low on space; otherwise `None`. No burst begins while the disk
    /// is low on space.
    pub(super) fn shortage(&self) -> Option<Shortage> {
        self.journal.as_ref()?.shortage()
    }

    fn task(&self, reply: Reply) -> Result<TaskView, TaskError> {
        match reply {
            Reply::Task(mut task) => {
                self.note_shortage(std::slice::from_mut(&mut *task));
                Ok(*task)
            }
            other => Err(refusal(&other)),
        }
    }

    fn page(&self, mut page: Page) -> Page {
        self.note_shortage(&mut page.tasks);
        page
    }

    /// Marks the tasks that wait only for space on the disk.
    fn note_shortage(&self, tasks: &mut [TaskView]) {
        if let Some(Shortage { left, needed }) = self.shortage() {
            for task in tasks {
                task.held_for_space((left, needed));
            }
        }
    }

    async fn send(&self, message: Message) -> Result<Reply, TaskError> {
        self.one(self.item(message, 0)).await
    }

    /// Wraps message number `nth` of a request, counting from 0, with the request's key.
    fn item(&self, message: Message, nth: u64) -> Item<DispatchMachine> {
        Item::once(message, self.key.map(|key| key.nth(nth)))
    }

    async fn query(&self, query: Query) -> Result<Reply, TaskError> {
        self.one(Item::Query(query)).await
    }

    async fn one(&self, item: Item<DispatchMachine>) -> Result<Reply, TaskError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

fn done(reply: &Reply) -> Result<(), TaskError> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(refusal(other)),
    }
}

/// Converts a reply of an unexpected kind to an error.
fn refusal(reply: &Reply) -> TaskError {
    match reply {
        Reply::Refused(refused) => TaskError::Refused(*refused),
        Reply::Absent => TaskError::Absent,
        other => unexpected(other).into(),
    }
}
