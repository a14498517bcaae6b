//! Several workers, each with one job at a time; how many jobs they take on, for how long, and how they end.

use crate::client::{instant, rest};
use crate::report::Failure;
use crate::signals::Signals;
use crate::work::attempt::{Attempts, Finished};
use crate::work::claim::{Claim, Found};
use crate::work::exchange::Exchange;
use crate::work::tally::{Reached, Tally, Verdict, Worked};
use rustix::param::page_size;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The longest that one request waits for a job, in seconds.
const WAIT_MAX: u64 = 3600;

/// How soon a run that waits looks again, when the coordinator gives nothing out.
const PAUSE: Duration = Duration::from_secs(1);

/// Signals after which no job is begun: INT, TERM, and URG, which ends nothing that does not know it. So a stop of this process
/// and all that it started lets commands come to their end.
const STOPS: [i32; 3] = [2, 15, 23];

/// How long a run goes on.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) jobs: Option<u64>,
    pub(super) time: Option<Duration>,
    /// Bytes of this process.
    pub(super) memory: u64,
    /// Whether it waits for jobs.
    pub(super) waits: bool,
    /// How long jobs that are worked on may take when it is told to end; `None` if as long as they take.
    pub(super) finish: Option<Duration>,
}

/// Workers, and what they have come to.
pub(super) struct Runner {
    pub(super) attempts: Attempts,
    exchange: Exchange,
    limits: Limits,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Jobs that were taken on, or are about to be.
    begun: u64,
    /// Jobs that are being worked on.
    busy: u32,
    /// Whether none is taken on any more.
    is_stopping: bool,
    tally: Tally,
    failure: Option<Failure>,
}

/// How far a run is.
pub(super) struct Standing {
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) busy: u32,
    pub(super) elapsed: Duration,
}

/// What a worker, or a signal, says.
enum News {
    Stop,
    /// A job is over.
    Worked,
    /// A worker takes on no more.
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
            limits,
            began: instant(),
            state: Mutex::new(state),
        })
    }

    /// Works until there is a reason to end; what it came to, and what went wrong.
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
            match heard.recv().expect("this thread has a sender of its own") {
                News::Stop => self.stop(),
                News::Ended => left -= 1,
                News::Worked => {}
            }
            let state = self.state();
            // Those that wait for a job end with this process, and their requests with them.
            if state.is_stopping && state.busy == 0 {
                break;
            }
        }
        self.attempts.dismiss();
        let mut state = self.state();
        Ok((std::mem::take(&mut state.tally), state.failure.take()))
    }

    /// Begins no further job, and ends what is worked on when that has had its time.
    fn stop(self: &Arc<Self>) {
        let was_stopping = std::mem::replace(&mut self.state().is_stopping, true);
        self.state().stop(Reached::Stopped);
        if let (false, Some(finish)) = (was_stopping, self.limits.finish) {
            let runner = Arc::clone(self);
            let halting = move || {
                rest(finish);
                runner.attempts.halt();
            };
            // Without it, whoever stopped this process kills it in the end.
            drop(Builder::new().name("finish".to_owned()).spawn(halting));
        }
    }

    /// How far it is.
    pub(super) fn standing(&self) -> Standing {
        let state = self.state();
        Standing {
            done: state.tally.done,
            failed: state.tally.failed,
            busy: state.busy,
            elapsed: self.began.elapsed(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, news: &Sender<News>) {
        // A job that is done, of which the coordinator is told when the next one is claimed.
        let mut done = None;
        while self.may_begin() {
            if !self.work_on_one(&mut done) {
                break;
            }
            // Who has ended hears nothing any more.
            let _ = news.send(News::Worked);
        }
        if let Some(done) = done {
            self.settle(done);
        }
        let _ = news.send(News::Ended);
    }

    /// Whether another job may be taken on: then it counts from now on. One is, whatever the time and the memory.
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
        if state.begun > 0 && memory() >= self.limits.memory / 100 * 95 {
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

    /// Works on a job, if there is one. Whether there may be another.
    fn work_on_one(&self, done: &mut Option<Finished>) -> bool {
        let (before, found) = self.claim(done.take());
        let taken = self.take(found);
        // Not before: while something is worked on, a run that is stopped goes on.
        if let Some(before) = before {
            self.count(before);
        }
        let claim = match taken {
            Ok(claim) => claim,
            Err(goes_on) => return goes_on,
        };
        match self.attempts.work(claim) {
            Ok(finished) if finished.is_done() => {
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

    /// Claims a job, and says of the one before that it is done: what came of that, too. Only what is there at once is claimed with
    /// it: nobody waits for another job to hear that one is done.
    fn claim(&self, before: Option<Finished>) -> (Option<Worked>, Result<Found, Failure>) {
        let jobs = &self.attempts.jobs;
        if let Some(before) = before {
            let (told, found) = self.exchange.of(jobs, before.claim().key());
            let before = self.attempts.settled(before, told);
            match found {
                Some(Found::Nothing) | None => self.count(before),
                Some(found) => return (Some(before), Ok(found)),
            }
            // A stop that came while this was worked on has not ended the run, and nothing else would until the wait is over.
            if self.state().is_stopping {
                return (None, Ok(Found::Nothing));
            }
        }
        (None, jobs.claim(self.wait()))
    }

    /// The job that was found, to be worked on; else whether there may be another.
    fn take(&self, found: Result<Found, Failure>) -> Result<Box<Claim>, bool> {
        match found {
            Ok(Found::Claim(claim)) => self.take_on(claim).ok_or(false),
            Ok(found) => Err(self.found_none(&found)),
            Err(failure) => {
                self.fail(failure);
                Err(false)
            }
        }
    }

    /// Tells the coordinator what became of a job.
    fn settle(&self, finished: Finished) {
        self.count(self.attempts.settle(finished));
    }

    fn count(&self, worked: Worked) {
        let mut state = self.state();
        state.busy -= 1;
        state.tally.add(worked);
    }

    /// Counts a job that is worked on now; not, if it came too late: then it is given back, and was never tried.
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

    /// Nothing was claimed. Whether to look again.
    fn found_none(&self, found: &Found) -> bool {
        let mut state = self.state();
        state.begun -= 1;
        if self.limits.waits {
            if self.is_late() {
                state.tally.reach(Reached::TimeLimit);
                return false;
            }
            drop(state);
            if !matches!(found, Found::Nothing) {
                rest(PAUSE);
            }
            return true;
        }
        state.tally.reach(match found {
            Found::Draining => Reached::Stopped,
            Found::ReadOnly => Reached::ReadOnly,
            Found::Nothing | Found::Claim(_) => Reached::NoneReady,
        });
        false
    }

    /// How long to wait for a job, in seconds.
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

    /// Nothing more can be done.
    fn fail(&self, failure: Failure) {
        let mut state = self.state();
        state.stop(Reached::Exception);
        state.failure.get_or_insert(failure);
    }
}

impl State {
    fn stop(&mut self, reached: Reached) {
        self.is_stopping = true;
        self.tally.reach(reached);
    }
}

/// Begins a thread, which ends with this process at the latest.
fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let begun = Builder::new().name(name).spawn(run);
    begun
        .map(drop)
        .map_err(|error| Failure::unreachable(format!("failed to begin: {error}")))
}

/// Hears signals from now on.
fn listen(news: Sender<News>) -> Result<(), Failure> {
    let failed =
        |error: std::io::Error| Failure::unreachable(format!("failed to hear signals: {error}"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(failed)?;
    let signals = runtime
        .block_on(async { Signals::listen(&STOPS) })
        .map_err(failed)?;
    let listening = move || {
        // Never ends by itself.
        let (_open, end) = tokio::sync::oneshot::channel();
        runtime.block_on(signals.pass_on(end, |_| {
            // The run may be over.
            let _ = news.send(News::Stop);
        }));
    };
    let listening = Builder::new().name("signals".to_owned()).spawn(listening);
    listening.map(drop).map_err(failed)
}

/// Bytes of memory that this process uses; 0 if nobody says.
fn memory() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let resident = statm.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    resident.unwrap_or(0u64).saturating_mul(page_size() as u64)
}
