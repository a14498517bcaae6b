//! Runs several workers, each with one job at a time; applies limits on jobs, time and memory, and ends the run.

use crate::client::{instant, rest};
use crate::report::Failure;
use crate::signals::Signals;
use crate::work::attempt::{Attempts, Finished};
use crate::work::claim::{Claim, ClaimAnswer};
use crate::work::exchange::Exchange;
use crate::work::pace::Pace;
use crate::work::tally::{JobResult, Reached, Tally, Verdict};
use rustix::param::page_size;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The maximum wait for a job in one request, in seconds.
const WAIT_MAX: u64 = 3600;

/// The pause before a waiting run tries again while the coordinator is draining or its disk is full.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a reading of this process's memory is used before the memory is read again.
const LOOK: Duration = Duration::from_millis(50);

/// Signals after which no more jobs are claimed: INT, TERM, and URG. Processes ignore URG by default, so it can be sent to this process
/// and everything it started, to let commands finish.
const STOPS: [i32; 3] = [2, 15, 23];

/// The limits of a run.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) jobs: Option<u64>,
    pub(super) time: Option<Duration>,
    /// No more jobs are claimed once this process uses 95 % of this much memory, in bytes.
    pub(super) memory: u64,
    /// The maximum number of jobs per second, in thousandths; 0 for no limit.
    pub(super) throttle: u32,
    /// Whether to wait for jobs when none is ready.
    pub(super) waits: bool,
    /// How long running jobs may take to finish after a signal; `None` for no limit.
    pub(super) finish: Option<Duration>,
}

/// A run: its workers and its results so far.
pub(super) struct Runner {
    pub(super) attempts: Attempts,
    exchange: Exchange,
    pace: Option<Pace>,
    limits: Limits,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The number of jobs that were claimed or are about to be.
    begun: u64,
    /// The number of jobs being worked on.
    busy: u32,
    /// Whether the run has stopped claiming jobs.
    is_stopping: bool,
    /// The last reading of this process's memory in bytes, and when it was taken, as time since the run began.
    memory: Option<(u64, Duration)>,
    tally: Tally,
    failure: Option<Failure>,
}

/// The progress of a run.
pub(super) struct RunTotals {
    pub(super) done: u64,
    /// Jobs that failed and are not tried again.
    pub(super) failed: u64,
    pub(super) failed_tries: u64,
    /// Jobs being worked on.
    pub(super) busy: u32,
    pub(super) elapsed: Duration,
}

/// A message from a worker or a signal.
enum RunnerEvent {
    Stop,
    /// A job has ended.
    Worked,
    /// A worker claims no more jobs.
    Ended,
}

impl Runner {
    pub(super) fn new(attempts: Attempts, limits: Limits, tally: Tally) -> Arc<Self> {
        let state = State {
            tally,
            ..State::default()
        };
        Arc::new(Self {
            attempts,
            exchange: Exchange::default(),
            pace: Pace::of(limits.throttle),
            limits,
            began: instant(),
            state: Mutex::new(state),
        })
    }

    /// Works until the run ends. Returns the results, and the failure that ended the run, if any. The outer error is that signals or
    /// threads could not be set up.
    pub(super) fn run(self: &Arc<Self>, workers: u16) -> Result<(Tally, Option<Failure>), Failure> {
        let (news, heard) = channel();
        listen(news.clone())?;
        let runner = Arc::clone(self);
        let watching = move || runner.attempts.watch();
        spawn("claims".to_owned(), watching)?;
        for nth in 0..workers {
            let (runner, news) = (Arc::clone(self), news.clone());
            let working = move || runner.work(&news);
            spawn(format!("worker {nth}"), working)?;
        }
        let mut left = workers;
        while left > 0 {
            match heard.recv().expect("this thread holds a sender") {
                RunnerEvent::Stop => self.stop(),
                RunnerEvent::Ended => left -= 1,
                RunnerEvent::Worked => {}
            }
            let state = self.state();
            // Workers that are still waiting for a job have no claim, so they can be cut off by the end of this process.
            if state.is_stopping && state.busy == 0 {
                break;
            }
        }
        self.attempts.dismiss();
        let mut state = self.state();
        Ok((std::mem::take(&mut state.tally), state.failure.take()))
    }

    /// Stops claiming jobs. If the time to finish is limited, kills the commands that are still running after it.
    fn stop(self: &Arc<Self>) {
        let was_stopping = std::mem::replace(&mut self.state().is_stopping, true);
        self.state().stop(Reached::Stopped);
        if let (false, Some(finish)) = (was_stopping, self.limits.finish) {
            let runner = Arc::clone(self);
            let halting = move || {
                rest(finish);
                runner.attempts.halt();
            };
            // If the thread cannot be started, commands are not killed here; a service manager does that at the end of its own grace
            // period.
            drop(Builder::new().name("finish".to_owned()).spawn(halting));
        }
    }

    /// Returns the progress.
    pub(super) fn totals(&self) -> RunTotals {
        let state = self.state();
        RunTotals {
            done: state.tally.done,
            failed: state.tally.failed,
            failed_tries: state.tally.failed_tries,
            busy: state.busy,
            elapsed: self.began.elapsed(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, news: &Sender<RunnerEvent>) {
        // A finished job; it is reported together with the next claim.
        let mut done = None;
        while self.may_begin() {
            if !self.work_on_one(&mut done) {
                break;
            }
            // The main thread needs this event only if the run is stopping, to see that the last job has ended.
            if self.state().is_stopping {
                // The receiver may have been dropped at the end of the run.
                let _ = news.send(RunnerEvent::Worked);
            }
        }
        if let Some(done) = done {
            self.settle(done);
        }
        let _ = news.send(RunnerEvent::Ended);
    }

    /// Returns whether another job may be claimed, and if so, counts it as begun; otherwise records the limit that was reached, if any. The
    /// first job is allowed regardless of time and memory.
    fn may_begin(&self) -> bool {
        let mut state = self.state();
        if state.is_stopping {
            return false;
        }
        if self.limits.jobs.is_some_and(|most| state.begun >= most) {
            state.tally.reach(Reached::JobLimit);
            return false;
        }
        if state.begun > 0 && self.is_late() {
            state.tally.reach(Reached::TimeLimit);
            return false;
        }
        if state.begun > 0 && state.memory(self.began.elapsed()) >= self.limits.memory / 100 * 95 {
            state.tally.reach(Reached::MemoryLimit);
            return false;
        }
        state.begun += 1;
        true
    }

    fn is_late(&self) -> bool {
        let most = self.limits.time;
        most.is_some_and(|most| self.began.elapsed() > most)
    }

    /// Reports the job in `done`, if any, then claims a job and works on it. If the job is done but not reported yet, it is left in `done`.
    /// Returns whether the worker should continue.
    fn work_on_one(&self, done: &mut Option<Finished>) -> bool {
        let (before, found) = self.claim(done.take());
        let taken = self.take(found);
        // The previous job is counted only now: until then, a run that is being stopped does not end, so a new claim can still be given
        // back.
        if let Some(before) = before {
            self.count(before);
        }
        let claim = match taken {
            Ok(claim) => claim,
            Err(goes_on) => return goes_on,
        };
        match self.attempts.work(claim) {
            // With a throttle the next claim may have to wait, but a finished job is reported immediately.
            Ok(finished) if finished.is_done() && self.pace.is_none() => {
                *done = Some(finished);
                true
            }
            Ok(finished) => {
                self.settle(finished);
                true
            }
            Err(failure) => {
                self.state().busy -= 1;
                self.fail(failure);
                false
            }
        }
    }

    /// Reports the previous job as done, and claims the next one. Returns the result of the previous job, unless there is none or it has
    /// been counted already, and the answer to the claim. With a report, a job is claimed only if it is ready already, so that the report
    /// does not wait for another job.
    fn claim(&self, before: Option<Finished>) -> (Option<JobResult>, Result<ClaimAnswer, Failure>) {
        let jobs = &self.attempts.jobs;
        if let Some(before) = before {
            let (told, found) = self.exchange.of(jobs, before.claim().key());
            let before = self.attempts.settled(before, told.map(|()| true));
            match found {
                Some(ClaimAnswer::Nothing) | None => self.count(before),
                Some(found) => return (Some(before), Ok(found)),
            }
            // If the run was stopped during this job, return, so that the main thread is notified, instead of waiting for another job.
            if self.state().is_stopping {
                return (None, Ok(ClaimAnswer::Nothing));
            }
        }
        let claim = || {
            if self.pace.is_some() && self.state().begun > 1 && self.is_late() {
                self.state().tally.reach(Reached::TimeLimit);
                return Ok(ClaimAnswer::Nothing);
            }
            jobs.claim(self.wait())
        };
        let found = match &self.pace {
            Some(pace) => pace.claim(claim),
            None => claim(),
        };
        (None, found)
    }

    /// Returns the job to work on, or, as the error, whether to try to claim another.
    fn take(&self, found: Result<ClaimAnswer, Failure>) -> Result<Box<Claim>, bool> {
        match found {
            Ok(ClaimAnswer::Claim(claim)) => self.take_on(claim).ok_or(false),
            Ok(found) => Err(self.found_none(&found)),
            Err(failure) => {
                self.fail(failure);
                Err(false)
            }
        }
    }

    /// Reports the result of a job to the coordinator, and counts it.
    fn settle(&self, finished: Finished) {
        self.count(self.attempts.settle(finished));
    }

    fn count(&self, worked: JobResult) {
        let mut state = self.state();
        state.busy -= 1;
        state.tally.add(worked);
    }

    /// Counts a job as being worked on, and returns it. If the run is being stopped, gives the job back instead and returns `None`.
    fn take_on(&self, claim: Box<Claim>) -> Option<Box<Claim>> {
        let mut state = self.state();
        if state.is_stopping {
            drop(state);
            let verdict = Verdict::Later(String::new(), Some(0));
            drop(self.attempts.jobs.settle(&claim, &verdict));
            return None;
        }
        state.busy += 1;
        Some(claim)
    }

    /// Handles an answer without a job. Returns whether to try again.
    fn found_none(&self, found: &ClaimAnswer) -> bool {
        let mut state = self.state();
        state.begun -= 1;
        if self.limits.waits {
            if self.is_late() {
                state.tally.reach(Reached::TimeLimit);
                return false;
            }
            drop(state);
            if !matches!(found, ClaimAnswer::Nothing) {
                rest(PAUSE);
            }
            return true;
        }
        state.tally.reach(match found {
            ClaimAnswer::Draining => Reached::Stopped,
            ClaimAnswer::ReadOnly => Reached::ReadOnly,
            ClaimAnswer::Nothing | ClaimAnswer::Claim(_) => Reached::NoneReady,
        });
        false
    }

    /// Returns how long a request may wait for a job, in seconds.
    fn wait(&self) -> u64 {
        if !self.limits.waits {
            return 0;
        }
        let left = self
            .limits
            .time
            .map(|most| most.saturating_sub(self.began.elapsed()));
        let left = left.map_or(WAIT_MAX, |left| left.as_secs() + 1);
        left.min(WAIT_MAX)
    }

    /// Ends the run with a failure.
    fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.stop(Reached::Exception);
        state.failure.get_or_insert(failure);
    }
}

impl State {
    /// Returns the memory used by this process, in bytes. The reading may be as old as [`LOOK`], since reading it can take longer than a
    /// job.
    fn memory(&mut self, now: Duration) -> u64 {
        match self.memory {
            Some((bytes, at)) if now.saturating_sub(at) < LOOK => bytes,
            _ => self.memory.insert((memory(), now)).0,
        }
    }

    fn stop(&mut self, reached: Reached) {
        self.is_stopping = true;
        self.tally.reach(reached);
    }
}

/// Spawns a detached thread.
fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let begun = Builder::new().name(name).spawn(run);
    begun
        .map(drop)
        .map_err(|error| Failure::unreachable(format!("failed to start a thread: {error}")))
}

/// Starts a thread that sends [`RunnerEvent::Stop`] for each of the signals in [`STOPS`]. The signal handlers are installed before this
/// returns.
fn listen(news: Sender<RunnerEvent>) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::unreachable(format!("failed to listen for signals: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let signals = runtime
        .block_on(async { Signals::listen(&STOPS) })
        .map_err(failed)?;
    let listening = move || {
        // `end` never resolves, since its sender is never used: the thread runs as long as this process.
        let (_open, end) = tokio::sync::oneshot::channel();
        runtime.block_on(signals.pass_on(end, |_| {
            // The run may have ended.
            let _ = news.send(RunnerEvent::Stop);
        }));
    };
    let listening = Builder::new().name("signals".to_owned()).spawn(listening);
    listening.map(drop).map_err(failed)
}

/// Returns the resident memory of this process in bytes; 0 if it is unknown.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    resident.unwrap_or(0u64).saturating_mul(page_size() as u64)
}
