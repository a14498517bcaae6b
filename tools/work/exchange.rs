//! Workers that are done say so together, and are given their next jobs together: while one request is under way, those who are done
//! meanwhile gather for the next. So the more there are, the fewer requests each job takes, and nobody waits for company.

use crate::work::claim::{Exchanged, Jobs, Key};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The most jobs of one request.
const JOBS_MAX: usize = 100;

/// The most requests under way at a time.
const ASKING_MAX: u32 = 2;

/// Jobs that are done, on their way.
#[derive(Default)]
pub(super) struct Exchange {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    /// Jobs that nobody was told of.
    done: Vec<Key>,
    /// Requests that are under way.
    asking: u32,
    /// What was answered, and is not yet fetched.
    answers: BTreeMap<Key, Exchanged>,
}

impl Exchange {
    /// Says that a job is done, and claims the next one.
    pub(super) fn of(&self, jobs: &Jobs, done: Key) -> Exchanged {
        let mut state = self.state();
        state.done.push(done);
        loop {
            if let Some(answer) = state.answers.remove(&done) {
                return answer;
            }
            if state.asking >= ASKING_MAX {
                let woken = self.answered.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            state.asking += 1;
            let later = state.done.len().min(JOBS_MAX);
            let later = state.done.split_off(later);
            let all = std::mem::replace(&mut state.done, later);
            drop(state);
            let answers = jobs.exchange(&all);
            state = self.state();
            state.asking -= 1;
            state.answers.extend(all.into_iter().zip(answers));
            self.answered.notify_all();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
