//! Requests about queues, and their answers: as text, as JSON, and as an exit status.

use crate::client::{self, Answer, Fields, Target};
use crate::report::{Failure, print};
use serde_json::Value;
use sexton::refusal::Reason;

/// The advice if a job is too large.
pub(super) const JOB_BYTES: &str = "`sexton serve --job-bytes` sets the maximum size of a job";

/// The advice for refused requests about queues, by reason.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Stale,
        "stop working on the job: it is ready again, over, or claimed by another worker",
    ),
    (
        Reason::Claimed,
        "`sexton queue peek ID` shows the token; `sexton queue ack ID TOKEN` ends the job",
    ),
    (Reason::Absent, "the job may have ended; `sexton queue show --list` shows the jobs"),
    (Reason::ReadOnly, "the job type is read-only in the coordinator's configuration"),
    (Reason::TooBig, JOB_BYTES),
    (
        Reason::TooLarge,
        "split a large batch into smaller ones; `sexton serve --job-bytes` sets the maximum size of a job",
    ),
];

/// The coordinator that receives the requests, and the format of the output.
pub(super) struct ClientOptions {
    pub(super) target: Target,
    pub(super) json: bool,
}

impl ClientOptions {
    /// Posts a request and prints the answer.
    pub(super) fn act(
        &self,
        what: &str,
        fields: Fields,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        let answer = self.post(what, fields, 0)?;
        self.tell(&answer, page).map(drop)
    }

    /// Posts a request and returns the answer. A request that does not wait is carried out once even if it has to be repeated.
    pub(super) fn post(&self, what: &str, fields: Fields, wait: u64) -> Result<Answer, Failure> {
        let path = format!("/v1/queues/{what}");
        if wait == 0 {
            return client::change(&self.target, &path, fields);
        }
        client::send(&self.target, &path, fields, wait)
    }

    /// Reads a path below `/v1/queues`, with a query.
    pub(super) fn get(&self, what: &str, query: &Fields) -> Result<Answer, Failure> {
        client::look(&self.target, &format!("/v1/queues{what}"), query)
    }

    /// Prints an answer, as JSON or formatted by `page`, and returns its body. Fails if it is a refusal; as JSON, that is printed too.
    pub(super) fn tell(
        &self,
        answer: &Answer,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<Value, Failure> {
        if self.json {
            print(&answer.body)?;
        }
        let said = success(answer)?;
        if !self.json {
            print(&page(&said))?;
        }
        Ok(said)
    }
}

/// Returns the answer's body if the status is 200, otherwise the refusal with its advice.
pub(super) fn success(answer: &Answer) -> Result<Value, Failure> {
    answer.success(HELPS)
}
