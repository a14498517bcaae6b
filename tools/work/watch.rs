//! Stops commands whose claims were lost: a job that was cancelled, or whose queue was flushed, is no longer worked on.
//!
//! Reads the claims of this process from the coordinator every second. An answer includes everything that was claimed before the
//! request was sent, even if the coordinator was restarted, so a claim that is missing from it is lost.

use crate::client::{self, Fields, fields, rest};
use crate::report::Failure;
use crate::work::attempt::Attempts;
use crate::work::claim::{COMPLETES, Claim, Jobs, Key};
use sexton_api::queue::ListJobs;
use sexton_api::value::Number;
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
    /// Why the claim is over although the command has not ended; `None` if it is not.
    lost: Option<Loss>,
    /// Whether the coordinator knows that the command works on the job.
    is_attached: bool,
}

/// Why a claim is over although its command has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// The job was cancelled.
    Cancelled,
    /// Somebody else ended the claim, or it has expired, or the coordinator does not have it any more.
    Ended,
}

impl Loss {
    pub(super) const fn words(self) -> &'static str {
        match self {
            Self::Cancelled => "it was cancelled",
            Self::Ended => "its claim was lost: somebody else ended it, or it has expired",
        }
    }
}

impl Watched {
    pub(super) fn begin(&self, claim: &Claim) {
        self.held().insert(claim.key(), WatchedClaim::default());
    }

    /// Removes a claim, and returns why it was lost, if it was.
    pub(super) fn end(&self, claim: &Claim) -> Option<Loss> {
        self.held().remove(&claim.key())?.lost
    }

    /// Records the command of a claim, and whether the caller tells the coordinator about it; returns whether the claim is already lost.
    fn is_of(&self, claim: &Claim, (command, is_attached): (&str, bool)) -> bool {
        let mut held = self.held();
        held.get_mut(&claim.key()).is_some_and(|held| {
            held.command = Some(command.to_owned());
            held.is_attached = is_attached;
            held.lost.is_some()
        })
    }

    /// Marks those of the claims `before` as lost that are not among the coordinator's, or whose jobs are cancelled. Returns the record ids
    /// of their commands, which the caller must stop.
    fn lose(&self, before: &BTreeSet<Key>, now: &BTreeMap<Key, bool>) -> Vec<String> {
        let mut held = self.held();
        let open =
            held.iter_mut().filter(|(key, held)| before.contains(key) && held.lost.is_none());
        open.filter_map(|(key, held)| {
            held.lost = match now.get(key) {
                Some(false) => return None,
                Some(true) => Some(Loss::Cancelled),
                None => Some(Loss::Ended),
            };
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
        let now = self.claims()?;
        for command in self.watched.lose(&before, &now) {
            self.stop(&command);
        }
        Ok(())
    }

    /// Returns the claims of this process, each with whether its job is cancelled.
    fn claims(&self) -> Result<BTreeMap<Key, bool>, Failure> {
        let mut claims = BTreeMap::new();
        let (process, limit) = (Some(self.jobs.own.clone()), Number(1000));
        let mut asked = ListJobs { process, limit, ..ListJobs::default() };
        loop {
            let reply = client::ask(&self.jobs.target, &asked)?;
            let page = reply.success(|said| Failure::refused(said, &[]))?.value;
            let held =
                page.jobs.iter().filter_map(|job| Some(((job.id, job.token?.0), job.cancelled)));
            claims.extend(held);
            if page.next.is_none() {
                return Ok(claims);
            }
            asked.after = page.next;
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
