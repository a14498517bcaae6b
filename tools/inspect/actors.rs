//! What the actors hold, as far as snapshot and journal have brought them.

use serde::Serialize;
use sexton::actors::lock::{Listed, LockMachine, Name, Query, Reply};
use sexton::actors::queue::{self, Counts, QueueMachine};
use sexton::clock::Timestamp;
use sexton::ids::{Digest, Seq};
use sexton::spine::machine::Machine as _;

/// Names of all actors.
pub(crate) const NAMES: &[&str] = &[LockMachine::NAME, QueueMachine::NAME];

/// An actor's state in numbers.
#[derive(Debug, Serialize)]
pub(crate) struct ActorFound {
    pub(crate) name: &'static str,
    /// Its newest entry.
    pub(crate) last: Seq,
    pub(crate) digest: Digest,
    #[serde(flatten)]
    pub(crate) held: Held,
}

/// What an actor holds.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum Held {
    Locks {
        owners: u32,
        contenders: u32,
    },
    Jobs {
        queues: u32,
        jobs: Counts,
        bytes: u64,
    },
}

/// What is held under a key.
#[derive(Debug, Serialize)]
pub(crate) struct KeyFound {
    pub(crate) key: Name,
    pub(crate) entries: Vec<Listed>,
}

impl ActorFound {
    /// The LockActor.
    pub(crate) fn locks(machine: &LockMachine, last: Seq) -> Self {
        let counts = machine.query(Timestamp(0), &Query::Counts);
        let Reply::Counts { owners, contenders } = counts else {
            unreachable!("counts are not answered with {counts:?}");
        };
        Self {
            name: LockMachine::NAME,
            last,
            digest: machine.digest(),
            held: Held::Locks { owners, contenders },
        }
    }

    /// The QueueActor.
    pub(crate) fn queues(machine: &QueueMachine, last: Seq) -> Self {
        let asked = machine.query(Timestamp(0), &queue::Query::Totals);
        let queue::Reply::Totals(totals) = asked else {
            unreachable!("totals are not answered with {asked:?}");
        };
        Self {
            name: QueueMachine::NAME,
            last,
            digest: machine.digest(),
            held: Held::Jobs {
                queues: totals.queues,
                jobs: totals.jobs,
                bytes: totals.bytes,
            },
        }
    }
}

impl KeyFound {
    /// Who owns what under a key, and who waits for it.
    pub(crate) fn locks(machine: &LockMachine, key: &Name) -> Self {
        let query = Query::List {
            key: Some(key.clone()),
            entries_max: u32::MAX,
        };
        let listed = machine.query(Timestamp(0), &query);
        let Reply::List(entries) = listed else {
            unreachable!("a list is not answered with {listed:?}");
        };
        Self {
            key: key.clone(),
            entries,
        }
    }
}
