//! The HTTP door of a node in this process, over real sockets.

#![cfg(feature = "http")]

mod access;
mod described;
mod hostile;
mod lock;
mod lock_refused;
mod opened;
mod repetition;
mod route;
mod socket;
