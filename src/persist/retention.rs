//! Removes journal segments that are no longer needed because snapshots contain the state up to some sequence number.
//!
//! Guarantees: the remaining log can be read from that number on, even if a power cut interrupts the removal; the segment that is being
//! written and the prepared one are never removed. A removal may therefore run concurrently with the writer, but not with another removal.
//! The caller determines the sequence number, and how much is kept as history: recovery does not read it, but tools show it.

use crate::clock::Timestamp;
use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::journal::segment;

/// The number and total size of the segments that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// The number of segments.
    pub segments: u64,
    /// Their total size, in bytes.
    pub bytes: u64,
}

/// How much is kept of the segments that are not needed. By default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Segments with a record of this node time or later are kept.
    pub since: Timestamp,
    /// The maximum total size of the segments kept, in bytes; the newest are kept.
    pub bytes_max: u64,
}

/// The part of the journal that is kept although no snapshot needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct History {
    /// The total size of its segments, in bytes.
    pub bytes: u64,
    /// The node time with which the journal begins; `None` if that cannot be read.
    pub since: Option<Timestamp>,
}

/// Removes every segment that is not needed to read all records after `upto`. The state up to `upto` must be durable in a
/// snapshot.
///
/// Segments are removed oldest first, and each removal is synced before the next: otherwise, a power cut could undo some of the removals
/// and leave a gap.
pub fn trim(disk: &dyn Disk, upto: Seq) -> Result<Trimmed, PersistError> {
    trim_but(disk, upto, Kept::default())
}

/// Like [`trim`], but keeps some of the segments.
pub fn trim_but(disk: &dyn Disk, upto: Seq, kept: Kept) -> Result<Trimmed, PersistError> {
    let mut trimmed = Trimmed::default();
    let (mut unneeded, _) = split(disk, upto)?;
    let mut bytes = 0;
    // Nothing of a segment is newer than the record with which a later one opens.
    let mut end = None;
    while let Some(segment) = unneeded.last() {
        bytes += segment.bytes;
        if bytes > kept.bytes_max {
            break;
        }
        end = segment::opened_at(disk, segment.ordinal + 1)?.or(end);
        if end.is_some_and(|end| end < kept.since) {
            break;
        }
        unneeded.pop();
    }
    for segment in unneeded {
        let name = segment::name(segment.ordinal);
        disk.remove(&name).map_err(PersistError::io("remove", &name))?;
        disk.sync_folder(segment::FOLDER).map_err(PersistError::io("sync", segment::FOLDER))?;
        trimmed.segments += 1;
        trimmed.bytes += segment.bytes;
    }
    Ok(trimmed)
}

/// Returns what is kept although it is not needed to read all records after `upto`.
pub fn history(disk: &dyn Disk, upto: Seq) -> Result<History, PersistError> {
    let (unneeded, first) = split(disk, upto)?;
    let since = first.map(|first| segment::opened_at(disk, first));
    Ok(History {
        bytes: unneeded.iter().map(|segment| segment.bytes).sum(),
        since: since.transpose()?.flatten(),
    })
}

/// Returns the segments that are not needed, the oldest first, and the ordinal of the first segment of all.
fn split(
    disk: &dyn Disk,
    upto: Seq,
) -> Result<(Vec<segment::SegmentFile>, Option<u64>), PersistError> {
    let mut present = segment::present(disk)?;
    let ordinals: Vec<u64> = present.iter().map(|segment| segment.ordinal).collect();
    let needed = segment::first_needed(disk, &ordinals, upto)?.unwrap_or(0);
    present.retain(|segment| segment.ordinal < needed);
    Ok((present, ordinals.first().copied()))
}
