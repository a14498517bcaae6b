//! Requests about tasks and servers, and their answers.

use crate::client::{self, Fields, Target};
use crate::report::{Failure, print_answer};
use serde_json::Value;
use sexton::refusal::Reason;

/// The refusals for which there is advice, each with its advice.
const HELPS: &[(Reason, &str)] = &[
    (Reason::Absent, "`sexton task list` shows the tasks, `sexton server list` the servers"),
    (Reason::Ended, "`sexton task restart ID` runs an ended task again"),
    (
        Reason::Running,
        "`sexton task show ID` shows its state; `sexton task terminate ID` ends it first",
    ),
    (
        Reason::OutOfScope,
        "run this command on the coordinator's machine as the user that it runs as, or over TCP with a token that has the scope run",
    ),
];

/// The maximum time that one request may wait, in seconds.
pub(super) const WAIT_MAX: u64 = 3600;

/// The coordinator that receives the requests, and the format of the output.
#[derive(Clone)]
pub(super) struct ClientOptions {
    pub(super) target: Target,
    pub(super) json: bool,
}

impl ClientOptions {
    /// Posts a request that changes something to a path below `/v1`, once even if it has to be repeated, and returns the answer.
    pub(super) fn act(&self, path: &str, fields: Fields) -> Result<Value, Failure> {
        client::change(&self.target, &format!("/v1/{path}"), fields)?.success(HELPS)
    }

    /// Sends a GET request with this query to a path below `/v1`, and returns the answer.
    pub(super) fn look(&self, path: &str, query: &Fields) -> Result<Value, Failure> {
        client::look(&self.target, &format!("/v1/{path}"), query)?.success(HELPS)
    }

    /// Prints an answer, as JSON or formatted by `page`.
    pub(super) fn tell(
        &self,
        body: &Value,
        page: impl FnOnce(&Value) -> String,
    ) -> Result<(), Failure> {
        print_answer(self.json, body, page)
    }

    /// Prints the answer to a successful request as JSON if requested, and nothing otherwise.
    pub(super) fn done(&self, body: &Value) -> Result<(), Failure> {
        self.tell(body, |_| String::new())
    }

    /// Waits until a task has ended, for at most `wait` seconds, and returns its state, whether or not it has ended.
    pub(super) fn over(&self, id: u64, wait: u64) -> Result<Value, Failure> {
        let asked = client::fields([("id", id.into())]);
        client::send(&self.target, "/v1/tasks/wait", asked, wait)?.success(HELPS)
    }

    /// Prints a task after a wait, and fails unless it completed, with or without a warning.
    pub(super) fn ended(&self, task: &Value) -> Result<(), Failure> {
        self.tell(task, super::page::line)?;
        match task.pointer("/exit").and_then(Value::as_str) {
            Some("completed" | "warning") => Ok(()),
            Some("not-finished") => {
                Err(Failure::found("timed out waiting: the task has not ended")
                    .help("`sexton task show ID` shows its state"))
            }
            // The line printed above gives the reason.
            _ => Err(Failure::of_command(1, "")),
        }
    }
}
