//! Reports finished jobs in batches, and claims the next ones with the same request: while [`REQUESTS_MAX`] requests are in flight, newly
//! finished jobs are collected for the next one. So with many workers there is less than one request per job, and no worker waits just to
//! fill a batch. Having several requests in flight lets them share the coordinator's syncs, and keeps it busy while an answer is in
//! transit.

use crate::work::claim::{Exchanged, Jobs, Key};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The maximum number of jobs per request.
const JOBS_MAX: usize = 100;

/// The maximum number of requests in flight. With only one, throughput was a fifth lower, measured with four workers on two processors.
const REQUESTS_MAX: usize = 4;

/// The finished jobs of all workers that are being reported to the coordinator.
#[derive(Default)]
pub(super) struct Exchange {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// Finished jobs that are not in a request yet.
    done: Vec<Key>,
    /// The number of requests in flight.
    requests: usize,
    /// The number of workers that wait for an answer.
    waiting: usize,
    /// Answers that no worker has taken yet.
    answers: BTreeMap<Key, Exchanged>,
}

impl Exchange {
    /// Reports a job as done and claims the next one.
    pub(super) fn of(&self, jobs: &Jobs, done: Key) -> Exchanged {
        self.through(|all| jobs.exchange(all), done)
    }

    fn through(&self, request: impl Fn(&[Key]) -> Vec<Exchanged>, done: Key) -> Exchanged {
        let mut state = self.state();
        state.done.push(done);
        loop {
            if let Some(answer) = state.answers.remove(&done) {
                return answer;
            }
            let own = state.done.iter().position(|key| *key == done);
            let Some(own) = own.filter(|_| state.requests < REQUESTS_MAX) else {
                state.waiting += 1;
                let woken = self.answered.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                state.waiting -= 1;
                continue;
            };
            // A worker's request always contains its own job, so the worker never waits for an answer about other jobs only.
            state.done.swap(0, own);
            state.requests += 1;
            let later = state.done.len().min(JOBS_MAX);
            let later = state.done.split_off(later);
            let all = std::mem::replace(&mut state.done, later);
            drop(state);
            let answers = request(&all);
            state = self.state();
            state.requests -= 1;
            state.answers.extend(all.into_iter().zip(answers));
            if state.waiting > 0 {
                self.answered.notify_all();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Exchange, REQUESTS_MAX};
    use crate::report::Failure;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn each_worker_has_its_own_answer_from_a_few_requests_at_a_time() {
        let (exchange, under_way) = (Exchange::default(), AtomicUsize::new(0));
        thread::scope(|scope| {
            for worker in 0..16 {
                let (exchange, under_way) = (&exchange, &under_way);
                scope.spawn(move || {
                    for job in 0..50 {
                        let own = (job, worker);
                        let answer = exchange.through(
                            |all| {
                                let before = under_way.fetch_add(1, Ordering::SeqCst);
                                assert!(before < REQUESTS_MAX && all.contains(&own), "{all:?}");
                                thread::yield_now();
                                under_way.fetch_sub(1, Ordering::SeqCst);
                                let named = |key| Failure::found(format!("{key:?}"));
                                all.iter().map(|key| (Err(named(*key)), None)).collect()
                            },
                            own,
                        );
                        let failure = answer.0.expect_err("the test always answers with an error");
                        assert_eq!(failure.whole(), format!("{own:?}"));
                    }
                });
            }
        });
    }
}
