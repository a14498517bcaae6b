//! From journal to machines: commits alone, without deciding and without effects. The one recovery path, for a
//! start of the node, for an actor whose commit panicked, and for the tools that look at a log.

use crate::actors::host::panic_words;
use crate::actors::machine::{Effects, Machine, Stamp};
use crate::ids::{ActorId, Digest, Seq};
use crate::persist::PersistError;
use crate::persist::disk::Disk;
use crate::persist::format::{Kind, Mark};
use crate::persist::journal::{Reader, Record, Tail};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Why the past could not be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The journal cannot be read.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// A record belongs to an actor that this program does not have.
    #[error("replay entry {seq}: it belongs to actor {actor}, which this program does not have")]
    UnknownActor {
        /// The entry.
        seq: Seq,
        /// Its actor.
        actor: ActorId,
    },
    /// A record checks, but its content is not what this program understands.
    #[error("replay entry {seq} of {actor}: its content does not decode: {cause}")]
    Undecodable {
        /// The entry.
        seq: Seq,
        /// Its actor.
        actor: &'static str,
        /// What the decoder says.
        cause: String,
    },
    /// Committing a record panicked. It is never skipped silently.
    #[error("replay entry {seq} of {actor}: it panicked: {cause}")]
    Panicked {
        /// The entry.
        seq: Seq,
        /// Its actor.
        actor: &'static str,
        /// The panic's words.
        cause: String,
    },
}

/// A machine that is being brought up to where the log ends.
pub struct Replica<M: Machine> {
    machine: M,
    last: Seq,
    entries: u64,
}

impl<M: Machine> Replica<M> {
    /// A replica with nothing in it.
    pub fn new(rules: M::Rules) -> Self {
        Self {
            machine: M::new(rules),
            last: Seq(0),
            entries: 0,
        }
    }

    /// The machine, and its newest entry.
    pub fn into_parts(self) -> (M, Seq) {
        (self.machine, self.last)
    }

    /// The machine, as far as it has come.
    pub fn machine(&self) -> &M {
        &self.machine
    }

    /// The machine, to let time act on it.
    pub fn machine_mut(&mut self) -> &mut M {
        &mut self.machine
    }

    /// Commits one entry.
    pub fn commit(
        &mut self,
        stamp: Stamp,
        message: &M::Message,
        outcome: &M::Outcome,
    ) -> Result<(), RecoveryError> {
        let mut effects = Effects::default();
        let commit = || self.machine.commit(stamp, message, outcome, &mut effects);
        catch_unwind(AssertUnwindSafe(commit)).map_err(|payload| RecoveryError::Panicked {
            seq: stamp.seq,
            actor: M::NAME,
            cause: panic_words(payload.as_ref()),
        })?;
        self.last = stamp.seq;
        self.entries += 1;
        Ok(())
    }

    /// Decodes an entry.
    pub fn decode(record: &Record<'_>) -> Result<(M::Message, M::Outcome), RecoveryError> {
        rmp_serde::from_slice(record.payload).map_err(|error| RecoveryError::Undecodable {
            seq: record.seq,
            actor: M::NAME,
            cause: error.to_string(),
        })
    }
}

/// A replica whatever its machine.
pub trait Recovering {
    /// Which actor's entries it takes.
    fn actor(&self) -> ActorId;
    /// Commits one entry of that actor.
    fn apply(&mut self, record: &Record<'_>) -> Result<(), RecoveryError>;
    /// The coordinator started here.
    fn start(&mut self, stamp: Stamp);
    /// The digest of its state.
    fn digest(&self) -> Digest;
}

impl<M: Machine> Recovering for Replica<M> {
    fn actor(&self) -> ActorId {
        M::ID
    }

    fn apply(&mut self, record: &Record<'_>) -> Result<(), RecoveryError> {
        let (message, outcome) = Self::decode(record)?;
        self.commit(
            Stamp {
                seq: record.seq,
                at: record.at,
            },
            &message,
            &outcome,
        )
    }

    fn start(&mut self, stamp: Stamp) {
        self.machine.start(stamp);
        self.last = stamp.seq;
    }

    fn digest(&self) -> Digest {
        self.machine.digest()
    }
}

/// Which records a recovery takes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// The last sequence number wanted; all if `None`.
    pub until: Option<Seq>,
    /// Whether entries of actors that are not being recovered are passed over.
    pub partial: bool,
}

/// Reads the log into the replicas, and says where it ends.
pub fn recover(
    disk: &dyn Disk,
    replicas: &mut [&mut dyn Recovering],
    scope: Scope,
) -> Result<Tail, RecoveryError> {
    let mut reader = Reader::open(disk)?;
    while let Some(record) = reader.next()? {
        if scope.until.is_some_and(|until| record.seq > until) {
            break;
        }
        apply(&record, replicas, scope.partial)?;
        if scope.until == Some(record.seq) {
            break;
        }
    }
    Ok(reader.tail().clone())
}

fn apply(
    record: &Record<'_>,
    replicas: &mut [&mut dyn Recovering],
    partial: bool,
) -> Result<(), RecoveryError> {
    match record.kind {
        Kind::Entry => {
            match replicas
                .iter_mut()
                .find(|replica| replica.actor() == record.actor)
            {
                Some(replica) => replica.apply(record),
                None if partial => Ok(()),
                None => Err(RecoveryError::UnknownActor {
                    seq: record.seq,
                    actor: record.actor,
                }),
            }
        }
        Kind::Mark => {
            if matches!(decode_mark(record)?, Mark::Start { .. }) {
                for replica in replicas.iter_mut() {
                    replica.start(Stamp {
                        seq: record.seq,
                        at: record.at,
                    });
                }
            }
            Ok(())
        }
        Kind::Poisoned | Kind::End => Ok(()),
    }
}

/// The mark in a record of that kind.
pub fn decode_mark(record: &Record<'_>) -> Result<Mark, RecoveryError> {
    rmp_serde::from_slice(record.payload).map_err(|error| RecoveryError::Undecodable {
        seq: record.seq,
        actor: "node",
        cause: error.to_string(),
    })
}
