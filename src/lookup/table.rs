//! Look-up from a name to a slot, where the name stands in the item itself.
//!
//! A small table is one piece. A larger one is sharded, because one large table stalls everyone when it grows; and its
//! shards have unequal shares of the names, because equal ones would all grow at the same moment. Each doubles when it
//! is full, the largest first, the smallest when there are twice as many names. So at any number of names there is
//! room for at most half as many more, and what one shard leaves behind is used again by what grows next. A name's
//! hash is kept beside its slot, as far as a shard needs it to grow: reading a million names for that would take longer
//! than all else that is done with them.
//! Never iterated: order comes from elsewhere.

use crate::ids::Slot;
use hashbrown::HashTable;
use std::hash::BuildHasher as _;

const SHARDS: usize = 256;
/// Names in a table of one piece. Where many stand in line for few locks, each lock has such a table.
const PIECE: usize = 1024;

/// A slot, and what its shard needs of the hash of its name.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u32,
    slot: Slot,
}

impl Place {
    fn new(hash: u64, slot: Slot) -> Self {
        let (tag, place) = (hash >> TAG_SHIFT, hash & PLACE_BITS);
        let kept = tag << PLACE_BITS.count_ones() | place;
        Self {
            hash: u32::try_from(kept).expect("7 bits and 25"),
            slot,
        }
    }

    /// The hash, but for the bits that only tell the shard.
    fn hash(self) -> u64 {
        let kept = u64::from(self.hash);
        (kept >> PLACE_BITS.count_ones()) << TAG_SHIFT | kept & PLACE_BITS
    }
}

/// The bits of a hash above this are what a table inside compares first,
const TAG_SHIFT: u32 = 57;
/// and these say where it begins to look: enough for 2^25 names in a shard.
const PLACE_BITS: u64 = (1 << 25) - 1;

/// Slots by the hash of a name.
#[derive(Debug)]
pub struct Table {
    /// One, or `SHARDS`.
    shards: Vec<HashTable<Place>>,
    /// Not the fast one: with some seeds that puts numbers and other short names into few of the shards.
    hasher: foldhash::quality::RandomState,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            shards: vec![HashTable::new()],
            hasher: foldhash::quality::RandomState::default(),
        }
    }
}

impl Table {
    /// The slot whose item has this name, as `is` tells.
    pub fn find(&self, name: &impl std::hash::Hash, is: impl Fn(Slot) -> bool) -> Option<Slot> {
        let hash = self.hasher.hash_one(name);
        self.shards
            .get(self.shard(hash))?
            .find(hash, |place| is(place.slot))
            .map(|place| place.slot)
    }

    /// Adds a slot under a name that has none. `name_of` gives the name of an item already there.
    pub fn insert<N: std::hash::Hash>(
        &mut self,
        name: &N,
        slot: Slot,
        name_of: impl Fn(Slot) -> N,
    ) {
        if let [piece] = self.shards.as_slice()
            && piece.len() == PIECE
        {
            self.divide(&name_of);
        }
        let hash = self.hasher.hash_one(name);
        let shard = self.shard(hash);
        if let Some(shard) = self.shards.get_mut(shard) {
            shard.insert_unique(hash, Place::new(hash, slot), |place| place.hash());
        }
    }

    /// Makes room for so many names in all, while there is none.
    pub fn reserve(&mut self, names: usize) {
        if names > PIECE {
            self.shards.resize_with(SHARDS, HashTable::new);
        }
        let one = self.shards.len() == 1;
        for (shard, place) in self.shards.iter_mut().zip(0..) {
            let room = if one {
                names
            } else {
                usize::try_from((names as u64 * share(place)) >> 16).unwrap_or(0)
            };
            shard.reserve(room, |_| unreachable!("an empty table has nothing to move"));
        }
    }

    /// Puts another slot in the place of one; false if it is not there.
    pub fn replace(&mut self, name: &impl std::hash::Hash, old: Slot, new: Slot) -> bool {
        let hash = self.hasher.hash_one(name);
        let shard = self.shard(hash);
        let found = self
            .shards
            .get_mut(shard)
            .and_then(|s| s.find_mut(hash, |place| place.slot == old));
        found.map(|place| place.slot = new).is_some()
    }

    /// Removes a slot; false if it is not there.
    pub fn remove(&mut self, name: &impl std::hash::Hash, slot: Slot) -> bool {
        let hash = self.hasher.hash_one(name);
        let shard = self.shard(hash);
        let entry = self
            .shards
            .get_mut(shard)
            .map(|s| s.find_entry(hash, |place| place.slot == slot));
        match entry {
            Some(Ok(entry)) => {
                entry.remove();
                true
            }
            Some(Err(_)) | None => false,
        }
    }

    /// Makes shards of the one piece.
    fn divide<N: std::hash::Hash>(&mut self, name_of: &impl Fn(Slot) -> N) {
        let pieces = std::mem::take(&mut self.shards);
        self.shards.resize_with(SHARDS, HashTable::new);
        let hasher = &self.hasher;
        for place in pieces.into_iter().flatten() {
            let hash = hasher.hash_one(name_of(place.slot));
            if let Some(shard) = self.shards.get_mut(shard(hash)) {
                shard.insert_unique(hash, place, |place| place.hash());
            }
        }
    }

    /// How many names there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    fn shard(&self, hash: u64) -> usize {
        if self.shards.len() == 1 {
            0
        } else {
            shard(hash)
        }
    }
}

/// The shard of a hash: of a number h from 0 to 1 it is h + h * (1 - h) / 3 of the way through the shards, so that the
/// last has twice the share of the first, and the others lie evenly between, by ratio.
///
/// h is made of the 32 bits below the seven highest: those the table inside compares, and the low ones are its place.
const fn shard(hash: u64) -> usize {
    let h = (hash >> 25) & 0xffff_ffff;
    let way = h + ((h * ((1 << 32) - h)) >> 32) / 3;
    (way >> 24) as usize
}

/// The share that a shard has of all hashes, of 65536: `shard` the other way round.
const fn share(shard: u64) -> u64 {
    const fn begin(shard: u64) -> u64 {
        (2 << 16) - ((4 << 32) - 3 * (shard << 24)).isqrt()
    }
    begin(shard + 1) - begin(shard)
}

#[cfg(test)]
mod tests {
    use super::{SHARDS, Table, shard, share};
    use crate::ids::Slot;
    use hashbrown::HashTable;

    #[test]
    fn room_keeps_pace_with_names() {
        let mut table = Table::default();
        let mut grown = 0;
        let mut room = 0;
        for name in 0..150_000u32 {
            table.insert(&name, Slot(name), |slot| slot.0);
            let names = name as usize + 1;
            if names < 10_000 || !names.is_multiple_of(150) {
                continue;
            }
            let before = std::mem::replace(
                &mut room,
                table.shards.iter().map(HashTable::capacity).sum(),
            );
            assert!(room * 10 <= names * 16, "room for {room} at {names}");
            // The hasher's seed is drawn by chance: a twentieth comes at once now and then, a tenth does not.
            assert!(
                before == 0 || (room - before) * 10 <= room,
                "not many at once"
            );
            grown += usize::from(room > before);
        }
        assert!(grown > 100, "at many moments, not few");
    }

    #[test]
    fn shares_are_those_of_the_shards() {
        let mut counted = [0; SHARDS];
        for h in 0..65536 {
            counted[shard(h << 41)] += 1;
        }
        for (counted, place) in counted.into_iter().zip(0..) {
            assert!(share(place).abs_diff(counted) <= 2, "shard {place}");
        }
        assert_eq!((0..SHARDS as u64).map(share).sum::<u64>(), 65536);
    }

    #[test]
    fn names_are_found_before_and_after_the_piece_is_divided() {
        let mut table = Table::default();
        let is = |name: u32| move |slot: Slot| slot.0 == name;
        for name in 0..3000 {
            assert_eq!(table.find(&name, is(name)), None);
            table.insert(&name, Slot(name), |slot| slot.0);
            if [1023, 1024, 2999].contains(&name) {
                for earlier in 0..=name {
                    assert_eq!(table.find(&earlier, is(earlier)), Some(Slot(earlier)));
                }
            }
        }
        for name in 0..3000 {
            assert!(table.remove(&name, Slot(name)));
            assert!(!table.remove(&name, Slot(name)));
        }
        assert!(table.shards.iter().all(HashTable::is_empty));
    }
}
