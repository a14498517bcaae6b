//! Receives reports of commands on their jobs: `sexton job` connects to a socket of this process, and the secret of its attempt
//! identifies the job. The socket has an abstract address, not a file, so nothing is left of it when this process is killed.
//!
//! The protocol is in `docs/protocols/work.md`, "Reports".

use crate::client::{Fields, Target, fields, instant};
use crate::process::attached::drawn;
use crate::report::Failure;
use crate::span::DELAY_MS_MAX;
use crate::work::claim::{Claim, Jobs, chance};
use crate::work::tally::Verdict;
use serde::Deserialize;
use serde_json::json;
use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The environment variable with the address of the socket.
pub(crate) const ADDRESS: &str = "SEXTON_JOB_REPORT";
/// The environment variable with the secret of the attempt.
pub(crate) const SECRET: &str = "SEXTON_JOB_SECRET";

/// How long either side may be silent.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum size of a request, in bytes.
const REQUEST_BYTES_MAX: u64 = 16 << 10;

/// The minimum interval between progress reports to the coordinator, since each is written to the journal.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// The maximum number of open requests.
const OPEN_MAX: usize = 64;

/// A report on a job.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do", deny_unknown_fields)]
pub(super) enum Report {
    /// The progress of the job.
    Progress {
        percent: Option<u8>,
        text: Option<String>,
    },
    /// The job is still being worked on.
    Touch {},
    /// The job counts as failed once the command has ended.
    Fail {
        error: String,
        retry_after_ms: Option<u64>,
    },
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
    /// When progress was last sent to the coordinator; `None` if it has not been sent yet.
    reported_at: Option<Instant>,
    /// Progress that has not been sent to the coordinator yet.
    unreported: Option<Fields>,
}

/// The attempts in progress, by their secrets, and the socket that receives reports on them.
pub(super) struct Reports {
    address: String,
    /// A random number. The secret of an attempt is derived from it if the command of that attempt does not get the secret.
    hidden: u128,
    target: Target,
    live: Mutex<HashMap<String, Live>>,
    open: AtomicUsize,
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
            open: AtomicUsize::new(0),
        });
        let theirs = Arc::clone(&reports);
        let serving = move || {
            for stream in listener.incoming() {
                if let Ok(stream) = stream {
                    theirs.serve(stream);
                } else {
                    // This process is probably out of file descriptors; try again soon.
                    crate::client::rest(Duration::from_millis(50));
                }
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
            reported_at: None,
            unreported: None,
        };
        self.live().insert(secret.clone(), live);
        Ok(secret)
    }

    /// Removes an attempt and sends its remaining progress to the coordinator. Returns the verdict that the command reported, if any.
    pub(super) fn end(&self, secret: &str) -> Option<Verdict> {
        let live = self.live().remove(secret)?;
        if let Some(unreported) = live.unreported {
            // An error does not matter: the result of the job follows.
            drop(Jobs::tell(
                &self.target,
                (live.id, live.token),
                "report",
                unreported,
            ));
        }
        live.verdict
    }

    /// Returns when an attempt began or last reported anything; `None` if it has ended.
    pub(super) fn touched(&self, secret: &str) -> Option<Instant> {
        self.live().get(secret).map(|live| live.touched)
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Live>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(self: &Arc<Self>, stream: UnixStream) {
        if self.open.fetch_add(1, Ordering::Relaxed) >= OPEN_MAX {
            self.open.fetch_sub(1, Ordering::Relaxed);
            drop(answer(&stream, Some("too many reports at the same time")));
            return;
        }
        let reports = Arc::clone(self);
        let serving = move || {
            // An error means that the client has disconnected or is too slow.
            drop(reports.receive(&stream));
            reports.open.fetch_sub(1, Ordering::Relaxed);
        };
        if Builder::new()
            .name("report".to_owned())
            .spawn(serving)
            .is_err()
        {
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn receive(&self, stream: &UnixStream) -> io::Result<()> {
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        let mut line = Vec::new();
        BufReader::new(stream.take(REQUEST_BYTES_MAX)).read_until(b'\n', &mut line)?;
        let done = match serde_json::from_slice::<Request>(&line) {
            Ok(request) => self.take(&request.secret, request.report),
            Err(error) => Err(format!("this is not a report: {error}")),
        };
        answer(stream, done.err().as_deref())
    }

    /// Handles a report of the attempt with this secret. The error is a message for the command.
    pub(super) fn take(&self, secret: &str, report: Report) -> Result<(), String> {
        let mut live = self.live();
        let attempt = live.get_mut(secret);
        let attempt = attempt.ok_or("unknown attempt: it may have ended")?;
        attempt.touched = instant();
        if let Report::Fail {
            retry_after_ms: Some(after),
            ..
        }
        | Report::Snooze {
            after_ms: after, ..
        } = &report
            && *after > DELAY_MS_MAX
        {
            return Err(format!("a job can be delayed by at most {DELAY_MS_MAX} ms"));
        }
        let asked = match report {
            Report::Fail {
                error,
                retry_after_ms,
            } => {
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
                if attempt
                    .reported_at
                    .is_some_and(|told| told.elapsed() < PROGRESS_EVERY)
                {
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
        drop(live);
        let told = asked.map_or(Ok(()), |(what, more)| {
            Jobs::tell(&self.target, claim, what, more)
        });
        told.map_err(|failure| failure.whole())
    }
}

/// Sends the answer to a report: success, or the error.
fn answer(mut stream: &UnixStream, error: Option<&str>) -> io::Result<()> {
    let body = match error {
        None => json!({ "ok": true }),
        Some(error) => json!({ "ok": false, "error": error }),
    };
    stream.write_all(format!("{body}\n").as_bytes())
}
