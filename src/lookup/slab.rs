//! A slab: items by slot number, stored in chunks, so that existing items are never moved when it grows.
//!
//! A chunk holds as many items as fit into 64 KiB, a size class of common allocators, so little is wasted at its end. The next slot to use
//! is always the lowest free one. It depends only on which slots are taken, not on the history, so it is the same after a restart.

use crate::ids::Slot;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::{Index, IndexMut};

const CHUNK_BYTES: usize = 64 << 10;

/// Items by slot.
#[derive(Debug)]
pub struct Slab<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: BinaryHeap<Reverse<Slot>>,
    /// The number of slots that exist, free or not.
    extent: u32,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: BinaryHeap::new(), extent: 0 }
    }
}

impl<T> Slab<T> {
    /// The number of items in a chunk.
    const CHUNK: usize = CHUNK_BYTES / size_of::<Option<T>>();

    /// Returns the slot to use for the next item: the lowest free one.
    pub fn next_free(&self) -> Slot {
        self.free.peek().map_or(Slot(self.extent), |Reverse(slot)| *slot)
    }

    /// Inserts an item into a free slot.
    ///
    /// # Panics
    /// Panics if the slot is taken, or is more than one chunk beyond the existing slots, since slots are assigned from the lowest up.
    pub fn insert(&mut self, slot: Slot, item: T) {
        assert!(
            slot.index() <= self.extent as usize + Self::CHUNK,
            "slots are assigned from the lowest up"
        );
        self.grow(slot.0 + 1);
        if self.free.peek() == Some(&Reverse(slot)) {
            self.free.pop();
        } else {
            // A log that was written under other rules may use a free slot that is not the lowest.
            self.free.retain(|Reverse(free)| *free != slot);
        }
        let place = self.place_mut(slot).expect("the slab should just have been made large enough");
        assert!(place.replace(item).is_none(), "the slot is free");
    }

    /// Inserts an item at `slot`, after all others. Skipped slots become free.
    ///
    /// # Panics
    /// Panics if `slot` exists already.
    pub fn append(&mut self, slot: Slot, item: T) {
        assert!(slot.0 >= self.extent, "slots are appended in order");
        self.grow(slot.0);
        self.push(Some(item));
    }

    /// Adds free slots until `extent` slots exist.
    fn grow(&mut self, extent: u32) {
        while self.extent < extent {
            self.free.push(Reverse(Slot(self.extent)));
            self.push(None);
        }
    }

    fn push(&mut self, place: Option<T>) {
        if (self.extent as usize).is_multiple_of(Self::CHUNK) {
            self.chunks.push(Vec::with_capacity(Self::CHUNK));
        }
        if let Some(chunk) = self.chunks.last_mut() {
            chunk.push(place);
        }
        self.extent += 1;
    }

    /// Removes the item in a slot, and returns it.
    ///
    /// # Panics
    /// Panics if the slot is free.
    pub fn remove(&mut self, slot: Slot) -> T {
        let item = self.place_mut(slot).and_then(Option::take).expect("the slot should be taken");
        self.free.push(Reverse(slot));
        item
    }

    /// Returns the item in a slot, if there is one.
    pub fn get(&self, slot: Slot) -> Option<&T> {
        self.chunks.get(slot.index() / Self::CHUNK)?.get(slot.index() % Self::CHUNK)?.as_ref()
    }

    /// Iterates over the items in the order of their slots.
    pub fn iter(&self) -> impl Iterator<Item = (Slot, &T)> {
        (0..self.extent).map(Slot).filter_map(|slot| Some((slot, self.get(slot)?)))
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.extent as usize - self.free.len()
    }

    /// Returns whether there are no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of slots that exist, free or not.
    pub fn extent(&self) -> u32 {
        self.extent
    }

    fn place_mut(&mut self, slot: Slot) -> Option<&mut Option<T>> {
        self.chunks.get_mut(slot.index() / Self::CHUNK)?.get_mut(slot.index() % Self::CHUNK)
    }
}

impl<T> Index<Slot> for Slab<T> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        self.get(slot).expect("the slot should be taken")
    }
}

impl<T> IndexMut<Slot> for Slab<T> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        self.place_mut(slot).and_then(Option::as_mut).expect("the slot should be taken")
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;
    use crate::ids::Slot;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_lowest_free_slot_is_always_next(steps in prop::collection::vec(0u32..40, 0..400)) {
            let mut slab = Slab::default();
            let mut model = BTreeMap::new();
            for step in steps {
                if model.remove(&step).is_some() {
                    prop_assert_eq!(slab.remove(Slot(step)), step);
                } else {
                    let lowest = (0..=40).find(|slot| !model.contains_key(slot)).expect("one of the 41 slots is free");
                    prop_assert_eq!(slab.next_free(), Slot(lowest));
                    slab.insert(Slot(lowest), lowest);
                    model.insert(lowest, lowest);
                }
                prop_assert_eq!(slab.len(), model.len());
                let found: Vec<_> = slab.iter().map(|(slot, item)| (slot.0, *item)).collect();
                prop_assert_eq!(found, model.iter().map(|(k, v)| (*k, *v)).collect::<Vec<_>>());
            }
        }
    }
}
