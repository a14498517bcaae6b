//! Which part of the past may go: segments that nobody needs who has the state up to some sequence number.
//!
//! Promises: what is left can be read from that number on, also after a power cut in between; the segment that is
//! being written and the one that is prepared stay. So it may run beside the writer, but not beside another of its
//! kind. Never here: the judgement up to which number the state is kept elsewhere.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::journal::segment;

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trimmed {
    /// How many segments.
    pub segments: u64,
    /// How many bytes they took.
    pub bytes: u64,
}

/// Removes every segment without which all records behind `upto` can be read. Entries up to there must be durable.
///
/// Oldest first, and each removal synced before the next: unsynced ones may survive a power cut in any order, and
/// leave a hole.
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
