//! Holds an actor at a position that a test chooses, until the test releases it.

use sexton::spine::delivery::Stage;
use std::sync::{Arc, Condvar, Mutex};

/// A hook for an actor, by its messages.
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
    /// Returns the hook of an actor: it waits at the gate with the next command that it decides.
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

    /// Waits until an actor is at the gate.
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
