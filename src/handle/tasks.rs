//! Tasks of a node, typed: what a program that embeds it calls, and what the listeners are made of.
//!
//! A call can be awaited in any runtime, and from a plain thread through [`crate::block_on`]. What changes something is
//! answered when the journal has it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer of another kind is a refusal, whichever it is"
)]

use crate::actors::dispatch::{
    Act, Adding, DispatchMachine, GroupView, Host, Message, Pause, Query, Refused, Reply, Report,
    Rules, ServerChange, ServerView, Standing, TaskFilter, TaskView, Tasks as Page, Terms, Totals,
    Watch,
};
use crate::actors::lock::Name;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ProcessId, RequestKey};
pub use crate::ports::process::Fault;
use crate::ports::process::{Keeping, asking_for};
use crate::refusal::Reason;
use crate::spine::delivery::{Failed, Item};
use crate::spine::runtime::{Mailbox, Stopped};
use std::sync::Arc;

/// So many tasks are forgotten with one entry.
const PRUNED_AT_ONCE: u32 = 1000;

/// Why something was not done, or not found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// There is no such task, attempt or server.
    #[error("there is no such task, attempt or server")]
    Absent,
    /// Not done, and why.
    #[error("{0}")]
    Refused(Refused),
    /// Faults are not allowed here.
    #[error(
        "faults of the coordinator are not allowed here: `[tasks] allow_fault_injection = true` in its configuration allows them"
    )]
    NoFaults,
    /// The command panicked and was not applied. The actor goes on.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// Rules that cannot be, and why.
    #[error("{0}")]
    Rules(String),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl TaskError {
    /// Why, for programs: with its status over HTTP and the exit status of the command line.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Absent => Reason::Absent,
            Self::Refused(refused) => match refused {
                Refused::Full | Refused::ServersFull | Refused::GroupsFull => Reason::Full,
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
            },
            Self::NoFaults => Reason::NoFaults,
            Self::Rules(_) => Reason::Field,
            Self::Failed(_) => Reason::Failed,
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

/// What an inventory came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Inventoried {
    /// Servers that were added.
    pub added: u32,
    /// Servers that were removed.
    pub removed: u32,
    /// Servers that have another number of threads.
    pub changed: u32,
}

/// The tasks of a node, from any thread. Cloning gives another handle.
#[derive(Clone)]
pub struct Tasks {
    mailbox: Mailbox<DispatchMachine>,
    keeping: Keeping,
    key: Option<RequestKey>,
}

impl Tasks {
    pub(super) const fn new(mailbox: Mailbox<DispatchMachine>, keeping: Keeping) -> Self {
        let key = None;
        Self {
            mailbox,
            keeping,
            key,
        }
    }

    /// A handle for one request: what it changes is changed once, however often the request is made under this key.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self {
            key: Some(key),
            ..self.clone()
        }
    }

    /// Adds a task. Its first burst begins as soon as a thread is free, whatever becomes of whoever asked.
    ///
    /// # Errors
    /// [`Refused::Draining`], [`Refused::Full`], and what is wrong with it.
    pub async fn add(&self, adding: Adding) -> Result<TaskView, TaskError> {
        task(self.tell(Message::Add(Box::new(adding))).await?)
    }

    /// The same, with a fault that the coordinator makes in the first attempt: for trying out how a task recovers.
    ///
    /// # Errors
    /// [`TaskError::NoFaults`] where the configuration does not allow it, and those of [`Self::add`].
    pub async fn add_with_fault(
        &self,
        mut adding: Adding,
        fault: Fault,
    ) -> Result<TaskView, TaskError> {
        if self.keeping.faults().is_none() {
            return Err(TaskError::NoFaults);
        }
        let launched = std::iter::once(&mut adding.command).chain(&mut adding.cleanup);
        for launching in launched {
            let launching = Arc::make_mut(launching);
            launching.spec.env.push(asking_for(fault));
        }
        self.add(adding).await
    }

    /// How a task is run that does not say otherwise.
    pub async fn terms(&self) -> Result<Terms, TaskError> {
        match self.ask(Query::Terms).await? {
            Reply::Terms(terms) => Ok(terms),
            other => Err(refusal(&other)),
        }
    }

    /// Goes by other rules from now on: for tasks that are added, for ends, and for which task is next. The next start goes by
    /// its configuration.
    ///
    /// # Errors
    /// [`TaskError::Rules`], and nothing changes, if they cannot be.
    pub async fn go_by(&self, rules: Rules) -> Result<(), TaskError> {
        match rules.flaw() {
            Some(flaw) => Err(TaskError::Rules(flaw)),
            None => Ok(self.mailbox.go_by(rules).await?),
        }
    }

    /// Has this become of a task.
    ///
    /// # Errors
    /// [`Refused::Over`] of one that is over, and [`Refused::NotOver`] if it is to run again and is not.
    pub async fn act(&self, task: u64, act: Act) -> Result<TaskView, TaskError> {
        self::task(self.tell(Message::Act { task, act }).await?)
    }

    /// One task.
    pub async fn get(&self, id: u64) -> Result<TaskView, TaskError> {
        task(self.ask(Query::Task(id)).await?)
    }

    /// Resolves when a task is over: the task, as it is then.
    pub async fn over(&self, id: u64) -> Result<TaskView, TaskError> {
        task(self.mailbox.watch(Watch::Over(id)).await??)
    }

    /// Resolves when it is time to look which servers there are: when an attempt could not be launched or its server is lost, and
    /// at once while tasks could run and no server is enabled. See [`Handle::keep_servers_fresh`](super::Handle::keep_servers_fresh).
    pub async fn servers_wanted(&self) -> Result<(), TaskError> {
        self.mailbox.watch(Watch::ServersWanted).await??;
        Ok(())
    }

    /// Some of the tasks that a filter lets through, by number, after this one.
    pub async fn list(
        &self,
        filter: TaskFilter,
        after: Option<u64>,
        limit: u32,
    ) -> Result<Page, TaskError> {
        let list = Query::Tasks {
            filter,
            after,
            limit,
        };
        match self.ask(list).await? {
            Reply::Tasks(tasks) => Ok(*tasks),
            other => Err(refusal(&other)),
        }
    }

    /// All that is under way, at one moment.
    pub(super) async fn standing(&self) -> Result<Standing, TaskError> {
        let asked = vec![Item::Query(Query::Standing)];
        match self.mailbox.walk(asked).await?.pop().ok_or(Stopped)?? {
            Reply::Standing(standing) => Ok(*standing),
            other => Err(refusal(&other)),
        }
    }

    /// Tasks that are not over, for those who look at the whole: those that run first, the longest first; then those that wait for
    /// their next burst, the soonest first; then those that have not begun and could, group by group. At most so many, and whether there
    /// are more; of very many, some are looked at.
    pub async fn stirring(&self, most: u32) -> Result<(Vec<TaskView>, bool), TaskError> {
        match self.ask(Query::Stirring { most }).await? {
            Reply::Tasks(tasks) => Ok((tasks.tasks, tasks.next.is_some())),
            other => Err(refusal(&other)),
        }
    }

    /// How many tasks there are.
    pub async fn totals(&self) -> Result<Totals, TaskError> {
        match self.ask(Query::Totals).await? {
            Reply::Totals(totals) => Ok(totals),
            other => Err(refusal(&other)),
        }
    }

    /// Holds so much back: of a group, or of all tasks.
    pub async fn pause(&self, group: Option<Name>, pause: Pause) -> Result<(), TaskError> {
        done(&self.tell(Message::Pause { group, pause }).await?)
    }

    /// Sets how many tasks of a group are under way at a time; none is started if 0.
    pub async fn limit(&self, group: Name, max: u32) -> Result<(), TaskError> {
        done(&self.tell(Message::Limit { group, max }).await?)
    }

    /// Groups that have tasks under way or ready, or something set.
    pub async fn groups(&self) -> Result<Vec<GroupView>, TaskError> {
        match self.ask(Query::Groups).await? {
            Reply::Groups(groups) => Ok(groups),
            other => Err(refusal(&other)),
        }
    }

    /// All servers, by name.
    pub async fn servers(&self) -> Result<Vec<ServerView>, TaskError> {
        match self.ask(Query::Servers).await? {
            Reply::Servers(servers) => Ok(servers),
            other => Err(refusal(&other)),
        }
    }

    /// Has this become of a server.
    ///
    /// # Errors
    /// [`TaskError::Absent`] if there is none, but for one that is to have threads: that is added.
    pub async fn server(&self, name: Name, change: ServerChange) -> Result<(), TaskError> {
        done(&self.tell(Message::Server { name, change }).await?)
    }

    /// Makes the servers those of an inventory: adds what is new, removes what is gone, and leaves alone what an operator
    /// disabled. With `check` nothing changes, and the answer is what would.
    pub async fn inventory(&self, hosts: Vec<Host>, check: bool) -> Result<Inventoried, TaskError> {
        let came = if check {
            self.ask(Query::Inventory(hosts)).await?
        } else {
            self.tell(Message::Inventory { hosts }).await?
        };
        match came {
            Reply::Reconciled {
                added,
                removed,
                changed,
            } => Ok(Inventoried {
                added,
                removed,
                changed,
            }),
            other => Err(refusal(&other)),
        }
    }

    /// Forgets tasks that were over before this date, but for so many of the newest; how many.
    pub async fn prune(&self, before: Option<Date>, keep: u32) -> Result<u64, TaskError> {
        let mut all = 0;
        loop {
            let limit = PRUNED_AT_ONCE;
            let prune = Message::Prune {
                before,
                keep,
                limit,
            };
            match self.tell(prune).await? {
                Reply::Pruned(count, more) => {
                    all += u64::from(count);
                    if !more {
                        return Ok(all);
                    }
                }
                other => return Err(refusal(&other)),
            }
        }
    }

    /// What the command of an attempt says of its burst; how often the task has saved by then. What comes from another machine
    /// has a number, and is heard once.
    ///
    /// # Errors
    /// [`Refused::Stale`] if the attempt is over, [`Refused::Stopping`] if it is being stopped, and [`Refused::Locked`] if
    /// another has the update lock.
    pub async fn report(
        &self,
        process: ProcessId,
        report: Report,
        nth: Option<u64>,
    ) -> Result<u64, TaskError> {
        let message = Message::Report {
            process,
            report,
            nth,
        };
        Ok(task(self.tell(message).await?)?.task.revision)
    }

    /// What the task of an attempt has saved: how often, and the newest of it.
    pub async fn saved(&self, process: ProcessId) -> Result<(u64, Option<Bytes>), TaskError> {
        match self.ask(Query::Saved(process)).await? {
            Reply::Saved(revision, body) => Ok((revision, body)),
            other => Err(refusal(&other)),
        }
    }

    /// The process whose attempt has this secret, if it was made here.
    pub fn process_of(&self, secret: &str) -> Option<ProcessId> {
        self.keeping.reporting()?.process_of(secret)
    }

    async fn tell(&self, message: Message) -> Result<Reply, TaskError> {
        self.one(Item::once(message, self.key)).await
    }

    async fn ask(&self, query: Query) -> Result<Reply, TaskError> {
        self.one(Item::Query(query)).await
    }

    async fn one(&self, item: Item<DispatchMachine>) -> Result<Reply, TaskError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

fn task(reply: Reply) -> Result<TaskView, TaskError> {
    match reply {
        Reply::Task(task) => Ok(*task),
        other => Err(refusal(&other)),
    }
}

const fn done(reply: &Reply) -> Result<(), TaskError> {
    match reply {
        Reply::Done => Ok(()),
        other => Err(refusal(other)),
    }
}

/// What an answer means that is not the one hoped for.
const fn refusal(reply: &Reply) -> TaskError {
    match reply {
        Reply::Refused(refused) => TaskError::Refused(*refused),
        _ => TaskError::Absent,
    }
}
