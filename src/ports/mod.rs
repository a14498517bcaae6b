//! The ports: the only code that acts on the outside world on behalf of a state machine. They implement traits, so that tests can
//! substitute a simulated world.

pub mod lease;
pub mod process;
