//! Reads records back from bytes, and decides what unreadable bytes mean.
//!
//! A record whose checksum does not match is a **torn tail** if there is no evidence that it was ever synced: the log ends before this
//! record, and the bytes after that end are counted. The record is **damage** if a complete record after it shows that the bytes up to it
//! had already been synced, if a later segment has records, or if the file `synced` shows that the log had been synced further. Damage is
//! an error that names the position. A caller that has the state up to some entry may start reading after that entry; damage to any later
//! record is still an error. The reader never writes.

use crate::clock::Timestamp;
use crate::decode;
use crate::ids::{ActorId, Seq};
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::format::{
    FORMAT_VERSION, FRAME_HEADER_BYTES, FrameHeader, Kind, Part, SEGMENT_HEADER_BYTES, frame,
};
use crate::persist::journal::extent::{self, Extent};
use crate::persist::journal::segment::{self, Header, Opening, Unusable};
use crate::persist::journal::window::Window;
use crate::persist::mark::Mark;
use std::collections::VecDeque;
use std::{fmt, io};

/// One record of the log.
#[derive(Debug)]
pub struct Record<'a> {
    /// The sequence number.
    pub seq: Seq,
    /// The node time.
    pub at: Timestamp,
    /// The actor that the record belongs to.
    pub actor: ActorId,
    /// The kind: an entry, a poisoned message or a mark.
    pub kind: Kind,
    /// The content, as encoded by rmp-serde: a message and its outcome, a message and the panic that it caused, or a mark.
    pub payload: &'a [u8],
}

/// The state that the caller already has from a snapshot; by default none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Begin {
    /// The last sequence number whose effects are in that state. Only later records are read.
    pub after: Seq,
    /// The node time of that state. No later record has an earlier time.
    pub at: Timestamp,
    /// The first sequence number that was not reserved at that time.
    pub reserved: Seq,
    /// The last sequence number that the log is known to have had on disk.
    pub reaches: Seq,
}

/// The end of the log, and the state in which it was left.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    /// The segment and offset where the next record goes; `None` if there is no log yet.
    pub place: Option<(u64, u64)>,
    /// The segment and offset up to which the log was synced when its last frame was written.
    pub synced: (u64, u64),
    /// The sequence number of the last record, or zero if there is none.
    pub last: Seq,
    /// The time of the last record.
    pub last_at: Timestamp,
    /// The first sequence number that was not reserved.
    pub reserved: Seq,
    /// Whether the last record is the mark of a clean stop.
    pub clean: bool,
    /// The number of records after [`Begin::after`] that were read, marks included.
    pub records: u64,
    /// The number of these records that are not marks.
    pub entries: u64,
    /// The size of all records counted in `records`, in bytes.
    pub bytes: u64,
    /// The incomplete end that is not part of the log, if there is one.
    pub cut: Option<Cut>,
    /// Damaged bytes that were skipped or reconstructed, because no needed record was lost.
    pub passed: Vec<SkippedBytes>,
}

impl Tail {
    /// Returns the next sequence number to hand out: one that was certainly never handed out before.
    pub fn next(&self) -> Seq {
        let following = self.last.0.saturating_add(1);
        Seq(if self.clean { following } else { following.max(self.reserved.0) })
    }
}

/// An incomplete end of the log, which was being written when the coordinator was killed or lost power.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The segment.
    pub file: String,
    /// The offset of the cut.
    pub offset: u64,
    /// The number of bytes after the cut, up to the last that is not zero.
    pub bytes: u64,
    /// Sequence numbers still readable in the part that is cut off.
    pub seqs: Vec<Seq>,
}

/// Damaged bytes that held nothing needed or could be reconstructed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkippedBytes {
    /// The segment.
    pub file: String,
    /// The offset at which the damaged bytes begin.
    pub offset: u64,
    /// The number of damaged bytes.
    pub bytes: u64,
}

impl fmt::Display for SkippedBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, offset, bytes } = self;
        write!(
            f,
            "{file} is damaged at offset {offset} ({bytes} bytes), but no needed record is lost"
        )
    }
}

/// The maximum size of a segment, in bytes. A larger file cannot be a segment, and is refused because reading it would take long.
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

pub(super) struct Loaded {
    pub(super) ordinal: u64,
    pub(super) window: Window,
    pub(super) offset: usize,
    pub(super) salt: u32,
    /// The error to report where this segment becomes unreadable, if the end of its file is missing.
    pub(super) short: Option<String>,
}

/// Reads the log, record by record.
pub struct Reader<'d> {
    pub(super) disk: &'d dyn Disk,
    pub(super) begin: Begin,
    pub(super) waiting: VecDeque<u64>,
    pub(super) segment: Option<Loaded>,
    /// The payload, so far, of the record that is being assembled from parts.
    pub(super) assembled: Vec<u8>,
    /// The position at which the record being assembled began.
    pub(super) record_start: Option<(u64, u64)>,
    /// Whether the next frames may be parts of a record whose beginning was not read.
    pub(super) is_mid_record: bool,
    /// The time of the last record that was not needed.
    unwanted_at: Timestamp,
    /// How far the log was synced when it was opened. This is read before any record, because an active writer may sync records that the
    /// reader has not seen.
    extent: Option<Extent>,
    pub(super) tail: Tail,
    pub(super) ended: bool,
}

impl<'d> Reader<'d> {
    /// Opens the log of a data directory, which may have none yet.
    pub fn open(disk: &'d dyn Disk) -> Result<Self, PersistError> {
        Self::open_after(disk, Begin::default())
    }

    /// Opens the log to read the records after `begin.after`. Earlier segments, which have none of these records, are not read.
    pub fn open_after(disk: &'d dyn Disk, begin: Begin) -> Result<Self, PersistError> {
        let mut ordinals = segment::ordinals(disk)?;
        let first = ordinals.first().copied().unwrap_or(1);
        segment::contiguous(first, &ordinals)?;
        let start = match segment::first_needed(disk, &ordinals, begin.after)? {
            Some(start) => start,
            None if first == 1 => 1,
            None => headless(disk, first, begin.after)?,
        };
        ordinals.retain(|ordinal| *ordinal >= start);
        Ok(Self::over(disk, begin, ordinals, start > 1))
    }

    /// Opens the log to read from the first record that begins in an existing segment, for a caller that does not need removed records.
    pub fn open_present(disk: &'d dyn Disk) -> Result<Self, PersistError> {
        let ordinals = segment::ordinals(disk)?;
        let first = ordinals.first().copied().unwrap_or(1);
        segment::contiguous(first, &ordinals)?;
        let opening = segment::first_opening(disk, &ordinals)?;
        let after = match opening {
            Opening::Record(seq) if first > 1 => Seq(seq.0.saturating_sub(1)),
            Opening::Rest(seq) => seq,
            Opening::Record(_)
            | Opening::End
            | Opening::Blank
            | Opening::Damaged
            | Opening::Unreadable => Seq(0),
        };
        let begin = Begin { after, ..Begin::default() };
        let is_begun = matches!(opening, Opening::Record(_) | Opening::End | Opening::Blank);
        Ok(Self::over(disk, begin, ordinals, first > 1 && !is_begun))
    }

    fn over(disk: &'d dyn Disk, begin: Begin, ordinals: Vec<u64>, is_mid_record: bool) -> Self {
        Self {
            disk,
            begin,
            waiting: ordinals.into(),
            segment: None,
            assembled: Vec::new(),
            record_start: None,
            is_mid_record,
            unwanted_at: Timestamp::default(),
            extent: extent::read(disk),
            tail: Tail { last_at: begin.at, reserved: begin.reserved, ..Tail::default() },
            ended: false,
        }
    }

    /// Returns the sequence number after which records are returned.
    pub fn after(&self) -> Seq {
        self.begin.after
    }

    /// Returns the state of the log at the last record read, or at its end once `next` has returned `None`.
    pub fn tail(&self) -> &Tail {
        &self.tail
    }

    /// Returns the next record, or `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "a record borrows the reader's buffer")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, PersistError> {
        while !self.ended {
            if self.segment.is_none() && !self.load()? {
                self.ended = true;
                break;
            }
            if let Some((header, range)) = self.step()?
                && header.seq > self.begin.after
            {
                let segment = self
                    .segment
                    .as_ref()
                    .expect("a frame should just have been read from the segment");
                let payload = match header.part {
                    Part::Whole => segment.window.get(range),
                    Part::First | Part::Middle | Part::Last => &self.assembled,
                };
                return Ok(Some(Record {
                    seq: header.seq,
                    at: header.at,
                    actor: header.actor,
                    kind: header.kind,
                    payload,
                }));
            }
        }
        self.reached()?;
        Ok(None)
    }

    /// Checks that the log, read to its end, has every record that it is known to have had.
    fn reached(&self) -> Result<(), PersistError> {
        let (ordinal, _) = self.tail.place.unzip();
        let file = ordinal.map_or_else(|| segment::FOLDER.to_owned(), segment::name);
        let last = self.tail.last;
        let Begin { after, reaches, .. } = self.begin;
        if self.is_mid_record {
            return Err(PersistError::Corrupt {
                file,
                offset: SEGMENT_HEADER_BYTES as u64,
                after,
                found: "the first existing record is incomplete".to_owned(),
            });
        }
        if last < reaches {
            return Err(PersistError::Short { file, last, reaches });
        }
        let place = self.tail.place.unwrap_or_default();
        match self.extent.filter(|extent| extent.place > place) {
            None => Ok(()),
            Some(Extent { place: (ordinal, offset), last }) => Err(PersistError::Corrupt {
                file,
                offset: place.1,
                after: self.tail.last,
                found: format!(
                    "the log ends here, but it was synced up to sequence number {last}, offset {offset} of {}",
                    segment::name(ordinal)
                ),
            }),
        }
    }

    /// Reads one frame. Returns its header and the range of its payload if it completes a record, otherwise `None`.
    fn step(&mut self) -> Result<Option<(FrameHeader, std::ops::Range<usize>)>, PersistError> {
        let Some(header) = self.frame()? else {
            return Ok(None);
        };
        let segment =
            self.segment.as_mut().expect("the frame should have been read from the segment");
        let offset = segment.offset;
        segment.offset += header.size as usize;
        let (segment_ordinal, short) = (segment.ordinal, segment.short.clone());
        let synced = (offset as u64).saturating_sub(header.unsynced.into());
        self.tail.synced = (segment.ordinal, synced.max(SEGMENT_HEADER_BYTES as u64));
        if header.kind == Kind::End {
            if let Some(found) = short {
                return Err(self.corrupt(offset, found));
            }
            self.look_for_more(segment_ordinal)?;
            if self.waiting.is_empty() {
                return Err(
                    self.corrupt(offset, "the segment after this one is missing".to_owned())
                );
            }
            self.segment = None;
            return Ok(None);
        }
        let before = if header.seq > self.begin.after {
            self.tail.bytes += u64::from(header.size);
            self.tail.last_at
        } else {
            self.unwanted_at
        };
        if header.at < before {
            let found = format!("time goes back from {before} to {}", header.at);
            return Err(self.corrupt(offset, found));
        }
        let payload = offset + FRAME_HEADER_BYTES..offset + header.size as usize;
        if !self.assemble(&header, offset, payload.clone()) {
            return Ok(None);
        }
        self.note(&header, payload.clone());
        Ok(Some((header, payload)))
    }

    /// Returns the header of the next frame, or `None` at the end of the log.
    fn frame(&mut self) -> Result<Option<FrameHeader>, PersistError> {
        if let Some(header) = self.look()? {
            return Ok(Some(header));
        }
        // A running coordinator may have written the frame since this position was read, so the position is read again. `used` must be
        // determined before that: otherwise, it could include the end of a frame whose beginning was not yet written when it was looked
        // for.
        let segment = self.segment.as_mut().expect("a segment should be loaded");
        let offset = segment.offset;
        let used = segment.window.used(offset);
        let used = used.map_err(|error| unreadable(segment.ordinal, error))?;
        segment.window.forget();
        if let Some(header) = self.look()? {
            return Ok(Some(header));
        }
        if self.skip_damage(offset, used)? {
            return self.look();
        }
        self.end(offset, used)?;
        Ok(None)
    }

    /// Returns the header of the frame at the current position, if the frame is valid and can follow the previous one.
    fn look(&mut self) -> Result<Option<FrameHeader>, PersistError> {
        let segment = self.segment.as_mut().expect("a segment should be loaded");
        let Loaded { ordinal, window, .. } = segment;
        let rest = window.from(segment.offset);
        let rest = rest.map_err(|error| unreadable(*ordinal, error))?;
        let header = frame(rest, segment.salt).map(|(header, _)| header);
        Ok(header.filter(|header| {
            let fits = match header.part {
                Part::Whole | Part::First => self.record_start.is_none(),
                Part::Middle | Part::Last => {
                    self.record_start.is_some()
                        || (self.is_mid_record && header.seq <= self.begin.after)
                }
            };
            header.kind == Kind::End || (header.seq > self.tail.last && fits)
        }))
    }

    /// Adds a frame to its record, which may have several parts. Returns whether the record is now complete.
    fn assemble(
        &mut self,
        header: &FrameHeader,
        offset: usize,
        payload: std::ops::Range<usize>,
    ) -> bool {
        let segment =
            self.segment.as_ref().expect("the frame should have been read from the segment");
        let place = (segment.ordinal, offset as u64);
        if header.part == Part::First {
            self.assembled.clear();
            self.record_start = Some(place);
        }
        if header.part != Part::Whole {
            self.assembled.extend_from_slice(segment.window.get(payload));
        }
        let whole = matches!(header.part, Part::Whole | Part::Last);
        self.is_mid_record &= header.part == Part::Middle;
        if whole {
            self.record_start = None;
            self.tail.place = Some((segment.ordinal, segment.offset as u64));
        }
        whole
    }

    /// Updates the tail for a complete record.
    fn note(&mut self, header: &FrameHeader, payload: std::ops::Range<usize>) {
        self.tail.last = header.seq;
        self.tail.last_at = self.tail.last_at.max(header.at);
        if header.seq > self.begin.after {
            self.tail.records += 1;
            self.tail.entries += u64::from(header.kind != Kind::Mark);
        } else {
            self.unwanted_at = header.at;
        }
        self.tail.clean = false;
        if header.kind == Kind::Mark {
            let segment =
                self.segment.as_ref().expect("the mark should have been read from the segment");
            match decode::from_slice(segment.window.get(payload)).ok() {
                Some(Mark::Reserve { bound }) => {
                    self.tail.reserved = bound.max(self.begin.reserved);
                }
                Some(Mark::Stop) => self.tail.clean = true,
                Some(
                    Mark::Start { .. }
                    | Mark::Clock { .. }
                    | Mark::Rules { .. }
                    | Mark::Drain { .. }
                    | Mark::Checkpoint { .. },
                )
                | None => {}
            }
        }
    }

    /// Loads the next segment. Returns whether there is one; a damaged one that was prepared but never used does not count.
    fn load(&mut self) -> Result<bool, PersistError> {
        let Some(ordinal) = self.waiting.pop_front() else {
            return Ok(false);
        };
        let name = segment::name(ordinal);
        let (judged, window) = self.open_segment(ordinal, &name)?;
        let start = SEGMENT_HEADER_BYTES;
        let (salt, short) = match judged {
            Ok(Header { salt, mended, .. }) => {
                if mended {
                    self.note_skipped((ordinal, 0), start as u64);
                }
                (salt, None)
            }
            Err(Unusable::TooNew(found)) => {
                let supported = FORMAT_VERSION;
                return Err(PersistError::VersionTooNew { file: name, found, supported });
            }
            // A prepared segment that was never used contains nothing that could be lost.
            Err(Unusable::Damaged(_) | Unusable::Short(..))
                if self.tail.place.is_some()
                    && self.waiting.is_empty()
                    && window.used(start).map_err(|error| unreadable(ordinal, error))? == start =>
            {
                return Ok(false);
            }
            Err(Unusable::Short(Header { salt, .. }, found)) => (salt, Some(found)),
            Err(Unusable::Damaged(found)) => {
                let after = self.tail.last;
                return Err(PersistError::Corrupt { file: name, offset: 0, after, found });
            }
        };
        if self.tail.place.is_none() {
            self.tail.place = Some((ordinal, start as u64));
        }
        self.segment = Some(Loaded { ordinal, window, offset: start, salt, short });
        Ok(true)
    }

    fn open_segment(
        &self,
        ordinal: u64,
        name: &str,
    ) -> Result<(Result<Header, Unusable>, Window), PersistError> {
        let file = self.disk.open(name, false).map_err(PersistError::io("open", name))?;
        let len = file.len().map_err(PersistError::io("read", name))?;
        let judged = if len > SEGMENT_BYTES_MAX {
            let found = format!("it has {len} bytes, which is more than a segment can have");
            Err(Unusable::Damaged(found))
        } else {
            segment::read_header(file.as_ref(), ordinal).map_err(PersistError::io("read", name))?
        };
        let len = usize::try_from(len.min(SEGMENT_BYTES_MAX))
            .expect("a usize should have at least 32 bits");
        Ok((judged, Window::new(file, len)))
    }

    /// Lists the segments again if none is known after `ordinal`, because a running coordinator may have created more.
    fn look_for_more(&mut self, ordinal: u64) -> Result<(), PersistError> {
        if self.waiting.is_empty() {
            let mut later = segment::ordinals(self.disk)?;
            later.retain(|later| *later > ordinal);
            // This fails if the next segment has been removed in the meantime.
            segment::contiguous(ordinal + 1, &later)?;
            self.waiting = later.into();
        }
        Ok(())
    }

    pub(super) fn corrupt(&self, offset: usize, found: String) -> PersistError {
        PersistError::Corrupt {
            file: self.segment.as_ref().map_or_else(String::new, |s| segment::name(s.ordinal)),
            offset: offset as u64,
            after: self.tail.last,
            found,
        }
    }
}

pub(super) fn unreadable(ordinal: u64, error: io::Error) -> PersistError {
    PersistError::io("read", &segment::name(ordinal))(error)
}

/// Handles a log in which no segment opens with a record up to `after`. Returns an error, unless the first segment is unreadable: then its
/// ordinal is returned, because reading the segment will report what is wrong.
fn headless(disk: &dyn Disk, first: u64, after: Seq) -> Result<u64, PersistError> {
    let file = segment::name(first);
    let first_seq = match segment::opening(disk, first)? {
        Opening::Record(seq) | Opening::Rest(seq) => Some(seq),
        Opening::End | Opening::Blank => None,
        Opening::Damaged | Opening::Unreadable => return Ok(first),
    };
    Err(PersistError::Gone { file, first: first_seq, after })
}
