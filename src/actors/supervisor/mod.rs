//! The SupervisorActor: counts the panics of the other actors, and says whether one is restarted or the node halts.
//!
//! | file | holds |
//! |---|---|
//! | `machine.rs` | the rules, and what the host asks of them |
//! | `record.rs` | what is kept of each actor's panics |
//!
//! Reports come to it as messages, and its verdicts leave it as actions, when the journal has them. What it counts is
//! durable; what it goes by is only what happened since the start. Nobody judges its own panics: they halt the node.

mod machine;
mod record;

pub use machine::{Outcome, Query, Reply, Rules, SupervisorMachine, View};
pub use record::{Cause, Record};

/// The actor around the rules of restarts.
pub type SupervisorActor = crate::spine::Host<SupervisorMachine>;
