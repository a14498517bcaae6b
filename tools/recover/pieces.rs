//! One pass over a damaged journal: finds out which records can be applied after the snapshot, and where recovery stops.
//!
//! The pass takes the journal in pieces: readable records, and gaps of bytes that are not records. It changes no file.

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

/// The state of one pass over a journal.
pub(super) struct Pieces {
    /// The state after the kept records, as startup would rebuild it.
    pub(super) replay: Replay,
    /// Decodes lost records for the report, without applying them.
    reading: Replay,
    /// The last sequence number included in the snapshot.
    begun: Seq,
    /// The sequence numbers given with `--skip`, at which a record or a gap may be dropped.
    skips: BTreeSet<Seq>,
    /// The records to drop because an earlier pass could not apply them.
    excluded: BTreeSet<Seq>,
    /// The sequence number from which nothing is kept, if recovery stops before the end.
    pub(super) stop: Option<Seq>,
    /// The sequence numbers at which a record or a gap was dropped. A number given with `--skip` that is not among them had no effect.
    pub(super) used: BTreeSet<Seq>,
    /// The number of records that are kept, without those that the snapshot includes.
    pub(super) kept: u64,
    /// The last sequence number that is kept, by the snapshot or in the journal.
    pub(super) last: Seq,
    /// The node time at `last`.
    pub(super) at: Timestamp,
    /// The losses, at most [`LOST_MAX`].
    pub(super) lost: Vec<Lost>,
    /// The number of readable records that are lost, including those that are not in `lost`.
    pub(super) lost_records: u64,
    /// The exclusive upper bound of the sequence numbers in use, as far as the readable records and the snapshots show.
    pub(super) known: Seq,
    /// The number of unreadable or missing bytes, which may have held more records. Missing segments count as [`SEGMENT_BYTES`].
    pub(super) unread: u64,
    /// The gaps since the last record, at most [`LOST_MAX`].
    pending: Vec<Gap>,
    /// The sequence number of the last record, kept or lost.
    previous: Seq,
    /// Whether the journal is known to continue the snapshot, or a gap between the two has already been added to the losses.
    joined: bool,
}

/// The error if a record that may be skipped cannot be applied, with its sequence number: the pass must be repeated without that record.
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

    /// Processes the next piece of the journal. Fails if the pass must be repeated.
    pub(super) fn take(&mut self, piece: Piece) -> Result<(), Again> {
        match piece {
            Piece::Gap(gap) => {
                self.unread += if gap.bytes > 0 { gap.bytes } else { SEGMENT_BYTES };
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
            // The snapshot includes this record, and so everything that the unreadable bytes before it contained.
            self.pending.clear();
            self.joined = true;
            return Ok(());
        }
        if !std::mem::replace(&mut self.joined, true) {
            self.pending.clear();
            self.missing("the journal begins later", Some(record.seq));
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

    /// Ends the pass. According to the snapshots, the journal contained records at least up to `reaches`.
    pub(super) fn end(&mut self, reaches: Seq) {
        self.known = self.known.max(Seq(reaches.0.saturating_add(1)));
        if !self.pending.is_empty() {
            self.gap(None);
        } else if self.previous < reaches {
            self.missing("the journal ends earlier", Some(Seq(reaches.0 + 1)));
        }
    }

    /// Returns a bound above all sequence numbers that may have been used.
    pub(super) fn bound(&self) -> Seq {
        // An unreadable record took at least eight bytes for each sequence number that it used.
        let unread = if self.lost.iter().any(Lost::is_unread) {
            self.unread / 8 + 2 * RESERVE_STEP
        } else {
            0
        };
        Seq(self.known.0.saturating_add(unread))
    }

    /// Adds a missing part of the journal to the losses. `next` is the sequence number at which the journal continues.
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

    /// Adds the pending gaps to the losses, unless the sequence numbers before and after them are consecutive, so that no record is
    /// missing. `next` is the record after the gaps, if there is one. If a record follows the gaps and they may not be skipped, recovery
    /// stops before them.
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

    /// Decodes a lost record for the report. If that fails, the line has only its number, time and actor.
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
