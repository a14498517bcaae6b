//! Stops commands whose claims were lost: a job that was cancelled, or whose queue was flushed, is no longer worked on.
//!
//! Reads the claims of this process from the coordinator every second. An answer includes everything that was claimed before the
//! request was sent, even if the coordinator was restarted, so a claim that is missing from it is lost.

use crate::client::{self, Fields, fields, rest};
use crate::report::Failure;
use crate::work::attempt::Attempts;
use crate::work::claim::{COMPLETES, Claim, Jobs, Key};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The interval between requests.
const EVERY: Duration = Duration::from_secs(1);

/// How much longer than this process the coordinator lets a command take: this process ends it if it is alive, with an error that says more.
const PATIENCE: Duration = Duration::from_secs(5);

/// The jobs being worked on, and their commands.
#[derive(Default)]
pub(super) struct Watched(Mutex<BTreeMap<Key, WatchedClaim>>);

/// A claim that is being worked on.
#[derive(Default)]
struct WatchedClaim {
    /// The id of its command's record, once known.
    command: Option<String>,
    is_lost: bool,
    /// Whether the coordinator knows that the command works on the job.
    is_attached: bool,
}

impl Watched {
    pub(super) fn begin(&self, claim: &Claim) {
        self.held().insert(claim.key(), WatchedClaim::default());
    }

    /// Removes a claim, and returns whether it was lost.
    pub(super) fn end(&self, claim: &Claim) -> bool {
        self.held().remove(&claim.key()).is_some_and(|held| held.is_lost)
    }

    /// Records the command of a claim, and whether the caller tells the coordinator about it; returns whether the claim is already lost.
    fn is_of(&self, claim: &Claim, (command, is_attached): (&str, bool)) -> bool {
        let mut held = self.held();
        held.get_mut(&claim.key()).is_some_and(|held| {
            held.command = Some(command.to_owned());
            held.is_attached = is_attached;
            held.is_lost
        })
    }

    /// Marks claims as lost, and returns the record ids of their commands, which the caller must stop.
    fn lose(&self, keys: &BTreeSet<Key>) -> Vec<String> {
        let mut held = self.held();
        let lost = held.iter_mut().filter(|(key, held)| keys.contains(key) && !held.is_lost);
        lost.filter_map(|(_, held)| {
            held.is_lost = true;
            held.command.clone()
        })
        .collect()
    }

    /// Returns the claims whose commands the coordinator does not know yet.
    fn unattached(&self) -> Vec<(Key, String)> {
        let held = self.held();
        let unknown = held.iter().filter(|(_, held)| !held.is_attached);
        unknown.filter_map(|(key, held)| Some((*key, held.command.clone()?))).collect()
    }

    fn note_attached(&self, key: Key, is_attached: bool) {
        if let Some(held) = self.held().get_mut(&key) {
            held.is_attached = is_attached;
        }
    }

    /// Returns the record ids of all running commands.
    pub(super) fn commands(&self) -> Vec<String> {
        let held = self.held();
        let commands = held.values().filter_map(|held| held.command.clone());
        commands.collect()
    }

    fn held(&self) -> MutexGuard<'_, BTreeMap<Key, WatchedClaim>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempts {
    /// Checks for lost claims every second, as long as this process runs.
    pub(super) fn watch(&self) {
        loop {
            rest(EVERY);
            // An error means that the coordinator cannot be reached; the next check may succeed.
            drop(self.look());
        }
    }

    fn look(&self) -> Result<(), Failure> {
        let before: BTreeSet<Key> = self.watched.held().keys().copied().collect();
        if before.is_empty() {
            return Ok(());
        }
        for (key, command) in self.watched.unattached() {
            self.attach(key, self.attachment(&command), false);
        }
        let wanted = self.wanted()?;
        for command in self.watched.lose(&(&before - &wanted)) {
            self.stop(&command);
        }
        Ok(())
    }

    /// Returns the claims of this process that are still valid and not cancelled.
    fn wanted(&self) -> Result<BTreeSet<Key>, Failure> {
        let mut wanted = BTreeSet::new();
        let mut query =
            fields([("process", self.jobs.own.as_str().into()), ("limit", "1000".into())]);
        loop {
            let path = client::with_query("/v1/queues/jobs", &query);
            let mut body = client::get(&self.jobs.target, &path)?.success(&[])?;
            let jobs = body.pointer("/jobs").and_then(Value::as_array);
            let is_wanted = |job: &&Value| job.pointer("/cancelled") == Some(&false.into());
            wanted.extend(jobs.into_iter().flatten().filter(is_wanted).filter_map(|job| {
                let number = |path| job.pointer(path).and_then(Value::as_u64);
                Some((number("/id")?, number("/token")?))
            }));
            match body.get_mut("next").map(Value::take) {
                Some(next @ Value::String(_)) => query.insert("after".to_owned(), next),
                Some(_) | None => return Ok(wanted),
            };
        }
    }

    /// Tells the coordinator which command works on a job: if this process is killed, the claim lasts as long as that command, which is
    /// stopped after its time. With `completes`, its exit status is then the result of the job, unless it is kept for other jobs, too.
    fn attach(&self, key: Key, mut asked: Fields, completes: bool) {
        if !completes {
            asked.remove(COMPLETES);
        }
        // An error means that the claim is lost, which `look` notices, or that the coordinator cannot be reached: `look` tries again.
        let told = Jobs::tell(&self.jobs.target, key, "touch", asked);
        self.watched.note_attached(key, told.is_ok());
    }

    /// Returns the fields of a request that names the command that works on a job.
    fn attachment(&self, command: &str) -> Fields {
        let claim_ms = self.bounds.time.map(|most| {
            let most = most + self.bounds.grace + PATIENCE;
            u64::try_from(most.as_millis()).unwrap_or(u64::MAX)
        });
        let completes = self.idle.is_none().then_some(true);
        fields([
            ("command", command.into()),
            ("claim_ms", claim_ms.into()),
            (COMPLETES, completes.into()),
        ])
    }

    /// Records that a command works on a job. Stops the command if the claim is already lost, and kills it if the run has been halted.
    pub(super) fn works_on(&self, claim: &Claim, command: &str, secret: &str) {
        // A command that is kept is attached by `look`, which spares a request for each short job.
        let is_attached = self.idle.is_none();
        if self.watched.is_of(claim, (command, is_attached)) {
            self.stop(command);
        }
        let asked = self.attachment(command);
        let has_verdict = self.reports.attach(secret, asked.clone());
        if is_attached {
            self.attach(claim.key(), asked, !has_verdict);
        }
        // `halt` first sets the flag, then kills the recorded commands: either it kills this command, or the flag is already visible here.
        if self.is_halted.load(Ordering::SeqCst) {
            self.kill(command);
        }
    }
}
