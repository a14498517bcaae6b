//! Requests about processes and services, and their answers.

use crate::client::{self, Answer, Fields, Target, Where, fields};
use crate::report::{Failure, print_answer};
use crate::text::words;
use rustix::process::Pid;
use serde_json::Value;
use sexton::refusal::Reason;
use std::collections::BTreeMap;
use std::time::Duration;

/// The advice for refused requests about processes, by reason.
const HELPS: &[(Reason, &str)] = &[
    (
        Reason::Absent,
        "`sexton ps` shows the running processes, `sexton ps --all` also those that have ended",
    ),
    (Reason::Ended, "`sexton wait ID` shows how it ended"),
    (
        Reason::OutOfScope,
        "run this command on the coordinator's machine as the user that it runs as, or over TCP with a token that has the scope run",
    ),
    (
        Reason::NoKeeper,
        "the coordinator's log says why; processes need a coordinator with a data directory, that is, without --memory",
    ),
];

/// The minimum length of a prefix of an id. A PID is shorter.
const ID_DIGITS_MIN: usize = 8;

/// The advice if a PID, or too short a prefix of an id, was given instead of an id.
const NO_ID: &[(Reason, &str)] = &[(
    Reason::Absent,
    "expected an id or at least its first eight digits, not a PID: `sexton ps` shows both; with --all, also those of ended processes",
)];

/// The advice for refused requests about services, by reason.
const SERVICE_HELPS: &[(Reason, &str)] = &[
    (
        Reason::Absent,
        "`sexton service` shows the services; [services.NAME] in the configuration defines one",
    ),
    (
        Reason::OutOfScope,
        "run this command on the coordinator's machine as the user that it runs as, or over TCP with a token that has the scope run",
    ),
];

/// The maximum time that one request may wait, in seconds.
const WAIT_MAX: u64 = 3600;

/// The coordinator that receives the requests, and the format of the output.
pub(crate) struct ClientOptions {
    pub(crate) target: Target,
    pub(crate) json: bool,
}

/// Which processes a wait covers.
#[derive(Clone, Copy)]
pub(crate) enum WaitExtent {
    /// Only the process itself.
    Leader,
    /// Also every other process of its tree, if that tree is being stopped, or a lock, claim or lease is bound to the tree.
    Tree,
}

impl ClientOptions {
    pub(crate) fn at(at: &Where, json: bool) -> Result<Self, Failure> {
        let target = at.target()?;
        Ok(Self { target, json })
    }

    /// Posts a request about processes that changes something, once even if it has to be repeated, and returns the body of the answer. Fails
    /// if the request is refused.
    pub(crate) fn act(&self, what: &str, fields: Fields) -> Result<Value, Failure> {
        let path = format!("/v1/processes/{what}");
        let id = fields.get("id").and_then(Value::as_str).map(str::to_owned);
        success(&client::change(&self.target, &path, fields)?, id.as_deref())
    }

    /// Returns the path of the keeper's socket.
    pub(super) fn keeper(&self) -> Result<String, Failure> {
        let answer = client::send(&self.target, "/v1/processes/keeper", Fields::new(), 0)?;
        Ok(words(&answer.success(HELPS)?, "/socket"))
    }

    /// Posts a request with an idempotency key, so that it is carried out only once, even if a restart of the coordinator makes it
    /// necessary to repeat it.
    pub(super) fn act_once(&self, what: &str, fields: Fields, key: &str) -> Result<Value, Failure> {
        let path = format!("/v1/processes/{what}");
        client::send_once(&self.target, &path, fields, key)?.success(HELPS)
    }

    /// Sends a signal to the whole process group of a process.
    pub(crate) fn send(&self, id: &str, signal: i32) -> Result<Value, Failure> {
        self.act("signal", to_group(id, signal))
    }

    /// Sends a signal to the whole process group of a process, and waits for at most `patience`. An error is ignored: the process may have
    /// ended, as its record will show.
    pub(super) fn send_soon(&self, id: &str, signal: i32, patience: Duration) {
        let asked = to_group(id, signal);
        let path = "/v1/processes/signal";
        drop(client::send_within(&self.target, path, asked, patience));
    }

    /// Posts a request about services and returns the body of the answer. The coordinator may take `wait` seconds to answer. A request that
    /// does not wait is carried out once even if it has to be repeated.
    pub(crate) fn serve(&self, what: &str, fields: Fields, wait: u64) -> Result<Value, Failure> {
        let path = format!("/v1/services/{what}");
        let answer = if wait == 0 {
            client::change(&self.target, &path, fields)
        } else {
            client::send(&self.target, &path, fields, wait)
        };
        answer?.success(SERVICE_HELPS)
    }

    /// Returns the coordinator's status. Fails if the coordinator is not on this machine.
    pub(super) fn status(&self) -> Result<Value, Failure> {
        if !self.target.is_socket() {
            return Err(Failure::usage(
                "only a coordinator on this machine can be signalled: send SIGHUP to it where it runs",
            ));
        }
        client::get(&self.target, "/v1/status")?.success(HELPS)
    }

    /// Returns the PID of the coordinator, which must be on this machine.
    pub(super) fn pid(&self) -> Result<Pid, Failure> {
        let body = self.status()?;
        let pid = body.pointer("/pid").and_then(Value::as_i64);
        let pid = pid.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        pid.ok_or_else(|| Failure::unreachable("the coordinator's status has no PID"))
    }

    /// Reads the state of all services, or of the one called `name`.
    pub(crate) fn services(&self, name: Option<&str>) -> Result<Value, Failure> {
        let answer = match name {
            None => client::get(&self.target, "/v1/services"),
            Some(name) => {
                let asked = fields([("name", name.into())]);
                client::look(&self.target, "/v1/services/service", &asked)
            }
        };
        answer?.success(SERVICE_HELPS)
    }

    /// Reads a path below `/v1/processes`, with a query.
    pub(super) fn look(&self, what: &str, query: &Fields) -> Result<Value, Failure> {
        let path = format!("/v1/processes{what}");
        let id = query.get("id").and_then(Value::as_str);
        success(&client::look(&self.target, &path, query)?, id)
    }

    /// Waits until a process has ended, but for at most `seconds` if given, and returns its record.
    pub(crate) fn wait(
        &self,
        id: &str,
        seconds: Option<u64>,
        of: WaitExtent,
    ) -> Result<Value, Failure> {
        let mut left = seconds;
        loop {
            let now = left.map_or(WAIT_MAX, |left| left.min(WAIT_MAX));
            let leader = matches!(of, WaitExtent::Leader);
            let asked = fields([("id", id.into()), ("leader", leader.into())]);
            let answer = client::send(&self.target, "/v1/processes/wait", asked, now)?;
            // Too many requests are waiting, for all of that time: the process is there nevertheless.
            if left.is_none() && answer.is_refused_as(Reason::Waits) {
                continue;
            }
            let record = success(&answer, Some(id))?;
            left = left.map(|left| left - now);
            if is_over(&record) || left == Some(0) {
                return Ok(record);
            }
        }
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

/// Returns the answer's body, or the refusal with its advice. If no process was found and the id has fewer than [`ID_DIGITS_MIN`] digits,
/// the advice explains what an id is.
fn success(answer: &Answer, id: Option<&str>) -> Result<Value, Failure> {
    if id.is_some_and(|id| id.len() < ID_DIGITS_MIN) && answer.is_refused_as(Reason::Absent) {
        return answer.success(NO_ID);
    }
    answer.success(HELPS)
}

/// Returns whether a record is of a process that has ended.
pub(crate) fn has_ended(record: &Value) -> bool {
    record.pointer("/status").and_then(Value::as_str) == Some("exited")
}

/// Returns the request for a signal to the whole process group of a process.
fn to_group(id: &str, signal: i32) -> Fields {
    fields([("id", id.into()), ("signal", signal.into()), ("group", true.into())])
}

/// Returns whether what was waited for has happened, according to the answer to a wait.
pub(super) fn is_over(record: &Value) -> bool {
    record.pointer("/timed_out") == Some(&Value::Bool(false))
}

/// Parses the values of a flag that may be repeated, each as `NAME=VALUE`.
pub(super) fn pairs(given: &[String], flag: &str) -> Result<BTreeMap<String, String>, Failure> {
    let pair = |pair: &String| {
        let split = pair.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) = split.ok_or_else(|| {
            Failure::usage(format!("--{flag} {pair:?} is not of the form NAME=VALUE"))
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    given.iter().map(pair).collect()
}
