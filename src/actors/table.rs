//! Look-up from a name to a slot, where the name stands in the item itself.
//!
//! Sharded, because one large table stalls everyone when it grows. Never iterated: order comes from elsewhere.

use crate::ids::Slot;
use hashbrown::HashTable;
use std::hash::BuildHasher as _;

const SHARDS: usize = 256;

/// Slots by the hash of a name.
#[derive(Debug)]
pub struct Table {
    shards: Vec<HashTable<Slot>>,
    hasher: foldhash::fast::RandomState,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            hasher: foldhash::fast::RandomState::default(),
        }
    }
}

impl Table {
    /// The slot whose item has this name, as `is` tells.
    pub fn find(&self, name: &impl std::hash::Hash, is: impl Fn(Slot) -> bool) -> Option<Slot> {
        let hash = self.hasher.hash_one(name);
        self.shards
            .get(shard(hash))?
            .find(hash, |slot| is(*slot))
            .copied()
    }

    /// Adds a slot under a name that has none. `rehash` gives the hash of an item already there.
    pub fn insert<N: std::hash::Hash>(
        &mut self,
        name: &N,
        slot: Slot,
        name_of: impl Fn(Slot) -> N,
    ) {
        let hash = self.hasher.hash_one(name);
        let hasher = &self.hasher;
        if let Some(shard) = self.shards.get_mut(shard(hash)) {
            shard.insert_unique(hash, slot, |other| hasher.hash_one(name_of(*other)));
        }
    }

    /// Makes room for so many names in all, while there is none.
    pub fn reserve(&mut self, names: usize) {
        for shard in &mut self.shards {
            shard.reserve(names / SHARDS, |_| {
                unreachable!("an empty table has nothing to move")
            });
        }
    }

    /// Puts another slot in the place of one; false if it is not there.
    pub fn replace(&mut self, name: &impl std::hash::Hash, old: Slot, new: Slot) -> bool {
        let hash = self.hasher.hash_one(name);
        let found = self
            .shards
            .get_mut(shard(hash))
            .and_then(|s| s.find_mut(hash, |slot| *slot == old));
        found.map(|slot| *slot = new).is_some()
    }

    /// Removes a slot; false if it is not there.
    pub fn remove(&mut self, name: &impl std::hash::Hash, slot: Slot) -> bool {
        let hash = self.hasher.hash_one(name);
        let entry = self
            .shards
            .get_mut(shard(hash))
            .map(|s| s.find_entry(hash, |other| *other == slot));
        match entry {
            Some(Ok(entry)) => {
                entry.remove();
                true
            }
            Some(Err(_)) | None => false,
        }
    }
}

/// The top bits pick the shard, since the table inside uses the low ones and the seven highest; the byte below those
/// is free.
const fn shard(hash: u64) -> usize {
    (hash >> 49) as usize % SHARDS
}
