//! The resources of a running attempt (one run of a task's command): its locks, a thread of its server, and its processes.

use crate::client::fields;
use crate::process::trees;
use crate::task::page::items;
use crate::task::request::ClientOptions;
use crate::text::{number, plain, words};
use serde_json::Value;
use sexton::actors::dispatch::{EXECUTE, UPDATE};
use sexton::clock::{Clock as _, SystemClock, Timestamp};

/// The maximum number of an attempt's processes that are shown.
const PROCESSES_MAX: usize = 1000;

/// The resources of an attempt. Those that the caller may not read are omitted.
#[derive(Default)]
pub(super) struct Held {
    /// A description of each lock: its key and index, and its token or, if the attempt is still waiting, the position in line.
    pub(super) locks: Vec<String>,
    /// Its server, and how many of the server's threads are in use.
    pub(super) thread: Option<String>,
    /// Its processes, as a tree.
    pub(super) processes: String,
}

impl Held {
    /// Reads the resources of an attempt. The result is empty if there is no attempt, or if the output is JSON, which does not include
    /// them.
    pub(super) fn of(options: &ClientOptions, task: &Value, attempt: Option<&Value>) -> Self {
        let attempt = attempt.filter(|it| !options.json && !it.is_null());
        let Some(attempt) = attempt else {
            return Self::default();
        };
        Self {
            locks: locks(options, task, attempt),
            thread: thread(options, attempt),
            processes: processes(options, attempt).unwrap_or_default(),
        }
    }

    /// Returns thread and locks as pairs of a label and a description.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let thread = self.thread.iter().map(|it| ("thread", it.clone()));
        let locks = self.locks.iter().map(|it| ("lock", it.clone()));
        thread.chain(locks).collect()
    }
}

fn locks(options: &ClientOptions, task: &Value, attempt: &Value) -> Vec<String> {
    let owner = format!("attempt-{}", words(attempt, "/token"));
    let of_key = |key: &str| {
        let index = words(task, "/id");
        let query = fields([("key", key.into()), ("index", index.into())]);
        let body = options.look("locks", &query).ok()?;
        let mut entries = items(&body, "/locks").iter();
        let its = entries.find(|it| words(it, "/owner") == owner)?;
        let index = words(its, "/index");
        Some(match its.pointer("/token").and_then(Value::as_u64) {
            Some(token) => format!("{key} {index}, with token {token}"),
            None => format!("{key} {index}, waiting in position {}", words(its, "/place")),
        })
    };
    [EXECUTE, UPDATE].into_iter().filter_map(of_key).collect()
}

fn thread(options: &ClientOptions, attempt: &Value) -> Option<String> {
    let body = options.look("servers", &fields([])).ok()?;
    let server = words(attempt, "/server");
    let mut servers = items(&body, "/servers").iter();
    let its = servers.find(|it| words(it, "/server") == server)?;
    let (name, used, threads) =
        (plain(&words(its, "/server")), number(its, "/used"), number(its, "/threads"));
    Some(format!("on {name}, where {used} of {threads} threads are taken"))
}

fn processes(options: &ClientOptions, attempt: &Value) -> Option<String> {
    let id = attempt.pointer("/process").and_then(Value::as_str)?;
    let its = fields([("id", id.into())]);
    let mut records = vec![options.look("processes/process", &its).ok()?];
    let limit = PROCESSES_MAX.to_string();
    let query = fields([("id", id.into()), ("limit", limit.into())]);
    let below = options.look("processes/descendants", &query).ok();
    records.extend(below.iter().flat_map(|it| items(it, "/processes").to_vec()));
    let now = SystemClock::starting_at(Timestamp(0)).wall().0;
    Some(format!("\n{}", trees(&records, None, now)))
}
