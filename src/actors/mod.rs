//! The actors: one folder each, with a pure machine inside.
//!
//! What surrounds a machine is in [`crate::spine`]; what it keeps its items in, in [`crate::lookup`].

pub mod lock;
pub mod queue;
