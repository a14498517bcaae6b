//! What the actors hold, as far as snapshot and journal have brought them.

use serde::Serialize;
use sexton::actors::lock::{Listed, LockMachine, Name, Query, Reply};
use sexton::actors::queue::{
    JobView, Query as Question, QueueMachine, QueueName, QueueView, Reply as Told,
};
use sexton::ids::{Digest, Seq};
use sexton::replay::Followed;
use sexton::spine::machine::{Machine as _, Now};
use sexton::spine::recovery::Recovering;
use std::collections::BTreeMap;

/// An actor's state in numbers.
#[derive(Debug, Serialize)]
pub(crate) struct ActorFound {
    pub(crate) name: &'static str,
    /// Its newest entry.
    pub(crate) last: Seq,
    pub(crate) digest: Digest,
    /// What it counts, in its own order.
    #[serde(flatten, serialize_with = "by_name")]
    pub(crate) counts: Vec<(&'static str, u64)>,
}

/// What is held under a key.
#[derive(Debug, Serialize)]
pub(crate) struct KeyFound {
    pub(crate) key: Name,
    pub(crate) entries: Vec<Listed>,
}

/// The item that was asked for, and how it stands with it: nothing, if it is not there.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ItemFound {
    Key(KeyFound),
    Job {
        id: u64,
        found: Option<Box<JobView>>,
    },
    Queue {
        name: QueueName,
        found: Option<Box<QueueView>>,
    },
}

impl ItemFound {
    /// Nothing, if it is no item that can be asked for here.
    pub(crate) fn of(item: &Followed, locks: &LockMachine, queues: &QueueMachine) -> Option<Self> {
        Some(match item {
            Followed::Key(key) => Self::Key(KeyFound::locks(locks, key)),
            Followed::Job(id) => {
                let job = queues.query(Now::default(), &Question::Job { id: *id });
                let found = if let Told::Job(job) = job {
                    Some(job)
                } else {
                    None
                };
                Self::Job { id: *id, found }
            }
            Followed::Queue(name) => {
                let name = name.clone();
                let question = Question::Queue {
                    queue: name.clone(),
                };
                let queue = queues.query(Now::default(), &question);
                let found = if let Told::Queue(queue) = queue {
                    Some(queue)
                } else {
                    None
                };
                Self::Queue { name, found }
            }
            Followed::Lock(..)
            | Followed::Lease(_)
            | Followed::Process(_)
            | Followed::Task(_)
            | Followed::Everything => return None,
        })
    }
}

impl ActorFound {
    /// What was recovered of an actor.
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

impl KeyFound {
    /// Who owns what under a key, and who waits for it.
    pub(crate) fn locks(machine: &LockMachine, key: &Name) -> Self {
        let query = Query::List {
            key: Some(key.clone()),
            entries_max: u32::MAX,
        };
        let listed = machine.query(Now::default(), &query);
        let Reply::List(entries) = listed else {
            unreachable!("a list is not answered with {listed:?}");
        };
        Self {
            key: key.clone(),
            entries,
        }
    }
}
