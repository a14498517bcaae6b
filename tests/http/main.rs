//! The HTTP door of a node in this process, over real sockets.

#![cfg(feature = "http")]

mod access;
mod crowd;
mod described;
mod event;
mod hostile;
mod listener;
mod lock;
mod lock_refused;
mod opened;
mod repetition;
mod route;
mod socket;
mod tls;
