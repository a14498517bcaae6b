//! The state of the process machine: records and services with their indexes, and the only operations that change records.

#![expect(
    clippy::indexing_slicing,
    reason = "slots come from indexes over the slab: a slot without a record is an impossible state"
)]

use crate::actors::binding::{EndNotice, Until};
use crate::actors::process::identity::Identity;
use crate::actors::process::index::Index;
use crate::actors::process::pages::{Head, Page, profile_page, write};
use crate::actors::process::profiles::Profiles;
use crate::actors::process::record::{Profile, Record};
use crate::actors::process::rules::Rules;
use crate::actors::process::service::Services;
use crate::clock::{Date, Now, Offset, Timestamp};
use crate::ids::{ActorId, Digest, ProcessId, Seq, Slot};
use crate::lookup::durable::{DurableSlab, Singleton};
use crate::lookup::pages::Pages;
use crate::spine::machine::Start;
use std::collections::VecDeque;
use std::sync::Arc;

/// All records and services, with their indexes.
#[derive(Debug)]
pub(super) struct State {
    pub(super) rules: Rules,
    pub(super) records: DurableSlab<Record>,
    pub(super) head: Singleton<Head>,
    pub(super) pages: Pages,
    pub(super) index: Index,
    pub(super) services: Services,
    /// The combined digest of all profiles.
    profiles: Digest,
    newest: Profiles,
    /// Whether removals by date are suspended, because the wall clock is in doubt.
    held: bool,
    /// The notifications to send for the current entry, each with the actor to notify: a watched process, or its tree, is gone.
    notifications: Vec<(ActorId, EndNotice)>,
}

impl State {
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            rules,
            records: DurableSlab::default(),
            head: Singleton::default(),
            pages: Pages::default(),
            index: Index::default(),
            services: Services::default(),
            profiles: Digest::default(),
            newest: Profiles::default(),
            held: false,
            notifications: Vec::new(),
        }
    }

    /// Returns the record with this id, and its slot; `None` if there is none.
    pub(super) fn find(&self, id: ProcessId) -> Option<(Slot, &Record)> {
        let slot = *self.index.ids.get(&id)?;
        Some((slot, &self.records[slot]))
    }

    /// Returns the live record of this process; `None` if there is none. If a launched process registered itself before its start was
    /// reported, it has two records, and that of the launch takes precedence.
    pub(super) fn find_live(&self, identity: &Identity) -> Option<(Slot, &Record)> {
        let records = self.index.matching(identity).map(|slot| (slot, &self.records[slot]));
        let is_it = |(_, record): &(Slot, &Record)| {
            let its = record.identity.as_ref();
            its.is_some_and(|its| its.is(identity))
        };
        records.filter(is_it).min_by_key(|(_, record)| (!record.launched, record.id))
    }

    /// Returns the ancestors of a record with this parent, from the parent up. Ends before the first ancestor that has no record.
    pub(super) fn ancestors(
        &self,
        parent: Option<ProcessId>,
    ) -> impl Iterator<Item = (Slot, &Record)> {
        let first = parent.and_then(|id| self.find(id));
        std::iter::successors(first, |(_, record)| self.find(record.parent?))
    }

    /// Returns those ancestors of a record with this parent whose trees contain it: [`Self::ancestors`] up to the record of the server. What
    /// the server launches does not belong to the tree of whoever started the server.
    pub(super) fn above(&self, parent: Option<ProcessId>) -> impl Iterator<Item = (Slot, &Record)> {
        let first = parent.and_then(|id| self.find(id));
        std::iter::successors(first, |(_, record)| {
            let parent = record.parent.filter(|_| !self.is_server(record.id))?;
            self.find(parent)
        })
    }

    /// Returns whether this is the record of the server itself.
    pub(super) fn is_server(&self, id: ProcessId) -> bool {
        self.head.server == Some(id)
    }

    /// Returns whether this is the record of the server itself, or of one of its ancestors.
    pub(super) fn contains_server(&self, id: ProcessId) -> bool {
        let mut up = self.ancestors(self.head.server);
        up.any(|(_, record)| record.id == id)
    }

    /// Returns a record, and those of its descendants that are live or have live descendants, each after its parent. Empty if no record has
    /// this id. The record of the server is not counted among the descendants, see [`Self::above`].
    pub(super) fn below(&self, id: ProcessId) -> Vec<(Slot, &Record)> {
        let mut found: Vec<(Slot, &Record)> = self.find(id).into_iter().collect();
        let mut next = 0;
        while let Some((_, above)) = found.get(next) {
            next += 1;
            let all = (ProcessId(0), ProcessId(u128::MAX));
            let children = (above.id, all.0)..=(above.id, all.1);
            let children = self.index.children.range(children);
            let children = children.filter_map(|(_, id)| self.find(*id));
            let children = children.filter(|(_, record)| !self.is_server(record.id));
            found.extend(children.filter(|(_, record)| record.is_kept()));
        }
        found
    }

    /// Inserts a new record into a free slot.
    pub(super) fn insert(&mut self, entry: Seq, slot: Slot, mut record: Record) {
        record.profile = self.newest.shared(record.profile);
        record.rare.settle();
        self.touch_profile(entry, slot);
        self.profiles.add(&profile_bytes(slot, &record.profile));
        self.index.add(slot, &record);
        let parent = record.parent;
        let lives = record.is_live() && !self.is_server(record.id);
        self.records.insert(self.pages.by(entry), slot, record);
        if lives {
            self.update_ancestors(parent, true);
        }
    }

    /// Changes a record, updates pages, digest, deadlines and all indexes, and collects the notifications that the change causes.
    pub(super) fn change(&mut self, entry: Seq, slot: Slot, make: impl FnOnce(&mut Record)) {
        let record = &self.records[slot];
        let (stayed, parent) = (record.is_kept(), record.parent);
        let was_gone = record.is_gone(Until::Process);
        self.index.leave(slot, record);
        self.records.change(self.pages.by(entry), slot, |it| {
            make(it);
            it.rare.settle();
        });
        let record = &self.records[slot];
        self.index.enter(slot, record);
        let stays = record.is_kept();
        if !was_gone && record.is_gone(Until::Process) {
            depart(&mut self.notifications, record, Until::Process);
        }
        if stayed && !stays {
            depart(&mut self.notifications, record, Until::Tree);
        }
        if stays != stayed {
            self.update_ancestors(parent, stays);
        }
    }

    /// Sets the record of the server, which is about to be inserted.
    pub(super) fn set_server(&mut self, entry: Seq, id: ProcessId) {
        let change = self.pages.by(entry);
        self.head.change(change, |it| it.server = Some(id));
    }

    /// Lets the record of the server stand for another process. The earlier one is gone, which is notified to the actors that watch it.
    pub(super) fn renew(
        &mut self,
        entry: Seq,
        slot: Slot,
        profile: Profile,
        make: impl FnOnce(&mut Record),
    ) {
        let profile = self.newest.shared(Arc::new(profile));
        let record = &self.records[slot];
        for until in [Until::Process, Until::Tree] {
            depart(&mut self.notifications, record, until);
        }
        self.profiles.remove(&profile_bytes(slot, &record.profile));
        self.profiles.add(&profile_bytes(slot, &profile));
        self.touch_profile(entry, slot);
        self.change(entry, slot, |it| {
            it.profile = profile;
            it.watchers.clear();
            make(it);
        });
    }

    /// Removes a record. Its children keep its id as that of their parent, but are shown without a parent.
    ///
    /// # Panics
    /// Panics if it is not removable.
    pub(super) fn remove(&mut self, entry: Seq, slot: Slot) {
        let record = &self.records[slot];
        assert!(record.is_removable(), "only a removable record is removed");
        self.index.remove(slot, record);
        self.profiles.remove(&profile_bytes(slot, &record.profile));
        self.touch_profile(entry, slot);
        self.records.remove(self.pages.by(entry), slot);
    }

    /// Updates the `held` counts of the ancestors, from `parent` up, after a child of `parent` has begun to hold its position in the tree
    /// (`holds`), or has ceased to. Ends at the first ancestor for which [`Record::is_kept`] does not change.
    fn update_ancestors(&mut self, parent: Option<ProcessId>, holds: bool) {
        let mut next = parent;
        while let Some(slot) = next.and_then(|id| self.index.ids.get(&id)).copied() {
            let record = &mut self.records.volatile()[slot];
            let stayed = record.is_kept();
            if holds {
                record.held += 1;
            } else {
                record.held -= 1;
            }
            self.index.settle(slot, record);
            if record.is_kept() == stayed {
                return;
            }
            if stayed {
                depart(&mut self.notifications, record, Until::Tree);
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

    /// Handles a startup of the server: grace periods begin again.
    pub(super) fn start(&mut self, Start { stamp, .. }: Start) {
        let head = Head { epoch: stamp.at, start: stamp.seq, ..*self.head };
        let change = self.pages.by(stamp.seq);
        self.head.change(change, |it| *it = head);
        self.records.restart_spans(stamp.at);
    }

    /// Takes the notifications collected since the last call, each with the actor to notify.
    pub(super) fn take_notifications(&mut self) -> Vec<(ActorId, EndNotice)> {
        std::mem::take(&mut self.notifications)
    }

    /// Returns whether an actor waits for the end of this record's tree, or of a tree that contains it. An actor that requested the launch
    /// of a process counts as waiting for the end of its tree.
    pub(super) fn is_tree_watched(&self, record: &Record) -> bool {
        let is_watched = |record: &Record| {
            let mut watchers = record.watchers.iter();
            record.awaited.is_some() || watchers.any(|(_, until)| *until == Until::Tree)
        };
        is_watched(record) || self.above(record.parent).any(|(_, it)| is_watched(it))
    }

    /// Suspends or resumes removals by date.
    pub(super) fn hold_removals(&mut self, held: bool) {
        self.held = held;
    }

    /// Returns the removable record whose retention ends first, except for quarantined ones, and the date on which it ends; `None` if there
    /// is no such record, or if removals by date are suspended.
    fn first_removal(&self) -> Option<(Date, Slot)> {
        let mut removable = self.index.removable.iter();
        let first = removable.find(|(_, slot)| !self.index.quarantined.contains(slot));
        let (ended, slot) = first?;
        let removal = (ended.plus_ms(self.rules.retention_ms), *slot);
        (!self.held).then_some(removal)
    }

    /// Returns a time before which nothing is due; `None` if no deadline is set.
    pub(super) fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        let removal = self.first_removal().map(|(date, _)| offset.time(date));
        [self.records.deadline(offset), removal].into_iter().flatten().min()
    }

    /// Returns the slot of the record that is due first; `None` if none is due.
    pub(super) fn due(&mut self, now: Now) -> Option<Slot> {
        let removal = self.first_removal();
        let removal = removal.map(|(date, slot)| (now.offset.time(date), slot));
        let removal = removal.filter(|(at, _)| *at <= now.at);
        let acts = self.records.due(now);
        [acts, removal].into_iter().flatten().min().map(|(_, slot)| slot)
    }

    /// Returns whether a record is exempt from deadlines because the handling of one of them panicked.
    pub(super) fn is_quarantined(&self, slot: Slot) -> bool {
        self.index.quarantined.contains(&slot) || self.records.is_quarantined(slot)
    }

    /// Exempts a record from all deadlines until it changes, because the handling of one of them panicked.
    pub(super) fn quarantine(&mut self, slot: Slot, now: Now) {
        self.records.quarantine(slot, now);
        let Some(record) = self.records.get(slot) else {
            return;
        };
        let removal = record.retained_from().plus_ms(self.rules.retention_ms);
        if record.is_removable() && removal <= now.date() {
            self.index.quarantined.insert(slot);
        }
    }

    /// Returns the digest of the durable state.
    pub(super) fn digest(&self) -> Digest {
        let mut digest = self.records.digest();
        digest.merge(self.profiles);
        digest.merge(self.head.digest());
        digest.merge(self.services.kept.digest());
        digest
    }

    /// Builds the state from pages, which come in ascending order: records before their profiles.
    ///
    /// # Panics
    /// Panics if the pages contradict each other.
    pub(super) fn from_pages(rules: Rules, pages: &mut dyn Iterator<Item = Page>) -> Self {
        let mut state = Self::new(rules);
        // The records whose profiles have not been read yet, in ascending order of slots.
        let mut without = VecDeque::new();
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.records.restart_spans(head.epoch);
                    state.head.load(head);
                }
                Page::Records(page) => {
                    without.extend(page.items.iter().map(|(slot, _)| *slot));
                    state.records.load(page);
                }
                Page::Profile(slot, profile) => {
                    let next = without.pop_front();
                    assert_eq!(
                        next,
                        Some(slot),
                        "each profile belongs to the next record without one"
                    );
                    state.profiles.add(&profile_bytes(slot, &profile));
                    let profile = state.newest.shared(Arc::from(profile));
                    state.records.volatile()[slot].profile = profile;
                }
                Page::Services(page) => state.services.load(page),
            }
        }
        assert!(without.is_empty(), "every record has a profile");
        state.build();
        state
    }

    /// Builds all indexes.
    fn build(&mut self) {
        let slots: Vec<Slot> = self.records.iter().map(|(slot, _)| slot).collect();
        for slot in &slots {
            self.index.add(*slot, &self.records[*slot]);
        }
        for slot in &slots {
            let record = &self.records[*slot];
            let parent = record.parent;
            if record.is_live() && !self.is_server(record.id) {
                self.update_ancestors(parent, true);
            }
        }
        self.services.build();
        self.settle_services();
    }
}

/// Adds a notification for each actor that watches for this end: that of the process itself or, if `until` is the tree, of its whole tree.
fn depart(notifications: &mut Vec<(ActorId, EndNotice)>, record: &Record, until: Until) {
    let watchers = record.watchers.iter().filter(|(_, its)| *its == until);
    notifications.extend(watchers.map(|(by, _)| (*by, record.gone(until))));
}

/// Returns the bytes of a profile that are included in the digest.
fn profile_bytes(slot: Slot, profile: &Profile) -> Vec<u8> {
    let mut bytes = b"profile".to_vec();
    bytes.extend_from_slice(&slot.0.to_le_bytes());
    write(profile, &mut bytes);
    bytes
}
