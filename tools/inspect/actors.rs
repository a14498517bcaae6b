//! The state of the actors after recovery from the snapshot and the journal.

use serde::Serialize;
use sexton::actors::dispatch::{self, DispatchMachine};
use sexton::actors::lock::{EntryView, LockMachine, Name, Query, Reply};
use sexton::actors::queue::{
    JobView, Query as Question, QueueMachine, QueueName, QueueView, Reply as ActorReply,
};
use sexton::ids::{Digest, Seq};
use sexton::replay::FollowedItem;
use sexton::spine::machine::{Machine as _, Now};
use sexton::spine::recovery::Recovering;
use std::collections::BTreeMap;

/// A summary of an actor's state.
#[derive(Debug, Serialize)]
pub(crate) struct ActorFigures {
    pub(crate) name: &'static str,
    /// The sequence number of the actor's last record.
    pub(crate) last: Seq,
    pub(crate) digest: Digest,
    /// The actor's counts, each with its name, in the order that the actor defines.
    #[serde(flatten, serialize_with = "by_name")]
    pub(crate) counts: Vec<(&'static str, u64)>,
}

/// The holders and waiters of a key.
#[derive(Debug, Serialize)]
pub(crate) struct KeyEntries {
    pub(crate) key: Name,
    pub(crate) entries: Vec<EntryView>,
}

/// The state of the requested item; `found` is `None` if the item does not exist.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemState {
    Key(KeyEntries),
    Job { id: u64, found: Option<Box<JobView>> },
    Queue { name: QueueName, found: Option<Box<QueueView>> },
    Task { id: u64, found: Option<Box<TaskFound>> },
}

/// The state of a task, without its command, whose environment variables may contain secrets.
#[derive(Debug, Serialize)]
pub(crate) struct TaskFound {
    name: Name,
    group: Name,
    work: Name,
    status: &'static str,
    exit: &'static str,
    message: String,
    revision: u64,
    attempts: u64,
    paused: bool,
}

impl TaskFound {
    fn of(tasks: &DispatchMachine, id: u64) -> Option<Box<Self>> {
        let asked = tasks.query(Now::default(), &dispatch::Query::Task(id));
        let dispatch::Reply::Task(view) = asked else {
            return None;
        };
        let task = view.task;
        Some(Box::new(Self {
            name: task.name,
            group: task.group,
            work: task.work,
            status: task.status.name(),
            exit: task.exit.name(),
            message: task.words,
            revision: task.revision,
            attempts: task.attempts,
            paused: task.paused,
        }))
    }
}

impl ItemState {
    /// Returns the state of an item, or `None` for a kind of item that `sexton inspect` has no flag for.
    pub(crate) fn of(
        item: &FollowedItem,
        (locks, queues, tasks): (&LockMachine, &QueueMachine, &DispatchMachine),
    ) -> Option<Self> {
        Some(match item {
            FollowedItem::Key(key) => Self::Key(KeyEntries::locks(locks, key)),
            FollowedItem::Job(id) => {
                let job = queues.query(Now::default(), &Question::Job { id: *id });
                let found = if let ActorReply::Job(job) = job { Some(job) } else { None };
                Self::Job { id: *id, found }
            }
            FollowedItem::Queue(name) => {
                let name = name.clone();
                let question = Question::Queue { queue: name.clone() };
                let queue = queues.query(Now::default(), &question);
                let found = if let ActorReply::Queue(queue) = queue { Some(queue) } else { None };
                Self::Queue { name, found }
            }
            FollowedItem::Task(id) => Self::Task { id: *id, found: TaskFound::of(tasks, *id) },
            FollowedItem::Lock(..)
            | FollowedItem::Lease(_)
            | FollowedItem::Process(_)
            | FollowedItem::Everything => return None,
        })
    }
}

impl ActorFigures {
    /// Summarizes the state of a recovered actor.
    pub(crate) fn of(actor: &dyn Recovering) -> Self {
        let gauges = actor.gauges().into_iter();
        Self {
            name: actor.name(),
            last: actor.last(),
            digest: actor.digest(),
            counts: gauges.map(|gauge| (gauge.name, gauge.value)).collect(),
        }
    }
}

fn by_name<S: serde::Serializer>(
    counts: &[(&'static str, u64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(counts.iter().copied().collect::<BTreeMap<_, _>>())
}

impl KeyEntries {
    /// Lists the holders and waiters of a key.
    pub(crate) fn locks(machine: &LockMachine, key: &Name) -> Self {
        let query = Query::List { key: Some(key.clone()), entries_max: u32::MAX };
        let listed = machine.query(Now::default(), &query);
        let Reply::List(entries) = listed else {
            unreachable!("a query for a list was answered with {listed:?}");
        };
        Self { key: key.clone(), entries }
    }
}
