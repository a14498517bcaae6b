//! Removes journal segments that are no longer needed because snapshots contain the state up to some sequence number.
//!
//! Guarantees: the remaining log can be read from that number on, even if a power cut interrupts the removal; the segment that is being
//! written and the prepared one stay. So it may run concurrently with the writer, but not with another trim. The caller determines the
//! number.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::journal::segment;

/// The segments that were removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// The number of segments.
    pub segments: u64,
    /// Their size, in bytes.
    pub bytes: u64,
}

/// Removes every segment that is not needed to read all records after `upto`. Entries up to there must be durable in a snapshot.
///
/// Segments are removed oldest first, and each removal is synced before the next: unsynced removals may survive a power
/// cut in any order, and leave a gap.
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
