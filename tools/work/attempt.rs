//! One job: its command is launched below this process, and when nothing of it lives the coordinator is told what came of it.

use crate::client::{Fields, fields, instant};
use crate::process::{Asking, Of, attached, ending, outcome};
use crate::report::{Failure, tell};
use crate::text::words;
use crate::work::claim::{Claim, Jobs};
use crate::work::streams::streams;
use crate::work::tally::Worked;
use serde_json::Value;
use std::os::fd::AsFd as _;

/// The exit status that says "not now": `EX_TEMPFAIL` of sysexits.h.
const NOT_NOW: u64 = 75;

/// What is run for each job.
pub(super) struct Attempts {
    pub(super) jobs: Jobs,
    pub(super) asking: Asking,
    /// The command, as a launch asks for it.
    pub(super) command: Fields,
    /// Its name, for messages.
    pub(super) name: String,
    /// Whether standard output is for something else than what commands write.
    pub(super) is_quiet: bool,
}

/// What came of a command.
enum Came {
    Done,
    Failed(String),
    NotNow(String),
    /// It cannot be run at all.
    NeverRan(Failure),
}

impl Attempts {
    /// Works on a job.
    ///
    /// # Errors
    /// If the command cannot be run at all: then the job is given back. And if nobody can say what became of it: then the claim
    /// stays as it is until nothing of this process and its command lives.
    pub(super) fn work(&self, claim: &Claim) -> Result<Worked, Failure> {
        let began = instant();
        let came = if claim.is_duplicate {
            Came::Done
        } else {
            self.run(claim)?
        };
        let (what, error) = match came {
            Came::Done => ("ack", None),
            Came::Failed(error) => ("fail", Some(error)),
            Came::NotNow(error) => ("defer", Some(error)),
            Came::NeverRan(failure) => {
                let said = fields([("error", failure.words().into())]);
                self.jobs.settle(claim, "defer", said)?;
                return Err(failure);
            }
        };
        let said = fields([("error", error.clone().into())]);
        let told = self.jobs.settle(claim, what, said);
        let error = error.or_else(|| told.err().map(|failure| failure.whole()));
        if let Some(error) = &error {
            let line = error.lines().last().unwrap_or_default();
            tell(&format!("job {} of {}: {line}", claim.id, claim.queue));
        }
        Ok(Worked {
            kind: claim.kind(),
            error,
            ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        })
    }

    fn run(&self, claim: &Claim) -> Result<Came, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::unreachable(format!("failed to hand the job over: {error}"))
        };
        let (given, tail) = streams(&claim.body).map_err(|error| failed(&error))?;
        let (output, errors) = (std::io::stdout(), std::io::stderr());
        let output = if self.is_quiet {
            errors.as_fd()
        } else {
            output.as_fd()
        };
        let own = [given.body.as_fd(), output, given.errors.as_fd()];
        let mut asked = self.command.clone();
        let labels = fields([
            ("job", claim.id.to_string().into()),
            ("queue", claim.queue.as_str().into()),
        ]);
        asked.extend(fields([
            ("env", claim.env().into()),
            ("labels", labels.into()),
            ("parent", self.jobs.own.as_str().into()),
            ("bound", true.into()),
            ("type", "worker".into()),
        ]));
        let record = attached::launch(&self.asking, asked, &own)?;
        drop(given);
        let id = words(&record, "/id");
        // All that it started, too: its claim is not over before.
        let record = self.asking.wait(&id, None, Of::Tree)?;
        let is_failed = record.pointer("/failure").is_some_and(|it| !it.is_null());
        if let Some(failure) = outcome(&record, &self.name).err().filter(|_| is_failed) {
            return Ok(Came::NeverRan(failure));
        }
        let code = record.pointer("/code").and_then(Value::as_u64);
        if code == Some(0) {
            return Ok(Came::Done);
        }
        let said = tail.text();
        let error = if said.is_empty() {
            ending(&record)
        } else {
            said
        };
        Ok(if code == Some(NOT_NOW) {
            Came::NotNow(error)
        } else {
            Came::Failed(error)
        })
    }
}
