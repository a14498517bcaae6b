//! Whose turn it is among tenants: self-clocked fair queueing (Golestani 1994) over tenants with something to claim.
//!
//! A tenant's turn costs it [`SCALE`] divided by its weight. Tenants are served by where their next turn would end, and the clock
//! goes on to that end; whoever becomes ready begins at the clock. So a tenant that is ready has its next turn after no more of
//! another's than that one's weight allows, plus one, and of equal tenants each is served once before any is served twice.
//! Among a tenant's queues the rank of their types decides, then which was served the longest time ago.
//!
//! The clock, and where tenants and queues stand, follow from entries alone: what weights make of a turn is in the outcome.
//! So they outlast a start, and a page has them for a snapshot; they are in no digest, since entries that are older than turns
//! move them as well. Weights and ranks are rules, and only indexes go by them. A pick takes steps by the logarithm of what is ready.
//! Never here: which queue is offered, and which job it gives (`turning.rs`).

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slabs: one that leads nowhere is an impossible state"
)]

use crate::ids::{PageId, Slot};
use crate::lookup::slab::Slab;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a turn costs a tenant of weight 1.
const SCALE: u64 = 1 << 20;

/// The page of turns.
pub(super) const TURNS: PageId = PageId::new(5, 0);

/// Where a turn would end, and who has stood in line for longer of those for whom that is the same.
pub(super) type Key = (u64, u64);

/// Tenants in turn.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// Where the newest turn ended.
    pub(super) clock: u64,
    /// The next place in line.
    pub(super) next: u64,
    pub(super) tenants: Slab<Tenant>,
    pub(super) names: BTreeMap<Box<[u8]>, Slot>,
    /// Queues that are offered, by type. What is older than the newest turn of its tenant is put right when it comes first.
    pub(super) kinds: BTreeMap<Box<[u8]>, BTreeSet<(Key, Slot)>>,
    /// Tenants with offered queues whose types need not be asked for by name.
    pub(super) any: BTreeSet<(Key, Slot)>,
    /// Queues to be looked at again when the entry has been committed.
    pub(super) changed: Vec<Slot>,
    /// Tenants of queues that have gone since, and whether these stood in line.
    pub(super) left: Vec<(Slot, bool)>,
}

#[derive(Debug)]
pub(super) struct Tenant {
    pub(super) name: Box<[u8]>,
    /// What its turn costs.
    pub(super) cost: u64,
    /// Queues that are there.
    pub(super) queues: u32,
    /// Those with something to claim, whether or not their throttles are closed.
    pub(super) claimable: u32,
    /// Where its next turn begins.
    pub(super) from: u64,
    /// Its place in line.
    pub(super) place: u64,
    /// Its offered queues whose types need not be asked for by name: by rank, then by place in line.
    pub(super) offered: BTreeSet<(u32, u64, Slot)>,
    /// Where it stands among those that have some.
    pub(super) seat: Option<Key>,
}

/// Where a queue stands among those of its tenant.
#[derive(Debug)]
pub(super) struct Stand {
    pub(super) tenant: Slot,
    /// Whether it has something to claim, but for its throttle, as of the newest entry.
    pub(super) is_claimable: bool,
    pub(super) place: u64,
    /// Where it is among offered queues of its type; and, if its type need not be asked for by name, its rank.
    pub(super) seat: Option<(Key, Option<u32>)>,
}

/// Turns as a page holds them: the clock and the next place; tenants that are in line, with where their next turn begins; queues in
/// line, by number.
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

    /// Forgets tenants without queues.
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

    /// Puts right where a tenant stands among those with offered queues.
    pub(super) fn seat(&mut self, slot: Slot) {
        let tenant = &mut self.tenants[slot];
        let seat = (!tenant.offered.is_empty()).then(|| tenant.key());
        let before = std::mem::replace(&mut tenant.seat, seat);
        if before != seat {
            self.any.extend(seat.map(|seat| (seat, slot)));
            if let Some(before) = before {
                self.any.remove(&(before, slot));
            }
        }
    }
}

impl Turns {
    /// Tenants in line: their names, and where their next turn begins; those first that have stood in line for longer.
    #[cfg(test)]
    pub(super) fn in_line(&self) -> (u64, Vec<(&[u8], u64)>) {
        let tenants = self.tenants.iter().map(|(_, tenant)| tenant);
        let mut line: Vec<&Tenant> = tenants.filter(|tenant| tenant.claimable > 0).collect();
        line.sort_by_key(|tenant| tenant.place);
        let line = line.iter().map(|tenant| (&*tenant.name, tenant.from));
        (self.clock, line.collect())
    }
}

/// What a turn costs a tenant of this weight.
pub(super) fn cost(weight: u32) -> u64 {
    SCALE / u64::from(weight.max(1))
}
