//! The pass over the journal that makes a plan: finds which records can be applied after the snapshot, and where that stops.

use crate::recover::plan::{LOST_MAX, Lost};
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::persist::format::Kind;
use sexton::persist::journal::salvage::{Gap, Owned, Piece};
use sexton::persist::mark::Mark;
use sexton::replay::{Line, Replay};
use sexton::spine::ledger::RESERVE_STEP;
use sexton::spine::recovery::decode_mark;
use std::collections::BTreeSet;

/// The size assumed for a missing segment, in bytes.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The state of a pass.
pub(super) struct Pieces {
    /// The state after the kept records, as a start would have it.
    pub(super) replay: Replay,
    /// Decodes records that are lost.
    reading: Replay,
    /// The last sequence number included in the snapshot.
    begun: Seq,
    /// The positions at which recovery may skip a record, and records that must not be applied.
    skips: BTreeSet<Seq>,
    excluded: BTreeSet<Seq>,
    /// The sequence number from which nothing is kept.
    pub(super) stop: Option<Seq>,
    pub(super) used: BTreeSet<Seq>,
    pub(super) kept: u64,
    /// The last kept record, and its time.
    pub(super) last: Seq,
    pub(super) at: Timestamp,
    pub(super) lost: Vec<Lost>,
    pub(super) lost_records: u64,
    /// The bound below which sequence numbers may have been used, according to the readable records.
    pub(super) known: Seq,
    /// The number of unreadable bytes, which may have held more records.
    pub(super) unread: u64,
    pending: Vec<Gap>,
    previous: Seq,
    /// Whether the journal continues the snapshot without a gap.
    joined: bool,
}

/// A record that may be skipped could not be applied, so the pass must be repeated without it.
pub(super) struct Again(pub(super) Seq);

impl Pieces {
    pub(super) fn after(
        (replay, begun, at): (Replay, Seq, Timestamp),
        (joined, reserved): (bool, Seq),
        (skips, excluded): (BTreeSet<Seq>, BTreeSet<Seq>),
    ) -> Self {
        let mut reading = Replay::default();
        reading.read_only();
        Self {
            replay,
            reading,
            begun,
            skips,
            excluded,
            stop: None,
            used: BTreeSet::new(),
            kept: 0,
            last: begun,
            at,
            lost: Vec::new(),
            lost_records: 0,
            known: reserved,
            unread: 0,
            pending: Vec::new(),
            previous: begun,
            joined,
        }
    }

    /// Processes the next piece.
    pub(super) fn take(&mut self, piece: Piece) -> Result<(), Again> {
        match piece {
            Piece::Gap(gap) => {
                self.unread += if gap.bytes > 0 {
                    gap.bytes
                } else {
                    SEGMENT_BYTES
                };
                if self.pending.len() < LOST_MAX {
                    self.pending.push(gap);
                }
                Ok(())
            }
            Piece::Rest(seq) => {
                self.joined |= seq <= self.begun;
                Ok(())
            }
            Piece::Record(record) => self.record(&record),
        }
    }

    fn record(&mut self, record: &Owned) -> Result<(), Again> {
        self.known = self.known.max(Seq(record.seq.0.saturating_add(1)));
        if record.kind == Kind::Mark
            && let Ok(Mark::Reserve { bound }) = decode_mark(&record.record())
        {
            self.known = self.known.max(bound);
        }
        if record.seq <= self.begun {
            // Unreadable bytes before this record were covered by the snapshot.
            self.pending.clear();
            self.joined = true;
            return Ok(());
        }
        if !std::mem::replace(&mut self.joined, true) {
            self.pending.clear();
            self.missing("the journal begins after it", Some(record.seq));
        }
        if !self.pending.is_empty() {
            self.gap(Some(record.seq));
        }
        self.previous = record.seq;
        if self.stop.is_some() || self.excluded.contains(&record.seq) {
            self.used.insert(record.seq);
            self.lose(record, None);
            return Ok(());
        }
        let carried_out = if record.at < self.at {
            Err(format!("time goes back from {} to {}", self.at, record.at))
        } else {
            let done = self.replay.record(&record.record());
            done.map(drop).map_err(|error| error.to_string())
        };
        match carried_out {
            Ok(()) => {
                self.kept += 1;
                (self.last, self.at) = (record.seq, record.at);
                Ok(())
            }
            Err(_) if self.skips.contains(&record.seq) => Err(Again(record.seq)),
            Err(cause) => {
                self.stop = Some(record.seq);
                self.lose(record, Some(cause));
                Ok(())
            }
        }
    }

    /// Ends the pass. The journal is known to have reached `reaches`.
    pub(super) fn end(&mut self, reaches: Seq) {
        self.known = self.known.max(Seq(reaches.0.saturating_add(1)));
        if !self.pending.is_empty() {
            self.gap(None);
        } else if self.previous < reaches {
            self.missing("the journal ends before it", Some(Seq(reaches.0 + 1)));
        }
    }

    /// Returns a bound above all sequence numbers that may have been used.
    pub(super) fn bound(&self) -> Seq {
        // A sequence number takes at least eight bytes, even if a record uses several numbers.
        let unread = if self.lost.iter().any(Lost::is_unread) {
            self.unread / 8 + 2 * RESERVE_STEP
        } else {
            0
        };
        Seq(self.known.0.saturating_add(unread))
    }

    /// Notes a missing part, up to the next existing record.
    fn missing(&mut self, found: &str, next: Option<Seq>) {
        self.unread += SEGMENT_BYTES;
        self.pending.push(Gap {
            file: "journal".to_owned(),
            offset: 0,
            bytes: 0,
            found: found.to_owned(),
            seems: None,
        });
        self.gap(next);
    }

    /// Notes unreadable bytes before the record `next`. If the numbers are consecutive, nothing was lost.
    fn gap(&mut self, next: Option<Seq>) {
        let gaps = std::mem::take(&mut self.pending);
        let from = Seq(self.previous.0.saturating_add(1));
        if next == Some(from) {
            return;
        }
        if self.stop.is_none() && next.is_some() {
            if self.skips.contains(&from) {
                self.used.insert(from);
            } else {
                self.stop = Some(from);
            }
        }
        let at = self.at;
        let fits = |seems: &Owned| {
            seems.seq >= from && next.is_none_or(|next| seems.seq < next) && seems.at >= at
        };
        for gap in gaps {
            let seems = gap.seems.filter(|seems| fits(seems));
            let line = seems.map(|seems| self.line(&seems));
            self.note(Lost::Unread {
                file: gap.file,
                offset: gap.offset,
                bytes: gap.bytes,
                found: gap.found,
                from,
                to: next.map(|next| Seq(next.0 - 1)),
                seems: line,
            });
        }
    }

    fn lose(&mut self, record: &Owned, cause: Option<String>) {
        self.lost_records += 1;
        let line = self.line(record);
        self.note(Lost::Record { line, cause });
    }

    fn note(&mut self, lost: Lost) {
        if self.lost.len() < LOST_MAX {
            self.lost.push(lost);
        }
    }

    /// Decodes a record as far as possible.
    fn line(&mut self, record: &Owned) -> Line {
        let read = self.reading.record(&record.record());
        read.unwrap_or_else(|_| {
            let kind = sexton::replay::Kind::Entry;
            let name = sexton::actors::name_of(record.actor);
            let mut line = Line::new(kind, name.unwrap_or("node"));
            (line.seq, line.at) = (Some(record.seq), Some(record.at));
            line
        })
    }
}
