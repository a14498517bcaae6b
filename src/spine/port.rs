//! Ports: the only code that touches the world for a machine.
//!
//! A port is handed an action when what it rests on is durable, and reports back by an ordinary message to the actor: that
//! it is done, or that it cannot be. See [`Action`] for what a port owes.

use crate::spine::effect::Action;
use crate::spine::machine::{Machine, Never};

/// Performs the actions of one machine, each attempt at most once.
pub trait Port<M: Machine> {
    /// Performs an attempt; if that was done already, reports its completion again. Does not block: it is called on the
    /// core. Never fails: what cannot be done is reported by a message.
    fn perform(&mut self, action: Action<M::Action>);
}

/// The port of a machine that never acts.
#[derive(Clone, Copy, Debug)]
pub struct NoPort;

impl<M: Machine<Action = Never>> Port<M> for NoPort {
    fn perform(&mut self, action: Action<Never>) {
        match action.what {}
    }
}
