//! An index from job ids to slots.
//!
//! Ids are assigned in sequence, so jobs that are added or removed at about the same time have neighbouring ids. The
//! slots of 16 successive ids are stored together and fill one cache line, so work at both ends of a long queue touches
//! little memory.

use crate::ids::Slot;
use std::collections::BTreeMap;

/// The number of ids in a range: their slots fill a cache line of 64 bytes.
const RANGE: usize = 16;

/// Slots by job id.
#[derive(Debug, Default)]
pub(super) struct ById {
    ranges: BTreeMap<u64, [Slot; RANGE]>,
    len: usize,
}

impl ById {
    #[cfg(test)]
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, id: u64) -> Option<Slot> {
        let (range, place) = place(id);
        let slot = *self.ranges.get(&range)?.get(place)?;
        (slot != Slot::NONE).then_some(slot)
    }

    /// Returns the jobs from this id on, by id.
    pub(super) fn from(&self, id: u64) -> impl Iterator<Item = (u64, Slot)> + '_ {
        let ranges = self.ranges.range(place(id).0..);
        let all = ranges.flat_map(|(range, slots)| {
            let ids = (range * RANGE as u64)..;
            ids.zip(slots.iter().copied())
        });
        all.filter(move |(at, slot)| *at >= id && *slot != Slot::NONE)
    }

    /// Adds a new job.
    ///
    /// # Panics
    /// Panics if there is already a job with this id.
    pub(super) fn insert(&mut self, id: u64, slot: Slot) {
        let (range, place) = place(id);
        let range = self.ranges.entry(range).or_insert([Slot::NONE; RANGE]);
        let before = range.get_mut(place).map(|kept| std::mem::replace(kept, slot));
        assert_eq!(before, Some(Slot::NONE), "an id is used only once");
        self.len += 1;
    }

    /// Removes a job.
    ///
    /// # Panics
    /// Panics if there is no job with this id.
    pub(super) fn remove(&mut self, id: u64) {
        let (number, place) = place(id);
        let range = self.ranges.get_mut(&number);
        let range = range.expect("an existing job should be indexed by its id");
        let before = range.get_mut(place).map(|kept| std::mem::replace(kept, Slot::NONE));
        assert_ne!(before, Some(Slot::NONE), "an existing job is indexed by its id");
        if range.iter().all(|slot| *slot == Slot::NONE) {
            self.ranges.remove(&number);
        }
        self.len -= 1;
    }
}

/// Returns the range of an id, and its index within the range.
fn place(id: u64) -> (u64, usize) {
    let (range, place) = (id / RANGE as u64, id % RANGE as u64);
    (range, usize::try_from(place).unwrap_or_default())
}
