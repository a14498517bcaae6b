//! What a run came to: for people in a line, for programs in the form of `MediaWiki`'s `runJobs.php --result=json`.

use crate::text::count;
use serde_json::{Value, json};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// There was nothing to claim.
    NoneReady,
    /// As many jobs were claimed as may be.
    JobLimit,
    /// It took longer than it may.
    TimeLimit,
    /// A signal ended it.
    Stopped,
    /// The command cannot be run, or the coordinator cannot be asked.
    Exception,
}

impl Reached {
    /// The word for it: those of `MediaWiki`, and `stopped`.
    const fn word(self) -> &'static str {
        match self {
            Self::NoneReady => "none-ready",
            Self::JobLimit => "job-limit",
            Self::TimeLimit => "time-limit",
            Self::Stopped => "stopped",
            Self::Exception => "exception",
        }
    }
}

/// What became of a job.
#[derive(Debug)]
pub(super) struct Worked {
    pub(super) kind: String,
    /// What went wrong; nothing if it is done.
    pub(super) error: Option<String>,
    pub(super) ms: u64,
}

impl Worked {
    fn shown(&self) -> Value {
        let status = if self.error.is_none() { "ok" } else { "failed" };
        json!({ "type": self.kind, "status": status, "error": self.error, "time": self.ms })
    }
}

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) jobs: Vec<Worked>,
    pub(super) reached: Option<Reached>,
}

impl Tally {
    /// Notes why it ends, unless that is known.
    pub(super) fn reach(&mut self, reached: Reached) {
        self.reached.get_or_insert(reached);
    }

    fn word(&self) -> &'static str {
        self.reached.unwrap_or(Reached::NoneReady).word()
    }

    /// As programs read it. Types are throttled by the coordinator, so that a run has no back-offs of its own.
    pub(super) fn json(&self) -> String {
        let jobs: Vec<Value> = self.jobs.iter().map(Worked::shown).collect();
        let elapsed: u64 = self.jobs.iter().map(|job| job.ms).sum();
        let said = json!({
            "jobs": jobs,
            "reached": self.word(),
            "backoffs": {},
            "elapsed": elapsed,
        });
        format!("{said}\n")
    }

    /// As people read it.
    pub(super) fn line(&self) -> String {
        let failed = self.jobs.iter().filter(|job| job.error.is_some()).count();
        let done = (self.jobs.len() - failed) as u64;
        format!(
            "{} done, {failed} failed: {}",
            count(done, "job"),
            self.word()
        )
    }
}
