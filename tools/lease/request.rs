//! Requests about leases, and their answers.

use crate::client::{self, Fields, Target};
use crate::report::{Failure, print_answer};
use serde_json::Value;
use sexton::refusal::Reason;
use std::time::Duration;

/// The advice on a refusal, by its reason.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Absent,
        "`sexton lease list` shows the leases; `sexton lease run` or `sexton lease set` creates the lease",
    ),
    (Reason::Disabled, "`sexton lease enable NAME` lets it run again"),
    (
        Reason::Running,
        "`sexton lease show NAME` shows what runs; `sexton lease reset NAME --force` stops it first",
    ),
    (
        Reason::OutOfScope,
        "run this command on the coordinator's machine as the user that it runs as, or over TCP with a token that has the scope run",
    ),
];

/// The maximum wait of one request, in seconds.
pub(super) const WAIT_MAX: u64 = 3600;

/// The coordinator that receives the requests, and the format of the output.
#[derive(Clone)]
pub(super) struct ClientOptions {
    pub(super) target: Target,
    pub(super) json: bool,
}

impl ClientOptions {
    /// Posts a request that changes something, once even if it has to be repeated, and returns the answer.
    pub(super) fn act(&self, what: &str, fields: Fields) -> Result<Value, Failure> {
        let path = format!("/v1/leases/{what}");
        client::change(&self.target, &path, fields)?.success(HELPS)
    }

    /// Posts a request that waits for at most `wait` seconds and changes nothing, and returns the answer.
    pub(super) fn wait(&self, fields: Fields, wait: u64) -> Result<Value, Failure> {
        client::send(&self.target, "/v1/leases/wait", fields, wait)?.success(HELPS)
    }

    /// Posts a request and returns the answer, or `None` if the lease does not exist.
    pub(super) fn try_act(&self, what: &str, fields: Fields) -> Result<Option<Value>, Failure> {
        let path = format!("/v1/leases/{what}");
        let answer = client::change(&self.target, &path, fields)?;
        if answer.is_refused_as(Reason::Absent) {
            return Ok(None);
        }
        answer.success(HELPS).map(Some)
    }

    /// Posts a request once, and waits at most `patience` for the answer.
    pub(super) fn act_once(
        &self,
        what: &str,
        fields: Fields,
        patience: Duration,
    ) -> Result<Value, Failure> {
        client::send_within(&self.target, &format!("/v1/leases/{what}"), fields, patience)?
            .success(HELPS)
    }

    /// Gets the path `/v1/leases` followed by `what`, with `query` as the query string.
    pub(super) fn look(&self, what: &str, query: &Fields) -> Result<Value, Failure> {
        client::look(&self.target, &format!("/v1/leases{what}"), query)?.success(HELPS)
    }

    /// Prints an answer, as JSON or formatted by `page`.
    pub(super) fn tell(
        &self,
        body: &Value,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        print_answer(self.json, body, page)
    }
}
