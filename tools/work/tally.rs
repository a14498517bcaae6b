//! The results of a run: as a line, as JSON in the form of `MediaWiki`'s `runJobs.php --result=json`, and as a log line for each
//! job.

use crate::text::{count, grouped};
use crate::work::claim::Claim;
use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// The reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reached {
    /// No job was ready.
    NoneReady,
    /// No job was ready, and none of the types is known.
    NonePossible,
    /// The coordinator accepts no changes, because its disk is full.
    ReadOnly,
    /// The limit on jobs was reached.
    JobLimit,
    /// The time limit was reached.
    TimeLimit,
    /// The memory limit was reached.
    MemoryLimit,
    /// A signal ended the run, or the coordinator is draining.
    Stopped,
    /// The command cannot be run, or the coordinator cannot be reached.
    Exception,
}

impl Reached {
    /// Returns a description of the reason for users. `types` are the job types that were requested.
    fn words(self, types: &[String]) -> String {
        match self {
            Self::NoneReady => "no more jobs are ready".to_owned(),
            Self::NonePossible => format!(
                "there is no queue {}; a queue exists while it has jobs",
                types.join(" or ")
            ),
            Self::ReadOnly => "the coordinator's disk is full".to_owned(),
            Self::JobLimit => "--max-jobs is reached".to_owned(),
            Self::TimeLimit => "--max-time is reached".to_owned(),
            Self::MemoryLimit => "--memory-limit is reached".to_owned(),
            Self::Stopped => "stopped".to_owned(),
            Self::Exception => "ended by an error".to_owned(),
        }
    }

    /// Returns the word for the reason: one of `MediaWiki`'s, or `stopped`. `MediaWiki`'s `replica-lag-limit` never occurs, since
    /// there are no replicas.
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

/// The verdict on a job, as reported to the coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    /// The job failed with this error. If it is tried again, then after this many milliseconds, or, if `None`, as configured for its type.
    Failed(String, Option<u64>),
    /// The command crashed, as this error describes: it was killed by a signal, or reached its memory limit.
    Crashed(String),
    /// The command was stopped for a reason that has nothing to do with the job. It is given back, ready immediately, which does not count as
    /// a try.
    Interrupted(String),
    /// The job is given back for this reason, which does not count as a try. It is tried again after this many milliseconds, or, if `None`,
    /// as configured for its type.
    Later(String, Option<u64>),
}

impl Verdict {
    const fn word(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(..) => "failed",
            Self::Crashed(_) => "crashed",
            Self::Later(..) | Self::Interrupted(_) => "deferred",
        }
    }

    /// Returns whether the job is given back without counting as a try.
    pub(super) const fn is_deferral(&self) -> bool {
        matches!(self, Self::Later(..) | Self::Interrupted(_))
    }

    /// Returns the error, and the milliseconds until the next try, if given.
    pub(super) fn reason(&self) -> (Option<&str>, Option<u64>) {
        match self {
            Self::Done => (None, None),
            Self::Failed(error, after) | Self::Later(error, after) => (Some(error), *after),
            Self::Crashed(error) | Self::Interrupted(error) => (Some(error), None),
        }
    }
}

#[derive(Debug)]
pub(super) struct JobResult {
    pub(super) kind: String,
    /// The error; `None` if the job is done.
    pub(super) error: Option<String>,
    /// Whether it was given back without counting as a try.
    pub(super) is_deferred: bool,
    /// Whether the job will not be tried again.
    pub(super) is_over: bool,
    /// How long the attempt took, in milliseconds.
    pub(super) ms: u64,
}

impl JobResult {
    /// Returns the result of a job that was given back at once, because its command could not be launched.
    pub(super) fn deferred(claim: &Claim, error: &str) -> Self {
        Self {
            kind: claim.kind(),
            error: Some(error.to_owned()),
            is_deferred: true,
            is_over: false,
            ms: 0,
        }
    }

    fn shown(&self) -> Value {
        let status = if self.error.is_none() { "ok" } else { "failed" };
        json!({ "type": self.kind, "status": status, "error": self.error, "time": self.ms })
    }
}

/// The format of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogForm {
    /// `job=17 queue=mails …`
    Logfmt,
    /// A JSON object
    Json,
}

impl LogForm {
    /// Formats the log line of a job, with its time and its result.
    pub(super) fn line(
        self,
        at: &str,
        claim: &Claim,
        verdict: &Verdict,
        worked: &JobResult,
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

/// Formats a value for logfmt, in quotes if necessary.
fn plain(value: &Value) -> String {
    let Some(text) = value.as_str() else {
        return value.to_string();
    };
    let is_bare = |letter: char| letter.is_ascii_graphic() && !"\"=\\".contains(letter);
    if !text.is_empty() && text.chars().all(is_bare) { text.to_owned() } else { value.to_string() }
}

/// The results of a run.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The results of all jobs; `None` if they are only counted.
    jobs: Option<Vec<JobResult>>,
    pub(super) done: u64,
    /// Jobs that failed and are not tried again.
    pub(super) failed: u64,
    pub(super) failed_tries: u64,
    pub(super) deferred: u64,
    elapsed: u64,
    reached: Option<Reached>,
    /// The types that are closed by their throttles, with the time at which each reopens, in seconds since 1970.
    backoffs: Map<String, Value>,
}

impl Tally {
    /// Starts an empty tally. `lists` is whether to keep the result of every job.
    pub(super) fn new(lists: bool) -> Self {
        Self { jobs: lists.then(Vec::new), ..Self::default() }
    }

    /// Records the reason why the run ends, unless one is already known.
    pub(super) fn reach(&mut self, reached: Reached) {
        self.reached.get_or_insert(reached);
    }

    /// Records the result of a job.
    pub(super) fn add(&mut self, worked: JobResult) {
        match worked.error {
            _ if worked.is_deferred => self.deferred += 1,
            None => self.done += 1,
            Some(_) => {
                self.failed_tries += 1;
                self.failed += u64::from(worked.is_over);
            }
        }
        self.elapsed += worked.ms;
        if let Some(jobs) = &mut self.jobs {
            jobs.push(worked);
        }
    }

    /// Returns whether no job was ready and none was worked on.
    pub(super) fn is_empty(&self) -> bool {
        self.done + self.failed_tries + self.deferred == 0
            && self.reached == Some(Reached::NoneReady)
    }

    /// Records that none of the types is known.
    pub(super) fn is_impossible(&mut self) {
        self.reached = Some(Reached::NonePossible);
    }

    /// Records the types that are closed by their throttles, as returned by `Jobs::backoffs`.
    pub(super) fn close(&mut self, backoffs: Map<String, Value>) {
        self.backoffs = backoffs;
    }

    fn word(&self) -> &'static str {
        self.reached.unwrap_or(Reached::NoneReady).word()
    }

    /// Formats the results as JSON. For a run that could not begin, contains only the reason, as in `MediaWiki`.
    pub(super) fn json(&self) -> String {
        let jobs = self.jobs.iter().flatten().map(JobResult::shown);
        let jobs: Vec<Value> = jobs.collect();
        let began = !matches!(self.reached, Some(Reached::NonePossible | Reached::ReadOnly));
        let body = if jobs.is_empty() && !began {
            json!({ "jobs": jobs, "reached": self.word() })
        } else {
            json!({
                "jobs": jobs,
                "reached": self.word(),
                "backoffs": self.backoffs,
                "elapsed": self.elapsed,
            })
        };
        format!("{body}\n")
    }

    /// Formats the results as a line. `types` are the types of jobs that were asked for.
    pub(super) fn line(&self, types: &[String]) -> String {
        let deferred = match self.deferred {
            0 => String::new(),
            deferred => format!(", {deferred} deferred"),
        };
        let done = count(self.done, "job");
        let failed = failed(self.failed, self.failed_tries);
        let reached = self.reached.unwrap_or(Reached::NoneReady);
        format!("{done} done, {failed}{deferred}: {}", reached.words(types))
    }
}

/// Formats the number of jobs that failed and are not tried again, and the number of failed tries if it is different.
pub(super) fn failed(jobs: u64, tries: u64) -> String {
    let jobs_failed = format!("{} failed", grouped(jobs));
    match tries {
        tries if tries == jobs => jobs_failed,
        1 => format!("{jobs_failed}, 1 failed try"),
        tries => format!("{jobs_failed}, {} failed tries", grouped(tries)),
    }
}
