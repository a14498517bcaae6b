//! The journal piece by piece, as a plan goes through it: what can be carried out after the snapshot, and where that stops.

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

/// How much of what is not there may have been.
const SEGMENT_BYTES: u64 = 64 << 20;

/// A way through the journal.
pub(super) struct Pieces {
    /// What is kept so far, as a start would have it.
    pub(super) replay: Replay,
    /// Makes lines of what is lost.
    reading: Replay,
    /// What the snapshot holds.
    begun: Seq,
    /// Where recovery may pass over what stops it, and entries that it must not carry out.
    skips: BTreeSet<Seq>,
    excluded: BTreeSet<Seq>,
    /// Nothing is kept from this number on.
    pub(super) stop: Option<Seq>,
    pub(super) used: BTreeSet<Seq>,
    pub(super) kept: u64,
    /// The last record that is kept, and its time.
    pub(super) last: Seq,
    pub(super) at: Timestamp,
    pub(super) lost: Vec<Lost>,
    pub(super) lost_records: u64,
    /// Numbers below this may have been given, as far as what reads says so.
    pub(super) known: Seq,
    /// Bytes that may have held more.
    pub(super) unread: u64,
    pending: Vec<Gap>,
    previous: Seq,
    /// Whether the journal reaches back far enough.
    joined: bool,
}

/// An entry could not be carried out that may be passed over: all has to be begun again without it.
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

    /// Takes the next piece.
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
            // Whatever does not read before it was in the snapshot.
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

    /// The journal ends here, and is known to have gone on to `reaches`.
    pub(super) fn end(&mut self, reaches: Seq) {
        self.known = self.known.max(Seq(reaches.0.saturating_add(1)));
        if !self.pending.is_empty() {
            self.gap(None);
        } else if self.previous < reaches {
            self.missing("the journal ends before it", Some(Seq(reaches.0 + 1)));
        }
    }

    /// No number is given again that may have been.
    pub(super) fn bound(&self) -> Seq {
        // A number stands for eight bytes at least, also in an entry that takes many.
        let unread = if self.lost.iter().any(Lost::is_unread) {
            self.unread / 8 + 2 * RESERVE_STEP
        } else {
            0
        };
        Seq(self.known.0.saturating_add(unread))
    }

    /// What is not there at all, up to a record that is.
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

    /// Bytes that do not read, between the last record and the next: numbers that follow one another leave no room for any.
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

    /// A record as far as it can be understood.
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
