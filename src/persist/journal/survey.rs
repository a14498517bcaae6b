//! A report on the journal, segment by segment: which sequence numbers each holds, how much of it is used, and where it becomes unreadable.
//!
//! Damaged segments are decoded as far as possible. The reader, not this module, decides whether unreadable bytes are a torn tail or
//! damage, and whether they are needed. Nothing is written.

use crate::ids::Seq;
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::format::{Kind, Part, SEGMENT_HEADER_BYTES, frame};
use crate::persist::journal::extent;
use crate::persist::journal::reader::{Reader, Tail};
use crate::persist::journal::segment::{self, Header, SegmentFile, Unusable};
use serde::Serialize;

/// The maximum size of a segment, in bytes. A segment is read into memory as a whole, so larger files are not read.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The report on one segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Surveyed {
    /// The name of its file.
    pub file: String,
    /// The length of its file, in bytes.
    pub bytes: u64,
    /// The number of bytes up to the end of the last readable frame; zero if the header is unreadable.
    pub used: u64,
    /// The number of records that begin in it.
    pub records: u64,
    /// The sequence number of the first of these records, if there are any.
    pub first: Option<Seq>,
    /// The sequence number of the last of these records, if there are any.
    pub last: Option<Seq>,
    /// Whether the segment was closed, so that the log continues in the next one.
    pub ended: bool,
    /// Why the segment is unreadable from `used` on; `None` if only zeros follow.
    pub stops: Option<String>,
}

/// The report on the whole journal.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// The segments, in order.
    pub segments: Vec<Surveyed>,
    /// The other files in the folder, except `synced`.
    pub others: Vec<String>,
    /// The result of reading the whole log from the first existing record: its end, or why it cannot be read to its end. `None` if there
    /// are no segments.
    pub read: Option<Result<Tail, String>>,
}

/// Examines every segment, and reads all of the log that exists.
pub fn survey(disk: &dyn Disk) -> Result<Survey, PersistError> {
    let present = segment::present(disk)?;
    let segments = present.iter().map(|segment| look(disk, *segment)).collect();
    let files = disk.list(segment::FOLDER).map_err(PersistError::io("list", segment::FOLDER))?;
    let is_other = |file: &String| {
        file != extent::FILE
            && present.iter().all(|it| segment::name(it.ordinal) != in_folder(file))
    };
    let mut others: Vec<String> =
        files.into_iter().map(|(file, _)| file).filter(is_other).collect();
    others.sort();
    let read = (!present.is_empty()).then(|| read(disk).map_err(|error| error.to_string()));
    Ok(Survey { segments, others, read })
}

fn in_folder(file: &str) -> String {
    format!("{}/{file}", segment::FOLDER)
}

/// Reads the log from the first existing record.
fn read(disk: &dyn Disk) -> Result<Tail, PersistError> {
    let mut reader = Reader::open_present(disk)?;
    while reader.next()?.is_some() {}
    Ok(reader.tail().clone())
}

fn look(disk: &dyn Disk, present: SegmentFile) -> Surveyed {
    let mut surveyed = Surveyed {
        file: segment::name(present.ordinal),
        bytes: present.bytes,
        used: 0,
        records: 0,
        first: None,
        last: None,
        ended: false,
        stops: None,
    };
    match contents(disk, &surveyed.file, present) {
        Ok(Contents { bytes, salt, short }) => {
            surveyed.decode(&bytes, salt);
            surveyed.stops = short.or(surveyed.stops);
        }
        Err(why) => surveyed.stops = Some(why),
    }
    surveyed
}

/// The content of a segment.
pub(super) struct Contents {
    pub(super) bytes: Vec<u8>,
    /// The salt of the checksums of its frames.
    pub(super) salt: u32,
    /// If the end of the file is missing: a description of how the length of the file differs from that in its header.
    pub(super) short: Option<String>,
}

/// Reads a segment into memory. The error is the reason why it cannot be decoded.
pub(super) fn contents(
    disk: &dyn Disk,
    file: &str,
    present: SegmentFile,
) -> Result<Contents, String> {
    if present.bytes > SEGMENT_BYTES_MAX {
        return Err("it is larger than a segment can be".to_owned());
    }
    let mut bytes = vec![0; usize::try_from(present.bytes).unwrap_or(0)];
    let read = disk
        .open(file, false)
        .and_then(|file| file.read_at(&mut bytes, 0))
        .map_err(|error| error.to_string())?;
    bytes.truncate(read);
    let (Header { salt, .. }, short) = match segment::header(&bytes, present.ordinal, read as u64) {
        Ok(header) => (header, None),
        Err(Unusable::Short(header, found)) => (header, Some(found)),
        Err(Unusable::TooNew(version)) => {
            return Err(format!(
                "its format {version} is newer than the formats that this program reads"
            ));
        }
        Err(Unusable::Damaged(found)) => return Err(found),
    };
    Ok(Contents { bytes, salt, short })
}

impl Surveyed {
    /// Reads frames until one is invalid or ends the segment, and fills in what they show.
    fn decode(&mut self, bytes: &[u8], salt: u32) {
        let mut offset = SEGMENT_HEADER_BYTES;
        let rest = |offset: usize| bytes.get(offset..).unwrap_or(&[]);
        while let Some((header, _)) = frame(rest(offset), salt).filter(|_| !self.ended) {
            offset += header.size as usize;
            if header.kind == Kind::End {
                self.ended = true;
            } else if matches!(header.part, Part::Whole | Part::First) {
                self.records += 1;
                self.first = self.first.or(Some(header.seq));
                self.last = Some(header.seq);
            }
        }
        self.used = offset as u64;
        let after = rest(offset);
        if let Some(end) = after.iter().rposition(|byte| *byte != 0) {
            self.stops = Some(format!(
                "{} bytes from offset {offset} on are not a complete record",
                end + 1
            ));
        }
    }

    /// Returns whether the segment was prepared but not used yet.
    pub fn is_prepared(&self) -> bool {
        self.records == 0 && !self.ended && self.stops.is_none()
    }
}
