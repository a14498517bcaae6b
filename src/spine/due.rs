//! When a checkpoint is due.

use crate::spine::ledger::{Appended, CheckpointThreshold};

/// The rules for when a checkpoint is due: when the journal that startup would have to replay is large compared with the snapshot that it
/// would load. The cost of checkpoints is therefore proportional to the amount of journal written, however large the state is.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// A checkpoint is due once this number of entries has been appended since the last one.
    pub records: u64,
    /// It is also due once this number of journal bytes has been appended since the last one.
    pub bytes: u64,
    /// In either case, it is not due before the journal bytes reach this percentage of the newest snapshot's content.
    pub growth_percent: u32,
    /// How long the journal is kept after both snapshots cover it, in milliseconds of node time: for tools that show what happened.
    pub history_ms: u64,
    /// The maximum size of what is kept for that, in bytes. If 0, nothing is kept; nor is it while the disk is low on space.
    pub history_bytes_max: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            records: 200_000,
            bytes: 64 << 20,
            growth_percent: 100,
            history_ms: 24 * 3_600_000,
            history_bytes_max: 256 << 20,
        }
    }
}

impl Rules {
    /// Returns the totals of appended entries and bytes at which the next checkpoint is due. `covered` are the totals that the newest
    /// snapshot covers, and `loaded` is its size in bytes.
    pub(super) fn threshold_after(&self, covered: Appended, loaded: u64) -> CheckpointThreshold {
        let share = u128::from(loaded) * u128::from(self.growth_percent);
        let share = u64::try_from(share.div_ceil(100)).unwrap_or(u64::MAX);
        CheckpointThreshold {
            records: covered.records.saturating_add(self.records),
            bytes: covered.bytes.saturating_add(self.bytes),
            bytes_min: covered.bytes.saturating_add(share),
        }
    }

    /// Returns rules that make a checkpoint due after every `records` entries, or after the default number of bytes if that is reached
    /// first, whatever the size of the state.
    pub fn every(records: u64) -> Self {
        Self { records, growth_percent: 0, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::Rules;
    use crate::spine::ledger::Appended;

    #[test]
    fn a_checkpoint_is_due_after_many_records_or_bytes_that_are_much_beside_the_snapshot() {
        let rules = Rules { records: 100, bytes: 1_000, growth_percent: 50, ..Rules::default() };
        let covered = Appended { records: 10, bytes: 200 };
        // Half of the 401 bytes loaded, rounded up, is 201.
        let threshold = rules.threshold_after(covered, 401);
        let due = |records, bytes| Appended { records, bytes }.is(threshold);
        assert!(!due(10, 200), "nothing was appended since the checkpoint");
        assert!(!due(109, 1_199), "one short of both thresholds");
        assert!(due(110, 401) && due(20, 1_200));
        assert!(!due(110, 400), "few bytes compared with the snapshot that startup loads");
        assert!(rules.threshold_after(covered, u64::MAX).bytes_min > u64::MAX / 2);
    }
}
