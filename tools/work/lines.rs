//! A command that works on one job after another: it reads requests and writes answers, as lines of JSON on descriptor 3. The
//! protocol is in `docs/protocols/work.md`, "Lines".
//!
//! A claim ends only when the worker has answered for it, or when it is certain that the worker and everything it started have exited.
//! A worker whose answer is late, malformed or about another job is stopped.

use crate::client::instant;
use crate::process::ending;
use crate::report::Failure;
use crate::span::DELAY_MS_MAX;
use crate::work::attempt::{Attempts, CommandResult, Outcome};
use crate::work::claim::Claim;
use crate::work::report::Report;
use crate::work::streams::Tail;
use crate::work::tally::Verdict;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use serde::Deserialize;
use serde_json::{Value, json};
use sexton_api::process::Launch;
use sexton_api::value::List;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The maximum length of a line from a worker, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The size of the buffer for each read, in bytes. Most lines are shorter.
const READ_BYTES: usize = 1 << 10;

/// The read timeout for a worker without a time limit.
const LOOK: Duration = Duration::from_mins(1);

/// The minimum timeout to set on a socket: zero is not accepted.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// The exit statuses with which a shell reports that it could not execute a command.
const NOT_EXECUTED: [u64; 2] = [126, 127];

/// A shell script that moves the socket from standard input, where the launch puts it, to descriptor 3.
const SHELL: &str = "exec \"$@\" 3<&0 0</dev/null";

/// A running command that works on one job after another.
pub(super) struct Worker {
    /// The id of the coordinator's record of this process.
    id: String,
    stream: UnixStream,
    /// The read timeout that is currently set on `stream`; `None` if none has been set.
    wait: Option<Duration>,
    /// Bytes that the worker wrote and that have not been parsed yet.
    unread: Vec<u8>,
    tail: Tail,
    /// Whether the worker has answered for at least one job.
    has_answered: bool,
}

/// A line from a worker.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// The id of the job that the line is about.
    id: u64,
    ok: Option<bool>,
    fail: Option<String>,
    /// The delay before the next try, in seconds; with `fail`.
    retry_after: Option<f64>,
    /// Puts the job back, to be given out again after this many seconds.
    snooze: Option<f64>,
    /// The reason for `snooze`.
    why: Option<String>,
    touch: Option<bool>,
    /// The progress of the job, in percent.
    progress: Option<u8>,
    /// A description of the progress; with `progress`, or alone.
    text: Option<String>,
    /// The output of the job, to be stored; allowed only with `ok` or `fail`.
    output: Option<String>,
}

/// The meaning of a line.
#[derive(Debug, PartialEq, Eq)]
enum WorkerMessage {
    /// The verdict on the job, and the job's output, which may be empty.
    Verdict(Verdict, String),
    Report(Report),
}

/// The state of a worker that has no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Idle {
    Quiet,
    /// It wrote something unexpected.
    Spoken,
    /// It has closed the socket.
    Gone,
}

/// The reason why a worker gave no valid answer.
#[derive(Debug, PartialEq, Eq)]
enum Silence {
    /// It has closed the socket.
    Closed,
    /// It did not read the job or did not answer in time.
    Late,
    /// The line is too long or invalid, as this message explains.
    Malformed(String),
}

/// Converts seconds to milliseconds; `None` if they are negative or not finite, or more than [`DELAY_MS_MAX`].
fn milliseconds(seconds: f64) -> Option<u64> {
    let span = Duration::try_from_secs_f64(seconds).ok()?;
    let ms = u64::try_from(span.as_millis()).ok()?;
    (ms <= DELAY_MS_MAX).then_some(ms)
}

impl Line {
    /// Parses a line, which must be about the job with this id. The error is a message.
    fn read(text: &[u8], id: u64) -> Result<WorkerMessage, String> {
        let line: Self = serde_json::from_slice(text).map_err(|error| {
            let shown = String::from_utf8_lossy(text.get(..80).unwrap_or(text));
            format!("a line from the worker is not an answer: {error}: {}", shown.trim_end())
        })?;
        if line.id != id {
            return Err(format!("the worker answered for job {}, but it had job {id}", line.id));
        }
        let span = |seconds: Option<f64>| match seconds {
            None => Ok(None),
            Some(seconds) => match milliseconds(seconds) {
                Some(ms) => Ok(Some(ms)),
                None => Err("a time span in the worker's answer is invalid or too long".to_owned()),
            },
        };
        let retry_after = span(line.retry_after)?;
        let is_report = line.progress.is_some() || line.text.is_some();
        if line.progress.is_some_and(|percent| percent > 100) {
            return Err("the progress in the worker's answer is more than 100".to_owned());
        }
        let is_end = line.ok.is_some() || line.fail.is_some();
        if line.output.is_some() && !is_end {
            return Err("the worker's answer has an output, but neither ok nor fail".to_owned());
        }
        let output = line.output.unwrap_or_default();
        Ok(match (line.ok, line.fail, span(line.snooze)?, line.touch) {
            (Some(true), None, None, None) if !is_report => {
                WorkerMessage::Verdict(Verdict::Done, output)
            }
            (None, Some(error), None, None) if !is_report => {
                WorkerMessage::Verdict(Verdict::Failed(error, retry_after), output)
            }
            (None, None, Some(after), None) if !is_report => {
                let why = line.why.unwrap_or_default();
                WorkerMessage::Verdict(Verdict::Later(why, Some(after)), output)
            }
            (None, None, None, Some(true)) if !is_report => WorkerMessage::Report(Report::Touch {}),
            (None, None, None, None) if is_report => {
                WorkerMessage::Report(Report::Progress { percent: line.progress, text: line.text })
            }
            _ => {
                return Err(
                    "the worker's answer must have exactly one of ok, fail, snooze, touch, progress"
                        .to_owned(),
                );
            }
        })
    }
}

impl Worker {
    /// Works on a job with the worker `found`, or with a new one if `found` is `None` or cannot be used. Returns the outcome, and the
    /// worker if it can take another job.
    pub(super) fn run(
        attempts: &Attempts,
        found: Option<Self>,
        claim: &Claim,
        secret: &str,
    ) -> Result<(Outcome, Option<Self>), Failure> {
        let found = found.map(|worker| (worker.idle(), worker));
        let (idle, mut worker) = match found {
            // The output of a worker that wrote too much is no longer read, so it cannot take another job.
            Some((idle, worker)) if idle != Idle::Gone && !worker.tail.is_too_long() => {
                (idle, worker)
            }
            other => match Self::instead_of(other.map(|(_, worker)| worker), attempts)? {
                Ok(worker) => (Idle::Quiet, worker),
                Err(failure) => return Ok((Outcome::NeverRan(failure), None)),
            },
        };
        attempts.works_on(claim, &worker.id, secret);
        match worker.ask(attempts, claim, (secret, idle)) {
            Ok((verdict, output)) => {
                worker.has_answered = true;
                let output = output.into_bytes();
                let left = CommandResult { exit: None, output };
                Ok((Outcome::Ran(verdict, left), Some(worker)))
            }
            Err(silence) => Ok((worker.fail(attempts, silence)?, None)),
        }
    }

    /// Launches a worker. If it replaces `gone`, first waits until none of the processes of `gone` is left. The inner error is that the
    /// command cannot be run at all; the outer error is that the coordinator cannot be reached or refuses.
    fn instead_of(
        gone: Option<Self>,
        attempts: &Attempts,
    ) -> Result<Result<Self, Failure>, Failure> {
        if let Some(gone) = gone {
            attempts.wait_or_end(&gone.close(), attempts.bounds.grace)?;
        }
        Self::launch(attempts)
    }

    fn launch(attempts: &Attempts) -> Result<Result<Self, Failure>, Failure> {
        let failed = |error: io::Error| {
            Failure::unreachable(format!("failed to create a socket for a worker: {error}"))
        };
        let (stream, theirs) = UnixStream::pair().map_err(failed)?;
        let (written, tail) = attempts.bounds.output.open().map_err(failed)?;
        let mut words = ["sh", "-c", SHELL, "sh"].map(str::to_owned).to_vec();
        words.extend(attempts.command.command.0.iter().cloned());
        let env = [("SEXTON_JOB_LINES".to_owned(), "3".to_owned())].into();
        let command = Launch { command: List(words), env, ..attempts.command.clone() };
        let streams = [theirs.as_fd(), written.output.as_fd(), written.errors.as_fd()];
        // A worker that does not read a job counts as late, like one that does not answer.
        let patience = attempts.bounds.time.map(|most| most.max(WAIT_MIN));
        stream.set_write_timeout(patience).map_err(failed)?;
        let launched = attempts.launch(&streams, command, None)?;
        Ok(launched.map(|id| Self {
            id,
            stream,
            wait: None,
            unread: Vec::new(),
            tail,
            has_answered: false,
        }))
    }

    /// Sends a job to the worker, and returns its verdict and the output to store.
    fn ask(
        &mut self,
        attempts: &Attempts,
        claim: &Claim,
        (secret, idle): (&str, Idle),
    ) -> Result<(Verdict, String), Silence> {
        if idle == Idle::Spoken {
            let words = "the worker wrote a line while it had no job";
            return Err(Silence::Malformed(words.to_owned()));
        }
        self.tail.clear();
        if let Err(error) = self.stream.write_all(&request(claim)) {
            return Err(if error.kind() == io::ErrorKind::WouldBlock {
                Silence::Late
            } else {
                Silence::Closed
            });
        }
        loop {
            let left = || {
                let touched = attempts.reports.touched(secret).unwrap_or_else(instant);
                let most = attempts.bounds.time?;
                Some(most.saturating_sub(touched.elapsed()))
            };
            let line = self.line(left)?;
            match Line::read(&line, claim.id).map_err(Silence::Malformed)? {
                WorkerMessage::Verdict(..) if self.tail.is_too_long() => {
                    return Err(Silence::Malformed(attempts.too_long()));
                }
                WorkerMessage::Verdict(verdict, output) => return Ok((verdict, output)),
                // A report fails if the claim was lost. The result of the job will then be refused as well.
                WorkerMessage::Report(said) => drop(attempts.reports.take(secret, said)),
            }
        }
    }

    /// Returns the state of a worker that has no job.
    fn idle(&self) -> Idle {
        let mut bytes = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        match recv(&self.stream, &mut bytes, flags) {
            Ok((0, _)) => Idle::Gone,
            Err(Errno::AGAIN) if self.unread.is_empty() => Idle::Quiet,
            Ok(_) | Err(Errno::AGAIN) => Idle::Spoken,
            Err(_) => Idle::Gone,
        }
    }

    /// Reads the next line within the time that `left` returns; `None` for no limit.
    fn line(&mut self, left: impl Fn() -> Option<Duration>) -> Result<Vec<u8>, Silence> {
        loop {
            let end = self.unread.iter().position(|byte| *byte == b'\n');
            if end.unwrap_or(self.unread.len()) > LINE_BYTES_MAX {
                let words = format!("a line from the worker has more than {LINE_BYTES_MAX} bytes");
                return Err(Silence::Malformed(words));
            }
            if let Some(end) = end {
                return Ok(self.unread.drain(..=end).collect());
            }
            let left = left();
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Silence::Late);
            }
            let wait = left.unwrap_or(LOOK).max(WAIT_MIN);
            match self.read(wait) {
                Ok(0) => return Err(Silence::Closed),
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(_) => return Err(Silence::Closed),
            }
        }
    }

    /// Reads once, waiting for at most `wait`, and returns the number of bytes that were read.
    fn read(&mut self, wait: Duration) -> io::Result<usize> {
        if self.wait != Some(wait) {
            self.stream.set_read_timeout(Some(wait))?;
            self.wait = Some(wait);
        }
        self.unread.reserve(READ_BYTES);
        let (read, _) = recv(&self.stream, spare_capacity(&mut self.unread), RecvFlags::empty())?;
        Ok(read)
    }

    /// Stops a worker that gave no valid answer, waits until none of its processes is left, and returns the outcome for its job.
    fn fail(self, attempts: &Attempts, silence: Silence) -> Result<Outcome, Failure> {
        let grace = match silence {
            Silence::Late | Silence::Closed => attempts.bounds.grace,
            Silence::Malformed(_) => Duration::ZERO,
        };
        drop(self.stream);
        let (record, kept_running) = match silence {
            // A worker that has closed the socket is usually about to exit.
            Silence::Closed => attempts.wait_or_end(&self.id, grace)?,
            Silence::Late | Silence::Malformed(_) => (attempts.end(&self.id, grace)?, true),
        };
        if let Some(given_back) = attempts.halted() {
            return Ok(Outcome::Ran(given_back, CommandResult::default()));
        }
        let code = record.pointer("/code").and_then(Value::as_u64);
        let never_ran = !self.has_answered && code.is_some_and(|it| NOT_EXECUTED.contains(&it));
        if silence == Silence::Closed && never_ran {
            let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
            let words = format!("{}: {}", attempts.name, self.tail.text());
            return Ok(Outcome::NeverRan(Failure::of_command(code, words)));
        }
        let verdict = match silence {
            Silence::Malformed(words) => Verdict::Failed(words, None),
            Silence::Late => Verdict::Failed(attempts.late(), None),
            Silence::Closed if kept_running => {
                let words = "the worker closed its socket without an answer, and kept running";
                Verdict::Failed(words.to_owned(), None)
            }
            Silence::Closed if code == Some(0) => {
                let words = format!("the worker exited without an answer: {}", ending(&record));
                Verdict::Failed(words, None)
            }
            Silence::Closed => attempts.judge(&record, &self.tail, false),
        };
        Ok(Outcome::Ran(verdict, CommandResult::of(&record, Vec::new())))
    }

    /// Closes the socket, which means that there are no more jobs. Returns the id of the worker's record, to wait for its end.
    pub(super) fn close(self) -> String {
        self.id
    }
}

/// Returns whether an error is temporary, which means that the socket can be read again.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Encodes a job as a request line.
fn request(claim: &Claim) -> Vec<u8> {
    let mut asked = json!({
        "id": claim.id,
        "queue": claim.queue,
        "type": claim.kind(),
        "tenant": claim.tenant(),
        "attempt": claim.attempts,
        "fence": claim.token,
    });
    let (name, body) = match std::str::from_utf8(&claim.body) {
        Ok(text) => ("body", text.to_owned()),
        Err(_) => ("body_b64", STANDARD.encode(&claim.body)),
    };
    if let Value::Object(fields) = &mut asked {
        fields.insert(name.to_owned(), body.into());
    }
    format!("{asked}\n").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::{Line, Report, Verdict, WorkerMessage};

    #[test]
    fn a_line_says_one_thing_of_the_job_that_it_names() {
        let read = |line: &str| Line::read(line.as_bytes(), 17);
        for (line, said) in [
            (r#"{"id":17,"ok":true}"#, Verdict::Done),
            (r#"{"id":17,"fail":"x"}"#, Verdict::Failed("x".to_owned(), None)),
            (
                r#"{"id":17,"fail":"x","retry_after":0.5}"#,
                Verdict::Failed("x".to_owned(), Some(500)),
            ),
            (r#"{"id":17,"snooze":60,"why":"y"}"#, Verdict::Later("y".to_owned(), Some(60_000))),
        ] {
            assert_eq!(read(line), Ok(WorkerMessage::Verdict(said, String::new())), "{line}");
        }
        assert_eq!(
            read(r#"{"id":17,"ok":true,"output":"4"}"#),
            Ok(WorkerMessage::Verdict(Verdict::Done, "4".to_owned()))
        );
        assert_eq!(
            read(r#"{"id":17,"progress":40,"text":"t"}"#),
            Ok(WorkerMessage::Report(Report::Progress {
                percent: Some(40),
                text: Some("t".to_owned())
            }))
        );
        assert_eq!(read(r#"{"id":17,"touch":true}"#), Ok(WorkerMessage::Report(Report::Touch {})));
        for wrong in [
            "",
            "hello",
            "{}",
            r#"{"id":17}"#,
            r#"{"id":16,"ok":true}"#,
            r#"{"id":17,"ok":false}"#,
            r#"{"id":17,"ok":true,"fail":"x"}"#,
            r#"{"id":17,"ok":true,"progress":1}"#,
            r#"{"id":17,"fail":"x","retry_after":-1}"#,
            r#"{"id":17,"snooze":1e300}"#,
            r#"{"id":17,"snooze":4294967296}"#,
            r#"{"id":17,"fail":"x","retry_after":4294967296}"#,
            r#"{"id":17,"progress":101}"#,
            r#"{"id":17,"ok":true,"more":1}"#,
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
