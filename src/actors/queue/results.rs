//! Results of jobs, as reported by their workers. A result is kept for a given time, and may outlast its job.
//!
//! A worker stores the result of a job that it has claimed, then reports separately that the job is done or has failed.
//! Clients are not shown the result until the job is over (`handle/results.rs` ensures this), and the result of a later
//! try replaces it. Results are limited in number and total size: at the limit, the oldest are dropped to make room.
//!
//! Change rule: [`KnownResult`] is stored in pages, see `pages.rs`.

use crate::actors::queue::job::Job;
use crate::actors::queue::report::{JobEnd, KeepResult};
use crate::actors::queue::rules::ResultRules;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{Seq, Slot};
use crate::lookup::durable::{DurableSlab, Loaded, Plain};
use crate::lookup::pages::Change;
use crate::spine::machine::Stamp;
use serde::{Deserialize, Serialize};
use sexton_api::queue::QueueName;
use std::collections::{BTreeMap, BTreeSet};

/// The number of bytes counted for each result in addition to its output and its error.
const OVERHEAD: u64 = 200;

/// The maximum number of results dropped to make room for a new one. It is reached only if the limits have been lowered:
/// otherwise even the largest result displaces fewer, since each result counts as at least `OVERHEAD` bytes.
const DROPPED_MAX: usize = 1000;

impl JobEnd {
    fn bytes(&self) -> u64 {
        let error = self.error.as_ref().map_or(0, |it| it.as_str().len());
        OVERHEAD + (self.output.as_bytes().len() + error) as u64
    }
}

/// How a job ended, and until when the result is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobResult {
    /// The job id.
    pub id: u64,
    /// The queue of the job.
    pub queue: QueueName,
    /// How it ended, as reported by its worker.
    pub end: JobEnd,
    /// Number of tries since it was added or kicked, including the one that ended it. Claims that ended with a deferral do not count.
    pub attempts: u32,
    /// Milliseconds from the addition of the job to its end.
    pub age_ms: u64,
    /// When it ended.
    pub ended: Date,
    /// The date until which the result is kept.
    pub until: Date,
}

/// A stored result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownResult {
    pub(super) result: JobResult,
    /// The sequence number of the journal entry that stored it.
    seq: Seq,
}

impl Plain for KnownResult {
    const KIND: u8 = 6;
    const SLOTS: u32 = 4;

    fn deadline(&self, _epoch: Timestamp) -> Option<Deadline> {
        Some(Deadline::Removal(self.result.until))
    }
}

/// All stored results, indexed by job and by age.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) known: DurableSlab<KnownResult>,
    by_job: BTreeMap<u64, Slot>,
    by_age: BTreeSet<(Seq, Slot)>,
    bytes: u64,
}

impl Results {
    /// Returns the stored result of a job; `None` if there is none.
    pub(super) fn of(&self, id: u64) -> Option<&JobResult> {
        let known = self.known.get(*self.by_job.get(&id)?)?;
        Some(&known.result)
    }

    /// Returns the slots of the oldest results that must be dropped, at most [`DROPPED_MAX`], to make room for the result
    /// `end` of the job `id`. An earlier result of that job is not among them, since it will be replaced.
    pub(super) fn displaced(&self, rules: ResultRules, id: u64, end: &JobEnd) -> Vec<Slot> {
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

    /// Stores a result. It replaces an older one of the same job.
    pub(super) fn keep(&mut self, change: Change<'_>, stamp: Stamp, result: JobResult) {
        let id = result.id;
        let known = KnownResult { result, seq: stamp.seq };
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

    /// Drops a result.
    pub(super) fn remove(&mut self, change: Change<'_>, slot: Slot) {
        let gone = self.known.remove(change, slot);
        self.bytes -= gone.result.end.bytes();
        self.by_job.remove(&gone.result.id);
        self.by_age.remove(&(gone.seq, slot));
    }

    /// Appends the results of a page.
    pub(super) fn load(&mut self, page: Loaded<KnownResult>) {
        for (slot, known) in &page.items {
            self.bytes += known.result.end.bytes();
            self.by_job.insert(known.result.id, *slot);
            self.by_age.insert((known.seq, *slot));
        }
        self.known.load(page);
    }

    /// Asserts that the indexes contain exactly the stored results, and that the total of their bytes is correct.
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
    /// Creates the result of a claimed job that ends now.
    pub(super) fn of(
        (job, queue): (&Job, QueueName),
        at: Timestamp,
        (keep, ended, until): (&KeepResult, Date, Date),
    ) -> Self {
        Self {
            id: job.id,
            queue,
            end: keep.end.clone(),
            attempts: job.details().attempts,
            age_ms: at.0.saturating_sub(job.created.0),
            ended,
            until,
        }
    }
}
