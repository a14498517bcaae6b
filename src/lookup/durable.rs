//! Durable items of a machine, by slot, together with everything that a change of an item must update: the digest, the
//! deadlines, and the pages that a snapshot consists of.
//!
//! A machine reads its items through a slab, and changes them through [`DurableSlab`], naming the journal entry that makes each [`Change`].
//! Singleton state is in [`Singleton`]. So a machine need only define its [`Item`]s to get pages, digest and deadlines. Change rule: the stored
//! form of an item is part of the on-disk format, see `persist/format.rs`.

#![expect(
    clippy::indexing_slicing,
    reason = "a machine changes only existing items: an empty slot is an impossible state"
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

/// A durable item of a machine.
pub trait Item: Sized + 'static {
    /// The kind of the pages that hold such items; each item type of a machine has its own, see [`PageId`].
    const KIND: u8;
    /// The number of slots on a page: as many as fill about two kilobytes with items of typical length.
    const SLOTS: u32;

    /// The form in which an item is stored on a page. It includes the item's place: the position of its slot on the page.
    type Stored<'a>: Serialize + Deserialize<'a>;

    /// Converts the item to its stored form, which includes `place`.
    fn store(&self, place: u8) -> Self::Stored<'_>;
    /// Returns the place that the stored form of an item includes.
    fn place(stored: &Self::Stored<'_>) -> u8;
    /// Converts an item back from its stored form.
    ///
    /// # Errors
    /// Returns a description of what is wrong if `stored` is not a valid item.
    fn restore(stored: Self::Stored<'_>, slot: Slot) -> Result<Self, String>;

    /// Appends the canonical bytes of the item, over which the digest is computed.
    fn canonical(&self, slot: Slot, bytes: &mut Vec<u8>);

    /// Appends the bytes over which earlier versions of the program computed the digest.
    fn former_canonical(&self, slot: Slot, bytes: &mut Vec<u8>) {
        self.canonical(slot, bytes);
    }

    /// Returns when the item, whose spans were last restarted at `epoch`, becomes due; `None` if it never does.
    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        None
    }
}

/// An item that is stored and hashed through its serde implementation: for types with few items, where the cost does not matter.
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

/// The singleton state of a machine, on its own page.
pub trait Single: Serialize + DeserializeOwned {
    /// Appends the canonical bytes of the state, over which the digest is computed.
    fn canonical(&self, bytes: &mut Vec<u8>);
}

/// All items of one type.
#[derive(Debug)]
pub struct DurableSlab<T> {
    items: Slab<T>,
    digest: Digest,
    deadlines: Deadlines,
    epoch: Timestamp,
    /// A buffer for the canonical bytes of the item being hashed, kept so that it is allocated only once.
    scratch: Vec<u8>,
}

/// A decoded page of items.
#[derive(Debug)]
pub struct Loaded<T> {
    /// The items in the order of their slots.
    pub items: Vec<(Slot, T)>,
    digest: Digest,
}

impl<T> Default for DurableSlab<T> {
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

/// Items are read through the slab, and changed only by the methods of `DurableSlab`.
impl<T> Deref for DurableSlab<T> {
    type Target = Slab<T>;

    fn deref(&self) -> &Slab<T> {
        &self.items
    }
}

impl<T: Item> DurableSlab<T> {
    /// The number of slots on a page. Small in tests, so that a small state has several pages.
    const SLOTS: u32 = if cfg!(test) { 2 } else { T::SLOTS };
    /// The index of the first page of items: the first page of kind 0 is the head page.
    const FIRST: u32 = if T::KIND == PageId::HEAD.kind() { 1 } else { 0 };

    /// Inserts an item into a free slot.
    ///
    /// # Panics
    /// Panics if the slot is taken.
    pub fn insert(&mut self, change: Change<'_>, slot: Slot, item: T) {
        self.touch(change, slot);
        self.items.insert(slot, item);
        self.include(slot);
    }

    /// Changes the item in a slot by calling `make` on it.
    ///
    /// # Panics
    /// Panics if the slot is free.
    pub fn change(&mut self, change: Change<'_>, slot: Slot, make: impl FnOnce(&mut T)) {
        self.touch(change, slot);
        self.exclude(slot);
        make(&mut self.items[slot]);
        self.include(slot);
    }

    /// Removes the item in a slot, and returns it.
    ///
    /// # Panics
    /// Panics if the slot is free.
    pub fn remove(&mut self, change: Change<'_>, slot: Slot) -> T {
        self.touch(change, slot);
        self.exclude(slot);
        self.items.remove(slot)
    }

    /// Gives mutable access to the items, for changing only their volatile parts: those that neither pages nor the digest cover, and that
    /// no deadline depends on.
    pub fn volatile(&mut self) -> &mut Slab<T> {
        &mut self.items
    }

    /// Returns the digest of all items.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the digest of all items that earlier versions of the program computed. Takes time in proportion to the number of items.
    pub fn former_digest(&self) -> Digest {
        let (mut digest, mut bytes) = (Digest::default(), Vec::new());
        for (slot, item) in self.items.iter() {
            bytes.clear();
            item.former_canonical(slot, &mut bytes);
            digest.add(&bytes);
        }
        digest
    }

    /// Restarts every span (a length of time, such as a TTL) at `epoch`, and recomputes every deadline.
    pub fn restart_spans(&mut self, epoch: Timestamp) {
        self.epoch = epoch;
        self.deadlines.clear();
        for (slot, item) in self.items.iter() {
            if let Some(deadline) = item.deadline(epoch) {
                self.deadlines.insert(slot, deadline);
            }
        }
    }

    /// Sets whether removals that are due on a date are held back.
    pub fn hold_removals(&mut self, held: bool) {
        self.deadlines.hold_removals(held);
    }

    /// Returns a node time before which nothing is due; `None` if nothing has a deadline. Ignores forgotten deadlines, and removals while
    /// they are held back.
    pub fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        self.deadlines.first(offset)
    }

    /// Returns when an item becomes due; `None` if it does not exist or never becomes due.
    pub fn deadline_of(&self, slot: Slot) -> Option<Deadline> {
        self.items.get(slot)?.deadline(self.epoch)
    }

    /// Returns the first item that is due, in (deadline, slot) order, with its deadline in node time; `None` if no item is due.
    pub fn due(&mut self, now: Now) -> Option<(Timestamp, Slot)> {
        let (items, epoch) = (&self.items, self.epoch);
        self.deadlines.due(now, |slot| {
            let deadline = items[slot].deadline(epoch);
            deadline.expect("an item in the wheels should have a deadline")
        })
    }

    /// Ignores the deadline of an item until the item changes or its span restarts. Does nothing if the item is not due at `now`.
    pub fn quarantine(&mut self, slot: Slot, now: Now) {
        if let Some(deadline) = self.deadline_of(slot)
            && deadline.at(now.offset) <= now.at
        {
            self.deadlines.remove(slot, deadline);
        }
    }

    /// Returns whether the deadline of an item is being ignored.
    pub fn is_quarantined(&self, slot: Slot) -> bool {
        self.deadline_of(slot).is_some() && !self.deadlines.holds(slot)
    }

    /// Encodes a page; writes nothing if the page holds no items.
    pub fn encode(&self, page: PageId, content: &mut Vec<u8>) {
        let first = Self::first_slot(page);
        let stored: Vec<T::Stored<'_>> = (0..u8::try_from(Self::SLOTS).unwrap_or(u8::MAX))
            .filter_map(|place| Some(self.items.get(Slot(first + u32::from(place)))?.store(place)))
            .collect();
        if !stored.is_empty() {
            write(&stored, content);
        }
    }

    /// Decodes a page.
    ///
    /// # Errors
    /// Returns a description of what is wrong if `content` is not a page of such items.
    pub fn decode(page: PageId, content: &[u8]) -> Result<Loaded<T>, String> {
        if page.kind() != T::KIND {
            return Err(format!("a page of kind {} does not hold such items", page.kind()));
        }
        let stored: Vec<T::Stored<'_>> = read(content)?;
        let mut loaded =
            Loaded { items: Vec::with_capacity(stored.len()), digest: Digest::default() };
        let mut scratch = Vec::new();
        for stored in stored {
            let place = u32::from(T::place(&stored));
            if place >= Self::SLOTS {
                return Err(format!("place {place} is beyond the end of the page"));
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

    /// Adds the items of a decoded page. Pages must be loaded in ascending order.
    ///
    /// # Panics
    /// Panics if a slot of the page is not beyond all existing slots.
    pub fn load(&mut self, page: Loaded<T>) {
        self.digest.merge(page.digest);
        for (slot, item) in page.items {
            if let Some(deadline) = item.deadline(self.epoch) {
                self.deadlines.insert(slot, deadline);
            }
            self.items.append(slot, item);
        }
    }

    /// Asserts that the running digest equals one computed from scratch, and that an item is in the wheels if and only if it has a
    /// deadline.
    #[cfg(test)]
    pub(crate) fn assert_whole(&self) {
        let (mut digest, mut bytes) = (Digest::default(), Vec::new());
        for (slot, item) in self.items.iter() {
            bytes.clear();
            item.canonical(slot, &mut bytes);
            digest.add(&bytes);
            let timed = item.deadline(self.epoch).is_some();
            assert_eq!(
                self.deadlines.holds(slot),
                timed,
                "an item is in the wheels if and only if it has a deadline"
            );
        }
        assert_eq!(self.digest, digest, "the running digest equals one computed from scratch");
    }

    fn page_of(slot: Slot) -> PageId {
        PageId::new(T::KIND, slot.0 / Self::SLOTS + Self::FIRST)
    }

    fn first_slot(page: PageId) -> u32 {
        (page.index() - Self::FIRST) * Self::SLOTS
    }

    /// Records that the page of a slot is about to change.
    fn touch(&self, change: Change<'_>, slot: Slot) {
        let page = Self::page_of(slot);
        change.touch(page, |content| self.encode(page, content));
    }

    /// Adds the item in a slot to the digest and the deadlines, after it was added or changed.
    fn include(&mut self, slot: Slot) {
        let item = &self.items[slot];
        self.scratch.clear();
        item.canonical(slot, &mut self.scratch);
        self.digest.add(&self.scratch);
        if let Some(deadline) = item.deadline(self.epoch) {
            self.deadlines.insert(slot, deadline);
        }
    }

    /// Removes the item in a slot from the digest and the deadlines, before it is changed or removed.
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

/// The singleton state of a machine. It is read by dereferencing, set by `load` during recovery, and otherwise changed only by `change`.
#[derive(Debug, Default)]
pub struct Singleton<T> {
    value: T,
}

impl<T> Deref for Singleton<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: Single> Singleton<T> {
    /// Changes the value by calling `make` on it.
    pub fn change(&mut self, change: Change<'_>, make: impl FnOnce(&mut T)) {
        change.touch(PageId::HEAD, |content| self.encode(content));
        make(&mut self.value);
    }

    /// Returns the digest of the value.
    pub fn digest(&self) -> Digest {
        let (mut digest, mut bytes) = (Digest::default(), Vec::new());
        self.value.canonical(&mut bytes);
        digest.add(&bytes);
        digest
    }

    /// Encodes the value's page.
    pub fn encode(&self, content: &mut Vec<u8>) {
        write(&self.value, content);
    }

    /// Decodes the value's page.
    ///
    /// # Errors
    /// Returns a description of what is wrong if `content` is not a page of this value.
    pub fn decode(content: &[u8]) -> Result<T, String> {
        read(content)
    }

    /// Sets the value, as decoded from its page.
    pub fn load(&mut self, value: T) {
        self.value = value;
    }
}

/// Encodes `value` in the format of pages.
pub(crate) fn write<T: Serialize>(value: &T, content: &mut Vec<u8>) {
    rmp_serde::encode::write(content, value).expect("writing to memory should not fail");
}

/// Decodes a value in the format of pages.
///
/// # Errors
/// Returns a description of what is wrong if `content` does not hold such a value.
pub(crate) fn read<'a, T: Deserialize<'a>>(content: &'a [u8]) -> Result<T, String> {
    decode::from_slice(content).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{DurableSlab, Plain, Single, Singleton};
    use crate::clock::{Deadline, Now, Offset, Timestamp};
    use crate::ids::{PageId, Seq, Slot};
    use crate::lookup::pages::Pages;
    use serde::{Deserialize, Serialize};

    /// An item with everything that a machine must define for an item type.
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
        Lease { name: name.to_owned(), until: (until > 0).then_some(Timestamp(until)) }
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

    /// Returns three leases on two pages.
    fn three() -> (DurableSlab<Lease>, Pages) {
        let (mut leases, mut pages) = (DurableSlab::default(), Pages::default());
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
        assert_eq!(wanted(&mut pages, 0, 3), [PageId::new(7, 0), PageId::new(7, 1)]);
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
            "the other page was not copied before its turn"
        );
    }

    #[test]
    fn what_is_loaded_is_what_was_kept() {
        let (leases, mut pages) = three();
        let mut loaded = DurableSlab::<Lease>::default();
        for page in wanted(&mut pages, 0, 1) {
            let mut content = Vec::new();
            leases.encode(page, &mut content);
            loaded.load(DurableSlab::decode(page, &content).unwrap());
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
        assert!(DurableSlab::<Lease>::decode(page, &beyond).is_err(), "no place 2");
        assert!(DurableSlab::<Lease>::decode(page, b"?").is_err());
        let (mut good, other) = (Vec::new(), PageId::new(8, 0));
        super::write(&[(1u8, lease("good", 0))], &mut good);
        assert!(DurableSlab::<Lease>::decode(page, &good).is_ok());
        assert!(DurableSlab::<Lease>::decode(other, &good).is_err(), "no such kind");
    }

    #[test]
    fn a_start_sets_every_deadline_anew() {
        let (mut leases, _) = three();
        leases.quarantine(Slot(0), at(30));
        leases.quarantine(Slot(2), at(19));
        assert_eq!(
            leases.due(at(30)),
            Some((Timestamp(20), Slot(2))),
            "slot 2 was not due at 19, so its deadline was not forgotten"
        );
        leases.restart_spans(Timestamp(25));
        leases.assert_whole();
        assert_eq!(leases.due(at(30)), Some((Timestamp(25), Slot(2))));
        assert_eq!(leases.deadline_of(Slot(0)), Some(Deadline::Time(Timestamp(30))));
        assert_eq!(leases.deadline_of(Slot(1)), None);
    }

    #[test]
    fn what_there_is_once_has_a_page_of_its_own() {
        let (mut head, mut pages) = (Singleton::<Head>::default(), Pages::default());
        let before = head.digest();
        head.change(pages.by(Seq(1)), |head| head.leases = 3);
        assert_ne!(head.digest(), before);
        assert_eq!(wanted(&mut pages, 0, 1), [PageId::HEAD]);
        let (mut content, mut again) = (Vec::new(), Singleton::<Head>::default());
        head.encode(&mut content);
        again.load(Singleton::decode(&content).unwrap());
        assert_eq!(*again, *head);
    }
}
