//! Checks records on their way to the journal: a number is issued once in the life of a disk, and time never goes back.

use crate::coverage::Coverage;
use crate::violation::{Promise, Violation, ensure};
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::persist::format::{Batch, FRAME_HEADER_BYTES, FrameHeader, Kind, Part};
use sexton::persist::mark::Mark;

/// The observations on all nodes that ran on this disk.
#[derive(Debug, Default)]
pub(crate) struct Tap {
    /// The largest number of an entry or of a poisoned message, including those that a crash removed. Numbers of marks do
    /// not count: no client sees them, so numbers that a crash removed at startup may be issued again.
    given: Seq,
    last: Seq,
    last_at: Timestamp,
    long_records: u64,
    clock_marks: u64,
    reserve_marks: u64,
    start_marks: u64,
}

impl Tap {
    /// Handles the startup of a node on the remaining log.
    pub(crate) fn start(&mut self, last: Seq, last_at: Timestamp) {
        self.last = last;
        self.last_at = last_at;
    }

    /// Checks every record of a batch.
    pub(crate) fn pass(&mut self, batch: &Batch) -> Result<(), Violation> {
        let mut offset = 0;
        while let Some(header) = FrameHeader::decode(batch.bytes_from(offset)) {
            if header.kind == Kind::Mark {
                self.count_mark(batch.bytes_from(offset + FRAME_HEADER_BYTES));
            }
            offset += header.size as usize;
            match header.part {
                Part::Whole => {}
                Part::First => self.long_records += 1,
                Part::Middle | Part::Last => continue,
            }
            self.look(&header)?;
        }
        Ok(())
    }

    fn look(&mut self, header: &FrameHeader) -> Result<(), Violation> {
        let FrameHeader { seq, at, kind, .. } = *header;
        if kind != Kind::Mark {
            ensure(seq > self.given, Promise::GivenOnce, || {
                format!("number {seq} is issued again, {} was issued before", self.given)
            })?;
            self.given = seq;
        }
        ensure(seq > self.last, Promise::GivenOnce, || {
            format!("record {seq} after {}", self.last)
        })?;
        ensure(at >= self.last_at, Promise::TimeForward, || {
            format!("record {seq} at {at}, after one at {}", self.last_at)
        })?;
        self.last = seq;
        self.last_at = at;
        Ok(())
    }

    fn count_mark(&mut self, payload: &[u8]) {
        let mark: Mark = rmp_serde::from_slice(payload).expect("marks decode");
        match mark {
            Mark::Start { .. } => self.start_marks += 1,
            Mark::Reserve { .. } => self.reserve_marks += 1,
            Mark::Clock { .. } => self.clock_marks += 1,
            Mark::Stop | Mark::Rules { .. } | Mark::Drain { .. } | Mark::Checkpoint { .. } => {}
        }
    }

    /// Adds the counts to the coverage.
    pub(crate) fn count(&self, coverage: &mut Coverage) {
        coverage.long_records += self.long_records;
        coverage.clock_marks += self.clock_marks;
        coverage.reserves_renewed += self.reserve_marks - self.start_marks;
    }
}
