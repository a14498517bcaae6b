//! The SupervisorActor: counts the panics of the other actors, and decides whether an actor is restarted or the node halts.
//!
//! | file | holds |
//! |---|---|
//! | `machine.rs` | the rules, and their interface to the host |
//! | `record.rs` | the record of each actor's panics |
//!
//! Panics arrive as messages, and verdicts are sent as actions once they are durable. The counts are durable, but verdicts depend only on
//! panics since startup. A panic of the Supervisor itself is not judged: it halts the node.

mod machine;
mod record;

pub use machine::{Outcome, Query, Reply, Rules, SupervisorMachine, View};
pub use record::{Cause, Record};

/// The Supervisor actor: a host that runs [`SupervisorMachine`].
pub type SupervisorActor = crate::spine::Host<SupervisorMachine>;
