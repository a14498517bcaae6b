//! What tests plant in a host: panics, and outcomes other than those that were decided.

use crate::spine::delivery::{Forger, Sabotage, Stage};
use crate::spine::machine::{Machine, Moment};

/// Makes the panic that a test has planted here.
pub(super) fn sabotage<T>(saboteur: Option<&Sabotage<T>>, stage: Stage, message: Option<&T>) {
    if let Some(saboteur) = saboteur {
        saboteur(stage, message);
    }
}

/// What is decided about a message: what its machine says, unless a test has planted something else.
pub(super) fn decided<M: Machine>(
    (machine, forger): (&M, Option<&Forger<M>>),
    moment: &Moment,
    message: &M::Message,
) -> M::Outcome {
    let outcome = machine.decide(moment, message);
    let forged = forger.and_then(|forge| forge(machine, moment, message, &outcome));
    forged.unwrap_or(outcome)
}
