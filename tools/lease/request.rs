//! Requests about leases, and their answers.

use crate::client::{self, Answered, Target};
use crate::report::{Failure, print};
use serde_json::Value;
use sexton_api::lease::{Lease, Wait};
use sexton_api::refusal::Reason;
use sexton_api::request::Request;

/// The advice on a refusal, by its reason.
pub(super) const HELPS: &[(Reason, &str)] = &[
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
    /// Sends a request, once even if it has to be repeated, and returns the answer.
    pub(super) fn ask<R: Request>(&self, asked: &R) -> Result<Answered<R::Answer>, Failure> {
        client::ask(&self.target, asked)?.success(refused)
    }

    /// Waits for at most `asked.wait` seconds, and returns the lease.
    pub(super) fn wait(&self, asked: &Wait) -> Result<Lease, Failure> {
        let reply = client::wait(&self.target, asked, asked.wait.0)?;
        reply.success(refused).map(|it| it.value)
    }

    /// Prints an answer, as JSON or formatted by `page`.
    pub(super) fn tell<A>(
        &self,
        answer: &Answered<A>,
        page: impl FnOnce(&A) -> String,
    ) -> Result<(), Failure> {
        if self.json { print(&answer.body) } else { print(&page(&answer.value)) }
    }
}

/// Converts a refusal to a failure.
pub(super) fn refused(said: &Value) -> Failure {
    Failure::refused(said, HELPS)
}
