//! Reports finished jobs in batches, and claims the next ones with the same request: while one request is under way, workers that
//! finish gather for the next. So the more workers there are, the fewer requests each job takes, and no worker waits just to fill
//! a batch.

use crate::work::claim::{Exchanged, Jobs, Key};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The most jobs of one request.
const JOBS_MAX: usize = 100;

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
    /// Whether a request is under way.
    is_asking: bool,
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
            if state.is_asking {
                let woken = self.answered.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.is_asking = true;
            let later = state.done.len().min(JOBS_MAX);
            let later = state.done.split_off(later);
            let all = std::mem::replace(&mut state.done, later);
            drop(state);
            let answers = jobs.exchange(&all);
            state = self.state();
            state.is_asking = false;
            state.answers.extend(all.into_iter().zip(answers));
            self.answered.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
