//! Reads everything readable in a damaged journal, for an operator who must decide whether to continue without the unreadable part.
//!
//! A reader stops at damage; this module continues after it and reports the gaps. It does not decide whether unreadable bytes were needed,
//! or ever synced. It never writes.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};
use crate::persist::disk::Disk;
use crate::persist::error::PersistError;
use crate::persist::format::{
    FRAME_HEADER_BYTES, FrameHeader, Kind, Part, SEGMENT_HEADER_BYTES, frame,
};
use crate::persist::journal::extent;
use crate::persist::journal::reader::Record;
use crate::persist::journal::segment;
use crate::persist::journal::survey::{Contents, contents};
use crate::persist::journal::window::last_used;

/// A part of the log.
#[derive(Debug)]
pub enum Piece {
    /// A whole record.
    Record(Owned),
    /// Bytes that are not a record, or missing bytes.
    Gap(Gap),
    /// A later part of a record whose beginning is missing, by its sequence number.
    Rest(Seq),
}

/// A record that owns its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owned {
    /// The sequence number.
    pub seq: Seq,
    /// The node time.
    pub at: Timestamp,
    /// The actor that the record belongs to.
    pub actor: ActorId,
    /// The kind of the record.
    pub kind: Kind,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Owned {
    fn of(header: &FrameHeader, payload: &[u8]) -> Self {
        Self {
            seq: header.seq,
            at: header.at,
            actor: header.actor,
            kind: header.kind,
            payload: payload.to_vec(),
        }
    }

    /// Returns the record as the type that a reader returns, with a borrowed payload.
    pub fn record(&self) -> Record<'_> {
        Record {
            seq: self.seq,
            at: self.at,
            actor: self.actor,
            kind: self.kind,
            payload: &self.payload,
        }
    }
}

/// A position at which no record could be read, although there was or may have been one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The name of the segment's file.
    pub file: String,
    /// The offset in the segment.
    pub offset: u64,
    /// The number of unreadable bytes; zero if bytes are missing, which are at most a whole segment.
    pub bytes: u64,
    /// A description of the problem.
    pub found: String,
    /// The record that the bytes seem to contain, although its checksum does not match or its last parts are missing.
    pub seems: Option<Owned>,
}

/// Calls `emit` with every piece of the log, in order. If `emit` returns an error, stops and returns it. The sequence numbers of the
/// records ascend.
pub fn salvage<E: From<PersistError>>(
    disk: &dyn Disk,
    emit: &mut dyn FnMut(Piece) -> Result<(), E>,
) -> Result<(), E> {
    let present = segment::present(disk)?;
    let extent = extent::read(disk);
    let mut walk = Walk { emit, last: Seq(0), place: (0, 0), open: None };
    let mut expected = present.first().map_or(1, |first| first.ordinal);
    for segment in present {
        let file = segment::name(segment.ordinal);
        while expected < segment.ordinal {
            let found = format!("it is missing, but {file} exists");
            walk.gap((expected, 0), 0, (found, None))?;
            expected += 1;
        }
        expected += 1;
        match contents(disk, &file, segment) {
            Ok(Contents { bytes, salt, short }) => {
                walk.segment(segment.ordinal, &bytes, salt)?;
                if let Some(found) = short {
                    // The size is zero because these bytes are missing: see `Gap::bytes`.
                    walk.gap((segment.ordinal, bytes.len() as u64), 0, (found, None))?;
                }
            }
            Err(found) => walk.gap((segment.ordinal, 0), segment.bytes, (found, None))?,
        }
    }
    walk.close()?;
    if let Some(extent) = extent.filter(|extent| extent.place > walk.place) {
        let found =
            format!("the log ends here, but it was synced up to sequence number {}", extent.last);
        let place = walk.place;
        walk.gap(place, 0, (found, None))?;
    }
    Ok(())
}

/// A walk through the segments.
struct Walk<'g, E> {
    emit: &'g mut dyn FnMut(Piece) -> Result<(), E>,
    /// The sequence number of the last record.
    last: Seq,
    /// The position after the last readable frame.
    place: (u64, u64),
    /// An incomplete record: the position where it began, and the payload so far.
    open: Option<((u64, u64), Owned)>,
}

impl<E: From<PersistError>> Walk<'_, E> {
    fn segment(&mut self, ordinal: u64, bytes: &[u8], salt: u32) -> Result<(), E> {
        let mut offset = SEGMENT_HEADER_BYTES;
        let rest = |offset: usize| bytes.get(offset..).unwrap_or(&[]);
        let used = last_used(bytes).map_or(0, |last| last + 1);
        while offset < used {
            let here = frame(rest(offset), salt).filter(|(header, _)| self.fits(header));
            if let Some((header, payload)) = here {
                let begins = (ordinal, offset as u64);
                offset += header.size as usize;
                self.place = (ordinal, offset as u64);
                if header.kind == Kind::End {
                    continue;
                }
                self.take(begins, &header, payload)?;
                continue;
            }
            let goes_on = (offset + 1..used)
                .find(|at| frame(rest(*at), salt).is_some_and(|(header, _)| self.fits(&header)));
            let end = goes_on.unwrap_or(used);
            let seems = FrameHeader::decode(rest(offset)).map(|header| {
                let payload = rest(offset + FRAME_HEADER_BYTES);
                let len = header.size as usize - FRAME_HEADER_BYTES;
                Owned::of(&header, payload.get(..len).unwrap_or(payload))
            });
            let seems = seems.filter(|seems| seems.seq > self.last && seems.kind != Kind::End);
            let found = "not a complete record".to_owned();
            let (place, len) = ((ordinal, offset as u64), (end - offset) as u64);
            self.gap(place, len, (found, seems))?;
            offset = end;
        }
        Ok(())
    }

    fn fits(&self, header: &FrameHeader) -> bool {
        let last = self.open.as_ref().map_or(self.last, |(_, open)| open.seq);
        match (header.kind, header.part) {
            (Kind::End, _) => true,
            (_, Part::Whole | Part::First) => header.seq > last,
            (_, Part::Middle | Part::Last) => header.seq >= last,
        }
    }

    fn take(&mut self, place: (u64, u64), header: &FrameHeader, payload: &[u8]) -> Result<(), E> {
        let is_rest = matches!(header.part, Part::Middle | Part::Last);
        match &mut self.open {
            Some((_, open)) if is_rest && open.seq == header.seq => {
                open.payload.extend_from_slice(payload);
            }
            _ => {
                self.close()?;
                if is_rest {
                    self.last = header.seq;
                    return (self.emit)(Piece::Rest(header.seq));
                }
                self.open = Some((place, Owned::of(header, payload)));
            }
        }
        if matches!(header.part, Part::Whole | Part::Last)
            && let Some((_, record)) = self.open.take()
        {
            self.last = record.seq;
            (self.emit)(Piece::Record(record))?;
        }
        Ok(())
    }

    /// If a record is still open, reports it as a gap: its remaining parts did not follow.
    fn close(&mut self) -> Result<(), E> {
        let Some((place, open)) = self.open.take() else {
            return Ok(());
        };
        self.last = open.seq;
        let found = format!("record {} is incomplete", open.seq);
        let bytes = open.payload.len() as u64;
        self.emit_gap(place, bytes, (found, Some(open)))
    }

    fn gap(
        &mut self,
        place: (u64, u64),
        bytes: u64,
        what: (String, Option<Owned>),
    ) -> Result<(), E> {
        self.close()?;
        self.emit_gap(place, bytes, what)
    }

    fn emit_gap(
        &mut self,
        (ordinal, offset): (u64, u64),
        bytes: u64,
        (found, seems): (String, Option<Owned>),
    ) -> Result<(), E> {
        (self.emit)(Piece::Gap(Gap { file: segment::name(ordinal), offset, bytes, found, seems }))
    }
}
