//! The index of the entries that are bound to a process.

use crate::actors::binding::Until;
use crate::actors::lock::entry::Entry;
use crate::ids::{ProcessId, Slot};
use std::collections::{BTreeSet, HashMap};
use std::ops::RangeInclusive;

/// The place of an entry: its process, what of that must end, whether it owns its lock, and its slot.
type Key = (ProcessId, Until, bool, Slot);

/// The entries that are bound to a process.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct BoundEntries {
    /// By process, by what of it must end, and contenders before owners.
    by_process: BTreeSet<Key>,
    /// The number of such entries of each owner that has any.
    owners: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
}

impl BoundEntries {
    /// Adds an entry if it is bound to a process.
    pub(super) fn insert(&mut self, slot: Slot, entry: &Entry) {
        if let Some(key) = bound_key(slot, entry) {
            self.by_process.insert(key);
            *self.owners.entry(entry.owner().into()).or_default() += 1;
        }
    }

    /// Removes an entry if it is bound to a process.
    pub(super) fn remove(&mut self, slot: Slot, entry: &Entry) {
        if let Some(key) = bound_key(slot, entry) {
            self.by_process.remove(&key);
            if let Some(count) = self.owners.get_mut(entry.owner()) {
                *count -= 1;
                if *count == 0 {
                    self.owners.remove(entry.owner());
                }
            }
        }
    }

    /// Returns the places in this range, in order.
    pub(super) fn range(&self, range: RangeInclusive<Key>) -> impl Iterator<Item = &Key> {
        self.by_process.range(range)
    }

    /// Returns all places, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Key> {
        self.by_process.iter()
    }

    /// Returns whether this owner has such an entry.
    pub(super) fn has_owner(&self, owner: &[u8]) -> bool {
        self.owners.contains_key(owner)
    }
}

/// Returns the place of an entry among those of its process; `None` if it is not bound to one.
fn bound_key(slot: Slot, entry: &Entry) -> Option<Key> {
    let binding = entry.bound()?;
    Some((binding.process, binding.until, entry.is_owner(), slot))
}
