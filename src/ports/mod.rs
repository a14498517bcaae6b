//! The ports: the only code that acts on the world for a machine. What they act on is a trait, so that tests have a world
//! of their own.

pub mod lease;
pub mod process;
