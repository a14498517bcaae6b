//! Reports of a task's command on its own burst: `sexton task save`, `saved`, `heartbeat`, `done`, `wait` and `fail`.
//!
//! The environment of the command has the path of the socket and the secret to use; see `docs/tasks.md`, "Reports". Each attempt
//! has its own secret, so a process of an earlier attempt can change nothing.

use crate::job::exchange;
use crate::report::{Failure, print_bytes};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sexton::actors::dispatch::Task;
use sexton::kernel::socket;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use std::time::Duration;

/// The environment variable that holds the path of the coordinator's socket for reports.
const ADDRESS: &str = "SEXTON_TASK_REPORT";

/// How long a report is retried while the coordinator cannot be reached: it may be starting.
const ABSENT: Duration = Duration::from_secs(30);

/// The maximum number of bytes that `save` reads from standard input. It exceeds the coordinator's limit, so a state that is too long is
/// refused, not cut off.
const READ_MAX: u64 = 1 << 20;

/// Sends a report and returns the answer. Fails if the coordinator refuses the report or does not answer.
pub(super) fn say(report: &Value) -> Result<Value, Failure> {
    let variable = |name| std::env::var_os(name).and_then(|it| it.into_string().ok());
    let (Some(address), Some(secret)) = (variable(ADDRESS), variable(Task::SECRET)) else {
        return Err(Failure::usage(
            "not within a task: this command was not started by the coordinator",
        )
        .help("use this in a command that was added with `sexton task add -- COMMAND`"));
    };
    let request = json!({ "secret": secret, "report": report });
    let answer = ask_again(&address, &format!("{request}\n")).map_err(|error| {
        Failure::unreachable(format!("failed to report to the coordinator: {error}"))
    })?;
    let said: Value = serde_json::from_str(&answer).unwrap_or_default();
    match said.pointer("/error").and_then(Value::as_str) {
        _ if said.pointer("/ok") == Some(&true.into()) => Ok(said),
        Some(error) => Err(Failure::found(error)),
        None => Err(Failure::unreachable(
            "the coordinator exited before it answered: it is unknown whether it received the report",
        )),
    }
}

/// Sends the state to save: `text`, or what standard input contains if `text` is `None`.
pub(super) fn save(text: Option<String>) -> Result<(), Failure> {
    let body = match text {
        Some(text) => text.into_bytes(),
        None => {
            let mut body = Vec::new();
            let read = std::io::stdin().lock().take(READ_MAX).read_to_end(&mut body);
            read.map_err(|error| {
                Failure::unreachable(format!("failed to read standard input: {error}"))
            })?;
            body
        }
    };
    let report = match std::str::from_utf8(&body) {
        Ok(text) => json!({ "do": "save", "body": text }),
        Err(_) => json!({ "do": "save", "body_b64": STANDARD.encode(&body) }),
    };
    say(&report).map(drop)
}

/// Prints what was saved last, unchanged. Fails with exit status 1 if nothing was saved.
pub(super) fn saved() -> Result<(), Failure> {
    let said = say(&json!({ "do": "saved" }))?;
    let text = said.pointer("/body").and_then(Value::as_str);
    let encoded = said.pointer("/body_b64").and_then(Value::as_str);
    let decoded = encoded.and_then(|it| STANDARD.decode(it).ok());
    match text.map(|it| it.as_bytes().to_vec()).or(decoded) {
        Some(body) => print_bytes(&body),
        None => Err(Failure::of_command(1, "")),
    }
}

/// Returns whether the report was not taken because there are too many at the moment.
fn is_busy(answer: &str) -> bool {
    let said: Value = serde_json::from_str(answer).unwrap_or_default();
    said.pointer("/reason") == Some(&"busy".into())
}

/// Sends a request, and repeats it for up to [`ABSENT`] while the coordinator cannot be reached, has no room for it, or closes the connection
/// without an answer. In the last case, the coordinator may have received the report, but repeating a report is harmless: saving twice stores the same
/// state, and increases the revision by two instead of one.
fn ask_again(address: &str, request: &str) -> std::io::Result<String> {
    let began = crate::client::instant();
    loop {
        let answered = socket::connect_to_own(Path::new(address), ABSENT)
            .and_then(|stream| exchange(stream, request));
        let is_cut_off = match &answered {
            Ok(answer) => answer.is_empty() || is_busy(answer),
            Err(error) => matches!(
                error.kind(),
                ErrorKind::NotFound
                    | ErrorKind::TimedOut
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::ConnectionReset
                    | ErrorKind::BrokenPipe
            ),
        };
        if !is_cut_off || began.elapsed() >= ABSENT {
            return answered;
        }
        crate::client::rest(Duration::from_millis(50));
    }
}
