//! Faults that tests plant in a host: panics, and outcomes other than the decided ones.

use crate::spine::delivery::{Forger, Sabotage, Stage};
use crate::spine::machine::{Machine, Moment};

/// Provokes the panic that a test has planted here, if any.
pub(super) fn sabotage<T>(saboteur: Option<&Sabotage<T>>, stage: Stage, message: Option<&T>) {
    if let Some(saboteur) = saboteur {
        saboteur(stage, message);
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
