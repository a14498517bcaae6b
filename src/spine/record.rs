//! Decodes the content of journal records, and defines the errors of recovery.

use crate::decode;
use crate::ids::{ActorId, Seq};
use crate::persist::PersistError;
use crate::persist::journal::Record;
use crate::persist::mark::Mark;
use serde::Deserialize;

/// Why recovery failed. Each text is meant to follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The journal or a snapshot cannot be read.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// The journal cannot be read far enough, and at least one snapshot has a problem.
    #[error("{error}; {}", .mended.join("; "))]
    Lost {
        /// What is wrong with the journal.
        error: PersistError,
        /// Descriptions of what is wrong with the snapshots.
        mended: Vec<String>,
    },
    /// Every complete snapshot belongs to another log: journal and snapshots are of different directories.
    #[error("use the journal together with the snapshots: {}", .wrong.join("; "))]
    OtherLog {
        /// Descriptions of what is wrong with the snapshots.
        wrong: Vec<String>,
    },
    /// A record belongs to an actor that this program does not have.
    #[error("replay entry {seq}: it belongs to actor {actor}, which this program does not have")]
    UnknownActor {
        /// The record's sequence number.
        seq: Seq,
        /// The record's actor.
        actor: ActorId,
    },
    /// A record has a valid checksum, but its content cannot be decoded by this program.
    #[error("replay entry {seq} of {actor}: its content cannot be decoded: {cause}")]
    Undecodable {
        /// The record's sequence number.
        seq: Seq,
        /// The record's actor.
        actor: &'static str,
        /// The decoder's error.
        cause: String,
    },
    /// Committing a record panicked. Recovery fails instead of skipping the record.
    #[error("replay entry {seq} of {actor}: its commit panicked: {cause}")]
    Panicked {
        /// The record's sequence number.
        seq: Seq,
        /// The record's actor.
        actor: &'static str,
        /// The panic message.
        cause: String,
    },
}

/// Decodes the content of a record. `actor` is the actor's name, for the error.
pub fn decode_record<'r, T: Deserialize<'r>>(
    record: &'r Record<'_>,
    actor: &'static str,
) -> Result<T, RecoveryError> {
    decode::from_slice(record.payload).map_err(|error| RecoveryError::Undecodable {
        seq: record.seq,
        actor,
        cause: error.to_string(),
    })
}

/// Decodes the content of a mark.
pub fn decode_mark(record: &Record<'_>) -> Result<Mark, RecoveryError> {
    decode_record(record, "node")
}
