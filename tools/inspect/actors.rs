//! What the actors hold, as far as snapshot and journal have brought them.

use serde::Serialize;
use sexton::actors::lock::{Listed, LockMachine, Name, Query, Reply};
use sexton::actors::machine::Machine as _;
use sexton::clock::Timestamp;
use sexton::ids::{Digest, Seq};

/// Names of all actors.
pub(crate) const NAMES: &[&str] = &[LockMachine::NAME];

/// An actor's state in numbers.
#[derive(Debug, Serialize)]
pub(crate) struct ActorFound {
    pub(crate) name: &'static str,
    /// Its newest entry.
    pub(crate) last: Seq,
    pub(crate) digest: Digest,
    pub(crate) owners: u32,
    pub(crate) contenders: u32,
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
            owners,
            contenders,
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
