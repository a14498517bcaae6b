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
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The maximum wait for a job in one request, in seconds.
const WAIT_MAX: u64 = 3600;

/// The pause before a waiting run tries again while the coordinator is draining or its disk is full.
const PAUSE: Duration = Duration::from_secs(1);

/// How long a run that is being stopped tries to withdraw its requests for jobs, and the pause before it tries again.
const WITHDRAW_MAX: Duration = Duration::from_secs(10);
const WITHDRAW_AGAIN: Duration = Duration::from_millis(50);

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
    /// Notified when a request for a job has been answered.
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of jobs that were claimed or are about to be.
    begun: u64,
    /// The number of jobs being worked on, or claimed and about to be given back.
    busy: u32,
    /// The number of requests for a job that have not been answered.
    claiming: u32,
    /// Whether the coordinator could not be asked to withdraw these requests, so that they are not waited for.
    is_cut_off: bool,
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
        let state = State { tally, ..State::default() };
        Arc::new(Self {
            attempts,
            exchange: Exchange::default(),
            pace: Pace::of(limits.throttle),
            limits,
            began: instant(),
            state: Mutex::new(state),
            answered: Condvar::new(),
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
            match heard.recv().expect("this thread should hold a sender") {
                RunnerEvent::Stop => self.stop(&news),
                RunnerEvent::Ended => left -= 1,
                RunnerEvent::Worked => {}
            }
            let state = self.state();
            if state.is_stopping && state.busy == 0 && state.is_quiet() {
                break;
            }
        }
        self.attempts.dismiss();
        let mut state = self.state();
        Ok((std::mem::take(&mut state.tally), state.failure.take()))
    }

    /// Stops claiming jobs. If the time to finish is limited, kills the commands that are still running after it.
    fn stop(self: &Arc<Self>, news: &Sender<RunnerEvent>) {
        let was_stopping = std::mem::replace(&mut self.state().is_stopping, true);
        self.state().stop(Reached::Stopped);
        if was_stopping {
            return;
        }
        let (runner, end) = (Arc::clone(self), news.clone());
        let withdrawing = move || {
            runner.withdraw();
            // The receiver may have been dropped at the end of the run.
            let _ = end.send(RunnerEvent::Worked);
        };
        let begun = Builder::new().name("withdraw".to_owned()).spawn(withdrawing);
        if begun.is_err() {
            self.state().is_cut_off = true;
        }
        if let Some(finish) = self.limits.finish {
            let runner = Arc::clone(self);
            let halting = move || {
                rest(finish);
                runner.until_quiet();
                runner.attempts.halt();
            };
            // If the thread cannot be started, commands are not killed here; a service manager does that at the end of its own grace
            // period.
            drop(Builder::new().name("finish".to_owned()).spawn(halting));
        }
    }

    /// Ends the requests of this run that wait for a job, so that none of them is given a job that the run gives back. One that is on its
    /// way is withdrawn when it has arrived.
    fn withdraw(&self) {
        let began = instant();
        let mut state = self.state();
        while state.claiming > 0 && began.elapsed() < WITHDRAW_MAX {
            drop(state);
            let withdrawn = self.attempts.jobs.withdraw();
            state = self.state();
            if withdrawn.is_err() {
                // A coordinator that has stopped, or is gone, gives out no jobs.
                break;
            }
            let waited =
                self.answered.wait_timeout_while(state, WITHDRAW_AGAIN, |it| it.claiming > 0);
            (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        }
        state.is_cut_off = true;
        drop(state);
        self.answered.notify_all();
    }

    /// Waits until no request of this run waits for a job. Call this only when the run is being stopped.
    fn until_quiet(&self) {
        let quiet = self.answered.wait_while(self.state(), |it| !it.is_quiet());
        drop(quiet.unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts a request for a job, unless the run is being stopped: then returns `false`, and none may be sent.
    fn begin_claim(&self) -> bool {
        let mut state = self.state();
        if state.is_stopping {
            return false;
        }
        state.claiming += 1;
        true
    }

    /// Counts a request for a job as answered, and a claim, if that is the answer, as being worked on.
    fn end_claim(&self, found: Option<&ClaimAnswer>) {
        let mut state = self.state();
        state.claiming -= 1;
        if let Some(ClaimAnswer::Claim(_)) = found {
            state.busy += 1;
        }
        drop(state);
        self.answered.notify_all();
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
            if !self.begin_claim() {
                self.settle(before);
                return (None, Ok(ClaimAnswer::Nothing));
            }
            let (told, found) = self.exchange.of(jobs, before.claim().key());
            self.end_claim(found.as_ref());
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
            if !self.begin_claim() {
                return Ok(ClaimAnswer::Nothing);
            }
            let found = jobs.claim(self.wait());
            self.end_claim(found.as_ref().ok());
            found
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
        if !finished.is_done() && self.state().is_stopping {
            // The job may be ready again at once, and must not be given to a request of this run.
            self.until_quiet();
        }
        self.count(self.attempts.settle(finished));
    }

    fn count(&self, worked: JobResult) {
        let mut state = self.state();
        state.busy -= 1;
        state.tally.add(worked);
    }

    /// Returns the job to be worked on. If the run is being stopped, gives the job back instead and returns `None`.
    fn take_on(&self, claim: Box<Claim>) -> Option<Box<Claim>> {
        if !self.state().is_stopping {
            return Some(claim);
        }
        self.until_quiet();
        let verdict = Verdict::Interrupted(String::new());
        drop(self.attempts.jobs.settle(&claim, &verdict));
        self.state().busy -= 1;
        None
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
        let left = self.limits.time.map(|most| most.saturating_sub(self.began.elapsed()));
        let left = left.map_or(WAIT_MAX, |left| left.as_secs() + 1);
        left.min(WAIT_MAX)
    }

    /// Ends the run with a failure.
    fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.stop(Reached::Exception);
        // The run ends by an error; nothing is withdrawn, since the coordinator may be gone.
        state.is_cut_off = true;
        state.failure.get_or_insert(failure);
        drop(state);
        self.answered.notify_all();
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

    /// Returns whether no request for a job is open that may still be answered.
    const fn is_quiet(&self) -> bool {
        self.claiming == 0 || self.is_cut_off
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
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let signals = runtime.block_on(async { Signals::listen(&STOPS) }).map_err(failed)?;
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
