//! The ports: the only code that acts on the outside world for a machine. They do so through traits, so that tests can substitute a
//! simulated world.

pub mod lease;
pub mod process;
