//! What a campaign met. Each count has a floor: a campaign that never met a thing shows nothing of it.

use std::fmt;
use std::ops::AddAssign;

/// Counts of one campaign, or of several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Kills of a program that was serving.
    pub(crate) kills: u64,
    /// Commands answered.
    pub(crate) answered: u64,
    /// Checkpoints that came to their mark in the journal.
    pub(crate) checkpoints: u64,
    /// Ends that left a snapshot half written.
    pub(crate) kills_amid: u64,
    /// Starts, of the program or of its recovery alone, that began with a snapshot.
    pub(crate) starts_from: u64,
    /// Segments of the journal that were let go.
    pub(crate) trimmed: u64,
    /// The most bytes that snapshots took.
    pub(crate) snapshot_bytes_max: u64,
}

impl Counts {
    /// Wants enough of everything for so many kills.
    pub(crate) fn check(&self) {
        let kills = self.kills;
        let enough = [
            ("checkpoints", self.checkpoints, kills / 2),
            ("kills during a checkpoint", self.kills_amid, kills / 5),
            ("starts from a snapshot", self.starts_from, kills / 2),
            ("segments let go", self.trimmed, kills / 50),
        ];
        for (what, count, floor) in enough {
            assert!(count >= floor, "{what}: {count} of {floor} wanted: {self}");
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            kills,
            answered,
            checkpoints,
            kills_amid,
            starts_from,
            trimmed,
            snapshot_bytes_max,
        } = other;
        self.kills += kills;
        self.answered += answered;
        self.checkpoints += checkpoints;
        self.kills_amid += kills_amid;
        self.starts_from += starts_from;
        self.trimmed += trimmed;
        self.snapshot_bytes_max = self.snapshot_bytes_max.max(snapshot_bytes_max);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} kills, {} commands answered, {} checkpoints, {} kills during one, {} starts from a snapshot, \
             {} segments let go, at most {} KiB of snapshots",
            self.kills,
            self.answered,
            self.checkpoints,
            self.kills_amid,
            self.starts_from,
            self.trimmed,
            self.snapshot_bytes_max >> 10,
        )
    }
}
