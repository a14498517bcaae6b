//! Receives reports of an attempt's command on the machine where the command runs. The socket and the secret for reports are created on
//! that machine, and the secret never leaves it. Reports are sent to the coordinator one after another, each until it is answered.

use crate::wrapper::keeping::Event;
use crate::wrapper::pipe;
use serde::Deserialize;
use serde_json::{Value, json};
use sexton::kernel::socket;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, SyncSender, sync_channel};
use std::time::Duration;

/// The maximum size of a report, in bytes; the coordinator has the same limit.
const REPORT_BYTES_MAX: u64 = 1 << 20;

/// The maximum number of open connections.
const OPEN_MAX: usize = 64;

/// How long a client may take to send its report.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A report, and the channel for its answer.
pub(super) struct Pending {
    pub(super) report: Value,
    pub(super) answer: SyncSender<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    secret: String,
    report: Value,
}

/// Starts a thread that receives reports and sends each valid one to `events`.
pub(super) fn receive(listener: UnixListener, secret: String, events: Sender<Event>) {
    let open = Arc::new(AtomicUsize::new(0));
    let secret = Arc::new(secret);
    pipe::begin("reports", move || {
        for stream in socket::incoming(&listener) {
            let (open, secret) = (Arc::clone(&open), Arc::clone(&secret));
            let events = events.clone();
            let is_full = open.fetch_add(1, Ordering::Relaxed) >= OPEN_MAX;
            pipe::begin("report", move || {
                // An error means that the client has disconnected or is too slow.
                drop(take(stream, (&secret, is_full), &events));
                open.fetch_sub(1, Ordering::Relaxed);
            });
        }
    });
}

fn take(
    stream: UnixStream,
    (secret, is_full): (&str, bool),
    events: &Sender<Event>,
) -> std::io::Result<()> {
    let mut writer = stream.try_clone()?;
    if is_full {
        return writer.write_all(refused("busy", "too many reports at the same time").as_bytes());
    }
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream).take(REPORT_BYTES_MAX);
    reader.read_until(b'\n', &mut line)?;
    let answer = match serde_json::from_slice::<Request>(&line) {
        Err(_) => refused("malformed", "this is not a report"),
        Ok(request) if !is_same(&request.secret, secret) => {
            refused("unauthorized", "this is not the secret of an attempt")
        }
        Ok(Request { report, .. }) => {
            let (answer, answered) = sync_channel(1);
            let gone = |_| std::io::Error::from(std::io::ErrorKind::BrokenPipe);
            let pending = Pending { report, answer };
            events.send(Event::Report(pending)).map_err(|_| std::io::ErrorKind::BrokenPipe)?;
            answered.recv().map_err(gone)?
        }
    };
    writer.write_all(answer.as_bytes())
}

/// Returns whether two secrets are the same. The time this takes does not reveal how much of a guess is right.
fn is_same(a: &str, b: &str) -> bool {
    let differs = |(a, b): (u8, u8)| a ^ b;
    a.len() == b.len() && a.bytes().zip(b.bytes()).map(differs).fold(0, |all, it| all | it) == 0
}

fn refused(reason: &str, error: &str) -> String {
    let refused = json!({ "ok": false, "reason": reason, "error": error });
    format!("{refused}\n")
}
