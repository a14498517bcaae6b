//! All leases and the indexes over them.

use crate::actors::binding::{Binding, EndNotice, Until};
use crate::actors::lease::item::{ClockReading, Due, Holder, Lease, Totals};
use crate::actors::lock::Name;
use crate::clock::{Now, Offset, Timestamp};
use crate::ids::{Digest, PageId, ProcessId, Seq, Slot};
use crate::lookup::durable::{DurableSlab, Loaded, Plain, Single, Singleton};
use crate::lookup::pages::Pages;
use crate::spine::machine::Start;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// The state that does not belong to any one lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    /// When renewal intervals last started again: at the latest startup of the server.
    pub(super) epoch: Timestamp,
}

impl Single for Head {
    fn canonical(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(b"lease");
        bytes.extend_from_slice(&self.epoch.0.to_le_bytes());
    }
}

/// A decoded page.
#[derive(Debug)]
pub enum Page {
    /// The state that does not belong to any one lease.
    Head(Head),
    /// A range of leases, by slot.
    Leases(Loaded<Lease>),
    /// A range of schedule dates, by slot.
    Dues(Loaded<Due>),
}

impl Page {
    /// Decodes the content of a page, or describes why it is malformed.
    pub(super) fn decode(page: PageId, content: &[u8]) -> Result<Self, String> {
        if page == PageId::HEAD {
            Singleton::decode(content).map(Self::Head)
        } else if page.kind() == <Due as Plain>::KIND {
            DurableSlab::decode(page, content).map(Self::Dues)
        } else {
            DurableSlab::decode(page, content).map(Self::Leases)
        }
    }
}

/// All leases and the indexes over them.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) head: Singleton<Head>,
    pub(super) leases: DurableSlab<Lease>,
    pub(super) dues: DurableSlab<Due>,
    pub(super) pages: Pages,
    by_name: BTreeMap<Name, Slot>,
    index: Index,
    /// Schedule dates by the clock's offset when they were determined, except quarantined ones.
    by_offset: BTreeSet<(Option<i64>, Slot)>,
}

/// Returns the sort key of a schedule date in [`State::by_offset`].
fn offset_key(due: Due) -> Option<i64> {
    due.clock.map(|it| it.offset.0)
}

/// Indexes and counts derived from the leases.
#[derive(Debug, Default, PartialEq, Eq)]
struct Index {
    /// Leases by the processes that they depend on, and by how.
    by_process: BTreeSet<(ProcessId, Dependence, Slot)>,
    /// Active leases: those with a pass that is running, requested, owed or scheduled.
    active: BTreeSet<Slot>,
    /// Leases whose latest pass failed: those whose pass any client may have claimed, then the others, each by the time of its end.
    failed: BTreeSet<(bool, Timestamp, Slot)>,
    /// The size of the texts of all leases, in bytes.
    bytes: u64,
    totals: Totals,
}

impl Index {
    fn add(&mut self, slot: Slot, lease: &Lease) {
        self.by_process.extend(processes(lease).map(|(process, how)| (process, how, slot)));
        if lease.is_active() {
            self.active.insert(slot);
        }
        self.failed.extend(failed_key(slot, lease));
        self.bytes += lease.bytes();
        self.totals.running += u64::from(lease.running().is_some());
        self.totals.waiting += u64::from(lease.next.is_some());
    }

    fn remove(&mut self, slot: Slot, lease: &Lease) {
        for (process, how) in processes(lease) {
            self.by_process.remove(&(process, how, slot));
        }
        self.active.remove(&slot);
        if let Some(key) = failed_key(slot, lease) {
            self.failed.remove(&key);
        }
        self.bytes -= lease.bytes();
        self.totals.running -= u64::from(lease.running().is_some());
        self.totals.waiting -= u64::from(lease.next.is_some());
    }
}

/// Returns the sort key of a lease in [`Index::failed`]; `None` if its latest pass did not fail.
fn failed_key(slot: Slot, lease: &Lease) -> Option<(bool, Timestamp, Slot)> {
    let end = lease.failure()?;
    Some((!lease.is_of_plain_client(), end.at, slot))
}

/// How a lease depends on a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dependence {
    /// It is the process of the pass, which was launched for the lease.
    Launched,
    /// A client runs the pass, or waits for it, as long as this much of its process is alive.
    Until(Until),
}

impl Dependence {
    const ALL: [Self; 3] = [Self::Launched, Self::Until(Until::Process), Self::Until(Until::Tree)];

    const fn until(self) -> Until {
        match self {
            Self::Launched => Until::Tree,
            Self::Until(until) => until,
        }
    }
}

/// Returns the processes that the running pass and the next request of a lease depend on.
fn processes(lease: &Lease) -> impl Iterator<Item = (ProcessId, Dependence)> {
    let of_client = |it: Binding| (it.process, Dependence::Until(it.until));
    let current = lease.running().and_then(|it| match &it.holder {
        Holder::Launched { process, .. } => Some((*process, Dependence::Launched)),
        Holder::Process(binding) => Some(of_client(*binding)),
        Holder::Timed { .. } | Holder::Nobody => None,
    });
    let next = lease.next.as_ref().and_then(|it| it.process);
    [current, next.map(of_client)].into_iter().flatten()
}

impl State {
    pub(super) fn find(&self, name: &Name) -> Option<(Slot, &Lease)> {
        let slot = *self.by_name.get(name)?;
        Some((slot, self.leases.get(slot)?))
    }

    /// Returns the leases that depend on a process in this way.
    fn of_process(
        &self,
        process: ProcessId,
        how: Dependence,
    ) -> impl Iterator<Item = Slot> + use<'_> {
        let range = (process, how, Slot(0))..=(process, how, Slot::NONE);
        self.index.by_process.range(range).map(|(.., slot)| *slot)
    }

    /// Returns the lease for whose pass a process was launched, if it was.
    pub(super) fn of_launched(&self, process: ProcessId) -> Option<(Slot, &Lease)> {
        let slot = self.of_process(process, Dependence::Launched).next()?;
        Some((slot, self.leases.get(slot)?))
    }

    /// Returns the leases that change when a process has ended, at most `most` of them.
    pub(super) fn ended_by(&self, gone: EndNotice, most: usize) -> BTreeSet<Slot> {
        let all = Dependence::ALL.into_iter();
        let ended = all.filter(|how| gone.ends(how.until()));
        let mut slots = BTreeSet::new();
        for slot in ended.flat_map(|how| self.of_process(gone.process, how)) {
            if slots.len() == most {
                break;
            }
            slots.insert(slot);
        }
        slots
    }

    /// Returns all leases that depend on processes.
    pub(super) fn bound(&self) -> BTreeSet<Slot> {
        let all = self.index.by_process.iter();
        all.map(|(.., slot)| *slot).collect()
    }

    /// Returns the active leases: those with a pass that is running, requested, owed or scheduled.
    pub(super) const fn active(&self) -> &BTreeSet<Slot> {
        &self.index.active
    }

    /// Returns the leases whose latest pass failed, the latest failure first; those whose pass any client may have claimed are last.
    pub(super) fn failed(&self) -> impl Iterator<Item = Slot> + '_ {
        self.index.failed.iter().rev().map(|(.., slot)| *slot)
    }

    /// Returns the leases whose names satisfy the lower bound `after`, ordered by name.
    pub(super) fn after(&self, after: Bound<&Name>) -> impl Iterator<Item = (&Name, Slot)> {
        let range = self.by_name.range((after.cloned(), Bound::Unbounded));
        range.map(|(name, slot)| (name, *slot))
    }

    /// Returns the size of the texts of all leases, in bytes.
    pub(super) const fn bytes(&self) -> u64 {
        self.index.bytes
    }

    pub(super) const fn totals(&self) -> Totals {
        self.index.totals
    }

    pub(super) fn insert(&mut self, entry: Seq, slot: Slot, lease: Lease) {
        self.by_name.insert(lease.name.clone(), slot);
        self.index.add(slot, &lease);
        self.leases.insert(self.pages.by(entry), slot, lease);
    }

    pub(super) fn change(&mut self, entry: Seq, slot: Slot, make: impl FnOnce(&mut Lease)) {
        self.leases.change(self.pages.by(entry), slot, |lease| {
            self.index.remove(slot, lease);
            make(lease);
            self.index.add(slot, lease);
        });
    }

    pub(super) fn remove(&mut self, entry: Seq, slot: Slot) {
        let lease = self.leases.remove(self.pages.by(entry), slot);
        if let Some(due) = lease.due {
            let gone = self.dues.remove(self.pages.by(entry), due);
            self.by_offset.remove(&(offset_key(gone), due));
        }
        self.index.remove(slot, &lease);
        self.by_name.remove(&lease.name);
    }

    /// Sets the next date of a lease's schedule, whose slot is `place`; removes the date if `due` is `None`.
    pub(super) fn schedule(&mut self, entry: Seq, slot: Slot, (place, due): (Slot, Option<Due>)) {
        let known = self.dues.get(place).copied();
        let change = self.pages.by(entry);
        match (known, due) {
            (Some(_), Some(due)) => self.dues.change(change, place, |it| *it = due),
            (Some(_), None) => drop(self.dues.remove(change, place)),
            (None, Some(due)) => self.dues.insert(change, place, due),
            (None, None) => {}
        }
        if let Some(known) = known {
            self.by_offset.remove(&(offset_key(known), place));
        }
        self.by_offset.extend(due.map(|due| (offset_key(due), place)));
        let stands = due.map(|_| place);
        self.change(entry, slot, |it| it.due = stands);
    }

    /// Returns a schedule date that was determined by a wall clock other than the one with this offset; `None` if there is none.
    pub(super) fn outdated(&self, offset: Offset) -> Option<Slot> {
        let ends = [self.by_offset.first(), self.by_offset.last()];
        let mut ends = ends.into_iter().flatten();
        let found = ends.find(|(its, _)| ClockReading::differs(its.map(Offset), offset));
        found.map(|(_, place)| *place)
    }

    /// Ignores a schedule date that is due until it changes or the server is restarted.
    pub(super) fn quarantine_date(&mut self, place: Slot, now: Now) {
        let Some(due) = self.dues.get(place).copied() else {
            return;
        };
        let is_outdated = ClockReading::differs(due.clock.map(|it| it.offset), now.offset);
        // An outdated date is due before the clock shows it.
        let at = if is_outdated { Timestamp(u64::MAX) } else { now.at };
        self.dues.quarantine(place, Now { at, ..now });
        if self.dues.is_quarantined(place) {
            self.by_offset.remove(&(offset_key(due), place));
        }
    }

    fn restart_dates(&mut self, epoch: Timestamp) {
        self.dues.restart_spans(epoch);
        let all = self.dues.iter();
        self.by_offset = all.map(|(place, due)| (offset_key(*due), place)).collect();
    }

    /// Handles the startup of the server: passes may begin again after draining, clients have their full TTL for the next renewal, and no
    /// client waits on a connection any more. The request of a client that waited on a connection expires one period after the startup or
    /// after the end of the current period, whichever is later, unless the client repeats it.
    pub(super) fn start(&mut self, Start { stamp, .. }: Start) {
        let head = Head { epoch: stamp.at };
        self.head.change(self.pages.by(stamp.seq), |it| *it = head);
        let is_touched = |lease: &Lease| {
            let place = lease.next.as_ref();
            lease.rests || place.is_some_and(|it| it.connected)
        };
        let all = self.leases.iter();
        let touched = all.filter(|(_, lease)| is_touched(lease));
        let touched: Vec<Slot> = touched.map(|(slot, _)| slot).collect();
        for slot in touched {
            self.change(stamp.seq, slot, |lease| {
                lease.rests = false;
                let until = lease.until();
                if let Some(place) = lease.next.as_mut().filter(|it| it.connected) {
                    place.connected = false;
                    place.until = until.max(stamp.at).plus_ms(place.period_ms);
                }
            });
        }
        self.leases.restart_spans(stamp.at);
        self.restart_dates(stamp.at);
    }

    pub(super) fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        if page == PageId::HEAD {
            self.head.encode(content);
        } else if page.kind() == <Due as Plain>::KIND {
            self.dues.encode(page, content);
        } else {
            self.leases.encode(page, content);
        }
    }

    pub(super) fn from_pages(pages: &mut dyn Iterator<Item = Page>) -> Self {
        let mut state = Self::default();
        for page in pages {
            match page {
                Page::Head(head) => {
                    state.leases.restart_spans(head.epoch);
                    state.head.load(head);
                }
                Page::Leases(page) => state.leases.load(page),
                Page::Dues(page) => state.dues.load(page),
            }
        }
        for (slot, lease) in state.leases.iter() {
            state.by_name.insert(lease.name.clone(), slot);
            state.index.add(slot, lease);
        }
        let epoch = state.head.epoch;
        state.restart_dates(epoch);
        state
    }

    pub(super) fn digest(&self) -> Digest {
        let mut digest = self.leases.digest();
        digest.merge(self.dues.digest());
        digest.merge(self.head.digest());
        digest
    }

    /// Asserts that indexes and counts match the leases.
    #[cfg(test)]
    pub(super) fn assert_whole(&self) {
        self.leases.assert_whole();
        self.dues.assert_whole();
        let (mut index, mut by_name) = (Index::default(), BTreeMap::new());
        for (slot, lease) in self.leases.iter() {
            index.add(slot, lease);
            by_name.insert(lease.name.clone(), slot);
            if let Some(due) = lease.due {
                assert_eq!(self.dues.get(due).map(|it| it.lease), Some(slot));
            }
        }
        assert_eq!(self.by_name, by_name);
        assert_eq!(self.index, index);
        for (place, due) in self.dues.iter() {
            let is_indexed = self.by_offset.contains(&(offset_key(*due), place));
            assert_eq!(is_indexed, !self.dues.is_quarantined(place));
        }
        assert!(self.by_offset.len() <= self.dues.len());
        let with_dates = self.leases.iter().filter(|(_, it)| it.due.is_some());
        assert_eq!(with_dates.count(), self.dues.len());
    }
}
