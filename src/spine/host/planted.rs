//! The hooks that plant faults in a host: panics, for tests and for tasks that request them, and outcomes other than the decided ones, for
//! tests.

use crate::spine::delivery::{Forger, InjectorFn, Stage};
use crate::spine::machine::{Machine, Moment};

/// Calls the hook that may panic, if there is one.
pub(super) fn call_injector<T>(
    injector: Option<&InjectorFn<T>>,
    stage: Stage,
    message: Option<&T>,
) {
    if let Some(injector) = injector {
        injector(stage, message);
    }
}

/// Returns the outcome for a message: the machine's decision, unless a test has planted another one.
pub(super) fn decided<M: Machine>(
    (machine, forger): (&M, Option<&Forger<M>>),
    moment: &Moment,
    message: &M::Message,
) -> M::Outcome {
    let outcome = machine.decide(moment, message);
    let forged = forger.and_then(|forge| forge(machine, moment, message, &outcome));
    forged.unwrap_or(outcome)
}
