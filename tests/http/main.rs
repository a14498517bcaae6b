//! The HTTP door of a node in this process, over real sockets.

mod access;
mod hostile;
mod opened;
mod route;
mod socket;
