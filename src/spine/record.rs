//! What records of the log hold, and why the past could not be repeated if they do not.

use crate::decode;
use crate::ids::{ActorId, Seq};
use crate::persist::PersistError;
use crate::persist::journal::Record;
use crate::persist::mark::Mark;
use serde::Deserialize;

/// Why the past could not be repeated.
#[derive(Debug, thiserror::Error)]
pub enum RecoveryError {
    /// The journal cannot be read.
    #[error(transparent)]
    Persist(#[from] PersistError),
    /// What snapshots had is lost, and the journal does not have it either.
    #[error("{error}; {}", .mended.join("; "))]
    Lost {
        /// Why the journal alone does not do.
        error: PersistError,
        /// What is wrong with the snapshots.
        mended: Vec<String>,
    },
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

/// What a record of this actor holds.
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

/// The mark in a record of that kind.
pub fn decode_mark(record: &Record<'_>) -> Result<Mark, RecoveryError> {
    decode_record(record, "node")
}
