//! Works on one job: launches its command as a descendant of this process, waits until no process of the command is left, and reports
//! the result.

use crate::client::{fields, instant, rest};
use crate::process::attached::{self, Own};
use crate::process::{ClientOptions, WaitExtent, ending, has_ended, outcome};
use crate::report::{Failure, tell};
use crate::text::{bytes, last_line, number, words};
use crate::work::claim::{Claim, Jobs, now};
use crate::work::lines::Worker;
use crate::work::report::{self, Reports};
use crate::work::streams::{Outlet, Tail, body};
use crate::work::tally::{JobResult, LogForm, Verdict};
use crate::work::watch::Watched;
use serde_json::{Value, json};
use sexton_api::process::Launch;
use sexton_api::value::Number;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The exit status with which a command has its job tried again later: `EX_TEMPFAIL` of sysexits.h.
const NOT_NOW: u64 = 75;

/// Variables that a service manager sets for this process, and that commands do not get.
const OF_THIS: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// The pause before a request is repeated because the coordinator cannot be reached.
const PAUSE: Duration = Duration::from_millis(200);
/// The maximum number of repetitions of a request: with the pauses, five minutes.
const TRIES_MAX: u32 = 1500;

/// The interval at which a command is polled if its time is up in less than a second.
const LOOK: Duration = Duration::from_millis(20);

/// What every attempt at a job needs: the command, its limits, and the connection to the coordinator. The command runs once for each
/// job, or is kept running for one job after another.
pub(super) struct Attempts {
    pub(super) jobs: Jobs,
    pub(super) options: ClientOptions,
    pub(super) reports: Arc<Reports>,
    /// The launch of the command, without what is added for each launch.
    pub(super) command: Launch,
    /// The command's name, for messages.
    pub(super) name: String,
    /// Idle commands that work on one job after another; `None` if each command works on a single job.
    pub(super) idle: Option<Mutex<Vec<Worker>>>,
    pub(super) bounds: Bounds,
    pub(super) log: Option<LogForm>,
    /// How long to keep the result of each job, in milliseconds; `None` to keep no results.
    pub(super) keep_ms: Option<u64>,
    /// The claims being worked on, and their commands.
    pub(super) watched: Watched,
    /// Whether all running commands are being killed.
    pub(super) is_halted: AtomicBool,
}

/// The limits of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How long a command may work on a job without reporting anything; `None` for no limit.
    pub(super) time: Option<Duration>,
    /// How long a command may take to exit after SIGTERM before it is killed.
    pub(super) grace: Duration,
    /// The memory limit, in bytes: for the command's whole process tree, where control groups count its memory, and for the data size of
    /// each of its processes.
    pub(super) memory: Option<u64>,
    pub(super) output: Outlet,
}

/// A job whose command has ended, with the result to report.
pub(super) struct Finished {
    claim: Box<Claim>,
    verdict: Verdict,
    left: CommandResult,
    /// How long the attempt took, in milliseconds.
    ms: u64,
}

/// The result of a command: its exit status and the end of its output.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CommandResult {
    /// The exit status that a shell would report: 128 plus the signal number if the command was killed by a signal. `None` if it is unknown
    /// how the command ended.
    pub(super) exit: Option<u8>,
    /// The end of the command's standard output.
    pub(super) output: Vec<u8>,
}

impl Finished {
    pub(super) fn is_done(&self) -> bool {
        self.verdict == Verdict::Done
    }

    pub(super) fn claim(&self) -> &Claim {
        &self.claim
    }
}

/// The outcome of an attempt.
pub(super) enum Outcome {
    /// The command ran: the verdict on the job, and the result of the command.
    Ran(Verdict, CommandResult),
    /// The command cannot be run at all.
    NeverRan(Failure),
}

impl Attempts {
    /// Works on a job. The caller must report the result to the coordinator.
    ///
    /// # Errors
    ///
    /// Returns an error if the command cannot be run at all, after giving the job back; also if it is unknown how the command ended,
    /// in which case the claim stays until neither this process nor any process of the command is left.
    pub(super) fn work(&self, claim: Box<Claim>) -> Result<Finished, Failure> {
        let began = instant();
        let secret = self.reports.begin(&claim, self.idle.is_none())?;
        self.watched.begin(&claim);
        let came = if claim.is_duplicate {
            Ok(Outcome::Ran(Verdict::Done, CommandResult::default()))
        } else if let Some(idle) = &self.idle {
            self.hand_on(idle, &claim, &secret)
        } else {
            self.run(&claim, &secret)
        };
        let reported = self.reports.end(&secret);
        let lost = self.watched.end(&claim);
        let (verdict, left) = match came? {
            Outcome::Ran(verdict, left) => match lost {
                Some(loss) => (Verdict::Failed(loss.words().to_owned(), None), left),
                None => (reported.unwrap_or(verdict), left),
            },
            Outcome::NeverRan(failure) => {
                let verdict = Verdict::Later(failure.words().to_owned(), None);
                self.jobs.settle(&claim, &verdict)?;
                let more = format!("; job {} of {} is given back", claim.id, claim.queue);
                self.log(&claim, &verdict, &JobResult::deferred(&claim, failure.words()));
                return Err(failure.explained(&more));
            }
        };
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let finished = Finished { claim, verdict, left, ms };
        self.keep_result(&finished);
        Ok(finished)
    }

    /// Stores the result of a job if results are kept, unless the job is deferred. Must be called before the job is reported as ended.
    fn keep_result(&self, finished: &Finished) {
        let Some(ms) = self.keep_ms else { return };
        let Finished { claim, verdict, .. } = finished;
        if verdict.is_deferral() {
            return;
        }
        let kept = self.jobs.keep_result(claim, (verdict, &finished.left), (ms, finished.ms));
        if let Err(failure) = kept {
            // The verdict is reported even if the result cannot be stored.
            let words = format!("failed to keep the result of job {}", claim.id);
            tell(&format!("{words}: {}", failure.whole()));
        }
    }

    /// Reports the result of a job to the coordinator, logs it, and returns it for the tally.
    pub(super) fn settle(&self, finished: Finished) -> JobResult {
        let told = self.jobs.settle(&finished.claim, &finished.verdict);
        self.settled(finished, told)
    }

    /// Logs the result of a job after it was reported, and returns it for the tally. `told` is the coordinator's answer: `true` if the job
    /// will not be tried again, or the error.
    pub(super) fn settled(&self, finished: Finished, told: Result<bool, Failure>) -> JobResult {
        let Finished { claim, verdict, left: _, ms } = finished;
        let (error, _) = verdict.reason();
        let error = error.map(str::to_owned);
        // A job whose result could not be reported is tried again.
        let is_over = *told.as_ref().unwrap_or(&false);
        let error = error.or_else(|| told.err().map(|failure| failure.whole()));
        let worked = JobResult {
            kind: claim.kind(),
            error,
            is_deferred: verdict.is_deferral(),
            is_over,
            ms,
        };
        self.say(&claim, &verdict, &worked);
        worked
    }

    /// Has an idle worker work on a job; if none is idle, starts a new one.
    fn hand_on(
        &self,
        idle: &Mutex<Vec<Worker>>,
        claim: &Claim,
        secret: &str,
    ) -> Result<Outcome, Failure> {
        let workers = || idle.lock().unwrap_or_else(PoisonError::into_inner);
        let found = workers().pop();
        let (came, worker) = Worker::run(self, found, claim, secret)?;
        workers().extend(worker);
        Ok(came)
    }

    /// Closes the sockets of the idle workers, and waits until the workers have exited.
    pub(super) fn dismiss(&self) {
        let Some(idle) = &self.idle else { return };
        let workers = std::mem::take(&mut *idle.lock().unwrap_or_else(PoisonError::into_inner));
        // Close all sockets before waiting for the first worker.
        let ids: Vec<String> = workers.into_iter().map(Worker::close).collect();
        for id in ids {
            // The worker has no claimed job: if it cannot be ended now, it ends with the tree of this process.
            drop(self.wait_or_end(&id, self.bounds.grace));
        }
    }

    /// Writes a log line if `--log` is given. Returns whether it is.
    fn log(&self, claim: &Claim, verdict: &Verdict, worked: &JobResult) -> bool {
        if let Some(form) = self.log {
            let at = crate::text::time(now());
            crate::report::log(&form.line(&at, claim, verdict, worked));
        }
        self.log.is_some()
    }

    /// Writes a log line if `--log` is given; otherwise, writes a message if the job failed.
    fn say(&self, claim: &Claim, verdict: &Verdict, worked: &JobResult) {
        if self.log(claim, verdict, worked) {
            return;
        }
        if let Some(error) = &worked.error {
            let line = last_line(error);
            tell(&format!("job {} of {}: {line}", claim.id, claim.queue));
        }
    }

    /// Launches a command with the given streams, and returns the id of its record. The inner error is that the command cannot be run
    /// at all; the outer error is that the coordinator cannot be reached or refuses the launch.
    pub(super) fn launch(
        &self,
        streams: &[BorrowedFd<'_>; 3],
        command: Launch,
        secret: Option<&str>,
    ) -> Result<Result<String, Failure>, Failure> {
        let grace_ms = self.bounds.grace.as_millis();
        let asked = Launch {
            parent: Some(self.jobs.own.clone()),
            bound: true,
            r#type: Some("worker".to_owned()),
            grace_ms: Number(u32::try_from(grace_ms).unwrap_or(u32::MAX)),
            // The command was checked for secrets when the run began, and what is added for a job contains none.
            allow_secrets: true,
            ..command
        };
        // The secret goes only to the keeper, and is not stored in a record.
        let secret = secret.map(|it| (report::SECRET, it));
        let own = Own { env: secret.as_slice(), without: &OF_THIS, memory_max: self.bounds.memory };
        let record = attached::launch(&self.options, &asked, streams, &own)?;
        if let Some(failure) = self.never_ran(&record) {
            return Ok(Err(failure));
        }
        Ok(Ok(words(&record, "/id")))
    }

    /// Kills all running commands; their jobs are given back.
    pub(super) fn halt(&self) {
        self.is_halted.store(true, Ordering::SeqCst);
        for command in self.watched.commands() {
            self.kill(&command);
        }
    }

    /// Returns the verdict on a job whose command was killed by `halt`; `None` if there was no halt.
    pub(super) fn halted(&self) -> Option<Verdict> {
        let is_halted = self.is_halted.load(Ordering::SeqCst);
        let words = "it was stopped before it was done".to_owned();
        is_halted.then_some(Verdict::Interrupted(words))
    }

    pub(super) fn kill(&self, id: &str) {
        // If this fails, the command has ended, or it will be killed when this process ends. Its claim ends in both cases.
        drop(self.stop_within(id, Duration::ZERO));
    }

    /// Stops a command with everything it started, without waiting.
    pub(super) fn stop(&self, id: &str) {
        // The command may already have ended.
        drop(self.stop_within(id, self.bounds.grace));
    }

    /// Requests a stop of a command with everything it started.
    fn stop_within(&self, id: &str, grace: Duration) -> Result<Value, Failure> {
        let asked = fields([
            ("id", id.into()),
            ("tree", true.into()),
            ("grace_ms", json!(grace.as_millis())),
        ]);
        self.options.act("stop", asked)
    }

    /// Returns the reason why the command never ran; `None` if it ran.
    fn never_ran(&self, record: &Value) -> Option<Failure> {
        let is_failed = record.pointer("/failure").is_some_and(|it| !it.is_null());
        outcome(record, &self.name).err().filter(|_| is_failed)
    }

    fn run(&self, claim: &Claim, secret: &str) -> Result<Outcome, Failure> {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::unreachable(format!("failed to pass the job to the command: {error}"))
        };
        let input = body(&claim.body).map_err(|error| failed(&error))?;
        let (written, tail) = self.bounds.output.open().map_err(|error| failed(&error))?;
        let mut env = claim.env();
        env.insert(report::ADDRESS.to_owned(), self.reports.address().to_owned());
        let labels = [
            ("job", claim.id.to_string()),
            ("queue", claim.queue.as_str().to_owned()),
            ("attempt", claim.attempts.to_string()),
        ];
        let labels = labels.map(|(name, value)| (name.to_owned(), value)).into();
        let command = Launch { env, labels, ..self.command.clone() };
        let streams = [input.as_fd(), written.output.as_fd(), written.errors.as_fd()];
        let id = match self.launch(&streams, command, Some(secret))? {
            Ok(id) => id,
            Err(failure) => return Ok(Outcome::NeverRan(failure)),
        };
        drop((input, written));
        self.works_on(claim, &id, secret);
        let (record, is_late) = self.follow(&id, secret)?;
        if let Some(failure) = self.never_ran(&record) {
            return Ok(Outcome::NeverRan(failure));
        }
        let verdict = self.judge(&record, &tail, is_late);
        Ok(Outcome::Ran(verdict, CommandResult::of(&record, tail.output())))
    }

    /// Waits until a command and everything it started have ended, since the claim lasts that long. Returns its record, and whether it
    /// was stopped because it took too long.
    fn follow(&self, id: &str, secret: &str) -> Result<(Value, bool), Failure> {
        while let Some(most) = self.bounds.time {
            let touched = self.reports.touched(secret).unwrap_or_else(instant);
            let left = most.saturating_sub(touched.elapsed());
            if left.is_zero() {
                return Ok((self.end(id, self.bounds.grace)?, true));
            }
            // A wait takes whole seconds; the last fraction is polled.
            if left < Duration::from_secs(1) {
                rest(left.min(LOOK));
            }
            let record = self.wait(id, Some(left.as_secs()))?;
            if has_ended(&record) {
                return Ok((record, false));
            }
        }
        Ok((self.wait(id, None)?, false))
    }

    /// Waits for a command to end, and stops it if it has not ended after `grace`. Returns its record once none of its processes is
    /// left, and whether it had to be stopped.
    pub(super) fn wait_or_end(&self, id: &str, grace: Duration) -> Result<(Value, bool), Failure> {
        let record = self.wait(id, Some(grace.as_secs().max(1)))?;
        if has_ended(&record) {
            return Ok((record, false));
        }
        Ok((self.end(id, grace)?, true))
    }

    /// Stops a command with everything it started, and repeats the request if it fails. Returns its record once none of its processes is
    /// left.
    pub(super) fn end(&self, id: &str, grace: Duration) -> Result<Value, Failure> {
        // A stop also fails if the command has ended meanwhile.
        for _ in 0..TRIES_MAX {
            let told = self.stop_within(id, grace);
            let record = self.wait(id, Some(u64::from(told.is_err())))?;
            if told.is_ok() || has_ended(&record) {
                break;
            }
        }
        self.wait(id, None)
    }

    /// Waits until a command and everything it started have ended, but at most `seconds` if given, and returns its record. Retries while
    /// the coordinator is unavailable, since only the coordinator has the result.
    fn wait(&self, id: &str, seconds: Option<u64>) -> Result<Value, Failure> {
        for _ in 0..TRIES_MAX {
            match self.options.wait(id, seconds, WaitExtent::Tree) {
                Err(failure) if failure.is_halt() => return Err(failure),
                Err(_) => rest(PAUSE),
                Ok(record) => return Ok(record),
            }
        }
        self.options.wait(id, seconds, WaitExtent::Tree)
    }

    /// Derives the verdict on a job from how its command ended and from its output.
    pub(super) fn judge(&self, record: &Value, tail: &Tail, is_late: bool) -> Verdict {
        let code = record.pointer("/code").and_then(Value::as_u64);
        let said = tail.text();
        if is_late {
            return Verdict::Failed(self.late(), None);
        }
        if tail.is_too_long() {
            return Verdict::Failed(self.too_long(), None);
        }
        if code == Some(0) {
            return Verdict::Done;
        }
        if let Some(given_back) = self.halted() {
            return given_back;
        }
        let used = number(record, "/memory_max").or_zero();
        if let Some(cause) = crash(record) {
            let memory = (used, self.bounds.memory);
            return Verdict::Crashed(crash_words(&cause, memory, &said));
        }
        let error = if said.is_empty() { ending(record) } else { said };
        let error = match self.bounds.memory {
            // A program that doubles a buffer needs the old and the new one at once, so it can fail once a third of the limit is in
            // use. Many programs then exit without an error message.
            Some(most) if used >= most / 3 => {
                let (used, most) = (bytes(used), bytes(most));
                format!("{error} (its memory reached {used}; the limit is {most})")
            }
            Some(_) | None => error,
        };
        if code == Some(NOT_NOW) {
            Verdict::Later(error, None)
        } else {
            Verdict::Failed(error, None)
        }
    }

    /// Returns the error for a command that wrote too much.
    pub(super) fn too_long(&self) -> String {
        let most = bytes(self.bounds.output.bytes_max.unwrap_or_default());
        format!("it wrote more than {most}")
    }

    /// Returns the error for a command that took too long.
    pub(super) fn late(&self) -> String {
        let most = self.bounds.time.unwrap_or_default().as_millis();
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        if most < 1000 {
            return format!("it took longer than {most} ms");
        }
        format!("it took longer than {}", crate::text::span(most))
    }
}

impl CommandResult {
    /// Returns the result of the command with this record, and with `output` as the end of its output.
    pub(super) fn of(record: &Value, output: Vec<u8>) -> Self {
        let exit = record.pointer("/code").and_then(Value::as_u64);
        let exit = exit.and_then(|code| u8::try_from(code).ok());
        Self { exit, output }
    }
}

/// Returns how a command crashed: it reached its memory limit, or was killed by a signal; `None` for other commands.
fn crash(record: &Value) -> Option<String> {
    let is_killed = record.pointer("/signal").is_some_and(|it| !it.is_null());
    let killed = || is_killed.then(|| format!("it was killed by a signal ({})", ending(record)));
    out_of_memory(record).or_else(killed)
}

/// Returns the error for a command that crashed, with the memory that it used at most, the limit on it, and the end of its standard error.
fn crash_words(cause: &str, (used, most): (u64, Option<u64>), said: &str) -> String {
    let used = match (used, most) {
        (0, _) => String::new(),
        (used, None) => format!("; its memory reached {}", bytes(used)),
        (used, Some(most)) => {
            let (used, most) = (bytes(used), bytes(most));
            format!("; its memory reached {used}, the limit is {most}")
        }
    };
    let said = match said {
        "" => String::new(),
        said => format!("; its last output: {said}"),
    };
    format!("{cause}{used}{said}")
}

/// Returns the error for a command that was killed because its process tree reached the memory limit; `None` for other commands.
fn out_of_memory(record: &Value) -> Option<String> {
    let limit = record.pointer("/memory_limit")?;
    let most = bytes(number(limit, "/bytes"));
    let was_reached = limit.pointer("/reached") == Some(&Value::Bool(true));
    was_reached.then(|| format!("it reached its memory limit ({most})"))
}

#[cfg(test)]
mod tests {
    use super::{crash, crash_words, out_of_memory};
    use serde_json::json;

    #[test]
    fn a_crash_is_described_by_all_that_is_known() {
        let killed = json!({"signal": 9, "code": null});
        let cause = crash(&killed).expect("it was killed by a signal");
        assert_eq!(crash_words(&cause, (0, None), ""), "it was killed by a signal (signal 9)");
        assert_eq!(
            crash_words(&cause, (3 << 20, Some(4 << 20)), "out of luck"),
            "it was killed by a signal (signal 9); its memory reached 3.0 MiB, the limit is 4.0 MiB; its last output: out of luck"
        );
        assert_eq!(crash(&json!({"signal": null, "code": 3})), None);
    }

    #[test]
    fn only_a_limit_that_was_reached_is_a_reason() {
        let limit =
            |reached: bool| json!({"memory_limit": {"bytes": 512 << 20, "reached": reached}});
        let words = "it reached its memory limit (512.0 MiB)";
        assert_eq!(out_of_memory(&limit(true)).as_deref(), Some(words));
        assert_eq!(out_of_memory(&limit(false)), None);
        assert_eq!(out_of_memory(&json!({"memory_limit": null})), None);
    }
}
