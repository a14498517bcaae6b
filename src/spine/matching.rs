//! Whether a snapshot and a log belong together: the log has the mark that the snapshot's seal names, and still goes back far enough.

use crate::ids::Seq;
use crate::persist::PersistError;
use crate::persist::disk::Disk;
use crate::persist::format::Kind;
use crate::persist::journal::{Begin, Reader};
use crate::persist::mark::Mark;
use crate::persist::snapshots::Seal;
use crate::spine::record::decode_mark;

/// Returns whether a snapshot belongs to this log: the mark that its seal names must list the same states. Nothing else would reveal a
/// snapshot from another directory, and this log's entries would be committed to a state for which they were not decided. If the log is
/// unreadable at the mark, or the mark's number is not after the snapshot's content, this cannot be checked and the result is true.
pub(super) fn belongs(disk: &dyn Disk, seal: &Seal) -> bool {
    if seal.mark <= seal.manifest.begun {
        return true;
    }
    let begin = Begin { after: Seq(seal.mark.0.saturating_sub(1)), ..Begin::default() };
    let Ok(mut reader) = Reader::open_after(disk, begin) else {
        return true;
    };
    let Ok(Some(record)) = reader.next() else {
        return true;
    };
    let is_mark = record.seq == seal.mark && record.kind == Kind::Mark;
    let mark = is_mark.then(|| decode_mark(&record));
    matches!(mark, Some(Ok(Mark::Checkpoint { states, .. })) if states == seal.manifest.states)
}

/// What is wrong with a complete snapshot of this log if the log no longer [goes back](reaches_back) to it.
pub const JOURNAL_TOO_SHORT: &str =
    "the journal no longer goes back to it, so recovery cannot continue from it";

/// Returns whether the log still has all records after the entry `after`, so that recovery can continue from the state at that entry. Other
/// problems are not checked for.
pub fn reaches_back(disk: &dyn Disk, after: Seq) -> bool {
    let begin = Begin { after, ..Begin::default() };
    !matches!(Reader::open_after(disk, begin), Err(PersistError::Gone { .. }))
}
