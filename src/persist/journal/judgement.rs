//! Decides what unreadable bytes mean to a reader: the end of the log, damage to records that it needs, or damage that it can ignore.

use crate::persist::error::PersistError;
use crate::persist::format::{
    FRAME_HEADER_BYTES, FrameHeader, Kind, Part, SEGMENT_HEADER_BYTES, frame,
};
use crate::persist::journal::reader::{Cut, Reader, SkippedBytes, unreadable};
use crate::persist::journal::segment;

impl Reader<'_> {
    /// Skips the unreadable bytes at `offset` if they certainly contained no needed record, and returns whether they were skipped. That is
    /// certain if the next valid frame before `used` belongs to a record that is not needed: sequence numbers only increase, so the records
    /// before it are not needed, either. An end mark proves nothing, because it repeats an earlier sequence number.
    pub(super) fn skip_damage(&mut self, offset: usize, used: usize) -> Result<bool, PersistError> {
        let after = self.begin.after;
        if self.tail.last >= after {
            return Ok(false);
        }
        let segment = self.segment.as_mut().expect("a segment should be loaded");
        let ordinal = segment.ordinal;
        for at in offset + 1..used {
            let rest = segment.window.from(at);
            let rest = rest.map_err(|error| unreadable(ordinal, error))?;
            let Some((header, _)) = frame(rest, segment.salt) else {
                continue;
            };
            if header.kind == Kind::End || header.seq <= self.tail.last || header.seq > after {
                return Ok(false);
            }
            segment.offset = at;
            self.record_start = None;
            self.is_mid_record = matches!(header.part, Part::Middle | Part::Last);
            self.note_skipped((ordinal, offset as u64), (at - offset) as u64);
            return Ok(true);
        }
        Ok(false)
    }

    /// Adds damaged bytes, which contained no needed record or were reconstructed, to the tail.
    pub(super) fn note_skipped(&mut self, (ordinal, offset): (u64, u64), bytes: u64) {
        self.tail.passed.push(SkippedBytes { file: segment::name(ordinal), offset, bytes });
    }

    /// Handles a log that does not continue at `offset`. Decides whether the log ends at `offset` or is damaged, based on the bytes between
    /// `offset` and `used` and on later segments.
    ///
    /// # Errors
    /// Returns an error if the log is damaged.
    pub(super) fn end(&mut self, offset: usize, used: usize) -> Result<(), PersistError> {
        self.ended = true;
        let segment = self.segment.as_mut().expect("a segment should be loaded");
        if let Some(found) = segment.short.take() {
            return Err(self.corrupt(offset, found));
        }
        if self.later_records()? {
            return Err(self.corrupt(
                offset,
                "a record is invalid, but a later segment has records".to_owned(),
            ));
        }
        let segment = self.segment.as_mut().expect("the log should end in a loaded segment");
        let ordinal = segment.ordinal;
        let garbage = used - offset;
        let mut seqs = Vec::new();
        let mut at = 1;
        while at < garbage {
            // `rest` is not limited to `used`, because the last record may end with zeros.
            let rest = segment.window.from(offset + at);
            let rest = rest.map_err(|error| unreadable(ordinal, error))?;
            let Some((header, _)) =
                frame(rest, segment.salt).filter(|(header, _)| header.seq > self.tail.last)
            else {
                at += 1;
                continue;
            };
            // When this record was written, everything before `offset + at - unsynced` had been synced.
            if at > header.unsynced as usize {
                let found = format!(
                    "a record is invalid, although it had been synced when record {} was written",
                    header.seq
                );
                return Err(self.corrupt(offset, found));
            }
            if seqs.last() != Some(&header.seq) {
                seqs.push(header.seq);
            }
            at += header.size as usize;
        }
        let cut_at = self.record_start.unwrap_or((segment.ordinal, offset as u64));
        let bytes =
            garbage as u64 + (self.assembled.len() as u64) * u64::from(self.record_start.is_some());
        self.tail.place = Some(cut_at);
        if bytes > 0 {
            self.tail.clean = false;
            let (ordinal, offset) = cut_at;
            let file = segment::name(ordinal);
            self.tail.cut = Some(Cut { file, offset, bytes, seqs });
        }
        Ok(())
    }

    /// Returns whether any later segment seems to begin with a frame. Decodes only the header of the frame, and verifies no checksum.
    fn later_records(&self) -> Result<bool, PersistError> {
        for ordinal in &self.waiting {
            let name = segment::name(*ordinal);
            let file = self.disk.open(&name, false).map_err(PersistError::io("open", &name))?;
            let mut first = [0; FRAME_HEADER_BYTES];
            file.read_at(&mut first, SEGMENT_HEADER_BYTES as u64)
                .map_err(PersistError::io("read", &name))?;
            if FrameHeader::decode(&first).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
