//! What all connections together have recorded about the jobs that they share, and about all ids: which connection holds which job,
//! which jobs are deleted, and the minimum and maximum number of times that each operation was done to a job.

use crate::queues::owner::InitialState;
use crate::queues::tubes::{Job, State};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The tubes that connections share.
pub(crate) const TUBES: [&str; 2] = ["shared-0", "shared-1"];

/// How often an operation was done: at least as often as it was acknowledged, and at most as often as it was requested.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    pub(crate) least: u64,
    pub(crate) most: u64,
}

impl Times {
    fn compare(&mut self, found: u64, what: &str, job: &Job) {
        let fits = (self.least..=self.most).contains(&found);
        assert!(fits, "{what}: {found}, not {self:?} of {job:?}");
        (self.least, self.most) = (found, found);
    }
}

/// What is known about a job.
#[derive(Debug, Default)]
pub(crate) struct TrackedJob {
    pub(crate) body: Vec<u8>,
    /// The connection that holds it; `None` if none does.
    holder: Option<u64>,
    /// Whether some connection has requested the job's deletion.
    is_ending: bool,
    reserves: Times,
    pub(crate) releases: Times,
    pub(crate) buries: Times,
    pub(crate) kicks: Times,
}

/// The jobs and ids that are known.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    jobs: BTreeMap<u64, TrackedJob>,
    deleted: BTreeSet<u64>,
    /// The bodies of jobs whose ids are not known yet.
    puts: BTreeSet<Vec<u8>>,
    /// Buried or delayed jobs. The client that takes one from this list is the only one to work on it.
    pub(crate) aside: Vec<u64>,
    /// Reservations that were requested and not answered.
    pub(crate) reserving: u64,
    /// Ids that were received in this life (run of the server, ended by a kill).
    told: BTreeSet<u64>,
    /// The largest id of all earlier lives.
    before: u64,
}

/// The book in which all connections write.
#[derive(Debug, Default)]
pub(crate) struct Book(Mutex<Pages>);

impl Book {
    pub(crate) fn open(&self) -> MutexGuard<'_, Pages> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    /// Records that a new job has this id, which must not have been issued before.
    pub(crate) fn inserted(&mut self, id: u64) {
        assert!(id > self.before, "{id} may have been given in a life before");
        assert!(self.told.insert(id), "{id} was issued twice");
    }

    /// Records that a connection is about to put a job with this body.
    pub(crate) fn put(&mut self, body: &[u8]) {
        self.puts.insert(body.to_vec());
    }

    /// Returns a job of the shared tubes by its id. If it is not known yet, a connection must have put its body, and it becomes known.
    pub(crate) fn job(&mut self, id: u64, body: &[u8]) -> &mut TrackedJob {
        assert!(!self.deleted.contains(&id), "{id} was deleted");
        if !self.jobs.contains_key(&id) {
            assert!(self.puts.remove(body), "no client put {id} with body {}", body.escape_ascii());
            let known = TrackedJob { body: body.to_vec(), ..TrackedJob::default() };
            self.jobs.insert(id, known);
        }
        let known = self.jobs.get_mut(&id).expect("it was just created");
        assert_eq!(known.body, body, "{id} has another body");
        known
    }

    /// Records that the client that put this job has received its id. Another client may already have reserved or deleted the job.
    pub(crate) fn known_or_gone(&mut self, id: u64, body: &[u8]) {
        if !self.deleted.contains(&id) {
            self.job(id, body);
        }
    }

    /// Records that a job was released. Another client may already have deleted it.
    pub(crate) fn released(&mut self, id: u64) {
        if let Some(known) = self.jobs.get_mut(&id) {
            known.releases.least += 1;
        }
    }

    /// Records that a job was kicked. Another client may already have deleted it.
    pub(crate) fn kicked(&mut self, id: u64) {
        if let Some(known) = self.jobs.get_mut(&id) {
            known.kicks.least += 1;
        }
    }

    /// Returns a job that is known to exist.
    pub(crate) fn known(&mut self, id: u64) -> &mut TrackedJob {
        self.jobs.get_mut(&id).expect("it is known")
    }

    /// Records that a connection has reserved a job.
    pub(crate) fn reserved(&mut self, id: u64, body: &[u8], by: u64) {
        assert!(!self.aside.contains(&id), "{id} is not ready, and reserved");
        let known = self.job(id, body);
        let before = known.holder.replace(by);
        assert_eq!(before, None, "{id} is reserved by {by}, too");
        known.reserves.most += 1;
    }

    /// Records that these reservations are on disk.
    pub(crate) fn reserves_kept(&mut self, ids: impl IntoIterator<Item = u64>) {
        for id in ids {
            if let Some(known) = self.jobs.get_mut(&id) {
                known.reserves.least += 1;
            }
        }
    }

    /// Records that the holder of a job is about to give it up, and returns the job.
    pub(crate) fn parting(&mut self, id: u64) -> &mut TrackedJob {
        let known = self.known(id);
        known.holder = None;
        known
    }

    /// Records that a connection is about to delete the job.
    pub(crate) fn ending(&mut self, id: u64) {
        self.parting(id).is_ending = true;
    }

    /// Records that the job is deleted. It must never exist again.
    pub(crate) fn deleted(&mut self, id: u64) {
        assert!(self.jobs.remove(&id).is_some(), "{id} was there");
        assert!(self.deleted.insert(id), "{id} was deleted twice");
    }

    /// Compares the known state with the jobs found after a restart, which then become the known state.
    pub(crate) fn reckon(&mut self, found: &InitialState) {
        let newest = self.told.last().copied().unwrap_or_default();
        let largest = found.jobs.last_key_value().map_or(0, |(id, _)| *id);
        self.before = self.before.max(newest).max(largest);
        self.told.clear();
        self.aside.clear();
        let mut unknown = 0;
        for (id, job) in &found.jobs {
            if !TUBES.contains(&job.tube.as_str()) {
                continue;
            }
            assert_ne!(job.state, State::Reserved, "{id} is given back at a start");
            let known = self.job(*id, &job.body);
            known.releases.compare(job.releases, "releases", job);
            known.buries.compare(job.buries, "buries", job);
            known.kicks.compare(job.kicks, "kicks", job);
            // Whether an unanswered reservation took effect is not known.
            unknown += job.reserves.saturating_sub(known.reserves.most);
            known.reserves.most = known.reserves.most.max(job.reserves);
            known.reserves.compare(job.reserves, "reserves", job);
            assert_eq!(job.timeouts, 0, "nothing expires here: {job:?}");
            known.holder = None;
            known.is_ending = false;
            if matches!(job.state, State::Buried | State::Delayed) {
                self.aside.push(*id);
            }
        }
        let reserving = std::mem::take(&mut self.reserving);
        assert!(unknown <= reserving, "{unknown} reservations that no client requested");
        let lost = |(id, _): &(&u64, &TrackedJob)| !found.jobs.contains_key(id);
        let lost: Vec<(u64, bool)> =
            self.jobs.iter().filter(lost).map(|(id, known)| (*id, known.is_ending)).collect();
        for (id, was_ending) in lost {
            assert!(was_ending, "{id} was acknowledged, and is lost");
            self.deleted(id);
        }
        // A put that was not acknowledged did not take effect.
        self.puts.clear();
    }
}
