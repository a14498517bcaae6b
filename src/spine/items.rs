//! Support for machines whose durable state is items of one kind: provides their deadlines and snapshots.
//!
//! Such a machine keeps its items in [`Items`] and implements [`Itemized`], which provides [`Timed`] and [`Paged`]. A machine with several
//! kinds of items, or with indexes over them that are rebuilt from pages, holds each kind in a separate [`DurableSlab`] and implements those
//! traits itself.

use crate::clock::{Offset, Timestamp};
use crate::ids::{Digest, PageId, Seq, Slot};
use crate::lookup::durable::{DurableSlab, Item, Loaded};
use crate::lookup::pages::Pages;
use crate::spine::machine::{Machine, Now, Paged, Timed};
use std::collections::BTreeMap;
use std::ops::Deref;

/// Items of one kind, with the tracker of their changed pages.
#[derive(Debug)]
pub struct Items<T> {
    kept: DurableSlab<T>,
    pages: Pages,
}

impl<T> Default for Items<T> {
    fn default() -> Self {
        Self { kept: DurableSlab::default(), pages: Pages::default() }
    }
}

/// Items are read through `DurableSlab`, and changed only by the methods of `Items`.
impl<T> Deref for Items<T> {
    type Target = DurableSlab<T>;

    fn deref(&self) -> &DurableSlab<T> {
        &self.kept
    }
}

impl<T: Item + Default + Clone> Items<T> {
    /// Returns a copy of an item, or the default if there is none.
    pub fn get_or_default(&self, slot: Slot) -> T {
        self.kept.get(slot).cloned().unwrap_or_default()
    }

    /// Returns a copy of every item.
    pub fn view(&self) -> BTreeMap<Slot, T> {
        let items = self.kept.iter();
        items.map(|(slot, item)| (slot, item.clone())).collect()
    }

    /// Changes an item by calling `make` on it, as part of the entry `entry`, and returns the changed item. A missing item is created
    /// as the default first.
    pub fn change(&mut self, entry: Seq, slot: Slot, make: impl FnOnce(&mut T)) -> &T {
        if self.kept.get(slot).is_some() {
            self.kept.change(self.pages.by(entry), slot, make);
        } else {
            let mut item = T::default();
            make(&mut item);
            self.kept.insert(self.pages.by(entry), slot, item);
        }
        self.kept.get(slot).expect("the item should have been inserted if it was missing")
    }

    /// Changes every item by calling `make` on it, as part of the entry `entry`.
    pub fn change_all(&mut self, entry: Seq, mut make: impl FnMut(&mut T)) {
        let slots: Vec<Slot> = self.kept.iter().map(|(slot, _)| slot).collect();
        for slot in slots {
            self.kept.change(self.pages.by(entry), slot, &mut make);
        }
    }
}

/// A machine whose durable state is items of one kind.
pub trait Itemized: Machine {
    type Item: Item + Default + Clone + Send;

    /// Returns the items.
    fn items(&self) -> &Items<Self::Item>;
    /// Returns the items for modification.
    fn items_mut(&mut self) -> &mut Items<Self::Item>;
    /// Returns the tick of an item whose deadline has passed; see [`Timed::tick`]. The default implementation, for machines whose items
    /// have no deadlines, panics.
    fn lapse(&self, slot: Slot) -> Self::Message {
        unreachable!("{slot:?} has no deadline")
    }
}

impl<M: Itemized> Timed for M {
    fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        self.items().deadline(offset)
    }

    fn due(&mut self, now: Now) -> Option<u64> {
        let (_, slot) = self.items_mut().kept.due(now)?;
        Some(slot.0.into())
    }

    fn tick(&self, item: u64) -> M::Message {
        self.lapse(slot_of(item))
    }

    fn is_quarantined(&self, item: u64) -> bool {
        self.items().kept.is_quarantined(slot_of(item))
    }

    fn hold_removals(&mut self, held: bool) {
        self.items_mut().kept.hold_removals(held);
    }

    fn quarantine(&mut self, item: u64, now: Now) {
        let items = self.items_mut();
        items.kept.quarantine(slot_of(item), now);
    }
}

impl<M: Itemized> Paged for M {
    type Page = Loaded<M::Item>;

    fn pages(&mut self) -> &mut Pages {
        &mut self.items_mut().pages
    }

    fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        self.items().kept.encode(page, content);
    }

    fn decode_page(page: PageId, content: &[u8]) -> Result<Self::Page, String> {
        DurableSlab::decode(page, content)
    }

    fn from_pages(rules: M::Rules, pages: &mut dyn Iterator<Item = Self::Page>) -> Self {
        let mut machine = M::new(rules);
        let kept = &mut machine.items_mut().kept;
        pages.for_each(|page| kept.load(page));
        machine
    }

    fn digest(&self) -> Digest {
        self.items().kept.digest()
    }
}

fn slot_of(item: u64) -> Slot {
    Slot(u32::try_from(item).expect("item numbers should be slots"))
}
