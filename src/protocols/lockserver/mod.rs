//! LockServer 0.9b (2000), byte for byte. `docs/protocols/lockserver.md` is the text this answers to.
//!
//! | file | holds |
//! |---|---|
//! | `codec.rs` | commands from bytes, answers into bytes |
//! | `session.rs` | one client: commands into messages for the LockActor, in order |
//! | `hosts.rs` | the list of those who are let in |
//! | `counters.rs` | the fifteen statistics |
//! | `door.rs` | handshake, refusals, limits |

pub mod codec;
mod counters;
mod door;
mod hosts;
mod session;

pub use counters::{Counters, Stats};
pub use door::Door;
pub use hosts::{Hosts, HostsError};

/// Where `-d` finds the commands and answers of this protocol in the log.
pub const DEBUG_TARGET: &str = "sexton::lockserver::wire";
