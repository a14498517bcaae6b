//! Plans the recovery of a damaged data directory: which records would be kept, and which would be lost.

use crate::isolated::Copies;
use crate::recover::pieces::{Again, Pieces};
use crate::report::Failure;
use serde::Serialize;
use sexton::clock::Timestamp;
use sexton::ids::Seq;
use sexton::persist::PersistError;
use sexton::persist::disk::RealDisk;
use sexton::persist::journal::salvage::{Piece, salvage};
use sexton::persist::journal::segment;
use sexton::persist::snapshots::{Seal, SlotId};
use sexton::replay::{Line, Replay};
use sexton::spine::recovery::{SnapshotSurvey, look};
use std::collections::BTreeSet;
use std::path::Path;

/// The maximum number of losses in [`Plan::lost`]. Beyond it, lost records are only counted, and unreadable bytes are left out.
pub(super) const LOST_MAX: usize = 1000;

/// What a recovery would keep and lose.
pub(crate) struct Plan {
    /// The snapshot that is kept, if one can be read.
    pub(super) base: Option<(SlotId, Seal)>,
    /// The number of the first segment of the new journal.
    pub(super) first_segment: u64,
    /// The readable records that are dropped because they were named with `--skip`.
    pub(super) excluded: BTreeSet<Seq>,
    /// The sequence number from which nothing is kept, if recovery stops before the end.
    pub(super) stop: Option<Seq>,
    /// The number of records that are kept in the new journal. Those that the snapshot includes are not counted.
    pub(super) kept: u64,
    /// The last sequence number that is kept, in the snapshot or in the new journal; 0 if nothing is kept.
    pub(super) last: Seq,
    /// The node time at `last`.
    pub(super) at: Timestamp,
    /// The losses, at most [`LOST_MAX`].
    pub(super) lost: Vec<Lost>,
    /// The number of readable records that are lost, including those that are not listed.
    pub(super) lost_records: u64,
    /// The reason why nothing can be kept; `None` if something can.
    pub(super) nothing: Option<String>,
    /// The sequence number at which numbering continues. It is above all numbers that may have been used.
    pub(super) bound: Seq,
}

/// Something that is lost in a recovery.
#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Lost {
    /// Bytes that are unreadable or missing.
    Unread {
        file: String,
        offset: u64,
        bytes: u64,
        found: String,
        /// The first sequence number that the bytes may have held.
        from: Seq,
        /// The last sequence number that the bytes may have held; `None` if no record follows them.
        to: Option<Seq>,
        /// The record that the bytes seem to contain, if it can be decoded although its checksum is wrong or its last parts are missing.
        seems: Option<Line>,
    },
    /// A readable record that is not kept.
    Record {
        line: Line,
        /// Why it cannot be applied. `None` if it is dropped only because recovery stops before it or skips it.
        cause: Option<String>,
    },
}

impl Lost {
    pub(super) fn is_unread(&self) -> bool {
        matches!(self, Self::Unread { .. })
    }
}

impl Plan {
    /// Returns whether anything is lost.
    pub(super) fn loses(&self) -> bool {
        self.nothing.is_some() || !self.lost.is_empty()
    }

    /// Returns whether the record with this sequence number goes into the new journal. A record that the snapshot includes does not.
    pub(super) fn keeps(&self, seq: Seq) -> bool {
        let begun = self.base.as_ref().map_or(Seq(0), begun);
        self.nothing.is_none()
            && seq > begun
            && self.stop.is_none_or(|stop| seq < stop)
            && !self.excluded.contains(&seq)
    }
}

/// Returns the last sequence number included in a snapshot.
fn begun((_, seal): &(SlotId, Seal)) -> Seq {
    seal.manifest.begun
}

/// Makes a plan, without changing anything. Fails if the directory cannot be read, or if one of `skips` has no effect because recovery
/// would not stop at that sequence number.
pub(crate) fn make(data: &Path, skips: &BTreeSet<Seq>) -> Result<Plan, Failure> {
    let disk = RealDisk::new(data);
    let copies = Copies::of(data)?;
    let SnapshotSurvey { sealed, wrong, is_foreign: _, reaches } = look(&disk, copies.slots())?;
    let reserved = sealed.iter().map(|(_, seal)| seal.manifest.reserved);
    let reserved = reserved.max().unwrap_or_default();
    let reads = |base: &(SlotId, Seal)| {
        let (slot, seal) = base;
        Replay::default().load(copies.slots(), (*slot, seal)).is_ok()
    };
    let base = sealed.into_iter().find(reads);
    let first = segment::ordinals(&disk)?.first().copied();
    let nothing = (base.is_none() && first != Some(1)).then(|| {
        let wrong = wrong.join("; ");
        format!(
            "neither snapshot can be read, and the beginning of the journal no longer exists: {wrong}"
        )
    });
    let mut excluded = BTreeSet::new();
    let pieces = loop {
        let mut replay = Replay::default();
        let (mut after, mut at) = (Seq(0), Timestamp(0));
        if let Some((slot, seal)) = &base {
            replay.load(copies.slots(), (*slot, seal))?;
            (after, at) = (seal.manifest.begun, seal.manifest.at);
        }
        let passes = (skips.clone(), excluded.clone());
        let mut pieces = Pieces::after((replay, after, at), (first == Some(1), reserved), passes);
        if nothing.is_some() {
            pieces.stop = Some(Seq(0));
        }
        match go_through(&disk, &mut pieces) {
            Ok(()) => {
                pieces.end(reaches);
                break pieces;
            }
            Err(Stopped::Again(Again(seq))) => drop(excluded.insert(seq)),
            Err(Stopped::Persist(error)) => return Err(error.into()),
        }
    };
    if let Some(unused) = skips.difference(&pieces.used).next() {
        let words = format!("--skip {unused}: recovery does not stop there");
        let help = "`sexton recover --dry-run` shows where it stops";
        return Err(Failure::usage(words).help(help));
    }
    Ok(Plan {
        // A journal without a snapshot must begin with segment 1; one with a snapshot must not.
        first_segment: base.as_ref().map_or(1, |_| first.unwrap_or(1).max(2)),
        bound: pieces.bound(),
        base,
        excluded,
        stop: pieces.stop,
        kept: pieces.kept,
        last: pieces.last,
        at: pieces.at,
        lost: pieces.lost,
        lost_records: pieces.lost_records,
        nothing,
    })
}

enum Stopped {
    Again(Again),
    Persist(PersistError),
}

impl From<PersistError> for Stopped {
    fn from(error: PersistError) -> Self {
        Self::Persist(error)
    }
}

fn go_through(disk: &RealDisk, pieces: &mut Pieces) -> Result<(), Stopped> {
    salvage(disk, &mut |piece: Piece| pieces.take(piece).map_err(Stopped::Again))
}
