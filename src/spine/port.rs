//! Ports: the only code that performs external actions on behalf of a machine.
//!
//! A port receives an action once the entry it depends on is durable, and reports its completion, or failure, by an ordinary message to the
//! actor. See [`Action`] for the obligations of a port.

use crate::spine::effect::Action;
use crate::spine::machine::{Machine, Never};

/// Performs the actions of one machine, each attempt at most once.
pub trait Port<M: Machine> {
    /// Performs an attempt of an action; see [`Action`]. If that attempt was performed already, reports its completion again. Must not
    /// block, since it is called on the core thread. Never returns an error: failures are reported by a message.
    fn perform(&mut self, action: Action<M::Action>);
}

/// The port of a machine without actions.
#[derive(Clone, Copy, Debug)]
pub struct NoPort;

impl<M: Machine<Action = Never>> Port<M> for NoPort {
    fn perform(&mut self, action: Action<Never>) {
        match action.what {}
    }
}
