//! The contenders of one priority, in the order of their requests.
//!
//! Anyone may leave a line of a million, and is told at which place they are. So the contenders are kept in chunks: to add or remove one
//! moves at most the contenders of its chunk, and to find a place takes only the length of each chunk before.

use crate::ids::{Seq, Slot};

/// The maximum number of contenders in a chunk.
const CHUNK: usize = 512;

/// Contenders by sequence number.
#[derive(Clone, Debug, Default)]
pub(super) struct Rank {
    /// None is empty. Two neighbours have together more than half of [`CHUNK`].
    chunks: Vec<Vec<(Seq, Slot)>>,
    len: usize,
}

impl Rank {
    /// Returns the number of contenders.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the contenders, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Slot> + '_ {
        self.chunks.iter().flatten().map(|(_, slot)| *slot)
    }

    /// Returns the oldest contender.
    pub(super) fn first(&self) -> Option<(Seq, Slot)> {
        self.chunks.first()?.first().copied()
    }

    /// Returns how many contenders are older than `seq`.
    pub(super) fn before(&self, seq: Seq) -> usize {
        let (at, place) = self.find(seq);
        let before: usize = self.chunks.iter().take(at).map(Vec::len).sum();
        before + place
    }

    /// Adds a contender.
    pub(super) fn insert(&mut self, seq: Seq, slot: Slot) {
        self.len += 1;
        let (at, place) = self.find(seq);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return self.chunks.push(vec![(seq, slot)]);
        };
        if chunk.len() < CHUNK {
            return chunk.insert(place, (seq, slot));
        }
        // A new contender is usually the youngest, and so the first of the next chunk.
        let mut next = chunk.split_off(if place == CHUNK { CHUNK } else { CHUNK / 2 });
        match place.checked_sub(chunk.len()) {
            Some(place) => next.insert(place, (seq, slot)),
            None => chunk.insert(place, (seq, slot)),
        }
        self.chunks.insert(at + 1, next);
    }

    /// Removes a contender, and returns its slot.
    pub(super) fn remove(&mut self, seq: Seq) -> Option<Slot> {
        let (at, place) = self.find(seq);
        let chunk = self.chunks.get_mut(at)?;
        chunk.get(place).filter(|(found, _)| *found == seq)?;
        let (_, slot) = chunk.remove(place);
        self.len -= 1;
        if chunk.is_empty() {
            self.chunks.remove(at);
        }
        self.merge(at);
        self.merge(at.saturating_sub(1));
        Some(slot)
    }

    /// Appends the next chunk to this one, if the two have few contenders.
    fn merge(&mut self, at: usize) {
        let Some([chunk, next]) = self.chunks.get_mut(at..at + 2) else {
            return;
        };
        if chunk.len() + next.len() <= CHUNK / 2 {
            chunk.append(next);
            self.chunks.remove(at + 1);
        }
    }

    /// Returns the chunk in which a contender with this number is, or would be, and its place there.
    fn find(&self, seq: Seq) -> (usize, usize) {
        let begins = |chunk: &Vec<(Seq, Slot)>| chunk.first().is_some_and(|(at, _)| *at <= seq);
        let at = self.chunks.partition_point(begins).saturating_sub(1);
        let place =
            self.chunks.get(at).map_or(0, |chunk| chunk.partition_point(|(other, _)| *other < seq));
        (at, place)
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, Rank};
    use crate::ids::{Seq, Slot};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn assert_whole(rank: &Rank, known: &BTreeMap<u64, u32>) {
        assert!(rank.chunks.iter().all(|it| !it.is_empty() && it.len() <= CHUNK));
        let pairs = rank.chunks.windows(2);
        let lens = pairs.map(|pair| pair.iter().map(Vec::len).sum::<usize>());
        assert!(lens.into_iter().all(|len| len > CHUNK / 2), "chunks are not small");
        let slots: Vec<Slot> = known.values().copied().map(Slot).collect();
        assert_eq!(rank.iter().collect::<Vec<_>>(), slots);
        assert_eq!((rank.len(), rank.is_empty()), (known.len(), known.is_empty()));
        let first = known.first_key_value();
        assert_eq!(rank.first(), first.map(|(seq, slot)| (Seq(*seq), Slot(*slot))));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn contenders_come_and_leave_anywhere(
            steps in prop::collection::vec((0u64..4000, 0u32..5), 0..6000),
            younger: bool,
        ) {
            let (mut rank, mut known) = (Rank::default(), BTreeMap::new());
            for (at, (number, kind)) in (0_u32..).zip(steps) {
                // Contenders that come are the youngest, except while an index is built.
                let seq = if younger { u64::from(at) } else { number };
                if kind < 3 {
                    if known.insert(seq, at).is_none() {
                        rank.insert(Seq(seq), Slot(at));
                    } else {
                        prop_assert!(rank.remove(Seq(seq)).is_some());
                        known.remove(&seq);
                    }
                } else {
                    let gone = known.range(number..).next().map(|(seq, slot)| (*seq, *slot));
                    let (seq, slot) = gone.unwrap_or((u64::MAX, 0));
                    prop_assert_eq!(rank.before(Seq(seq)), known.range(..seq).count());
                    prop_assert_eq!(rank.remove(Seq(seq)), known.remove(&seq).map(|_| Slot(slot)));
                }
            }
            assert_whole(&rank, &known);
            while let Some((seq, slot)) = rank.first() {
                prop_assert_eq!(known.remove(&seq.0), Some(slot.0));
                prop_assert_eq!(rank.remove(seq), Some(slot));
                if known.len().is_multiple_of(97) {
                    assert_whole(&rank, &known);
                }
            }
            prop_assert!(known.is_empty());
        }
    }

    #[test]
    fn a_line_of_contenders_that_come_last_has_full_chunks() {
        let mut rank = Rank::default();
        let many = 100 * CHUNK as u64;
        (0..many).for_each(|seq| rank.insert(Seq(seq), Slot(7)));
        assert_eq!(rank.chunks.len(), 100);
        // Most of them leave: no chunk stays for the few that do not.
        (0..many).filter(|seq| !seq.is_multiple_of(CHUNK as u64)).for_each(|seq| {
            rank.remove(Seq(seq));
        });
        assert_eq!((rank.len(), rank.chunks.len()), (100, 1));
    }
}
