//! Asserts the invariants of `state.rs` on the whole lock state. Slow; for tests only.

use crate::actors::lock::of_process::BoundEntries;
use crate::actors::lock::state::State;
use crate::ids::{Slot, Token};
use std::collections::BTreeSet;

impl State {
    /// Asserts that the index of bound entries is correct.
    pub(super) fn assert_bound(&self) {
        let mut bound = BoundEntries::default();
        for (slot, entry) in self.entries.iter() {
            bound.insert(slot, entry);
        }
        assert_eq!(self.bound, bound, "bound entries are indexed");
    }

    /// Asserts that every entry is in exactly the indexes that it belongs in, that lines are in order, and that the
    /// stored counts are correct.
    pub(super) fn assert_whole(&self, high_first: bool) {
        let mut locks = BTreeSet::new();
        let mut contenders = 0;
        let mut lines = 0;
        for (slot, entry) in self.entries.iter() {
            let [key, index, owner] = [entry.key(), entry.index(), entry.owner()];
            assert_eq!(self.find(key, index, owner), Some(slot), "an entry is found by its names");
            assert_eq!(
                self.of_owner(owner).filter(|other| *other == slot).count(),
                1,
                "an entry is in the ring of its owner once"
            );
            let holder = self.holder(key, index).expect("a lock with entries should have an owner");
            if entry.is_owner() {
                assert!(entry.client().polls(), "nobody waits for the client of an owner");
                assert_eq!(holder, slot, "a lock has one owner");
                assert!(locks.insert((key, index)), "a lock has one owner");
                assert_eq!(
                    self.of_key(key).filter(|other| *other == slot).count(),
                    1,
                    "a lock is in the ring of its key once"
                );
                lines += usize::from(self.assert_line(slot, high_first));
            } else {
                contenders += 1;
                assert_eq!(entry.token(), Token(0), "a contender has no token");
                assert_eq!(entry.of_key.next, slot, "a contender is not in the ring of its key");
                assert!(
                    self.contenders(holder, high_first).any(|other| other == slot),
                    "a contender is in the line for its lock"
                );
            }
            assert_eq!(
                entry.first(),
                self.entries[holder].first(),
                "all entries of a lock have the same first request"
            );
            self.assert_rings(owner, key);
        }
        let with_index = locks.iter().filter(|(_, index)| !index.is_empty());
        let keys: BTreeSet<_> = with_index.map(|(key, _)| key).collect();
        assert_eq!(
            self.locks.len(),
            locks.len(),
            "the index of locks contains only locks with an owner"
        );
        assert_eq!(
            self.keys.len(),
            keys.len(),
            "the index of keys contains only keys with a nonempty index"
        );
        assert_eq!(self.contenders, contenders, "the stored number of contenders is correct");
        assert_eq!(
            self.lines.len(),
            lines,
            "there is a line for each contended lock and for no other lock"
        );
        self.entries.assert_whole();
    }

    /// Returns whether this owner has contenders, after asserting that their line is in order.
    fn assert_line(&self, holder: Slot, high_first: bool) -> bool {
        let line: Vec<Slot> = self.contenders(holder, high_first).collect();
        let standing = |slot: &Slot| {
            let entry = &self.entries[*slot];
            let rank = if high_first { 255 - entry.priority } else { entry.priority };
            (rank, entry.seq)
        };
        assert!(
            line.is_sorted_by_key(standing),
            "a line is ordered by priority, then by sequence number"
        );
        for (slot, place) in line.iter().zip(2..) {
            assert_eq!(
                self.place(*slot, high_first),
                place,
                "`place` returns the position in line"
            );
            assert_eq!(
                self.entries[*slot].lock(),
                self.entries[holder].lock(),
                "all contenders in a line wait for the same lock"
            );
        }
        let Some(kept) = self.lines.get(&holder) else {
            return false;
        };
        assert_eq!(kept.len, line.len(), "the stored length of a line is correct");
        let away = |slot: &Slot| self.entries[*slot].is_away();
        assert_eq!(
            kept.away,
            line.iter().filter(|slot| away(slot)).count(),
            "the stored number of contenders that are away is correct"
        );
        let is_kept = kept.away > 0;
        assert!(is_kept || kept.present.is_empty(), "a line does not store that nobody is away");
        assert!(kept.present.values().all(|rank| !rank.is_empty()), "no rank is empty");
        let present: Vec<Slot> = kept.present(high_first).collect();
        let expected: Vec<Slot> = line.iter().copied().filter(|slot| !away(slot)).collect();
        assert_eq!(present, expected, "a line knows who is not away");
        let (there, gone): (Vec<_>, Vec<_>) = line.iter().copied().partition(|slot| !away(slot));
        let heirs: Vec<Slot> = self.heirs(holder, high_first).collect();
        assert_eq!(heirs, [there, gone].concat(), "who is there comes before who is away");
        assert!(kept.ranks.values().all(|rank| !rank.is_empty()), "no rank is empty");
        true
    }

    /// Asserts that the ring of an owner and the ring of a key contain only entries that belong in them, in order, and that
    /// the index of keys refers to the first lock of the key.
    fn assert_rings(&self, owner: &[u8], key: &[u8]) {
        let entry = |slot: &Slot| &self.entries[*slot];
        let of_owner: Vec<Slot> = self.of_owner(owner).collect();
        assert!(of_owner.iter().all(|slot| entry(slot).owner() == owner));
        assert!(
            of_owner.is_sorted_by_key(|slot| entry(slot).seq),
            "the ring of an owner is ordered by age"
        );
        let of_key: Vec<Slot> = self.of_key(key).collect();
        assert!(of_key.iter().all(|slot| entry(slot).key() == key && entry(slot).is_owner()));
        assert!(
            of_key.is_sorted_by_key(|slot| entry(slot).first()),
            "the ring of a key is ordered by first request"
        );
        let has_place = self.key_head(key);
        let with_index = of_key.iter().any(|slot| !entry(slot).index().is_empty());
        assert_eq!(
            has_place,
            of_key.first().copied().filter(|_| with_index),
            "a key is in the index of keys, with its first lock, exactly while it has a nonempty index"
        );
    }
}
