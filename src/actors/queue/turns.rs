//! The turns of tenants: self-clocked fair queueing (Golestani 1994) over tenants with claimable jobs.
//!
//! A turn costs a tenant [`SCALE`] divided by its weight. Tenants are served in the order of the virtual time at which
//! their next turn would end, and the virtual clock advances to that end. The first turn of a tenant that gets
//! claimable jobs begins at the current virtual time. So between two turns of a tenant with claimable jobs, another
//! tenant gets at most one turn more than the ratio of its weight to the first tenant's weight, and each of several
//! tenants with equal weights is served once before any is served twice. Among a tenant's queues, the one whose type has
//! the lowest rank comes first, and among equal ranks the one that was served least recently.
//!
//! The clock and the positions of tenants and queues follow from journal entries alone, since the outcome records the
//! effect of the weights on a turn. So they survive a restart, and a page stores them in snapshots. They are not part
//! of the digest: a replay of entries older than this feature also changes them, and the digest must still equal the
//! one that was recorded then. Weights and ranks are rules, which affect only decisions and indexes. The number of steps
//! for a pick is usually logarithmic in the number of queues with claimable jobs. `ready_queues.rs` determines which queues
//! are offered, and which of them provides a job.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: a slot without an item is an impossible state"
)]

use crate::ids::{PageId, Slot};
use crate::lookup::slab::Slab;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// The cost of a turn for a tenant of weight 1, in units of virtual time.
const SCALE: u64 = 1 << 20;

/// The id of the page that stores the turns.
pub(super) const TURNS: PageId = PageId::new(5, 0);

/// The virtual time at which a turn would end and, to break ties, the position in line.
pub(super) type Key = (u64, u64);

/// All tenants, and the order of their turns.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The virtual time at which the last turn ended.
    pub(super) clock: u64,
    /// The position in line that was assigned last.
    pub(super) next: u64,
    pub(super) tenants: Slab<Tenant>,
    pub(super) names: BTreeMap<Box<[u8]>, Slot>,
    /// Offered queues by type. The key of a queue is outdated once the queue's tenant has had another turn. An
    /// outdated key is updated when its queue is at the front of a requested type.
    pub(super) kinds: BTreeMap<Box<[u8]>, BTreeSet<(Key, Slot)>>,
    /// Tenants with at least one offered queue from which jobs can be claimed without naming a type.
    pub(super) any: BTreeSet<(Key, Slot)>,
    /// Queues whose turns must be updated once the current journal entry is committed.
    pub(super) changed: Vec<Slot>,
    /// Whether queues or waiting requests may have been added since `Waiting::next_turn` last found no request. Volatile.
    pub(super) has_new_offers: bool,
    /// For each queue that was removed since turns were last settled: its tenant, and whether it was in line.
    pub(super) left: Vec<(Slot, bool)>,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Box<[u8]>,
    /// The cost of each of its turns.
    pub(super) cost: u64,
    /// Number of its queues.
    pub(super) queues: u32,
    /// Number of its queues with ready jobs, including those closed by their throttles.
    pub(super) claimable: u32,
    /// The virtual time at which its next turn begins.
    pub(super) from: u64,
    /// Its position in line.
    pub(super) place: u64,
    /// Its offered queues from which jobs can be claimed without naming a type, ordered by rank, then by position in line.
    pub(super) offered: BTreeSet<(u32, u64, Slot)>,
    /// Its key in `Turns::any`, if it has one.
    pub(super) offer_key: Option<Key>,
}

/// A queue's place in the order of turns: its tenant, and its position among the tenant's queues.
#[derive(Debug)]
pub(super) struct QueuePosition {
    pub(super) tenant: Slot,
    /// Whether the queue had claimable jobs after the last journal entry, regardless of its throttle.
    pub(super) is_claimable: bool,
    pub(super) place: u64,
    /// The queue's key among the offered queues of its type and, if the type need not be named, its rank; `None` if the queue
    /// is not offered.
    pub(super) offer_key: Option<(Key, Option<u32>)>,
}

/// Turns as stored in a page: the clock and the last position; the tenants in line, each with the start of its next
/// turn and its position; and the queues in line, each with its number and position.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct StoredTurns {
    pub(super) clock: u64,
    pub(super) next: u64,
    pub(super) tenants: Vec<(Box<str>, u64, u64)>,
    pub(super) queues: Vec<(Slot, u64)>,
}

impl Tenant {
    pub(super) const fn key(&self) -> Key {
        (self.from.saturating_add(self.cost), self.place)
    }
}

impl Turns {
    pub(super) fn take_place(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Processes the removed queues in `left`, and removes tenants that have no queues left.
    pub(super) fn forget(&mut self) {
        let mut left = BTreeSet::new();
        for (slot, stood_in_line) in std::mem::take(&mut self.left) {
            let tenant = &mut self.tenants[slot];
            tenant.claimable -= u32::from(stood_in_line);
            left.insert(slot);
        }
        for slot in left {
            if self.tenants[slot].queues == 0 {
                let tenant = self.tenants.remove(slot);
                self.names.remove(&tenant.name);
            }
        }
    }

    /// Updates the key of a tenant in `any`, or removes the tenant from `any` if its `offered` is empty.
    pub(super) fn update_key(&mut self, slot: Slot) {
        let tenant = &mut self.tenants[slot];
        let offer_key = (!tenant.offered.is_empty()).then(|| tenant.key());
        let before = std::mem::replace(&mut tenant.offer_key, offer_key);
        if before != offer_key {
            self.any.extend(offer_key.map(|offer_key| (offer_key, slot)));
            if let Some(before) = before {
                self.any.remove(&(before, slot));
            }
        }
    }
}

impl Turns {
    /// Returns the clock and the tenants in line, each with the start of its next turn, in order of their positions.
    #[cfg(test)]
    pub(super) fn in_line(&self) -> (u64, Vec<(&[u8], u64)>) {
        let tenants = self.tenants.iter().map(|(_, tenant)| tenant);
        let mut line: Vec<&Tenant> = tenants.filter(|tenant| tenant.claimable > 0).collect();
        line.sort_by_key(|tenant| tenant.place);
        let line = line.iter().map(|tenant| (&*tenant.name, tenant.from));
        (self.clock, line.collect())
    }
}

/// Returns the cost of a turn for a tenant of this weight.
pub(super) fn cost(weight: u32) -> u64 {
    SCALE / u64::from(weight.max(1))
}
