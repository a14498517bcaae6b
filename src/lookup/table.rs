//! A hash table that maps names to slots. The names are stored only in the items themselves.
//!
//! A small table is a single hash table. A larger one is sharded, because a single large table stalls all requests while it grows. Shards
//! with equal shares of the names would all grow at the same moment, so the shares differ: the shard with the largest share doubles first,
//! and the shard with the smallest share once there are twice as many names. So at any number of names there is room for at most about half
//! as many more, and the memory that one shard frees is reused by the next shard that grows.
//!
//! Each slot is stored with the part of its name's hash that its shard needs to grow. Otherwise growing would read the name of every item,
//! which for a million names would take longer than all other work on them. A table is never iterated, because its order is arbitrary.

use crate::ids::Slot;
use hashbrown::HashTable;
use std::hash::BuildHasher as _;

const SHARDS: usize = 256;
/// The maximum number of names in an unsharded table. Small tables are not sharded, because there may be many of them: each lock that
/// clients wait for has one.
const PIECE: usize = 1024;

/// A slot, and the part of its name's hash that its shard needs.
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
            hash: u32::try_from(kept)
                .expect("7 tag bits and 25 place bits should fit into 32 bits"),
            slot,
        }
    }

    /// Returns the hash, without the bits that only select the shard.
    fn hash(self) -> u64 {
        let kept = u64::from(self.hash);
        (kept >> PLACE_BITS.count_ones()) << TAG_SHIFT | kept & PLACE_BITS
    }
}

/// The position of a hash's tag: the seven highest bits, which the inner table compares first.
const TAG_SHIFT: u32 = 57;
/// The bits of a hash that determine where the inner table starts probing: enough for 2^25 names in a shard.
const PLACE_BITS: u64 = (1 << 25) - 1;

/// Slots by the hash of their name.
#[derive(Debug)]
pub struct Table {
    /// One hash table, or `SHARDS` of them.
    shards: Vec<HashTable<Place>>,
    /// The `fast` variant is unsuitable: with some seeds it puts numbers and other short names into few of the shards.
    hasher: foldhash::quality::RandomState,
}

impl Default for Table {
    fn default() -> Self {
        Self { shards: vec![HashTable::new()], hasher: foldhash::quality::RandomState::default() }
    }
}

impl Table {
    /// Returns the slot whose item has this name, if there is one. `is` returns whether the item in a slot has the name.
    pub fn find(&self, name: &impl std::hash::Hash, is: impl Fn(Slot) -> bool) -> Option<Slot> {
        let hash = self.hasher.hash_one(name);
        self.shards
            .get(self.shard(hash))?
            .find(hash, |place| is(place.slot))
            .map(|place| place.slot)
    }

    /// Adds a slot under a name that is not in the table. `name_of` returns the name of an item in the table.
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

    /// Makes room for this number of names in an empty table.
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

    /// Replaces one slot with another under the same name. Returns whether `old` was in the table.
    pub fn replace(&mut self, name: &impl std::hash::Hash, old: Slot, new: Slot) -> bool {
        let hash = self.hasher.hash_one(name);
        let shard = self.shard(hash);
        let found =
            self.shards.get_mut(shard).and_then(|s| s.find_mut(hash, |place| place.slot == old));
        found.map(|place| place.slot = new).is_some()
    }

    /// Removes a slot. Returns whether it was in the table.
    pub fn remove(&mut self, name: &impl std::hash::Hash, slot: Slot) -> bool {
        let hash = self.hasher.hash_one(name);
        let shard = self.shard(hash);
        let entry =
            self.shards.get_mut(shard).map(|s| s.find_entry(hash, |place| place.slot == slot));
        match entry {
            Some(Ok(entry)) => {
                entry.remove();
                true
            }
            Some(Err(_)) | None => false,
        }
    }

    /// Splits the single table into shards.
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

    /// Returns the number of names.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    fn shard(&self, hash: u64) -> usize {
        if self.shards.len() == 1 { 0 } else { shard(hash) }
    }
}

/// Returns the shard of a hash. Let h be the 32 bits of the hash below its seven highest, read as a fraction from 0 to 1: the shard is then
/// h + h * (1 - h) / 3 of the way through the list. So the last shard has twice the share of the first, and the shares in between increase
/// steadily.
///
/// The other bits are left to the inner table, which compares the seven highest and derives the position from the lowest.
const fn shard(hash: u64) -> usize {
    let h = (hash >> 25) & 0xffff_ffff;
    let way = h + ((h * ((1 << 32) - h)) >> 32) / 3;
    (way >> 24) as usize
}

/// Returns a shard's share of all hashes, in 65536ths, computed with the inverse of the formula of `shard`.
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
            let before =
                std::mem::replace(&mut room, table.shards.iter().map(HashTable::capacity).sum());
            assert!(
                room * 10 <= names * 16,
                "room for {room} names, but only {names} are in the table"
            );
            // The hasher's seed is random: now and then the room grows by a twentieth in one step, but never by more than a tenth.
            assert!(before == 0 || (room - before) * 10 <= room, "the room grows in small steps");
            grown += usize::from(room > before);
        }
        assert!(grown > 100, "the room grows in many steps");
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
