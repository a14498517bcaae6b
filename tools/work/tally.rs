//! What a run came to: for people in a line, for programs in the form of `MediaWiki`'s `runJobs.php --result=json`, and a line of
//! the log for each job.

use crate::text::count;
use crate::work::claim::Claim;
use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// There was nothing to claim.
    NoneReady,
    /// There was nothing to claim, and nobody knows any of the types.
    NonePossible,
    /// The coordinator takes no changes: its disk is full.
    ReadOnly,
    /// As many jobs were claimed as may be.
    JobLimit,
    /// It took longer than it may.
    TimeLimit,
    /// It uses as much memory as it may.
    MemoryLimit,
    /// A signal ended it, or the coordinator drains.
    Stopped,
    /// The command cannot be run, or the coordinator cannot be asked.
    Exception,
}

impl Reached {
    /// The word for it: those of `MediaWiki`, and `stopped`. Of those of `MediaWiki`, `replica-lag-limit` is never reached: there are
    /// no replicas.
    const fn word(self) -> &'static str {
        match self {
            Self::NoneReady => "none-ready",
            Self::NonePossible => "none-possible",
            Self::ReadOnly => "read-only",
            Self::JobLimit => "job-limit",
            Self::TimeLimit => "time-limit",
            Self::MemoryLimit => "memory-limit",
            Self::Stopped => "stopped",
            Self::Exception => "exception",
        }
    }
}

/// What was said of a job to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// It failed, for this reason; and is tried again in so many milliseconds, if not as its type says.
    Failed(String, Option<u64>),
    /// It was not tried, likewise.
    Later(String, Option<u64>),
}

impl Verdict {
    /// What the coordinator is asked.
    pub(super) const fn request(&self) -> &'static str {
        match self {
            Self::Done => "ack",
            Self::Failed(..) => "fail",
            Self::Later(..) => "defer",
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(..) => "failed",
            Self::Later(..) => "deferred",
        }
    }

    /// What went wrong, and when it is tried again, if that is known.
    pub(super) fn reason(&self) -> (Option<&str>, Option<u64>) {
        match self {
            Self::Done => (None, None),
            Self::Failed(error, after) | Self::Later(error, after) => (Some(error), *after),
        }
    }
}

/// What became of a job.
#[derive(Debug)]
pub(super) struct Worked {
    pub(super) kind: String,
    /// What went wrong; nothing if it is done.
    pub(super) error: Option<String>,
    /// Whether it was not tried, and comes back.
    pub(super) is_deferred: bool,
    pub(super) ms: u64,
}

impl Worked {
    fn shown(&self) -> Value {
        let status = if self.error.is_none() { "ok" } else { "failed" };
        json!({ "type": self.kind, "status": status, "error": self.error, "time": self.ms })
    }
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogForm {
    /// `job=17 queue=mails …`
    Logfmt,
    /// One object in JSON
    Json,
}

impl LogForm {
    /// The line for a job: at which time, what it was, and what came of it.
    pub(super) fn line(
        self,
        at: &str,
        claim: &Claim,
        verdict: &Verdict,
        worked: &Worked,
    ) -> String {
        let mut fields = Map::new();
        let all: [(&str, Value); 7] = [
            ("time", at.into()),
            ("job", claim.id.into()),
            ("queue", claim.queue.as_str().into()),
            ("attempt", claim.attempts.into()),
            ("result", verdict.word().into()),
            ("ms", worked.ms.into()),
            ("error", worked.error.clone().into()),
        ];
        let all = all.into_iter().filter(|(_, value)| !value.is_null());
        fields.extend(all.map(|(name, value)| (name.to_owned(), value)));
        match self {
            Self::Json => Value::Object(fields).to_string(),
            Self::Logfmt => {
                let pairs = fields.iter();
                let pairs = pairs.map(|(name, value)| format!("{name}={}", plain(value)));
                pairs.collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// A value as logfmt has it: in quotes where it must be.
fn plain(value: &Value) -> String {
    let Some(text) = value.as_str() else {
        return value.to_string();
    };
    let is_bare = |letter: char| letter.is_ascii_graphic() && !"\"=\\".contains(letter);
    if !text.is_empty() && text.chars().all(is_bare) {
        text.to_owned()
    } else {
        value.to_string()
    }
}

/// What a run came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Each job, if they are to be listed.
    jobs: Option<Vec<Worked>>,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) deferred: u64,
    elapsed: u64,
    reached: Option<Reached>,
    /// The types that are closed by their throttles, and when each is open again, in seconds since 1970.
    backoffs: Map<String, Value>,
}

impl Tally {
    /// Nothing yet. Whether it keeps every job.
    pub(super) fn new(lists: bool) -> Self {
        Self {
            jobs: lists.then(Vec::new),
            ..Self::default()
        }
    }

    /// Notes why it ends, unless that is known.
    pub(super) fn reach(&mut self, reached: Reached) {
        self.reached.get_or_insert(reached);
    }

    /// Notes what became of a job.
    pub(super) fn add(&mut self, worked: Worked) {
        match worked.error {
            _ if worked.is_deferred => self.deferred += 1,
            None => self.done += 1,
            Some(_) => self.failed += 1,
        }
        self.elapsed += worked.ms;
        if let Some(jobs) = &mut self.jobs {
            jobs.push(worked);
        }
    }

    /// Whether nothing was worked on, and nothing was ready.
    pub(super) fn is_empty(&self) -> bool {
        self.done + self.failed + self.deferred == 0 && self.reached == Some(Reached::NoneReady)
    }

    /// There was nothing, and nobody knows of such jobs.
    pub(super) fn is_impossible(&mut self) {
        self.reached = Some(Reached::NonePossible);
    }

    /// Notes the types that are closed.
    pub(super) fn close(&mut self, backoffs: Map<String, Value>) {
        self.backoffs = backoffs;
    }

    fn word(&self) -> &'static str {
        self.reached.unwrap_or(Reached::NoneReady).word()
    }

    /// As programs read it. A run that could not begin says no more than that, as in `MediaWiki`.
    pub(super) fn json(&self) -> String {
        let jobs = self.jobs.iter().flatten().map(Worked::shown);
        let jobs: Vec<Value> = jobs.collect();
        let began = !matches!(
            self.reached,
            Some(Reached::NonePossible | Reached::ReadOnly)
        );
        let said = if jobs.is_empty() && !began {
            json!({ "jobs": jobs, "reached": self.word() })
        } else {
            json!({
                "jobs": jobs,
                "reached": self.word(),
                "backoffs": self.backoffs,
                "elapsed": self.elapsed,
            })
        };
        format!("{said}\n")
    }

    /// As people read it.
    pub(super) fn line(&self) -> String {
        let deferred = match self.deferred {
            0 => String::new(),
            deferred => format!(", {deferred} deferred"),
        };
        let (done, failed) = (count(self.done, "job"), self.failed);
        format!("{done} done, {failed} failed{deferred}: {}", self.word())
    }
}
