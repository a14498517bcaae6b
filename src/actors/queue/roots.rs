//! The newest root job of each key, as long as it is remembered: `MediaWiki`'s root-job deduplication.
//!
//! A job that comes from an older root job than the newest of its key is a duplicate: whoever claims it is told so, and
//! ends it without doing anything. Equal times are no duplicates.

use crate::actors::queue::message::{DedupKey, Root};
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::lookup::slab::Slab;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Milliseconds for which a root job is remembered: `MediaWiki`'s 28 days.
const REMEMBERED_MS: u64 = 28 * 24 * 3_600_000;

/// A root job that is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownRoot {
    pub(super) root: Root,
    /// Until when.
    pub(super) until: Timestamp,
}

/// Root jobs, by key and by the end of their time.
#[derive(Debug, Default)]
pub(super) struct Roots {
    known: Slab<KnownRoot>,
    keys: BTreeMap<DedupKey, Slot>,
    ends: BTreeSet<(Timestamp, Slot)>,
}

impl KnownRoot {
    pub(super) const fn new(root: Root, at: Timestamp) -> Self {
        let until = at.plus_ms(REMEMBERED_MS);
        Self { root, until }
    }

    /// What the digest is made of.
    pub(super) fn canonical(&self, slot: Slot, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&self.root.key.0);
        bytes.extend_from_slice(&slot.0.to_le_bytes());
        bytes.extend_from_slice(&self.root.at.to_le_bytes());
        bytes.extend_from_slice(&self.until.0.to_le_bytes());
    }
}

impl Roots {
    pub(super) const fn slab(&self) -> &Slab<KnownRoot> {
        &self.known
    }

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
    pub(super) fn put(&mut self, slot: Slot, known: KnownRoot) {
        self.remove(slot);
        self.known.insert(slot, known);
        self.index(slot, &known);
    }

    /// Puts it behind all others.
    pub(super) fn append(&mut self, slot: Slot, known: KnownRoot) {
        self.known.append(slot, known);
        self.index(slot, &known);
    }

    fn index(&mut self, slot: Slot, known: &KnownRoot) {
        self.keys.insert(known.root.key, slot);
        self.ends.insert((known.until, slot));
    }

    /// Forgets what stands there, if anything does.
    pub(super) fn remove(&mut self, slot: Slot) {
        if self.known.get(slot).is_some() {
            let gone = self.known.remove(slot);
            self.keys.remove(&gone.root.key);
            self.ends.remove(&(gone.until, slot));
        }
    }

    /// The first to be forgotten.
    pub(super) fn first_end(&self) -> Option<(Timestamp, Slot)> {
        self.ends.first().copied()
    }

    /// Takes one that is due at `at` out of the order of ends.
    pub(super) fn forget_end(&mut self, slot: Slot, at: Timestamp) {
        self.ends
            .retain(|(until, other)| *other != slot || *until > at);
    }

    /// Asserts that what is known is found by key and by end, and nothing else is.
    #[cfg(test)]
    pub(super) fn assert_whole(&self) {
        let known = || self.known.iter();
        let keys = known().map(|(slot, known)| (known.root.key, slot));
        assert_eq!(self.keys, keys.collect());
        let ends = known().map(|(slot, known)| (known.until, slot));
        assert_eq!(self.ends, ends.collect());
    }
}
