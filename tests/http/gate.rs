//! Holds an actor up where a test wants it, until the test lets it go on.

use sexton::spine::delivery::Stage;
use std::sync::{Arc, Condvar, Mutex};

/// What is planted in an actor, by its messages.
type BeforeDecisions<M> = Box<dyn Fn(Stage, Option<&M>) + Send>;

/// Closed until it is opened. Cloning gives another handle.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    is_reached: bool,
    is_open: bool,
}

impl Gate {
    /// What to plant in an actor: it stands before the gate with the next command that it decides on.
    pub(crate) fn before_decisions<M>(&self) -> BeforeDecisions<M> {
        let gate = self.clone();
        Box::new(move |stage, _| {
            if stage == Stage::Decide {
                gate.stand();
            }
        })
    }

    fn stand(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().expect("not poisoned");
        state.is_reached = true;
        changed.notify_all();
        while !state.is_open {
            state = changed.wait(state).expect("not poisoned");
        }
    }

    /// Waits until an actor stands before it.
    pub(crate) fn reached(&self) {
        let (state, changed) = &*self.0;
        let mut state = state.lock().expect("not poisoned");
        while !state.is_reached {
            state = changed.wait(state).expect("not poisoned");
        }
    }

    pub(crate) fn open(&self) {
        let (state, changed) = &*self.0;
        state.lock().expect("not poisoned").is_open = true;
        changed.notify_all();
    }
}
