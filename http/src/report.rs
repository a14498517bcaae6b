//! The socket to which task commands send reports: `report.sock` in the data directory. A burst is one run of a task's command, and
//! an attempt is one try at a burst. An attempt can report only about its own burst, and authenticates itself with its secret. The
//! protocol is specified in `docs/tasks.md`, "Reports".
//!
//! The machine decides what effect a report has.

use crate::socket::{self, Rights, Socket, SocketFile};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde_json::{Value, json};
use sexton::actors::binding::Exit;
use sexton::actors::dispatch::{RemoteEnd, Report, Task};
use sexton::bytes::Bytes;
use sexton::handle::{Handle, Tasks};
use sexton::ids::ProcessId;
use sexton::kernel::socket::Peers;
use sexton::protocols::listener::Places;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::time::timeout;

/// The maximum time to receive a request. Sending the answer may take as long again.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum size of a request, in bytes. It leaves room for saved data in base64.
const REQUEST_BYTES_MAX: u64 = 1 << 20;

/// The maximum number of connections at a time.
const OPEN_MAX: u32 = 256;

/// The maximum number of connections that are told at a time that there are too many. Further ones are closed without an answer.
const REFUSALS_MAX: u32 = 64;

/// Listens for reports, and returns the non-blocking listener and its file.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    let rights = Rights { mode: 0o600, group: None };
    socket::listen(path, rights)
}

/// Serves reports until the listener closes.
pub(crate) async fn serve(socket: &Socket, node: Handle, mut closing: watch::Receiver<bool>) {
    let places = Places::of_connections(OPEN_MAX);
    let refusals = Places::new(REFUSALS_MAX);
    loop {
        let (stream, _) = tokio::select! {
            accepted = socket.accept(Peers::Own) => accepted,
            _ = closing.wait_for(|closing| *closing) => return,
        };
        let place = places.take();
        let refusal = refusals.take();
        let tasks = node.tasks();
        tokio::task::spawn_local(async move {
            match place {
                // An error means that the client has disconnected or is too slow.
                Some(_) => drop(receive(stream, &tasks).await),
                None if refusal.is_some() => {
                    drop(answer(stream, &refused("busy", "too many concurrent reports")).await);
                }
                None => {}
            }
        });
    }
}

/// A report, with the secret of its attempt.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    secret: String,
    report: ReportKind,
    /// The number of a report from another machine. A report whose number is not larger than the last one's is not applied again.
    #[serde(default)]
    nth: Option<u64>,
}

/// The kinds of reports.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
enum ReportKind {
    /// Saves the task's state, given either as text or as bytes in base64.
    Save { body: Option<String>, body_b64: Option<String> },
    /// Requests the most recently saved state.
    Saved {},
    /// The burst is still running.
    Heartbeat {},
    /// The task is done.
    Done {
        #[serde(default)]
        warning: bool,
        #[serde(default)]
        message: String,
    },
    /// The task needs another burst, which begins after `ms` milliseconds.
    Wait { ms: u64 },
    /// The task has failed.
    Fail { message: String },
    /// The attempt has ended on another machine.
    Ended { exit: RemoteExit },
    /// The machine that the attempt runs on cannot be reached.
    Unreachable {},
    /// The machine that the attempt was to run on could not be reached, so nothing ran.
    NotReached {},
    /// The machine that the attempt is to run on was reached.
    Reached {},
}

/// How an attempt ended on another machine.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RemoteExit {
    Code(u8),
    Signal(u8),
    /// It is unknown how the attempt ended.
    Lost,
    /// The attempt never started.
    Failed,
}

impl From<RemoteExit> for Exit {
    fn from(ended: RemoteExit) -> Self {
        match ended {
            RemoteExit::Code(code) => Self::Code(code),
            RemoteExit::Signal(signal) => Self::Signal(signal),
            RemoteExit::Lost => Self::Lost,
            RemoteExit::Failed => Self::Failed,
        }
    }
}

async fn receive(stream: UnixStream, tasks: &Tasks) -> io::Result<()> {
    let mut reader = BufReader::new(stream).take(REQUEST_BYTES_MAX);
    let mut line = Vec::new();
    // A client that does not finish its request in time gets no answer.
    let read = timeout(TIMEOUT, reader.read_until(b'\n', &mut line));
    read.await.map_err(|_| io::ErrorKind::TimedOut)??;
    let said = match serde_json::from_slice::<Request>(&line) {
        Ok(request) => take(tasks, request).await,
        // The parser's messages may repeat what it read, which must not reveal the secret.
        Err(error) => refused(
            "malformed",
            &format!(
                "the request is not a valid report: line {}, column {}",
                error.line(),
                error.column()
            ),
        ),
    };
    answer(reader.into_inner().into_inner(), &said).await
}

async fn take(tasks: &Tasks, request: Request) -> Value {
    let Some(process) = tasks.process_of(&request.secret) else {
        return refused("unauthorized", "this is not the secret of an attempt");
    };
    let body = match request.report {
        ReportKind::Saved {} => return saved(tasks, process).await,
        ReportKind::Save { body, body_b64 } => match (body, body_b64) {
            (Some(body), None) => Report::Save(Bytes::new(body.into_bytes())),
            (None, Some(body)) => match STANDARD.decode(body) {
                Ok(body) => Report::Save(Bytes::new(body)),
                Err(_) => return refused("field", "body_b64 is not base64"),
            },
            _ => return refused("field", "exactly one of body and body_b64 is required"),
        },
        ReportKind::Heartbeat {} => Report::Beat,
        ReportKind::Done { warning, message } => {
            Report::Done { warning, words: shortened(message) }
        }
        ReportKind::Wait { ms } => Report::Wait { ms },
        ReportKind::Fail { message } => Report::Fail { words: shortened(message) },
        ReportKind::Ended { exit } => Report::Far(RemoteEnd::Ended(exit.into())),
        ReportKind::Unreachable {} => Report::Far(RemoteEnd::Unreachable),
        ReportKind::NotReached {} => Report::Far(RemoteEnd::NotReached),
        ReportKind::Reached {} => Report::Reached,
    };
    match tasks.report(process, body, request.nth).await {
        Ok(revision) => json!({ "ok": true, "revision": revision }),
        Err(error) => refused(error.reason().word(), &error.to_string()),
    }
}

async fn saved(tasks: &Tasks, process: ProcessId) -> Value {
    match tasks.saved(process).await {
        Ok((revision, None)) => json!({ "ok": true, "revision": revision }),
        Ok((revision, Some(body))) => match std::str::from_utf8(body.as_bytes()) {
            Ok(text) => json!({ "ok": true, "revision": revision, "body": text }),
            Err(_) => {
                let body = STANDARD.encode(body.as_bytes());
                json!({ "ok": true, "revision": revision, "body_b64": body })
            }
        },
        Err(error) => refused(error.reason().word(), &error.to_string()),
    }
}

/// Truncates a message to at most `Task::WORDS_BYTES_MAX` bytes, at a character boundary.
fn shortened(mut message: String) -> String {
    let end = message.floor_char_boundary(Task::WORDS_BYTES_MAX);
    message.truncate(end);
    message
}

fn refused(reason: &str, error: &str) -> Value {
    json!({ "ok": false, "reason": reason, "error": error })
}

async fn answer(mut stream: UnixStream, said: &Value) -> io::Result<()> {
    let line = format!("{said}\n");
    let written = timeout(TIMEOUT, stream.write_all(line.as_bytes()));
    written.await.map_err(|_| io::ErrorKind::TimedOut)?
}
