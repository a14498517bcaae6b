//! Receives reports of commands on their jobs: `sexton job` connects to a socket of this process, and the secret of its attempt
//! identifies the job. The socket has an abstract address, not a file, so nothing is left of it when this process is killed.
//!
//! The protocol is in `docs/protocols/work.md`, "Reports".

use crate::client::{Fields, Target, fields, instant};
use crate::process::attached::drawn;
use crate::report::Failure;
use crate::span::DELAY_MS_MAX;
use crate::work::claim::{COMPLETES, Claim, Jobs, chance};
use crate::work::tally::Verdict;
use serde::Deserialize;
use serde_json::json;
use sexton::kernel::{proc, socket};
use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The environment variable with the address of the socket.
pub(crate) const ADDRESS: &str = "SEXTON_JOB_REPORT";
/// The environment variable with the secret of the attempt.
pub(crate) const SECRET: &str = "SEXTON_JOB_SECRET";

/// How long a client may take to connect and to send its report, and how long it waits for the answer.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: usize = 16 << 10;

/// The minimum interval between progress reports to the coordinator, since each is written to the journal.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The maximum number of open requests.
const OPEN_MAX: usize = 64;

/// A report on a job.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub(super) enum Report {
    /// The progress of the job.
    Progress { percent: Option<u8>, text: Option<String> },
    /// The job is still being worked on.
    Touch {},
    /// The job counts as failed once the command has ended.
    Fail { error: String, retry_after_ms: Option<u64> },
    /// The job is put back once the command has ended; this does not count as a try.
    Snooze {
        after_ms: u64,
        #[serde(default)]
        error: String,
    },
}

/// A request: a report, and the secret of the attempt.
#[derive(Deserialize)]
struct Request {
    secret: String,
    report: Report,
}

/// An attempt in progress.
#[derive(Debug)]
struct Live {
    id: u64,
    token: u64,
    /// When the attempt began or last reported anything.
    touched: Instant,
    /// The verdict that the command has reported, if any.
    verdict: Option<Verdict>,
    /// The request that names the command to the coordinator, once the command is known.
    attached: Option<Fields>,
    /// When progress was last sent to the coordinator; `None` if it has not been sent yet.
    reported_at: Option<Instant>,
    /// Progress that has not been sent to the coordinator yet.
    unreported: Option<Fields>,
    /// Why a report of the attempt was not taken, if that happened. It may have been that the job failed or has to wait.
    undelivered: Option<String>,
}

/// The attempts in progress, by their secrets, and the socket that receives reports on them.
pub(super) struct Reports {
    address: String,
    /// A random number. The secret of an attempt is derived from it if the command of that attempt does not get the secret.
    hidden: u128,
    target: Target,
    live: Mutex<HashMap<String, Live>>,
    /// The number of open requests.
    open: Mutex<usize>,
    /// Notified when a request is over.
    closed: Condvar,
}

impl Reports {
    /// Starts receiving reports.
    pub(super) fn listen(target: &Target) -> Result<Arc<Self>, Failure> {
        let failed = |error: io::Error| {
            Failure::unreachable(format!("failed to listen for reports of commands: {error}"))
        };
        let name = format!("sexton-work-{}", chance()?);
        let hidden = drawn().map_err(failed)?;
        let listener = SocketAddr::from_abstract_name(&name)
            .and_then(|address| UnixListener::bind_addr(&address))
            .map_err(failed)?;
        let reports = Arc::new(Self {
            address: format!("@{name}"),
            hidden,
            target: target.clone(),
            live: Mutex::default(),
            open: Mutex::default(),
            closed: Condvar::new(),
        });
        let theirs = Arc::clone(&reports);
        let serving = move || {
            for stream in socket::incoming(&listener) {
                theirs.serve(stream);
            }
        };
        let listening = Builder::new().name("reports".to_owned()).spawn(serving);
        listening.map(|_| reports).map_err(failed)
    }

    /// Registers an attempt and returns its secret. `is_told` is whether its command gets the secret; otherwise only this process uses
    /// it, to identify the attempt.
    pub(super) fn begin(&self, claim: &Claim, is_told: bool) -> Result<String, Failure> {
        let secret = if is_told {
            chance()?
        } else {
            format!("{:032x}", self.hidden.wrapping_add(claim.token.into()))
        };
        let live = Live {
            id: claim.id,
            token: claim.token,
            touched: instant(),
            verdict: None,
            attached: None,
            reported_at: None,
            unreported: None,
            undelivered: None,
        };
        self.live().insert(secret.clone(), live);
        Ok(secret)
    }

    /// Removes an attempt and sends its remaining progress to the coordinator. Returns the verdict that the command reported, if any. If a
    /// report was lost, the job counts as failed, since that report may have said so.
    pub(super) fn end(&self, secret: &str) -> Option<Verdict> {
        let live = self.live().remove(secret)?;
        if let Some(unreported) = live.unreported {
            // An error does not matter: the result of the job follows.
            drop(Jobs::tell(&self.target, (live.id, live.token), "report", unreported));
        }
        let lost = live.undelivered;
        let lost = lost.map(|why| Verdict::Failed(format!("a report was not taken: {why}"), None));
        live.verdict.or(lost)
    }

    /// Returns when an attempt began or last reported anything; `None` if it has ended.
    pub(super) fn touched(&self, secret: &str) -> Option<Instant> {
        self.live().get(secret).map(|live| live.touched)
    }

    /// Notes the request that names the command of an attempt to the coordinator. Returns whether the command has reported a verdict already,
    /// so that its exit status is not the result of the job.
    pub(super) fn attach(&self, secret: &str, attached: Fields) -> bool {
        let mut live = self.live();
        let Some(attempt) = live.get_mut(secret) else {
            return false;
        };
        attempt.attached = Some(attached);
        attempt.verdict.is_some()
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves a connection on a thread of its own. If [`OPEN_MAX`] are open, waits until one of them is over; meanwhile, further clients
    /// wait in the queue of the socket.
    fn serve(self: &Arc<Self>, stream: UnixStream) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |open: &mut usize| *open >= OPEN_MAX;
        let open = self.closed.wait_while(open, is_full);
        *open.unwrap_or_else(PoisonError::into_inner) += 1;
        let reports = Arc::clone(self);
        let serving = move || {
            let of = reports.secret_of(&stream);
            if let (Err(error), Some(secret)) = (reports.receive(&stream), of) {
                reports.miss(&secret, &error);
            }
            reports.close();
        };
        if Builder::new().name("report".to_owned()).spawn(serving).is_err() {
            self.close();
        }
    }

    fn close(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.closed.notify_one();
    }

    /// Returns the secret of an attempt that a client has in its environment. It is read as soon as the client has connected, since a client
    /// whose report cannot be read may be gone by then.
    fn secret_of(&self, stream: &UnixStream) -> Option<String> {
        let environment = proc::environ(socket::process(stream)?).ok()??;
        let secrets = environment.iter().filter_map(|variable| {
            let variable = std::str::from_utf8(variable.as_bytes()).ok()?;
            variable.strip_prefix(SECRET)?.strip_prefix('=')
        });
        let live = self.live();
        let mut secrets = secrets.filter(|secret| live.contains_key(*secret));
        secrets.next().map(str::to_owned)
    }

    /// Notes that a report of the attempt with this secret could not be read.
    fn miss(&self, secret: &str, why: &io::Error) {
        if let Some(attempt) = self.live().get_mut(secret) {
            attempt.undelivered = Some(why.to_string());
        }
    }

    /// Reads a report, handles it and answers. The error is why there is no report.
    fn receive(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_write_timeout(Some(TIMEOUT))?;
        let line = read_line(stream)?;
        let request = serde_json::from_slice::<Request>(&line);
        let request = request.map_err(|error| format!("this is not a report: {error}"));
        let (done, read) = match request {
            Ok(request) => (self.take(&request.secret, request.report), Ok(())),
            Err(why) => (Err(why.clone()), Err(io::Error::other(why))),
        };
        // A client that has disconnected does not need the answer.
        drop(answer(stream, done.err().as_deref()));
        read
    }

    /// Handles a report of the attempt with this secret. The error is a message for the command.
    pub(super) fn take(&self, secret: &str, report: Report) -> Result<(), String> {
        let mut live = self.live();
        let attempt = live.get_mut(secret);
        let attempt = attempt.ok_or("unknown attempt: it may have ended")?;
        attempt.touched = instant();
        if let Report::Fail { retry_after_ms: Some(after), .. }
        | Report::Snooze { after_ms: after, .. } = &report
            && *after > DELAY_MS_MAX
        {
            let words = format!("a job can be delayed by at most {DELAY_MS_MAX} ms");
            attempt.undelivered = Some(words.clone());
            return Err(words);
        }
        let asked = match report {
            Report::Fail { error, retry_after_ms } => {
                attempt.verdict = Some(Verdict::Failed(error, retry_after_ms));
                None
            }
            Report::Snooze { after_ms, error } => {
                attempt.verdict = Some(Verdict::Later(error, Some(after_ms)));
                None
            }
            Report::Touch {} => Some(("touch", fields([]))),
            Report::Progress { percent, text } => {
                let more = fields([("percent", percent.into()), ("text", text.into())]);
                if attempt.reported_at.is_some_and(|told| told.elapsed() < PROGRESS_EVERY) {
                    attempt.unreported.get_or_insert_default().extend(more);
                    return Ok(());
                }
                attempt.reported_at = Some(instant());
                let mut all = attempt.unreported.take().unwrap_or_default();
                all.extend(more);
                Some(("report", all))
            }
        };
        let claim = (attempt.id, attempt.token);
        let has_verdict = attempt.verdict.is_some();
        let is_progress = asked.as_ref().is_some_and(|(what, _)| *what == "report");
        // Like a touch, progress restarts the time limit of the claim, if it has one.
        let is_needed =
            |attached: &Fields| asked.is_none() || is_progress && attached.contains_key("claim_ms");
        let attached = attempt.attached.clone().filter(is_needed);
        drop(live);
        if let Some(mut attached) = attached {
            if has_verdict {
                // If this process is killed, the exit status of the command is not the result of the job.
                attached.remove(COMPLETES);
            }
            // An error does not matter: the verdict is reported when the command has ended.
            drop(Jobs::tell(&self.target, claim, "touch", attached));
        }
        let told = asked.map_or(Ok(()), |(what, more)| Jobs::tell(&self.target, claim, what, more));
        told.map_err(|failure| failure.whole())
    }
}

/// Reads a line of at most [`REQUEST_BYTES_MAX`] bytes, which must arrive within [`TIMEOUT`], no matter how slowly.
fn read_line(mut stream: &UnixStream) -> io::Result<Vec<u8>> {
    let began = instant();
    let mut line = Vec::new();
    let mut piece = [0; 4096];
    while !line.ends_with(b"\n") {
        let left = TIMEOUT.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut piece) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        line.extend_from_slice(piece.get(..count).unwrap_or_default());
        if line.len() > REQUEST_BYTES_MAX {
            let words = format!("it has more than {REQUEST_BYTES_MAX} bytes");
            return Err(io::Error::other(words));
        }
    }
    Ok(line)
}

/// Sends the answer to a report: success, or the error.
fn answer(mut stream: &UnixStream, error: Option<&str>) -> io::Result<()> {
    let body = match error {
        None => json!({ "ok": true }),
        Some(error) => json!({ "ok": false, "error": error }),
    };
    stream.write_all(format!("{body}\n").as_bytes())
}
