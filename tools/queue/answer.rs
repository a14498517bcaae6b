//! Requests about queues, and their answers: as text, as JSON, and as an exit status.

use crate::client::{self, Answer, Answered, Fields, Reply, Target};
use crate::report::{Failure, print};
use serde::de::DeserializeOwned;
use serde_json::Value;
use sexton_api::queue::{Get, Queue, QueueName};
use sexton_api::refusal::Reason;
use sexton_api::request::Request;

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
    /// Sends a request, and prints the answer, as JSON or formatted by `page`. A refusal is printed as JSON, too.
    pub(super) fn act<R: Request>(
        &self,
        asked: &R,
        page: impl FnOnce(&R::Answer) -> String,
    ) -> Result<(), Failure> {
        self.tell(client::ask(&self.target, asked)?, page).map(drop)
    }

    /// Sends a request, and returns the answer.
    pub(super) fn ask<R: Request>(&self, asked: &R) -> Result<Answered<R::Answer>, Failure> {
        client::ask(&self.target, asked)?.success(refused)
    }

    /// Posts a request that has no type yet, once even if it has to be repeated, and returns the answer.
    pub(super) fn post(&self, what: &str, fields: Fields) -> Result<Answer, Failure> {
        client::change(&self.target, &format!("/v1/queues/{what}"), fields)
    }

    /// Returns the state of a queue; `None` if it does not exist.
    pub(super) fn queue(&self, queue: &QueueName) -> Result<Option<Answered<Queue>>, Failure> {
        let reply = client::ask(&self.target, &Get { queue: queue.clone() })?;
        if reply.is_refused_as(Reason::Absent) {
            return Ok(None);
        }
        reply.success(refused).map(Some)
    }

    /// Prints an answer, as JSON or formatted by `page`, and returns it. Fails if it is a refusal; as JSON, that is printed too.
    pub(super) fn tell<A: DeserializeOwned>(
        &self,
        reply: Reply<A>,
        page: impl FnOnce(&A) -> String,
    ) -> Result<A, Failure> {
        if self.json {
            print(reply.body())?;
        }
        let said = reply.success(refused)?.value;
        if !self.json {
            print(&page(&said))?;
        }
        Ok(said)
    }
}

/// Converts a refusal to a failure with its advice.
pub(super) fn refused(said: &Value) -> Failure {
    Failure::refused(said, HELPS)
}

/// Returns the answer's body if the status is 200, otherwise the refusal with its advice.
pub(super) fn success(answer: &Answer) -> Result<Value, Failure> {
    answer.success(HELPS)
}
