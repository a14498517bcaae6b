//! Durable items of a machine: by slot, and with all that a change of one must keep in step. That is the digest, the
//! order of deadlines, and the pages that a snapshot is made of.
//!
//! A machine looks at its items as at a slab, and changes them through [`Kept`], each time by the entry that makes the
//! [`Change`]. What it has but once stands in [`Once`]. So of pages, digest and deadlines it says no more than what an
//! [`Item`] is made of. Change rule: what is stored of an item is part of the on-disk format, see `persist/format.rs`.

#![expect(
    clippy::indexing_slicing,
    reason = "a machine changes items that are there: a slot without one is an impossible state"
)]

use crate::clock::{Deadline, Now, Offset, Timestamp};
use crate::decode;
use crate::ids::{Digest, PageId, Slot};
use crate::lookup::deadlines::Deadlines;
use crate::lookup::pages::Change;
use crate::lookup::slab::Slab;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::ops::Deref;

/// A durable item.
pub trait Item: Sized + 'static {
    /// The kind of the pages that hold such items: each type of a machine has its own, see [`PageId`].
    const KIND: u8;
    /// Slots to a page: as many as fill about two kilobytes with items of everyday length.
    const SLOTS: u32;

    /// The item as a page holds it, with its place there.
    type Stored<'a>: Serialize + Deserialize<'a>;

    /// The item, to be written at this place of a page.
    fn store(&self, place: u8) -> Self::Stored<'_>;
    /// The place that it was written at.
    fn place(stored: &Self::Stored<'_>) -> u8;
    /// The item again.
    ///
    /// # Errors
    /// If it is none.
    fn restore(stored: Self::Stored<'_>, slot: Slot) -> Result<Self, String>;

    /// Appends what the digest is made of.
    fn canonical(&self, slot: Slot, bytes: &mut Vec<u8>);

    /// When time acts on it, if spans began again at `epoch`.
    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        None
    }
}

/// An item that is stored, and hashed, as serde has it: for items that are few enough for its cost not to matter.
pub trait Plain: Serialize + DeserializeOwned + Clone + 'static {
    /// See [`Item::KIND`].
    const KIND: u8;
    /// See [`Item::SLOTS`].
    const SLOTS: u32 = 32;

    /// See [`Item::deadline`].
    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        None
    }
}

impl<T: Plain> Item for T {
    const KIND: u8 = <T as Plain>::KIND;
    const SLOTS: u32 = <T as Plain>::SLOTS;

    type Stored<'a> = (u8, Cow<'a, T>);

    fn store(&self, place: u8) -> (u8, Cow<'_, T>) {
        (place, Cow::Borrowed(self))
    }

    fn place((place, _): &(u8, Cow<'_, T>)) -> u8 {
        *place
    }

    fn restore((_, item): (u8, Cow<'_, T>), _slot: Slot) -> Result<T, String> {
        Ok(item.into_owned())
    }

    fn canonical(&self, slot: Slot, bytes: &mut Vec<u8>) {
        write(&(slot, self), bytes);
    }

    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        Plain::deadline(self, epoch)
    }
}

/// What a machine has but once, on a page of its own.
pub trait Single: Serialize + DeserializeOwned {
    /// Appends what the digest is made of.
    fn canonical(&self, bytes: &mut Vec<u8>);
}

/// The items of one type.
#[derive(Debug)]
pub struct Kept<T> {
    items: Slab<T>,
    digest: Digest,
    deadlines: Deadlines,
    epoch: Timestamp,
    /// Bytes of the item being hashed, kept for the next.
    scratch: Vec<u8>,
}

/// A page of items, decoded.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The items, by slot.
    pub items: Vec<(Slot, T)>,
    digest: Digest,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            items: Slab::default(),
            digest: Digest::default(),
            deadlines: Deadlines::default(),
            epoch: Timestamp(0),
            scratch: Vec::new(),
        }
    }
}

/// Looked at as a slab, and changed by no other way than those below.
impl<T> Deref for Kept<T> {
    type Target = Slab<T>;

    fn deref(&self) -> &Slab<T> {
        &self.items
    }
}

impl<T: Item> Kept<T> {
    /// Slots to a page. Few in tests, so that a small state has several.
    const SLOTS: u32 = if cfg!(test) { 2 } else { T::SLOTS };
    /// Of kind 0 the first page is that of what there is but once.
    const FIRST: u32 = if T::KIND == PageId::HEAD.kind() { 1 } else { 0 };

    /// Puts an item into a free slot.
    ///
    /// # Panics
    /// If the slot is taken.
    pub fn insert(&mut self, change: Change<'_>, slot: Slot, item: T) {
        self.touch(change, slot);
        self.items.insert(slot, item);
        self.include(slot);
    }

    /// Changes an item.
    ///
    /// # Panics
    /// If there is none.
    pub fn change(&mut self, change: Change<'_>, slot: Slot, make: impl FnOnce(&mut T)) {
        self.touch(change, slot);
        self.exclude(slot);
        make(&mut self.items[slot]);
        self.include(slot);
    }

    /// Takes an item out.
    ///
    /// # Panics
    /// If there is none.
    pub fn remove(&mut self, change: Change<'_>, slot: Slot) -> T {
        self.touch(change, slot);
        self.exclude(slot);
        self.items.remove(slot)
    }

    /// The items, to change what is not durable of them: what neither pages nor the digest have, and no deadline
    /// depends on.
    pub fn volatile(&mut self) -> &mut Slab<T> {
        &mut self.items
    }

    /// The sum of all items.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Begins every span again at `epoch`: every deadline is set anew.
    pub fn begin_spans(&mut self, epoch: Timestamp) {
        self.epoch = epoch;
        self.deadlines.clear();
        for (slot, item) in self.items.iter() {
            if let Some(deadline) = item.deadline(epoch) {
                self.deadlines.insert(slot, deadline);
            }
        }
    }

    /// Holds back what is removed on its date, or no longer.
    pub fn hold(&mut self, held: bool) {
        self.deadlines.hold(held);
    }

    /// A time before which nothing is due; `None` if nothing ever will be.
    pub fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        self.deadlines.first(offset)
    }

    /// When time acts on an item.
    pub fn deadline_of(&self, slot: Slot) -> Option<Deadline> {
        self.items.get(slot)?.deadline(self.epoch)
    }

    /// The item due first, in (deadline, slot) order, and its deadline.
    pub fn due(&mut self, now: Now) -> Option<(Timestamp, Slot)> {
        let (items, epoch) = (&self.items, self.epoch);
        self.deadlines.due(now, |slot| {
            let deadline = items[slot].deadline(epoch);
            deadline.expect("what is in order has a deadline")
        })
    }

    /// Takes an item that is due out of the order of deadlines, until it changes or its span begins again.
    pub fn forget_deadline(&mut self, slot: Slot, now: Now) {
        if let Some(deadline) = self.deadline_of(slot)
            && deadline.at(now.offset) <= now.at
        {
            self.deadlines.remove(slot, deadline);
        }
    }

    /// Whether an item is out of the order of deadlines although it has one.
    pub fn is_forgotten(&self, slot: Slot) -> bool {
        self.deadline_of(slot).is_some() && !self.deadlines.holds(slot)
    }

    /// Writes a page; nothing if it has no content.
    pub fn encode(&self, page: PageId, content: &mut Vec<u8>) {
        let first = Self::first_slot(page);
        let stored: Vec<T::Stored<'_>> = (0..u8::try_from(Self::SLOTS).unwrap_or(u8::MAX))
            .filter_map(|place| Some(self.items.get(Slot(first + u32::from(place)))?.store(place)))
            .collect();
        if !stored.is_empty() {
            write(&stored, content);
        }
    }

    /// Reads a page.
    ///
    /// # Errors
    /// If it is none of such items.
    pub fn decode(page: PageId, content: &[u8]) -> Result<Loaded<T>, String> {
        if page.kind() != T::KIND {
            return Err(format!("pages of kind {} are not known here", page.kind()));
        }
        let stored: Vec<T::Stored<'_>> = read(content)?;
        let mut loaded = Loaded {
            items: Vec::with_capacity(stored.len()),
            digest: Digest::default(),
        };
        let mut scratch = Vec::new();
        for stored in stored {
            let place = u32::from(T::place(&stored));
            if place >= Self::SLOTS {
                return Err(format!("place {place} of a page is impossible"));
            }
            let slot = Slot(Self::first_slot(page) + place);
            let item = T::restore(stored, slot)?;
            scratch.clear();
            item.canonical(slot, &mut scratch);
            loaded.digest.add(&scratch);
            loaded.items.push((slot, item));
        }
        Ok(loaded)
    }

    /// Puts the items of a page behind all others.
    pub fn load(&mut self, page: Loaded<T>) {
        self.digest.merge(page.digest);
        for (slot, item) in page.items {
            if let Some(deadline) = item.deadline(self.epoch) {
                self.deadlines.insert(slot, deadline);
            }
            self.items.append(slot, item);
        }
    }

    /// Asserts that the running digest is that of a fresh count, and that what has a deadline is in order.
    #[cfg(test)]
    pub(crate) fn assert_whole(&self) {
        let (mut digest, mut bytes) = (Digest::default(), Vec::new());
        for (slot, item) in self.items.iter() {
            bytes.clear();
            item.canonical(slot, &mut bytes);
            digest.add(&bytes);
            let timed = item.deadline(self.epoch).is_some();
            assert_eq!(self.deadlines.holds(slot), timed, "what ends is in order");
        }
        assert_eq!(
            self.digest, digest,
            "the running digest is that of a fresh count"
        );
    }

    fn page_of(slot: Slot) -> PageId {
        PageId::new(T::KIND, slot.0 / Self::SLOTS + Self::FIRST)
    }

    fn first_slot(page: PageId) -> u32 {
        (page.index() - Self::FIRST) * Self::SLOTS
    }

    /// The page of a slot is about to change.
    fn touch(&self, change: Change<'_>, slot: Slot) {
        let page = Self::page_of(slot);
        change.touch(page, |content| self.encode(page, content));
    }

    /// An item is there, or is as it will be.
    fn include(&mut self, slot: Slot) {
        let item = &self.items[slot];
        self.scratch.clear();
        item.canonical(slot, &mut self.scratch);
        self.digest.add(&self.scratch);
        if let Some(deadline) = item.deadline(self.epoch) {
            self.deadlines.insert(slot, deadline);
        }
    }

    /// An item is about to change, or to go.
    fn exclude(&mut self, slot: Slot) {
        let item = &self.items[slot];
        self.scratch.clear();
        item.canonical(slot, &mut self.scratch);
        self.digest.remove(&self.scratch);
        if let Some(deadline) = item.deadline(self.epoch) {
            self.deadlines.remove(slot, deadline);
        }
    }
}

/// What a machine has but once. Looked at as what it is, and changed by no other way than `change`.
#[derive(Debug, Default)]
pub struct Once<T> {
    value: T,
}

impl<T> Deref for Once<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Single> Once<T> {
    /// Changes it.
    pub fn change(&mut self, change: Change<'_>, make: impl FnOnce(&mut T)) {
        change.touch(PageId::HEAD, |content| self.encode(content));
        make(&mut self.value);
    }

    /// The digest of it.
    pub fn digest(&self) -> Digest {
        let (mut digest, mut bytes) = (Digest::default(), Vec::new());
        self.value.canonical(&mut bytes);
        digest.add(&bytes);
        digest
    }

    /// Writes its page.
    pub fn encode(&self, content: &mut Vec<u8>) {
        write(&self.value, content);
    }

    /// Reads its page.
    ///
    /// # Errors
    /// If it is none.
    pub fn decode(content: &[u8]) -> Result<T, String> {
        read(content)
    }

    /// Takes what was read from its page.
    pub fn load(&mut self, value: T) {
        self.value = value;
    }
}

/// Writes something as pages hold it.
pub(crate) fn write<T: Serialize>(value: &T, content: &mut Vec<u8>) {
    rmp_serde::encode::write(content, value).expect("writing to memory does not fail");
}

/// Reads something as pages hold it.
///
/// # Errors
/// If it is none.
pub(crate) fn read<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, String> {
    decode::from_slice(content).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Kept, Once, Plain, Single};
    use crate::clock::{Deadline, Now, Offset, Timestamp};
    use crate::ids::{PageId, Seq, Slot};
    use crate::lookup::pages::Pages;
    use serde::{Deserialize, Serialize};

    /// All that a machine has to say of an item.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    struct Lease {
        name: String,
        until: Option<Timestamp>,
    }

    impl Plain for Lease {
        const KIND: u8 = 7;

        fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
            let until = self.until?;
            Some(Deadline::Time(until.max(epoch)))
        }
    }

    fn lease(name: &str, until: u64) -> Lease {
        Lease {
            name: name.to_owned(),
            until: (until > 0).then_some(Timestamp(until)),
        }
    }

    #[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    struct Head {
        leases: u64,
    }

    impl Single for Head {
        fn canonical(&self, bytes: &mut Vec<u8>) {
            bytes.extend_from_slice(&self.leases.to_le_bytes());
        }
    }

    fn at(at: u64) -> Now {
        let (at, offset) = (Timestamp(at), Offset::default());
        Now { at, offset }
    }

    /// Three leases on two pages.
    fn three() -> (Kept<Lease>, Pages) {
        let (mut leases, mut pages) = (Kept::default(), Pages::default());
        for (slot, name, until) in [(0, "a", 30), (1, "b", 0), (2, "c", 20)] {
            leases.insert(pages.by(Seq(1)), Slot(slot), lease(name, until));
        }
        (leases, pages)
    }

    fn wanted(pages: &mut Pages, since: u64, upto: u64) -> Vec<PageId> {
        pages.begin(Seq(since), Seq(upto));
        std::iter::from_fn(|| pages.next_wanted().map(|(page, _)| page)).collect()
    }

    #[test]
    fn a_change_keeps_digest_deadlines_and_pages() {
        let (mut leases, mut pages) = three();
        let before = leases.digest();
        assert_eq!(leases.due(at(25)), Some((Timestamp(20), Slot(2))));
        leases.change(pages.by(Seq(2)), Slot(2), |it| {
            it.until = Some(Timestamp(40));
        });
        leases.assert_whole();
        assert_ne!(leases.digest(), before);
        assert_eq!(leases.due(at(25)), None);
        assert_eq!(leases.due(at(40)), Some((Timestamp(30), Slot(0))));
        assert_eq!(leases.remove(pages.by(Seq(3)), Slot(0)), lease("a", 30));
        leases.assert_whole();
        assert_eq!(leases.next_free(), Slot(0));
        assert_eq!(
            wanted(&mut pages, 0, 3),
            [PageId::new(7, 0), PageId::new(7, 1)]
        );
        assert_eq!(wanted(&mut pages, 2, 3), [PageId::new(7, 0)]);
    }

    #[test]
    fn a_checkpoint_has_items_as_they_were_when_it_began() {
        let (mut leases, mut pages) = three();
        let page = PageId::new(7, 0);
        let mut before = Vec::new();
        leases.encode(page, &mut before);
        pages.begin(Seq(0), Seq(1));
        leases.change(pages.by(Seq(2)), Slot(1), |it| it.name.push('b'));
        leases.remove(pages.by(Seq(3)), Slot(0));
        let early = pages.take_early();
        assert_eq!(early.len(), 1, "a page is copied once");
        assert_eq!((early[0].page, &early[0].content), (page, &before));
        let next = pages.next_wanted();
        assert_eq!(
            next,
            Some((PageId::new(7, 1), Seq(1))),
            "the other was not copied"
        );
    }

    #[test]
    fn what_is_loaded_is_what_was_kept() {
        let (leases, mut pages) = three();
        let mut loaded = Kept::<Lease>::default();
        for page in wanted(&mut pages, 0, 1) {
            let mut content = Vec::new();
            leases.encode(page, &mut content);
            loaded.load(Kept::decode(page, &content).unwrap());
        }
        loaded.assert_whole();
        assert_eq!(loaded.digest(), leases.digest());
        assert!(loaded.iter().eq(leases.iter()));
        assert_eq!(loaded.due(at(25)), Some((Timestamp(20), Slot(2))));
    }

    #[test]
    fn a_page_that_is_none_is_an_error() {
        let page = PageId::new(7, 0);
        let mut beyond = Vec::new();
        super::write(&[(2u8, lease("beyond", 0))], &mut beyond);
        assert!(Kept::<Lease>::decode(page, &beyond).is_err(), "no place 2");
        assert!(Kept::<Lease>::decode(page, b"?").is_err());
        let (mut good, other) = (Vec::new(), PageId::new(8, 0));
        super::write(&[(1u8, lease("good", 0))], &mut good);
        assert!(Kept::<Lease>::decode(page, &good).is_ok());
        assert!(Kept::<Lease>::decode(other, &good).is_err(), "no such kind");
    }

    #[test]
    fn a_start_sets_every_deadline_anew() {
        let (mut leases, _) = three();
        leases.forget_deadline(Slot(0), at(30));
        leases.forget_deadline(Slot(2), at(19));
        assert_eq!(
            leases.due(at(30)),
            Some((Timestamp(20), Slot(2))),
            "not due at 19"
        );
        leases.begin_spans(Timestamp(25));
        leases.assert_whole();
        assert_eq!(leases.due(at(30)), Some((Timestamp(25), Slot(2))));
        assert_eq!(
            leases.deadline_of(Slot(0)),
            Some(Deadline::Time(Timestamp(30)))
        );
        assert_eq!(leases.deadline_of(Slot(1)), None);
    }

    #[test]
    fn what_there_is_once_has_a_page_of_its_own() {
        let (mut head, mut pages) = (Once::<Head>::default(), Pages::default());
        let before = head.digest();
        head.change(pages.by(Seq(1)), |head| head.leases = 3);
        assert_ne!(head.digest(), before);
        assert_eq!(wanted(&mut pages, 0, 1), [PageId::HEAD]);
        let (mut content, mut again) = (Vec::new(), Once::<Head>::default());
        head.encode(&mut content);
        again.load(Once::decode(&content).unwrap());
        assert_eq!(*again, *head);
    }
}
