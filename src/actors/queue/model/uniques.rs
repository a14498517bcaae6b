//! The model of keys that are remembered for a limited time, implemented as a plain list.

use super::Model;
use sexton::actors::queue::{DedupKey, KnownKey, Put, QueueName};
use sexton::clock::{Date, Timestamp};
use sexton::ids::Slot;

#[derive(Clone, Debug)]
pub(crate) struct RememberedKey {
    pub(crate) key: KnownKey,
    /// If set, the date on which the key should be forgotten is ignored.
    pub(crate) quarantined: bool,
}

impl Model {
    /// Returns the id of the job that was added under a key; `None` if the key is not remembered.
    pub(super) fn remembered(&self, queue: &QueueName, key: Option<DedupKey>) -> Option<u64> {
        let mut known = self.keys.iter().flatten().map(|it| &it.key);
        let known = known.find(|it| it.queue == *queue && Some(it.key) == key);
        known.map(|it| it.id)
    }

    /// Forgets the keys of jobs that are deleted before they are done.
    pub(super) fn forget_keys_of(&mut self, ids: &[u64]) {
        for known in &mut self.keys {
            if known.as_ref().is_some_and(|it| ids.contains(&it.key.id)) {
                *known = None;
            }
        }
    }

    pub(super) fn is_one_key_too_many(&self, put: &Put) -> bool {
        let known = self.keys.iter().flatten().count();
        put.unique_for_ms > 0 && known >= self.rules.across.keys_max as usize
    }

    /// Remembers the key of a job that is added, if the job requires this.
    pub(super) fn remember(
        &mut self,
        put: &Put,
        (id, key): (u64, Option<DedupKey>),
        at: Timestamp,
    ) {
        let Some(key) = key.filter(|_| put.unique_for_ms > 0) else {
            return;
        };
        let until = Date(self.date(at).plus_ms(put.unique_for_ms).0);
        let known = Some(RememberedKey {
            key: KnownKey { queue: put.queue.clone(), key, id, until },
            quarantined: false,
        });
        match self.keys.iter().position(Option::is_none) {
            Some(place) => self.keys[place] = known,
            None => self.keys.push(known),
        }
    }

    /// Returns, for each key that is not quarantined, the time at which it is forgotten, and its slot as a number and as a
    /// `Slot`. Returns no items while removals by time are held back.
    pub(super) fn forgotten_keys(&self) -> impl Iterator<Item = (Timestamp, u32, Slot)> {
        let known = (0..).zip(&self.keys).filter_map(|(place, known)| {
            let known = known.as_ref().filter(|it| !it.quarantined)?;
            let until = self.time(Timestamp(known.key.until.0));
            Some((until, place, Slot(place)))
        });
        known.filter(|_| !self.held)
    }
}
