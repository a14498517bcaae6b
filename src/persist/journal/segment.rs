//! Segments: the zero-filled files that make up the log, numbered from one.
//!
//! A segment is complete before it gets its name: it is filled and synced under a name that ends with `.tmp`, and then renamed. Overwriting
//! zeros does not change the length of a file, so a sync of records has no metadata to write.

use crate::clock::Timestamp;
use crate::ids::Seq;
use crate::persist::disk::{Disk, DiskFile};
use crate::persist::error::{PersistError, is_full};
use crate::persist::format::{
    self, FRAME_HEADER_BYTES, FrameHeader, Kind, Part, SegmentHeader, frame,
};
use std::io;

/// The folder of the segments, in the data directory.
pub const FOLDER: &str = "journal";

/// The number of bytes filled at a time. Linux caches a file in the pieces in which it was written, and examines every block of a piece
/// even if only a few bytes of the piece are overwritten: with pieces of a megabyte, writing a record took three microseconds longer.
const FILL_BYTES: usize = 64 * 1024;

/// The sizes of segments, which double from the first up to a maximum.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// The size of segment 1, in bytes. At least 2 * `format::PART_BYTES_MAX` in production, so that any frame fits.
    pub first_bytes: u64,
    /// The maximum size of a segment, in bytes.
    pub max_bytes: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { first_bytes: 1 << 20, max_bytes: 64 << 20 }
    }
}

impl Sizes {
    /// Returns the size in bytes of the segment with this ordinal.
    pub fn of(&self, ordinal: u64) -> u64 {
        let doublings = u32::try_from(ordinal.saturating_sub(1)).unwrap_or(u32::MAX);
        self.first_bytes
            .checked_shl(doublings)
            .filter(|size| size >> doublings.min(63) == self.first_bytes)
            .unwrap_or(self.max_bytes)
            .min(self.max_bytes)
    }
}

/// Returns the path of a segment, relative to the data directory.
pub fn name(ordinal: u64) -> String {
    format!("{FOLDER}/{ordinal:08}.seg")
}

/// Returns whether `file` is a segment whose preparation was not finished.
pub fn is_unfinished(file: &str) -> bool {
    std::path::Path::new(file).extension().is_some_and(|extension| extension == "tmp")
}

/// Returns whether `name`, a path relative to the data directory, is that of `file` in the journal's folder.
fn is_in_folder(file: &str, name: &str) -> bool {
    name.strip_prefix(FOLDER).and_then(|rest| rest.strip_prefix('/')) == Some(file)
}

/// A segment that exists in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentFile {
    /// The number of the segment, from 1.
    pub ordinal: u64,
    /// The length of its file, in bytes.
    pub bytes: u64,
}

/// Lists the existing segments in ascending order. Files whose names only resemble a segment's, such as `1.seg`, are left out.
pub fn present(disk: &dyn Disk) -> Result<Vec<SegmentFile>, PersistError> {
    let files = disk.list(FOLDER).map_err(PersistError::io("list", FOLDER))?;
    let mut segments: Vec<SegmentFile> = files
        .iter()
        .filter_map(|(file, bytes)| {
            let ordinal = file.strip_suffix(".seg")?.parse().ok()?;
            let bytes = *bytes;
            (ordinal > 0 && is_in_folder(file, &name(ordinal)))
                .then_some(SegmentFile { ordinal, bytes })
        })
        .collect();
    segments.sort_unstable();
    Ok(segments)
}

/// Lists the ordinals of the existing segments in ascending order.
pub fn ordinals(disk: &dyn Disk) -> Result<Vec<u64>, PersistError> {
    let ordinals = present(disk)?.iter().map(|segment| segment.ordinal).collect();
    Ok(ordinals)
}

/// Checks that `ordinals` are consecutive and begin with `first`. Otherwise, returns an error that names the first missing segment.
pub fn contiguous(first: u64, ordinals: &[u64]) -> Result<(), PersistError> {
    match (first..).zip(ordinals).find(|(expected, found)| expected != *found) {
        Some((expected, found)) => {
            Err(PersistError::Missing { file: name(expected), next: name(*found) })
        }
        None => Ok(()),
    }
}

/// What a segment begins with after its header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// The beginning of a record with this sequence number.
    Record(Seq),
    /// The continuation of a record with this sequence number, which began in an earlier segment.
    Rest(Seq),
    /// An end mark: the segment was closed before it contained any record, or the first frame did not fit into it.
    End,
    /// Only zeros: the segment is prepared, but nothing was written to it yet.
    Blank,
    /// A frame that is not valid.
    Damaged,
    /// Unknown, because the segment's header is unusable: see [`Unusable`].
    Unreadable,
}

/// Reads the first frame of a segment, and nothing else.
pub fn opening(disk: &dyn Disk, ordinal: u64) -> Result<Opening, PersistError> {
    let name = name(ordinal);
    let file = disk.open(&name, false).map_err(PersistError::io("open", &name))?;
    let first = look(file.as_ref(), ordinal).map_err(PersistError::io("read", &name))?;
    Ok(first.0)
}

/// Returns the node time of the record with which a segment opens; `None` if it does not open with one.
pub fn opened_at(disk: &dyn Disk, ordinal: u64) -> Result<Option<Timestamp>, PersistError> {
    let name = name(ordinal);
    let file = disk.open(&name, false).map_err(PersistError::io("open", &name))?;
    let first = look(file.as_ref(), ordinal).map_err(PersistError::io("read", &name))?;
    Ok(first.1)
}

/// Returns the first frame of a segment, and the time of its record, if there is one.
fn look(file: &dyn DiskFile, ordinal: u64) -> io::Result<(Opening, Option<Timestamp>)> {
    let Ok(Header { salt, .. }) = read_header(file, ordinal)? else {
        return Ok((Opening::Unreadable, None));
    };
    let start = format::SEGMENT_HEADER_BYTES as u64;
    let mut bytes = vec![0; FRAME_HEADER_BYTES];
    file.read_at(&mut bytes, start)?;
    if bytes.iter().all(|byte| *byte == 0) {
        return Ok((Opening::Blank, None));
    }
    // `decode` accepts only sizes up to `FRAME_BYTES_MAX`, so the allocation is bounded.
    if let Some(first) = FrameHeader::decode(&bytes) {
        bytes.resize(first.size as usize, 0);
        file.read_at(&mut bytes, start)?;
    }
    Ok(match frame(&bytes, salt) {
        Some((first, _)) if first.kind == Kind::End => (Opening::End, None),
        Some((first, _)) => {
            let opening = match first.part {
                Part::Whole | Part::First => Opening::Record(first.seq),
                Part::Middle | Part::Last => Opening::Rest(first.seq),
            };
            (opening, Some(first.at))
        }
        None => (Opening::Damaged, None),
    })
}

/// Returns the ordinal of the segment at which reading must start to get all records after `after`: the last segment that opens with a
/// record up to `after`, or with the continuation of such a record. No segment before it can contain a record after `after`. Returns `None`
/// if no segment opens like this.
///
/// Segments whose opening is unreadable are ignored, since reading more than necessary does no harm. Segments that open with an end mark
/// are ignored, too, because the sequence number of an end mark may be lower than that of the record before it.
pub fn first_needed(
    disk: &dyn Disk,
    ordinals: &[u64],
    after: Seq,
) -> Result<Option<u64>, PersistError> {
    for ordinal in ordinals.iter().rev() {
        if let Opening::Record(seq) | Opening::Rest(seq) = opening(disk, *ordinal)?
            && seq <= after
        {
            return Ok(Some(*ordinal));
        }
    }
    Ok(None)
}

/// Returns the opening of the first of these segments that does not open with an end mark; `End` if there is none.
pub fn first_opening(disk: &dyn Disk, ordinals: &[u64]) -> Result<Opening, PersistError> {
    for ordinal in ordinals {
        let opening = opening(disk, *ordinal)?;
        if opening != Opening::End {
            return Ok(opening);
        }
    }
    Ok(Opening::End)
}

/// The usable content of a segment's header.
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// The salt of the checksums of the segment's frames.
    pub salt: u32,
    /// The format version of the segment.
    pub version: u32,
    /// Whether the header is damaged but could be reconstructed.
    pub mended: bool,
}

/// Why a segment cannot be used.
#[derive(Clone, Debug)]
pub enum Unusable {
    /// It has this format version, which is newer than [`format::FORMAT_VERSION`].
    TooNew(u32),
    /// It is damaged, in the way described.
    Damaged(String),
    /// The end of its file is missing, as described, but its header is known.
    Short(Header, String),
}

/// Decodes and checks the header of a segment. `bytes` are the first bytes of its file, and `len` is the length of the file. If the header
/// is damaged, `bytes` should include the first frame, which may be needed to reconstruct the header.
pub fn header(bytes: &[u8], ordinal: u64, len: u64) -> Result<Header, Unusable> {
    let (found, mended) = match SegmentHeader::decode(bytes) {
        SegmentHeader::Bad => (SegmentHeader::mend(bytes, ordinal, len), true),
        found @ (SegmentHeader::Good { .. } | SegmentHeader::TooNew(_)) => (Some(found), false),
    };
    match found {
        Some(SegmentHeader::Good { ordinal: said, size, salt, version }) => {
            let header = Header { salt, version, mended };
            let found = || {
                format!(
                    "its header is that of segment {said} with {size} bytes, but the file is segment {ordinal} with {len} bytes"
                )
            };
            match said == ordinal {
                true if size == len => Ok(header),
                true if size > len => Err(Unusable::Short(header, found())),
                true | false => Err(Unusable::Damaged(found())),
            }
        }
        Some(SegmentHeader::TooNew(version)) => Err(Unusable::TooNew(version)),
        Some(SegmentHeader::Bad) | None => {
            Err(Unusable::Damaged("its header is invalid".to_owned()))
        }
    }
}

/// Decodes and checks the header of an open segment. The outer error is a failure to read the file; the inner error is the reason why
/// the segment cannot be used.
pub fn read_header(file: &dyn DiskFile, ordinal: u64) -> io::Result<Result<Header, Unusable>> {
    let len = file.len()?;
    let mut bytes = vec![0; format::SEGMENT_HEADER_BYTES];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    if SegmentHeader::decode(&bytes) == SegmentHeader::Bad {
        bytes.resize(format::SEGMENT_HEADER_BYTES + format::FRAME_BYTES_MAX, 0);
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
    }
    Ok(header(&bytes, ordinal, len))
}

/// Returns the header of a segment that is about to be written to. The header was readable before, so it is an error if it no longer is.
pub fn writable(file: &dyn DiskFile, ordinal: u64) -> Result<Header, PersistError> {
    let name = name(ordinal);
    let header = read_header(file, ordinal).map_err(PersistError::io("read", &name))?;
    header.map_err(|_| PersistError::Corrupt {
        file: name,
        offset: 0,
        after: Seq(0),
        found: "its header has become unreadable".to_owned(),
    })
}

/// A segment that is ready to be written to.
pub struct Prepared {
    /// The open file.
    pub file: Box<dyn DiskFile>,
    /// The size of the file, in bytes.
    pub size: u64,
}

/// Creates a segment of the size that `sizes` gives for its ordinal, or a smaller one if the disk has no room for that size. Without
/// smaller segments, the journal could not use a small amount of space that becomes free on a full disk, because sizes double and never
/// shrink.
///
/// A smaller segment takes at most half of the free space. The other half is left for snapshots, without which no segment is ever removed.
pub fn prepare(
    disk: &dyn Disk,
    ordinal: u64,
    sizes: Sizes,
    salt: u32,
) -> Result<Prepared, PersistError> {
    let name = name(ordinal);
    let failed = PersistError::io("prepare", &name);
    let whole = sizes.of(ordinal);
    let (free, full) = match fill(disk, ordinal, whole, salt) {
        Ok(file) => return Ok(Prepared { file, size: whole }),
        Err((free, error)) if is_full(&error) => (free, error),
        Err((_, error)) => return Err(failed(error)),
    };
    let halves = std::iter::successors(Some(whole), |size| Some(size / 2));
    let mut halves = halves.take_while(|size| *size >= sizes.first_bytes.max(1));
    let Some(size) = halves.find(|size| *size <= free / 2) else {
        let wanted = needed(ordinal, sizes);
        let words = format!("{full}: it takes {wanted} bytes, but only {free} are free");
        return Err(failed(io::Error::new(full.kind(), words)));
    };
    match fill(disk, ordinal, size, salt) {
        Ok(file) => Ok(Prepared { file, size }),
        Err((_, error)) => Err(failed(error)),
    }
}

/// Returns the number of bytes that must be free on the disk for [`prepare`] to succeed.
pub fn needed(ordinal: u64, sizes: Sizes) -> u64 {
    sizes.of(ordinal).min(2 * sizes.first_bytes)
}

/// Creates a segment, which is filled with zeros and synced before it gets its name. An error is returned together with the number of bytes
/// that could be filled, which shows how much space was free.
fn fill(
    disk: &dyn Disk,
    ordinal: u64,
    size: u64,
    salt: u32,
) -> Result<Box<dyn DiskFile>, (u64, io::Error)> {
    let name = name(ordinal);
    let temporary = format!("{FOLDER}/{ordinal:08}.tmp");
    let mut offset = 0;
    let mut fill = || {
        if disk.list(FOLDER)?.iter().any(|(file, _)| is_in_folder(file, &temporary)) {
            disk.remove(&temporary)?;
        }
        let file = disk.create(&temporary)?;
        let zeros = vec![0; FILL_BYTES.min(usize::try_from(size).unwrap_or(FILL_BYTES))];
        while offset < size {
            let left = usize::try_from(size - offset).unwrap_or(usize::MAX);
            let chunk = zeros.get(..left.min(zeros.len())).unwrap_or(&zeros);
            file.write_at(chunk, offset)?;
            offset += chunk.len() as u64;
        }
        file.write_at(&format::segment_header(ordinal, size, salt), 0)?;
        file.sync()?;
        disk.rename(&temporary, &name)?;
        disk.sync_folder(FOLDER)?;
        Ok(file)
    };
    let filled = fill();
    filled.map_err(|source: io::Error| {
        // A half-filled file would keep a full disk full.
        if let Err(error) = disk.remove(&temporary) {
            tracing::debug!(%error, "failed to remove the unfinished segment, if there was one");
        }
        (offset, source)
    })
}

#[cfg(test)]
mod tests {
    use super::Sizes;

    #[test]
    fn sizes_double_up_to_the_maximum() {
        let sizes = Sizes { first_bytes: 1 << 20, max_bytes: 64 << 20 };
        let mebibytes = |ordinal| sizes.of(ordinal) >> 20;
        assert_eq!([1, 2, 3, 6, 7, 8, 70, 5000].map(mebibytes), [1, 2, 4, 32, 64, 64, 64, 64]);
    }
}
