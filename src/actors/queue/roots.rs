//! The newest root job of each key, as long as it is remembered: `MediaWiki`'s root-job deduplication.
//!
//! A job that comes from an older root job than the newest of its key is a duplicate: whoever claims it is told so, and
//! ends it without doing anything. Equal times are no duplicates.

use crate::actors::queue::message::{DedupKey, Root};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::lookup::kept::{Kept, Loaded};
use crate::lookup::pages::Change;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Milliseconds for which a root job is remembered: `MediaWiki`'s 28 days.
const REMEMBERED_MS: u64 = 28 * 24 * 3_600_000;

/// A root job that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRoot {
    pub(super) root: Root,
    /// Until when.
    pub(super) until: Timestamp,
}

/// Root jobs, by key.
#[derive(Debug, Default)]
pub(super) struct Roots {
    pub(super) known: Kept<KnownRoot>,
    keys: BTreeMap<DedupKey, Slot>,
}

impl KnownRoot {
    pub(super) const fn new(root: Root, at: Timestamp) -> Self {
        let until = at.plus_ms(REMEMBERED_MS);
        Self { root, until }
    }
}

impl Roots {
    /// Whether a newer one is known.
    pub(super) fn is_outdated(&self, root: Root) -> bool {
        self.newest(root.key).is_some_and(|at| at > root.at)
    }

    /// Whether it, or a newer one, is known.
    pub(super) fn is_known(&self, root: Root) -> bool {
        self.newest(root.key).is_some_and(|at| at >= root.at)
    }

    /// The time of the newest one of this key.
    pub(super) fn newest(&self, key: DedupKey) -> Option<u64> {
        let slot = self.keys.get(&key)?;
        Some(self.known.get(*slot)?.root.at)
    }

    /// Where the root job of this key stands, or would.
    pub(super) fn slot_of(&self, key: DedupKey) -> Slot {
        let known = self.keys.get(&key).copied();
        known.unwrap_or_else(|| self.known.next_free())
    }

    /// Remembers it, in the place of an older one of its key.
    pub(super) fn put(&mut self, change: Change<'_>, known: KnownRoot) {
        let key = known.root.key;
        if let Some(slot) = self.keys.get(&key) {
            self.known.change(change, *slot, |it| *it = known);
        } else {
            let slot = self.known.next_free();
            self.known.insert(change, slot, known);
            self.keys.insert(key, slot);
        }
    }

    /// Forgets it.
    pub(super) fn remove(&mut self, change: Change<'_>, slot: Slot) {
        let gone = self.known.remove(change, slot);
        self.keys.remove(&gone.root.key);
    }

    /// Puts those of a page behind all others.
    pub(super) fn load(&mut self, page: Loaded<KnownRoot>) {
        let keys = page
            .items
            .iter()
            .map(|(slot, known)| (known.root.key, *slot));
        self.keys.extend(keys);
        self.known.load(page);
    }

    /// Asserts that what is known is found by key, and nothing else is.
    #[cfg(test)]
    pub(super) fn assert_whole(&self) {
        let known = self.known.iter();
        let keys = known.map(|(slot, known)| (known.root.key, slot));
        assert_eq!(self.keys, keys.collect());
        self.known.assert_whole();
    }
}
