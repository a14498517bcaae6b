//! What a coordinator is asked about queues, and what it answers: for people, as JSON, and as an exit status.

use crate::client::{self, Answer, Fields, Target};
use crate::report::{Failure, print};
use serde_json::Value;
use sexton::refusal::Reason;

/// What to do about a job that is too long.
pub(super) const JOB_BYTES: &str = "`sexton serve --job-bytes` says how long a job may be";

/// What to do about a refusal.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Stale,
        "stop the work: the job is ready again, or somebody else has it by now",
    ),
    (
        Reason::Claimed,
        "`sexton queue peek ID` shows the token; `sexton queue ack ID TOKEN` ends it",
    ),
    (
        Reason::Absent,
        "it may have ended; `sexton queue show --list` shows what there is",
    ),
    (
        Reason::ReadOnly,
        "its type is set so where the coordinator runs",
    ),
    (Reason::TooBig, JOB_BYTES),
    (
        Reason::TooLarge,
        "send a long batch as several; `sexton serve --job-bytes` says how long a job may be",
    ),
];

/// Where a command asks.
pub(super) struct Asking {
    pub(super) target: Target,
    pub(super) json: bool,
}

impl Asking {
    /// Has something done, and says what came of it.
    pub(super) fn act(
        &self,
        what: &str,
        fields: Fields,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        let answer = self.post(what, fields, 0)?;
        self.tell(&answer, page).map(drop)
    }

    pub(super) fn post(&self, what: &str, fields: Fields, wait: u64) -> Result<Answer, Failure> {
        client::send(&self.target, &format!("/v1/queues/{what}"), fields, wait)
    }

    /// What is known, by a path below `/v1/queues` and a query of text.
    pub(super) fn get(&self, what: &str, query: &Fields) -> Result<Answer, Failure> {
        let path = format!("/v1/queues{what}");
        client::get(&self.target, &client::with_query(&path, query))
    }

    /// Prints an answer, as it is or as people read it; what it says.
    pub(super) fn tell(
        &self,
        answer: &Answer,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<Value, Failure> {
        if self.json {
            print(&answer.body)?;
        }
        let said = well(answer)?;
        if !self.json {
            print(&page(&said))?;
        }
        Ok(said)
    }
}

/// What an answer says, if it is as asked.
pub(super) fn well(answer: &Answer) -> Result<Value, Failure> {
    answer.well(HELPS)
}
