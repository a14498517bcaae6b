//! What a coordinator is asked about processes, and what it answers.

use crate::client::{self, Target, Where};
use crate::report::{Failure, print};
use serde_json::{Map, Value};
use sexton::refusal::Reason;

/// What to do about a refusal.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Absent,
        "`sexton ps` shows which processes there are, `sexton ps --all` also those that have ended",
    ),
    (Reason::Ended, "`sexton wait ID` says how"),
    (
        Reason::OutOfScope,
        "run it as the user that the coordinator runs as, on its machine",
    ),
    (
        Reason::NoKeeper,
        "processes need a coordinator with a data directory: `sexton serve` without --memory",
    ),
];

/// The longest that one request waits, in seconds.
const WAIT_MAX: u64 = 3600;

/// Fields of a request.
pub(super) type Fields = Map<String, Value>;

/// Where a command asks.
pub(super) struct Asking {
    pub(super) target: Target,
    pub(super) json: bool,
}

/// Fields, of which those that are null are left out.
pub(super) fn fields<const COUNT: usize>(members: [(&str, Value); COUNT]) -> Fields {
    let members = members.into_iter().filter(|(_, value)| !value.is_null());
    members
        .map(|(field, value)| (field.to_owned(), value))
        .collect()
}

impl Asking {
    pub(super) fn at(at: &Where, json: bool) -> Result<Self, Failure> {
        let target = at.target()?;
        Ok(Self { target, json })
    }

    /// Has something done; what is answered.
    pub(super) fn act(&self, what: &str, fields: Fields) -> Result<Value, Failure> {
        let path = format!("/v1/processes/{what}");
        well(&client::send(&self.target, &path, fields, 0)?)
    }

    /// What is known, by a path below `/v1/processes` and a query of text.
    pub(super) fn look(&self, what: &str, query: &Fields) -> Result<Value, Failure> {
        let path = format!("/v1/processes{what}");
        well(&client::get(
            &self.target,
            &client::with_query(&path, query),
        )?)
    }

    /// Waits until a process has ended, at most so many seconds: its record, as it is then.
    pub(super) fn wait(&self, id: &str, seconds: Option<u64>) -> Result<Value, Failure> {
        let mut left = seconds;
        loop {
            let now = left.map_or(WAIT_MAX, |left| left.min(WAIT_MAX));
            let asked = fields([("id", id.into())]);
            let answer = client::send(&self.target, "/v1/processes/wait", asked, now)?;
            let record = well(&answer)?;
            left = left.map(|left| left - now);
            if has_ended(&record) || left == Some(0) {
                return Ok(record);
            }
        }
    }

    /// Prints an answer, as it is or as people read it.
    pub(super) fn tell(
        &self,
        said: &Value,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        if self.json {
            print(&format!("{said}\n"))
        } else {
            print(&page(said))
        }
    }
}

/// Whether a record is of a process that has ended.
pub(super) fn has_ended(record: &Value) -> bool {
    record.pointer("/status").and_then(Value::as_str) == Some("exited")
}

/// What an answer says, if it is as asked.
fn well(answer: &client::Answer) -> Result<Value, Failure> {
    let said = answer.said()?;
    if answer.status == 200 {
        Ok(said)
    } else {
        Err(Failure::refused(&said, HELPS))
    }
}
