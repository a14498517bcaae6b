//! Reports finished jobs in batches, and claims the next ones with the same request: while [`REQUESTS_MAX`] requests are under way,
//! workers that finish gather for the next. So with many workers each job takes few requests, and no worker waits just to fill a
//! batch. Several requests at a time share the coordinator's syncs, and keep it busy while an answer is on its way.

use crate::work::claim::{Exchanged, Jobs, Key};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The most jobs of one request.
const JOBS_MAX: usize = 100;

/// The most requests under way. One alone did four fifths of the jobs per second with four workers on two processors.
const REQUESTS_MAX: usize = 4;

/// The finished jobs of all workers, on their way to the coordinator.
#[derive(Default)]
pub(super) struct Exchange {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// Finished jobs that are not in a request yet.
    done: Vec<Key>,
    /// The number of requests under way.
    requests: usize,
    /// Answers that no worker has taken yet.
    answers: BTreeMap<Key, Exchanged>,
}

impl Exchange {
    /// Reports a job as done and claims the next one.
    pub(super) fn of(&self, jobs: &Jobs, done: Key) -> Exchanged {
        let mut state = self.state();
        state.done.push(done);
        loop {
            if let Some(answer) = state.answers.remove(&done) {
                return answer;
            }
            if state.requests == REQUESTS_MAX || state.done.is_empty() {
                let woken = self.answered.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.requests += 1;
            let later = state.done.len().min(JOBS_MAX);
            let later = state.done.split_off(later);
            let all = std::mem::replace(&mut state.done, later);
            drop(state);
            let answers = jobs.exchange(&all);
            state = self.state();
            state.requests -= 1;
            state.answers.extend(all.into_iter().zip(answers));
            self.answered.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
