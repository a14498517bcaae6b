//! What a coordinator is asked about tasks and servers, and what it answers.

use crate::client::{self, Fields, Target};
use crate::report::{Failure, print_said};
use serde_json::Value;
use sexton::refusal::Reason;

/// What to do about a refusal.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Absent,
        "`sexton task list` shows which tasks there are, `sexton server list` which servers",
    ),
    (
        Reason::Ended,
        "`sexton task restart ID` has a task that is over run again",
    ),
    (
        Reason::Running,
        "`sexton task show ID` says how it stands; `sexton task terminate ID` ends it first",
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
    /// Has something done, by a path below `/v1`; what is answered. `wait` is in seconds.
    pub(super) fn act(&self, path: &str, fields: Fields, wait: u64) -> Result<Value, Failure> {
        client::send(&self.target, &format!("/v1/{path}"), fields, wait)?.well(HELPS)
    }

    /// What is known, by a path below `/v1` and a query of text.
    pub(super) fn look(&self, path: &str, query: &Fields) -> Result<Value, Failure> {
        let path = client::with_query(&format!("/v1/{path}"), query);
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

    /// Says nothing where all went well, unless JSON is asked for.
    pub(super) fn done(&self, said: &Value) -> Result<(), Failure> {
        self.tell(said, |_| String::new())
    }

    /// Waits until a task is over; how it stands then, or when the wait ends.
    pub(super) fn over(&self, id: u64, wait: u64) -> Result<Value, Failure> {
        self.act("tasks/wait", client::fields([("id", id.into())]), wait)
    }

    /// Prints a task that was waited for, and ends as it did.
    pub(super) fn ended(&self, task: &Value) -> Result<(), Failure> {
        self.tell(task, super::page::line)?;
        match task.pointer("/exit").and_then(Value::as_str) {
            Some("completed" | "warning") => Ok(()),
            Some("not-finished") => Err(Failure::found("the task is not over, and the wait is")
                .help("`sexton task show ID` says how it stands")),
            // The line above says it.
            _ => Err(Failure::of_command(1, "")),
        }
    }
}
