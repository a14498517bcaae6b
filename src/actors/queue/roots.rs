//! The newest root job of each key, remembered for 28 days: `MediaWiki`'s root-job deduplication. A root job is one that
//! causes a cascade of further jobs.
//!
//! A job that comes from a root job older than the newest one with the same key is a duplicate. The reply to the claim of
//! a duplicate says so, and the worker should complete the job without doing the work. A job that comes from a root job
//! with the same time as the newest one is not a duplicate.

use crate::actors::queue::message::{DedupKey, Root};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::lookup::durable::{DurableSlab, Loaded};
use crate::lookup::pages::Change;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Milliseconds for which a root job is remembered: 28 days, as in `MediaWiki`.
const REMEMBERED_MS: u64 = 28 * 24 * 3_600_000;

/// A remembered root job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRoot {
    pub(super) root: Root,
    /// When it is forgotten.
    pub(super) until: Timestamp,
}

/// The remembered root jobs, by key.
#[derive(Debug, Default)]
pub(super) struct Roots {
    pub(super) known: DurableSlab<KnownRoot>,
    keys: BTreeMap<DedupKey, Slot>,
}

impl KnownRoot {
    pub(super) const fn new(root: Root, at: Timestamp) -> Self {
        let until = at.plus_ms(REMEMBERED_MS);
        Self { root, until }
    }
}

impl Roots {
    /// Returns whether a newer root job with the same key is known.
    pub(super) fn is_outdated(&self, root: Root) -> bool {
        self.newest(root.key).is_some_and(|at| at > root.at)
    }

    /// Returns whether this root job, or a newer one with the same key, is known.
    pub(super) fn is_known(&self, root: Root) -> bool {
        self.newest(root.key).is_some_and(|at| at >= root.at)
    }

    /// Returns the time of the newest root job with this key; `None` if none is remembered.
    pub(super) fn newest(&self, key: DedupKey) -> Option<u64> {
        let slot = self.keys.get(&key)?;
        Some(self.known.get(*slot)?.root.at)
    }

    /// Returns the slot of the root job with this key, or the slot that it would get.
    pub(super) fn slot_of(&self, key: DedupKey) -> Slot {
        let known = self.keys.get(&key).copied();
        known.unwrap_or_else(|| self.known.next_free())
    }

    /// Remembers a root job. It replaces an older one with the same key.
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

    /// Forgets a root job.
    pub(super) fn remove(&mut self, change: Change<'_>, slot: Slot) {
        let gone = self.known.remove(change, slot);
        self.keys.remove(&gone.root.key);
    }

    /// Appends the root jobs of a page.
    pub(super) fn load(&mut self, page: Loaded<KnownRoot>) {
        let keys = page.items.iter().map(|(slot, known)| (known.root.key, *slot));
        self.keys.extend(keys);
        self.known.load(page);
    }

    /// Asserts that the index by key contains exactly the remembered root jobs.
    #[cfg(test)]
    pub(super) fn assert_whole(&self) {
        let known = self.known.iter();
        let keys = known.map(|(slot, known)| (known.root.key, slot));
        assert_eq!(self.keys, keys.collect());
        self.known.assert_whole();
    }
}
