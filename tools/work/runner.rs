//! Several workers, each with one job at a time; how many jobs they take on, for how long, and how they end.

use crate::client::instant;
use crate::report::Failure;
use crate::signals::Signals;
use crate::work::attempt::Attempts;
use crate::work::tally::{Reached, Tally};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The longest that one request waits for a job, in seconds.
const WAIT_MAX: u64 = 3600;

/// Signals after which no job is begun: INT, TERM.
const STOPS: [i32; 2] = [2, 15];

/// How long a run goes on.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) jobs: Option<u64>,
    pub(super) time: Option<Duration>,
    /// Whether it waits for jobs.
    pub(super) waits: bool,
}

/// Workers, and what they have come to.
struct Runner {
    attempts: Attempts,
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

/// What a worker, or a signal, says.
enum News {
    Stop,
    /// A job is over.
    Worked,
    /// A worker takes on no more.
    Ended,
}

/// Works until there is a reason to end; what it came to, and what went wrong.
pub(super) fn run(
    attempts: Attempts,
    limits: Limits,
    workers: u16,
) -> Result<(Tally, Option<Failure>), Failure> {
    let runner = Arc::new(Runner {
        attempts,
        limits,
        began: instant(),
        state: Mutex::default(),
    });
    let (news, heard) = channel();
    listen(news.clone())?;
    for nth in 0..workers {
        let (runner, news) = (Arc::clone(&runner), news.clone());
        let working = move || runner.work(&news);
        let worker = Builder::new().name(format!("worker {nth}")).spawn(working);
        worker.map_err(|error| Failure::unreachable(format!("failed to begin: {error}")))?;
    }
    let mut left = workers;
    while left > 0 {
        match heard.recv().expect("this thread has a sender of its own") {
            News::Stop => runner.state().stop(Reached::Stopped),
            News::Ended => left -= 1,
            News::Worked => {}
        }
        let state = runner.state();
        // Those that wait for a job end with this process, and their requests with them.
        if state.is_stopping && state.busy == 0 {
            break;
        }
    }
    let mut state = runner.state();
    Ok((std::mem::take(&mut state.tally), state.failure.take()))
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

impl State {
    fn stop(&mut self, reached: Reached) {
        self.is_stopping = true;
        self.tally.reach(reached);
    }
}

impl Runner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, news: &Sender<News>) {
        while self.may_begin() {
            if !self.work_on_one() {
                break;
            }
            // Who has ended hears nothing any more.
            let _ = news.send(News::Worked);
        }
        let _ = news.send(News::Ended);
    }

    /// Whether another job may be taken on: then it counts from now on. One is, whatever the time.
    fn may_begin(&self) -> bool {
        let mut state = self.state();
        let is_late = self
            .limits
            .time
            .is_some_and(|most| self.began.elapsed() > most);
        if state.is_stopping {
            return false;
        }
        if self.limits.jobs.is_some_and(|most| state.begun >= most) {
            state.tally.reach(Reached::JobLimit);
            return false;
        }
        if is_late && state.begun > 0 {
            state.tally.reach(Reached::TimeLimit);
            return false;
        }
        state.begun += 1;
        true
    }

    /// Works on a job, if there is one. Whether there may be another.
    fn work_on_one(&self) -> bool {
        let claim = match self.attempts.jobs.claim(self.wait()) {
            Ok(Some(claim)) => claim,
            Ok(None) => {
                let mut state = self.state();
                state.begun -= 1;
                let is_late = self
                    .limits
                    .time
                    .is_some_and(|most| self.began.elapsed() > most);
                if self.limits.waits && !is_late {
                    return true;
                }
                let reached = if self.limits.waits {
                    Reached::TimeLimit
                } else {
                    Reached::NoneReady
                };
                state.tally.reach(reached);
                return false;
            }
            Err(failure) => {
                self.fail(failure);
                return false;
            }
        };
        let is_stopping = {
            let mut state = self.state();
            state.busy += u32::from(!state.is_stopping);
            state.is_stopping
        };
        if is_stopping {
            // It was never tried.
            let said = crate::client::Fields::new();
            drop(self.attempts.jobs.settle(&claim, "defer", said));
            return false;
        }
        let worked = self.attempts.work(&claim);
        let mut state = self.state();
        state.busy -= 1;
        match worked {
            Ok(worked) => {
                state.tally.jobs.push(worked);
                true
            }
            Err(failure) => {
                drop(state);
                self.fail(failure);
                false
            }
        }
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
