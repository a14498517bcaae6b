//! A gate in an actor: it stops before its next decision, until the test opens the gate.

use sexton::spine::delivery::Stage;
use std::sync::{Arc, Condvar, Mutex};

/// A function that an actor calls at each stage of its work.
type BeforeDecisions<M> = Box<dyn Fn(Stage, Option<&M>) + Send>;

/// A gate, which is closed at first and stays open once it is opened. Cloning gives another handle.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<State>, Condvar)>);

#[derive(Default)]
struct State {
    is_reached: bool,
    is_open: bool,
}

impl Gate {
    /// Returns the function for an actor: before each decision, it waits until the gate is open.
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

    /// Waits until an actor has reached the gate.
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
