//! What can go wrong on disk. Damage, a failing disk and a newer format are different errors, because what the
//! operator does next differs.

use crate::ids::Seq;
use std::io;

/// An error of the journal or of the data directory.
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// Bytes that were once synced are not what was written.
    #[error("read {file}: damaged at offset {offset}, after sequence number {after}: {found}")]
    Corrupt {
        /// Name of the file inside the data directory.
        file: String,
        /// Byte offset of the first record that cannot be trusted.
        offset: u64,
        /// The last sequence number that is whole before the damage.
        after: Seq,
        /// What was found there.
        found: String,
    },
    /// A segment between others is not there.
    #[error("read {file}: it is missing, while {next} is there")]
    Missing {
        /// Name of the file that is not there.
        file: String,
        /// Name of the one after it that is.
        next: String,
    },
    /// What had to be read is no longer there: the log begins behind it.
    #[error(
        "read {file}: the journal begins here{}, and what came before, from {} on, is gone",
        at(*.first),
        .after.0.saturating_add(1)
    )]
    Gone {
        /// Name of the first segment that is there.
        file: String,
        /// The first sequence number in it, if it has one.
        first: Option<Seq>,
        /// The sequence number behind which reading had to begin.
        after: Seq,
    },
    /// The log ends before what was known to be synced.
    #[error(
        "read {file}: the journal ends at sequence number {last}, and a snapshot says that it went on to {reaches}"
    )]
    Short {
        /// Name of the file in which the log ends, or of the folder if there is none.
        file: String,
        /// The last sequence number there is.
        last: Seq,
        /// The last one there was.
        reaches: Seq,
    },
    /// The operating system refused.
    #[error("{action} {file}: {source}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// Name of the file inside the data directory.
        file: String,
        /// The operating system's answer.
        source: io::Error,
    },
    /// The file was written by a newer sexton.
    #[error("read {file}: format {found} is newer than {supported}, the newest this program reads")]
    VersionTooNew {
        /// Name of the file inside the data directory.
        file: String,
        /// The version in the file.
        found: u32,
        /// The newest version that can be read.
        supported: u32,
    },
    /// The store of a snapshot does not do what was asked.
    #[error("{action} {folder}: {cause}")]
    Store {
        /// What was tried.
        action: &'static str,
        /// The folder of the slot inside the data directory.
        folder: String,
        /// What the store says, or what was found in it.
        cause: String,
    },
    /// Another coordinator has the directory.
    #[error("lock {dir}: another coordinator holds it ({holder})")]
    Held {
        /// The data directory.
        dir: String,
        /// What the lock file says of the holder.
        holder: String,
    },
}

fn at(first: Option<Seq>) -> String {
    first.map_or_else(
        || " without a record".to_owned(),
        |first| format!(" at sequence number {first}"),
    )
}

impl PersistError {
    /// Wraps an operating-system error with what was tried on which file.
    pub fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            action,
            file: file.to_owned(),
            source,
        }
    }

    /// Whether the disk, or the quota on it, is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// Whether a disk, or the quota on it, is full.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}
