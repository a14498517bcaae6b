//! Deduplication keys that are remembered for a time from the push, whatever becomes of the job: `unique_for_ms`.
//!
//! A key is of one queue. While it is remembered nothing is added under it, and whoever tries is answered with the number of the
//! first job. Bounded in number: a push that needs one more is refused, since a key that gave way would let a duplicate in.
//!
//! Change rule: [`KnownKey`] is stored in pages, see `message.rs`.

use crate::actors::queue::message::DedupKey;
use crate::actors::queue::name::QueueName;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::Slot;
use crate::lookup::kept::{Kept, Loaded, Plain};
use crate::lookup::pages::Change;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A key that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKey {
    /// The queue that it is of.
    pub queue: QueueName,
    /// The key.
    pub key: DedupKey,
    /// The number of the job that was added under it.
    pub id: u64,
    /// Until when it is remembered.
    pub until: Date,
}

impl Plain for KnownKey {
    const KIND: u8 = 7;
    const SLOTS: u32 = 16;

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        Some(Deadline::Removal(self.until))
    }
}

/// Keys that are remembered, by queue.
#[derive(Debug, Default)]
pub(super) struct Uniques {
    pub(super) known: Kept<KnownKey>,
    by_key: BTreeMap<DedupKey, BTreeMap<QueueName, Slot>>,
}

impl Uniques {
    /// The number of the job that was added under a key, if that is remembered.
    pub(super) fn of(&self, queue: &QueueName, key: DedupKey) -> Option<u64> {
        let slot = self.by_key.get(&key)?.get(queue)?;
        Some(self.known.get(*slot)?.id)
    }

    /// Remembers a key, which is not remembered yet.
    pub(super) fn remember(&mut self, change: Change<'_>, known: KnownKey) {
        let slot = self.known.next_free();
        self.index(slot, &known);
        self.known.insert(change, slot, known);
    }

    /// Forgets a key.
    pub(super) fn forget(&mut self, change: Change<'_>, slot: Slot) {
        let gone = self.known.remove(change, slot);
        if let Some(queues) = self.by_key.get_mut(&gone.key) {
            queues.remove(&gone.queue);
            if queues.is_empty() {
                self.by_key.remove(&gone.key);
            }
        }
    }

    fn index(&mut self, slot: Slot, known: &KnownKey) {
        let queues = self.by_key.entry(known.key).or_default();
        queues.insert(known.queue.clone(), slot);
    }

    /// Puts those of a page behind all others.
    pub(super) fn load(&mut self, page: Loaded<KnownKey>) {
        for (slot, known) in &page.items {
            self.index(*slot, known);
        }
        self.known.load(page);
    }

    /// Asserts that what is remembered is found by key, and nothing else is.
    #[cfg(test)]
    pub(super) fn assert_whole(&self) {
        let mut anew = Self::default();
        for (slot, known) in self.known.iter() {
            anew.index(slot, known);
        }
        assert_eq!(self.by_key, anew.by_key);
        self.known.assert_whole();
    }
}
