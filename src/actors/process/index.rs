//! The indexes over records. They are volatile and rebuilt from the records, see `state.rs`.

use crate::actors::process::identity::Identity;
use crate::actors::process::message::End;
use crate::actors::process::record::{Phase, Record};
use crate::actors::process::reply::Totals;
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use std::collections::{BTreeMap, BTreeSet};

/// The indexes of all records.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Index {
    /// The slot of every record, by id.
    pub(super) ids: BTreeMap<ProcessId, Slot>,
    /// The live records: those whose phase is not `Exited`.
    pub(super) live: BTreeSet<ProcessId>,
    /// The live records whose processes have an identity, by each mark of the identity.
    identities: BTreeSet<(Mark, Slot)>,
    /// Pairs of parent and record, for every record that has a parent, even if the parent's record was removed.
    pub(super) children: BTreeSet<(ProcessId, ProcessId)>,
    /// Pairs of root and record, even if the root's record was removed. Roots themselves are left out: most records are roots without
    /// descendants.
    pub(super) trees: BTreeSet<(ProcessId, ProcessId)>,
    /// The record numbers in use, by record type.
    numbers: BTreeMap<String, BTreeSet<u64>>,
    /// The removable records, ordered by when their retention began: when their processes ended.
    pub(super) removable: BTreeSet<(Date, Slot)>,
    /// The removable records that are not removed at the end of their retention, because an attempt to do so panicked. Requests can still
    /// remove them: decisions on requests do not depend on this set.
    pub(super) quarantined: BTreeSet<Slot>,
    /// The number of records in each state, and the total size of all records.
    pub(super) totals: Totals,
}

/// A value that only one process has. Two identities of the same process may have only one mark in common: either may lack the inode, and
/// the PID differs between namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Mark {
    /// Machine, boot and inode.
    Inode(u128, u128, u64),
    /// Machine, boot, and the namespace, PID and start time.
    Numbers(u128, u128, (u64, u32, u64)),
}

fn marks(of: &Identity) -> impl Iterator<Item = Mark> + use<> {
    let inode = (of.inode != 0).then_some(Mark::Inode(of.machine, of.boot, of.inode));
    let numbers = (of.namespace, of.pid, of.ticks);
    let numbers = Mark::Numbers(of.machine, of.boot, numbers);
    [inode, Some(numbers)].into_iter().flatten()
}

impl Index {
    /// Indexes a record that is new or has just changed.
    pub(super) fn enter(&mut self, slot: Slot, record: &Record) {
        if record.is_live() {
            self.live.insert(record.id);
            let marks = record.identity.iter().flat_map(marks);
            self.identities.extend(marks.map(|mark| (mark, slot)));
        }
        self.settle(slot, record);
        self.count(record, |count, many| *count += many);
        self.totals.bytes += record.bytes();
    }

    /// Removes a record from the indexes that depend on its state, before the record is changed or removed.
    pub(super) fn leave(&mut self, slot: Slot, record: &Record) {
        if record.is_live() {
            self.live.remove(&record.id);
            for mark in record.identity.iter().flat_map(marks) {
                self.identities.remove(&(mark, slot));
            }
        }
        self.removable.remove(&(record.retained_from(), slot));
        self.quarantined.remove(&slot);
        self.count(record, |count, many| *count -= many);
        self.totals.bytes -= record.bytes();
    }

    /// Adds a record to the index of removable records, or removes it from that index if it is not removable, and ends its quarantine.
    pub(super) fn settle(&mut self, slot: Slot, record: &Record) {
        let key = (record.retained_from(), slot);
        self.quarantined.remove(&slot);
        if record.is_removable() {
            self.removable.insert(key);
        } else {
            self.removable.remove(&key);
        }
    }

    /// Adds a new record to all indexes.
    pub(super) fn add(&mut self, slot: Slot, record: &Record) {
        self.ids.insert(record.id, slot);
        if let Some(parent) = record.parent {
            self.children.insert((parent, record.id));
            self.trees.insert((record.root, record.id));
        }
        let kind = &record.profile.tags.kind;
        let numbers = self.numbers.entry(kind.clone()).or_default();
        numbers.insert(record.number);
        self.enter(slot, record);
    }

    /// Removes a record.
    pub(super) fn remove(&mut self, slot: Slot, record: &Record) {
        self.leave(slot, record);
        self.ids.remove(&record.id);
        if let Some(parent) = record.parent {
            self.children.remove(&(parent, record.id));
            self.trees.remove(&(record.root, record.id));
        }
        let kind = &record.profile.tags.kind;
        if let Some(numbers) = self.numbers.get_mut(kind) {
            numbers.remove(&record.number);
            if numbers.is_empty() {
                self.numbers.remove(kind);
            }
        }
    }

    /// Returns the number of the next record of this type: one more than the highest in use.
    pub(super) fn next_number(&self, kind: &str) -> u64 {
        let numbers = self.numbers.get(kind);
        numbers.and_then(BTreeSet::last).map_or(1, |last| last + 1)
    }

    /// Returns the slots of live records that may belong to this process. A slot is returned twice if both marks match.
    pub(super) fn matching(&self, identity: &Identity) -> impl Iterator<Item = Slot> {
        let all = (Slot(0), Slot::NONE);
        marks(identity).flat_map(move |mark| {
            let found = self.identities.range((mark, all.0)..=(mark, all.1));
            found.map(|(_, slot)| *slot)
        })
    }

    fn count(&mut self, record: &Record, count: impl Fn(&mut u32, u32)) {
        let totals = &mut self.totals;
        let of_phase = match record.phase {
            Phase::Queued => &mut totals.queued,
            Phase::Running => &mut totals.running,
            Phase::Stopping => &mut totals.stopping,
            Phase::Exited => &mut totals.exited,
        };
        count(of_phase, 1);
        let has_ended = !record.is_live();
        let lost = has_ended && matches!(record.end, Some(End::Lost(_)));
        count(&mut totals.lost, lost.into());
        let failure = record.rare.failure.as_ref();
        let has_failed = failure.is_some_and(|it| !it.is_cancellation());
        count(&mut totals.failed, has_failed.into());
        count(&mut totals.deferred, record.is_deferred().into());
        count(&mut totals.stuck, record.rare.stuck.is_some().into());
    }
}
