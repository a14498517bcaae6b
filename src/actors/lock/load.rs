//! Lock state from its pages: every index built again, in whatever order the entries lie in their slots.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from the slab that was just filled"
)]

use crate::actors::lock::entry::{Entry, Ring};
use crate::actors::lock::pages::Page;
use crate::actors::lock::state::State;
use crate::actors::table::Table;
use crate::ids::{Seq, Slot};

impl State {
    /// The state with these pages in it, which come in ascending order.
    pub(in crate::actors::lock) fn from_pages(pages: Vec<Page>) -> Self {
        let mut state = Self::default();
        for page in pages {
            match page {
                Page::Head(head) => state.head = head,
                Page::Entries(entries, digest) => {
                    state.digest.merge(digest);
                    for (slot, entry) in entries {
                        state.contenders += u32::from(!entry.is_owner());
                        state.entries.append(slot, entry);
                    }
                }
            }
        }
        state.index();
        state.wind();
        state
    }

    fn index(&mut self) {
        let len = self.entries.len();
        for table in [&mut self.locks, &mut self.owners] {
            table.reserve(len);
        }
        let slots: Vec<Slot> = self.entries.iter().map(|(slot, _)| slot).collect();
        let (owners, contenders): (Vec<Slot>, Vec<Slot>) = slots
            .iter()
            .partition(|slot| self.entries[**slot].is_owner());
        for slot in &owners {
            self.join_locks(*slot);
            self.join_key(*slot);
        }
        for slot in contenders {
            let entry = &self.entries[slot];
            let holder = self
                .holder(entry.key(), entry.index())
                .expect("a contender has an owner ahead");
            self.join_line(holder, slot);
        }
        for slot in &slots {
            self.join_owner(*slot);
        }
        for slot in &slots {
            if self.is_before_older(*slot, |entry| (entry.seq, entry.of_owner)) {
                self.sort_ring_of_owner(*slot);
            }
        }
        for slot in &owners {
            if self.is_before_older(*slot, |entry| (entry.first(), entry.of_key)) {
                self.sort_ring_of_key(*slot);
            }
        }
    }

    /// Whether the neighbour behind a slot stands there although it is older. Rings were just joined by slot.
    fn is_before_older(&self, slot: Slot, ring: impl Fn(&Entry) -> (Seq, Ring)) -> bool {
        let (age, Ring { next, .. }) = ring(&self.entries[slot]);
        next > slot && ring(&self.entries[next]).0 < age
    }

    fn sort_ring_of_owner(&mut self, slot: Slot) {
        let ring: Vec<Slot> = self.of_owner(self.entries[slot].owner()).collect();
        let sorted = self.sorted(&ring, |entry| entry.seq);
        self.relink(&sorted, |entry| &mut entry.of_owner);
        let (entries, owners) = (&self.entries, &mut self.owners);
        replace_head(owners, &entries[slot].owner(), &ring, &sorted);
    }

    fn sort_ring_of_key(&mut self, slot: Slot) {
        let ring: Vec<Slot> = self.of_key(self.entries[slot].key()).collect();
        let sorted = self.sorted(&ring, Entry::first);
        self.relink(&sorted, |entry| &mut entry.of_key);
        let (entries, keys) = (&self.entries, &mut self.keys);
        replace_head(keys, &entries[slot].key(), &ring, &sorted);
    }

    fn sorted(&self, ring: &[Slot], age: impl Fn(&Entry) -> Seq) -> Vec<Slot> {
        let mut sorted = ring.to_vec();
        sorted.sort_unstable_by_key(|slot| age(&self.entries[*slot]));
        sorted
    }

    fn relink(&mut self, sorted: &[Slot], ring: impl Fn(&mut Entry) -> &mut Ring) {
        let neighbours = sorted.iter().zip(sorted.iter().cycle().skip(1));
        for (slot, next) in neighbours {
            ring(&mut self.entries[*slot]).next = *next;
            ring(&mut self.entries[*next]).previous = *slot;
        }
    }
}

/// Lets a table lead to the first of a ring that was sorted.
fn replace_head(table: &mut Table, name: &impl std::hash::Hash, ring: &[Slot], sorted: &[Slot]) {
    if let (Some(old), Some(new)) = (ring.first(), sorted.first())
        && old != new
    {
        table.replace(name, *old, *new);
    }
}
