//! Removes journal segments that are no longer needed because snapshots contain the state up to some sequence number.
//!
//! Guarantees: the remaining log can be read from that number on, even if a power cut interrupts the removal; the segment that is being
//! written and the prepared one are never removed. A removal may therefore run concurrently with the writer, but not with another removal.
//! The caller determines the sequence number.

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

/// Removes every segment that is not needed to read all records after `upto`. The state up to `upto` must be durable in a
/// snapshot.
///
/// Segments are removed oldest first, and each removal is synced before the next: otherwise, a power cut could undo some of the removals
/// and leave a gap.
pub fn trim(disk: &dyn Disk, upto: Seq) -> Result<Trimmed, PersistError> {
    let present = segment::present(disk)?;
    let ordinals: Vec<u64> = present.iter().map(|segment| segment.ordinal).collect();
    let mut trimmed = Trimmed::default();
    let Some(needed) = segment::first_needed(disk, &ordinals, upto)? else {
        return Ok(trimmed);
    };
    for segment in present
        .iter()
        .take_while(|segment| segment.ordinal < needed)
    {
        let name = segment::name(segment.ordinal);
        disk.remove(&name)
            .map_err(PersistError::io("remove", &name))?;
        disk.sync_folder(segment::FOLDER)
            .map_err(PersistError::io("sync", segment::FOLDER))?;
        trimmed.segments += 1;
        trimmed.bytes += segment.bytes;
    }
    Ok(trimmed)
}
