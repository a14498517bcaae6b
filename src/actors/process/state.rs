//! Records and the indexes over them, and the only ways in which they change.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slab: one that leads nowhere is an impossible state"
)]

use crate::actors::process::identity::Identity;
use crate::actors::process::index::Index;
use crate::actors::process::pages::{Head, Page, profile_page, write};
use crate::actors::process::record::{Profile, Record};
use crate::actors::process::rules::Rules;
use crate::clock::{Date, Now, Offset, Timestamp};
use crate::ids::{Digest, ProcessId, Seq, Slot};
use crate::lookup::kept::{Kept, Once};
use crate::lookup::pages::Pages;
use crate::spine::machine::Start;
use std::collections::VecDeque;
use std::sync::Arc;

/// Every record, and where it is found.
#[derive(Debug)]
pub(super) struct State {
    pub(super) rules: Rules,
    pub(super) records: Kept<Record>,
    pub(super) head: Once<Head>,
    pub(super) pages: Pages,
    pub(super) index: Index,
    /// The sum of all profiles.
    profiles: Digest,
    /// Whether no date removes anything: the wall clock is in doubt.
    held: bool,
}

impl State {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            records: Kept::default(),
            head: Once::default(),
            pages: Pages::default(),
            index: Index::default(),
            profiles: Digest::default(),
            held: false,
        }
    }

    /// The record of this id, and where it is.
    pub(super) fn find(&self, id: ProcessId) -> Option<(Slot, &Record)> {
        let slot = *self.index.ids.get(&id)?;
        Some((slot, &self.records[slot]))
    }

    /// The live record of this process. One that was launched goes before one that registered itself while the report of
    /// its launch was on its way.
    pub(super) fn find_live(&self, identity: &Identity) -> Option<(Slot, &Record)> {
        let records = self
            .index
            .alike(identity)
            .map(|slot| (slot, &self.records[slot]));
        let is_it = |(_, record): &(Slot, &Record)| {
            let its = record.identity.as_ref();
            its.is_some_and(|its| its.is(identity))
        };
        records
            .filter(is_it)
            .min_by_key(|(_, record)| (!record.launched, record.id))
    }

    /// The records above one, as far as they are there, from its parent up.
    pub(super) fn above(&self, parent: Option<ProcessId>) -> impl Iterator<Item = (Slot, &Record)> {
        let first = parent.and_then(|id| self.find(id));
        std::iter::successors(first, |(_, record)| self.find(record.parent?))
    }

    /// Puts a new record into a free slot.
    pub(super) fn insert(&mut self, entry: Seq, slot: Slot, record: Record) {
        self.touch_profile(entry, slot);
        self.profiles.add(&profile_bytes(slot, &record.profile));
        self.index.add(slot, &record);
        let parent = record.parent;
        let lives = record.is_live();
        self.records.insert(self.pages.by(entry), slot, record);
        if lives {
            self.hold_above(parent, true);
        }
    }

    /// Changes a record, and with it pages, digest, deadlines and every index.
    pub(super) fn change(&mut self, entry: Seq, slot: Slot, make: impl FnOnce(&mut Record)) {
        let record = &self.records[slot];
        let (stayed, parent) = (record.stays(), record.parent);
        self.index.leave(slot, record);
        self.records.change(self.pages.by(entry), slot, make);
        let record = &self.records[slot];
        self.index.enter(slot, record);
        let stays = record.stays();
        if stays != stayed {
            self.hold_above(parent, stays);
        }
    }

    /// Takes a record out. What it was the parent of has none from then on.
    ///
    /// # Panics
    /// If it must stay.
    pub(super) fn remove(&mut self, entry: Seq, slot: Slot) {
        let record = &self.records[slot];
        assert!(!record.stays(), "what lives below is not cut off");
        self.index.remove(slot, record);
        self.profiles.remove(&profile_bytes(slot, &record.profile));
        self.touch_profile(entry, slot);
        self.records.remove(self.pages.by(entry), slot);
    }

    /// What lives below the one on this path begins to hold those above, or no longer does: only up to the first that
    /// something else holds, too.
    fn hold_above(&mut self, parent: Option<ProcessId>, holds: bool) {
        let mut next = parent;
        while let Some(slot) = next.and_then(|id| self.index.ids.get(&id)).copied() {
            let record = &mut self.records.volatile()[slot];
            let stayed = record.stays();
            if holds {
                record.held += 1;
            } else {
                record.held -= 1;
            }
            self.index.settle(slot, record);
            if record.stays() == stayed {
                return;
            }
            next = record.parent;
        }
    }

    fn touch_profile(&mut self, entry: Seq, slot: Slot) {
        let records = &self.records;
        let encode = |content: &mut Vec<u8>| {
            if let Some(record) = records.get(slot) {
                write(&*record.profile, content);
            }
        };
        self.pages.by(entry).touch(profile_page(slot), encode);
    }

    /// The server started: spans begin again.
    pub(super) fn start(&mut self, Start { stamp, .. }: Start) {
        let head = Head {
            epoch: stamp.at,
            start: stamp.seq,
        };
        let change = self.pages.by(stamp.seq);
        self.head.change(change, |it| *it = head);
        self.records.begin_spans(stamp.at);
    }

    /// Holds back what is removed on its date, or no longer.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// The first record whose time to be kept ends, and when that is.
    fn first_removal(&self) -> Option<(Date, Slot)> {
        let (ended, slot) = self.index.removable.first()?;
        let removal = (ended.plus_ms(self.rules.retention_ms), *slot);
        (!self.held).then_some(removal)
    }

    /// A time before which nothing is due.
    pub(super) fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        let removal = self.first_removal().map(|(date, _)| offset.time(date));
        [self.records.deadline(offset), removal]
            .into_iter()
            .flatten()
            .min()
    }

    /// The record on which time acts first.
    pub(super) fn due(&mut self, now: Now) -> Option<Slot> {
        let removal = self.first_removal();
        let removal = removal.map(|(date, slot)| (now.offset.time(date), slot));
        let removal = removal.filter(|(at, _)| *at <= now.at);
        let acts = self.records.due(now);
        [acts, removal]
            .into_iter()
            .flatten()
            .min()
            .map(|(_, slot)| slot)
    }

    /// Whether time no longer acts on a record, although it would.
    pub(super) fn is_quarantined(&self, slot: Slot) -> bool {
        let is_kept = |record: &Record| {
            let key = (record.ended_at(), slot);
            !record.stays() && !self.index.removable.contains(&key)
        };
        self.records.get(slot).is_some_and(is_kept) || self.records.is_forgotten(slot)
    }

    /// Takes a record on which time failed to act out of all order, until something else puts it back.
    pub(super) fn quarantine(&mut self, slot: Slot, now: Now) {
        self.records.forget_deadline(slot, now);
        let Some(record) = self.records.get(slot) else {
            return;
        };
        let removal = record.ended_at().plus_ms(self.rules.retention_ms);
        if !record.stays() && removal <= now.date() {
            self.index.removable.remove(&(record.ended_at(), slot));
        }
    }

    /// The digest of durable state.
    pub(super) fn digest(&self) -> Digest {
        let mut digest = self.records.digest();
        digest.merge(self.profiles);
        digest.merge(self.head.digest());
        digest
    }

    /// The state with these pages in it, which come in ascending order: records before their profiles.
    ///
    /// # Panics
    /// If they contradict each other.
    pub(super) fn from_pages(rules: Rules, pages: &mut dyn Iterator<Item = Page>) -> Self {
        let mut state = Self::new(rules);
        // Those whose profile is still to come, as their slots ascend.
        let mut without = VecDeque::new();
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.records.begin_spans(head.epoch);
                    state.head.load(head);
                }
                Page::Records(page) => {
                    without.extend(page.items.iter().map(|(slot, _)| *slot));
                    state.records.load(page);
                }
                Page::Profile(slot, profile) => {
                    let next = without.pop_front();
                    assert_eq!(next, Some(slot), "a profile is that of a record");
                    state.profiles.add(&profile_bytes(slot, &profile));
                    state.records.volatile()[slot].profile = Arc::new(*profile);
                }
            }
        }
        assert!(without.is_empty(), "every record has a profile");
        state.build();
        state
    }

    /// Builds every index.
    fn build(&mut self) {
        let slots: Vec<Slot> = self.records.iter().map(|(slot, _)| slot).collect();
        for slot in &slots {
            self.index.add(*slot, &self.records[*slot]);
        }
        for slot in &slots {
            let record = &self.records[*slot];
            let parent = record.parent;
            if record.is_live() {
                self.hold_above(parent, true);
            }
        }
    }
}

/// What the digest is made of for a profile.
fn profile_bytes(slot: Slot, profile: &Profile) -> Vec<u8> {
    let mut bytes = b"profile".to_vec();
    bytes.extend_from_slice(&slot.0.to_le_bytes());
    write(profile, &mut bytes);
    bytes
}
