//! How jobs ended, as their workers said, for as long as that is to be known: a result outlasts its job.
//!
//! A worker notes the result of a job that it has, and then ends the job, or fails it. Until the job is over its result is told to
//! nobody, and the result of a later try takes its place. Bounded in number and bytes: the oldest give way to a new one.
//!
//! Change rule: [`KnownResult`] is stored in pages, see `message.rs`.

use crate::actors::queue::job::Job;
use crate::actors::queue::name::QueueName;
use crate::actors::queue::rules::ResultRules;
use crate::actors::queue::said::{JobEnd, KeepResult};
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{Seq, Slot};
use crate::lookup::kept::{Kept, Loaded, Plain};
use crate::lookup::pages::Change;
use crate::spine::machine::Stamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What a result counts beside its output and its error, in bytes.
const OVERHEAD: u64 = 200;

/// The most results that give way to one: more than a full house of short ones needs.
const DROPPED_MAX: usize = 1000;

impl JobEnd {
    fn bytes(&self) -> u64 {
        let error = self.error.as_ref().map_or(0, |it| it.as_str().len());
        OVERHEAD + (self.output.as_bytes().len() + error) as u64
    }
}

/// How a job ended, and until when that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The number of the job.
    pub id: u64,
    /// Its queue.
    pub queue: QueueName,
    /// What its worker said.
    pub end: JobEnd,
    /// Claims since it was added or kicked, the last one included.
    pub attempts: u32,
    /// Milliseconds from when it was added to its end.
    pub age_ms: u64,
    /// When it ended.
    pub ended: Date,
    /// Until when this is known.
    pub until: Date,
}

/// A result that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownResult {
    pub(super) result: JobResult,
    /// The entry that it came with.
    seq: Seq,
}

impl Plain for KnownResult {
    const KIND: u8 = 6;
    const SLOTS: u32 = 4;

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        Some(Deadline::Removal(self.result.until))
    }
}

/// Results, by job and by age.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) known: Kept<KnownResult>,
    by_job: BTreeMap<u64, Slot>,
    by_age: BTreeSet<(Seq, Slot)>,
    bytes: u64,
}

impl Results {
    /// The result of a job.
    pub(super) fn of(&self, id: u64) -> Option<&JobResult> {
        let known = self.known.get(*self.by_job.get(&id)?)?;
        Some(&known.result)
    }

    /// The oldest results that have to go, so that there is room for one of this job.
    pub(super) fn in_the_way(&self, rules: ResultRules, id: u64, end: &JobEnd) -> Vec<Slot> {
        let own = self.by_job.get(&id);
        let bytes_of = |slot: &Slot| self.known.get(*slot).map_or(0, |it| it.result.end.bytes());
        let mut count = self.known.len() - usize::from(own.is_some());
        let mut bytes = self.bytes - own.map_or(0, bytes_of) + end.bytes();
        let others = self.by_age.iter().map(|(_, slot)| slot);
        let oldest = others.filter(|slot| Some(*slot) != own).take(DROPPED_MAX);
        let goes = oldest.take_while(|slot| {
            let is_full = count >= rules.count_max as usize || bytes > rules.bytes_max;
            count -= usize::from(is_full);
            bytes -= if is_full { bytes_of(slot) } else { 0 };
            is_full
        });
        goes.copied().collect()
    }

    /// Keeps a result, in the place of an older one of its job.
    pub(super) fn keep(&mut self, change: Change<'_>, stamp: Stamp, result: JobResult) {
        let id = result.id;
        let known = KnownResult {
            result,
            seq: stamp.seq,
        };
        self.bytes += known.result.end.bytes();
        let slot = if let Some(slot) = self.by_job.get(&id).copied() {
            let mut before = 0;
            self.known.change(change, slot, |it| {
                before = it.result.end.bytes();
                self.by_age.remove(&(it.seq, slot));
                *it = known;
            });
            self.bytes -= before;
            slot
        } else {
            let slot = self.known.next_free();
            self.known.insert(change, slot, known);
            self.by_job.insert(id, slot);
            slot
        };
        self.by_age.insert((stamp.seq, slot));
    }

    /// Forgets a result.
    pub(super) fn remove(&mut self, change: Change<'_>, slot: Slot) {
        let gone = self.known.remove(change, slot);
        self.bytes -= gone.result.end.bytes();
        self.by_job.remove(&gone.result.id);
        self.by_age.remove(&(gone.seq, slot));
    }

    /// Puts those of a page behind all others.
    pub(super) fn load(&mut self, page: Loaded<KnownResult>) {
        for (slot, known) in &page.items {
            self.bytes += known.result.end.bytes();
            self.by_job.insert(known.result.id, *slot);
            self.by_age.insert((known.seq, *slot));
        }
        self.known.load(page);
    }

    /// Asserts that what is known is found by job and by age, and counted.
    #[cfg(test)]
    pub(super) fn assert_whole(&self) {
        let known = || self.known.iter();
        let by_job = known().map(|(slot, it)| (it.result.id, slot));
        assert_eq!(self.by_job, by_job.collect());
        let by_age = known().map(|(slot, it)| (it.seq, slot));
        assert_eq!(self.by_age, by_age.collect());
        let bytes: u64 = known().map(|(_, it)| it.result.end.bytes()).sum();
        assert_eq!(self.bytes, bytes);
        self.known.assert_whole();
    }
}

impl JobResult {
    /// The result of a job that is claimed, which is over now.
    pub(super) fn of(
        (job, queue): (&Job, QueueName),
        at: Timestamp,
        (keep, ended, until): (&KeepResult, Date, Date),
    ) -> Self {
        Self {
            id: job.id,
            queue,
            end: keep.end.clone(),
            attempts: job.story().attempts,
            age_ms: at.0.saturating_sub(job.created.0),
            ended,
            until,
        }
    }
}
