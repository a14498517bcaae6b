//! Errors of the disk and of the data on it. Damage, a failing disk and a newer format are different errors, because they
//! call for different action by the operator.

use crate::ids::Seq;
use std::io;

/// An error of the journal or of the data directory. Each text is meant to follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum PersistError {
    /// The journal is damaged: bytes that were once synced have changed or are missing.
    #[error("read {file}: damaged at offset {offset}, after sequence number {after}: {found}")]
    Corrupt {
        /// Name of the file inside the data directory.
        file: String,
        /// Byte offset of the first record that cannot be trusted.
        offset: u64,
        /// The last sequence number that could be read before the damage.
        after: Seq,
        /// What was found at the offset.
        found: String,
    },
    /// A segment is missing between others.
    #[error("read {file}: it is missing, but {next} exists")]
    Missing {
        /// Name of the missing file.
        file: String,
        /// Name of the existing file after it.
        next: String,
    },
    /// Records that had to be read are missing: the journal begins after them.
    #[error(
        "read {file}: the journal begins here{}, and the records before it, from {} on, are gone",
        at(*.first),
        .after.0.saturating_add(1)
    )]
    Gone {
        /// Name of the first existing segment.
        file: String,
        /// The first sequence number in that segment, if it has one.
        first: Option<Seq>,
        /// The sequence number after which reading had to begin.
        after: Seq,
    },
    /// The journal ends before a sequence number that is known to have been synced.
    #[error(
        "read {file}: the journal ends at sequence number {last}, but a snapshot shows that it reached {reaches}"
    )]
    Short {
        /// Name of the file in which the journal ends, or of the journal's folder if there is no file in it.
        file: String,
        /// The last sequence number in the journal.
        last: Seq,
        /// The last sequence number that the journal is known to have contained.
        reaches: Seq,
    },
    /// The operating system reported an error.
    #[error("{action} {file}: {source}")]
    Io {
        /// The operation that failed, as an infinitive such as "read".
        action: &'static str,
        /// The file or folder: its name inside the data directory, or its full path.
        file: String,
        /// The operating system's error.
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
    /// An operation on the store of a snapshot failed.
    #[error("{action} {folder}: {cause}")]
    Store {
        /// The operation that failed, as an infinitive such as "copy".
        action: &'static str,
        /// The folder of the slot inside the data directory.
        folder: String,
        /// The store's error, or what is wrong with its content.
        cause: String,
    },
    /// The code that works with the file panicked.
    #[error("{action} {file}: it panicked: {cause}")]
    Panicked {
        /// The operation that failed, as an infinitive such as "write".
        action: &'static str,
        /// The file or folder inside the data directory.
        file: &'static str,
        /// The message of the panic.
        cause: String,
    },
    /// Another coordinator has locked the directory.
    #[error("lock {dir}: another coordinator holds it ({holder})")]
    Held {
        /// The data directory.
        dir: String,
        /// The holder, as named in the lock file.
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
    /// Returns a function for `map_err` that adds the operation and the file to an operating-system error.
    pub fn io(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, file: file.to_owned(), source }
    }

    /// Returns whether the cause of the error is a full disk or an exhausted quota.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }
}

/// Returns whether the cause of the error is a full disk or an exhausted quota.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded)
}
