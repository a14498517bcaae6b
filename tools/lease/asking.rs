//! What a coordinator is asked about leases, and what it answers.

use crate::client::{self, Fields, Target};
use crate::report::{Failure, print_said};
use serde_json::Value;
use sexton::refusal::Reason;
use std::time::Duration;

/// What to do about a refusal.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Absent,
        "`sexton lease list` shows which leases there are; one is made by its first `sexton lease run` or `set`",
    ),
    (
        Reason::Disabled,
        "`sexton lease enable NAME` lets it run again",
    ),
    (
        Reason::Running,
        "`sexton lease show NAME` says what runs; `sexton lease reset NAME --force` stops it first",
    ),
    (
        Reason::OutOfScope,
        "run it as the user that the coordinator runs as, on its machine, or over TCP with a token of the scope run",
    ),
];

/// The longest that one request waits, in seconds.
pub(super) const WAIT_MAX: u64 = 3600;

/// Where a command asks.
#[derive(Clone)]
pub(super) struct Asking {
    pub(super) target: Target,
    pub(super) json: bool,
}

impl Asking {
    /// Has something done; what is answered. `wait` is in seconds: over a restart of the coordinator it is asked for again,
    /// so what is not to be done twice is asked for without.
    pub(super) fn act(&self, what: &str, fields: Fields, wait: u64) -> Result<Value, Failure> {
        let path = format!("/v1/leases/{what}");
        client::send(&self.target, &path, fields, wait)?.well(HELPS)
    }

    /// The same, if what it is about is there.
    pub(super) fn try_act(&self, what: &str, fields: Fields) -> Result<Option<Value>, Failure> {
        let path = format!("/v1/leases/{what}");
        let answer = client::send(&self.target, &path, fields, 0)?;
        if answer.is_refused_as(Reason::Absent) {
            return Ok(None);
        }
        answer.well(HELPS).map(Some)
    }

    /// Has something done that takes so long at most, and is asked for once.
    pub(super) fn act_once(
        &self,
        what: &str,
        fields: Fields,
        patience: Duration,
    ) -> Result<Value, Failure> {
        client::send_within(
            &self.target,
            &format!("/v1/leases/{what}"),
            fields,
            patience,
        )?
        .well(HELPS)
    }

    /// What is known, by a path below `/v1/leases` and a query of text.
    pub(super) fn look(&self, what: &str, query: &Fields) -> Result<Value, Failure> {
        let path = client::with_query(&format!("/v1/leases{what}"), query);
        client::get(&self.target, &path)?.well(HELPS)
    }

    /// Prints an answer, as it is or as people read it.
    pub(super) fn tell(
        &self,
        said: &Value,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        print_said(self.json, said, page)
    }
}
