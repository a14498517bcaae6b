//! Deduplication keys that are remembered for a given time (`unique_for_ms`) after their job was added: also after the job is done, but not
//! after it was deleted before anybody worked on it, flushed, or removed because it was abandoned.
//!
//! A key belongs to one queue. While it is remembered, no other job is added under it: a request to add one is answered
//! with the id of the first job. The number of keys is limited. At the limit, a request that needs another key is
//! refused, because dropping a key would allow a duplicate.
//!
//! Change rule: [`KnownKey`] is stored in pages, see `pages.rs`.

use crate::actors::queue::message::DedupKey;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::Slot;
use crate::lookup::durable::{DurableSlab, Loaded, Plain};
use crate::lookup::pages::Change;
use serde::{Deserialize, Serialize};
use sexton_api::queue::QueueName;
use std::collections::BTreeMap;

/// A remembered key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownKey {
    /// The queue that it belongs to.
    pub queue: QueueName,
    /// The key.
    pub key: DedupKey,
    /// The id of the job that was added under it.
    pub id: u64,
    /// The date until which it is remembered.
    pub until: Date,
}

impl Plain for KnownKey {
    const KIND: u8 = 7;
    const SLOTS: u32 = 16;

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        Some(Deadline::Removal(self.until))
    }
}

/// The remembered keys, indexed by key and queue.
#[derive(Debug, Default)]
pub(super) struct Uniques {
    pub(super) known: DurableSlab<KnownKey>,
    by_key: BTreeMap<DedupKey, BTreeMap<QueueName, Slot>>,
}

impl Uniques {
    /// Returns the id of the job that was added under a key; `None` if the key is not remembered.
    pub(super) fn of(&self, queue: &QueueName, key: DedupKey) -> Option<u64> {
        let slot = self.by_key.get(&key)?.get(queue)?;
        Some(self.known.get(*slot)?.id)
    }

    /// Returns the slot of the key that is remembered for this job of a queue; `None` if none is.
    pub(super) fn slot_of(&self, queue: &QueueName, (key, id): (DedupKey, u64)) -> Option<Slot> {
        let slot = *self.by_key.get(&key)?.get(queue)?;
        Some(slot).filter(|slot| self.known.get(*slot).is_some_and(|known| known.id == id))
    }

    /// Remembers a key that is not remembered yet.
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

    /// Adds the keys of a loaded page.
    pub(super) fn load(&mut self, page: Loaded<KnownKey>) {
        for (slot, known) in &page.items {
            self.index(*slot, known);
        }
        self.known.load(page);
    }

    /// Asserts that the index contains exactly the remembered keys.
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
