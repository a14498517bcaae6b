//! Builds the lock state from its pages. Pages do not contain the indexes, so every index is rebuilt. Slots are
//! reused, so their order is not the order in which the entries were added, and the rings may have to be sorted.

#![expect(clippy::indexing_slicing, reason = "all slots come from the slab that was just filled")]

use crate::actors::lock::entry::{Entry, Ring};
use crate::actors::lock::pages::Page;
use crate::actors::lock::state::State;
use crate::ids::{Seq, Slot};
use crate::lookup::slab::Slab;
use crate::lookup::table::Table;
use crate::spine::parallel::both;

impl State {
    /// Builds the state from these pages, which must be in ascending order.
    pub(super) fn from_pages(pages: &mut dyn Iterator<Item = Page>) -> Self {
        let mut state = Self::default();
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.entries.restart_spans(head.epoch);
                    state.head.load(head);
                }
                Page::Entries(page) => {
                    let contenders = page.items.iter().filter(|(_, entry)| !entry.is_owner());
                    let bound = page.items.iter();
                    bound.for_each(|(slot, it)| state.bound.insert(*slot, it));
                    let tied = page.items.iter();
                    let of_actors = tied.filter(|(_, it)| it.tie().actor().is_some());
                    state.of_actors.extend(of_actors.map(|(slot, _)| *slot));
                    state.contenders += u32::try_from(contenders.count()).unwrap_or(u32::MAX);
                    state.entries.load(page);
                }
            }
        }
        state.index();
        state
    }

    /// Builds the indexes: first those by lock and by owner name, in parallel, then the rings and lines that connect entries.
    fn index(&mut self) {
        let entries: &Slab<Entry> = &self.entries;
        let (locks, (owners, links)) = both(|| index_locks(entries), || index_owners(entries));
        (self.locks, self.owners) = (locks, owners);
        for (head, slot) in &links {
            self.link(*head, *slot, |entry| &mut entry.of_owner);
        }
        for (_, slot) in &links {
            if self.follows_younger(*slot, |entry| (entry.seq, entry.of_owner))
                && self.of_owner(self.entries[*slot].owner()).next() != Some(*slot)
            {
                self.sort_ring_of_owner(*slot);
            }
        }
        self.index_keys();
        self.index_lines();
    }

    /// Builds the rings of all keys that have a lock with an index.
    fn index_keys(&mut self) {
        let owners = self.entries.iter().filter(|(_, entry)| entry.is_owner());
        let with_index = owners.filter(|(_, entry)| !entry.index().is_empty());
        let slots: Vec<Slot> = with_index.map(|(slot, _)| slot).collect();
        for slot in &slots {
            self.join_key(*slot);
        }
        for slot in &slots {
            if self.follows_younger(*slot, |entry| (entry.first(), entry.of_key))
                && self.key_head(self.entries[*slot].key()) != Some(*slot)
            {
                self.sort_ring_of_key(*slot);
            }
        }
    }

    /// Builds the lines of all contended locks.
    fn index_lines(&mut self) {
        if self.contenders == 0 {
            return;
        }
        let contenders = self.entries.iter().filter(|(_, entry)| !entry.is_owner());
        let slots: Vec<Slot> = contenders.map(|(slot, _)| slot).collect();
        for slot in slots {
            let entry = &self.entries[slot];
            let holder = self
                .holder(entry.key(), entry.index())
                .expect("a contended lock should have an owner");
            self.join_line(holder, slot);
        }
    }

    /// Returns whether `slot` follows a younger entry in its ring. This is also true for the oldest entry of a
    /// correctly ordered ring, because it follows the youngest.
    fn follows_younger(&self, slot: Slot, ring: impl Fn(&Entry) -> (Seq, Ring)) -> bool {
        let (age, Ring { previous, .. }) = ring(&self.entries[slot]);
        ring(&self.entries[previous]).0 > age
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
        let entries = self.entries.volatile();
        let neighbours = sorted.iter().zip(sorted.iter().cycle().skip(1));
        for (slot, next) in neighbours {
            ring(&mut entries[*slot]).next = *next;
            ring(&mut entries[*next]).previous = *slot;
        }
    }
}

/// Builds the index from each lock to the entry that owns it.
fn index_locks(entries: &Slab<Entry>) -> Table {
    let mut locks = Table::default();
    locks.reserve(entries.len());
    for (slot, entry) in entries.iter().filter(|(_, entry)| entry.is_owner()) {
        locks.insert(&entry.lock(), slot, |other| entries[other].lock());
    }
    locks
}

/// Builds the index from each owner name to one entry of that owner, the head. Also returns a pair `(head, entry)` for
/// every other entry, which must be linked into the ring of that head.
fn index_owners(entries: &Slab<Entry>) -> (Table, Vec<(Slot, Slot)>) {
    let (mut owners, mut links) = (Table::default(), Vec::new());
    owners.reserve(entries.len());
    for (slot, entry) in entries.iter() {
        let owner = entry.owner();
        match owners.find(&owner, |other| entries[other].owner() == owner) {
            None => owners.insert(&owner, slot, |other| entries[other].owner()),
            Some(head) => links.push((head, slot)),
        }
    }
    (owners, links)
}

/// Makes the table refer to the new first entry of a ring whose order has changed from `ring` to `sorted`.
fn replace_head(table: &mut Table, name: &impl std::hash::Hash, ring: &[Slot], sorted: &[Slot]) {
    if let (Some(old), Some(new)) = (ring.first(), sorted.first())
        && old != new
    {
        table.replace(name, *old, *new);
    }
}
