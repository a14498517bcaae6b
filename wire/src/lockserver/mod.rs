//! The protocol of LockServer 0.9b (2000), reproduced byte for byte, as specified in `docs/protocols/lockserver.md`.
//!
//! | file | holds |
//! |---|---|
//! | `codec.rs` | decodes commands, encodes answers |
//! | `session.rs` | one client: turns commands into messages for the LockActor, in order |
//! | `hosts.rs` | the list of admitted hosts |
//! | `stats.rs` | the fifteen statistics, as they are sent |
//! | `shared.rs` `counters.rs` | the state that the connections of a listener share; what is counted |
//! | `listener.rs` | handshake, refusals, limits |

pub mod codec;
mod counters;
mod hosts;
mod listener;
mod session;
mod shared;
pub mod stats;

pub use hosts::{Hosts, HostsError};
pub use listener::Listener;
pub use stats::Stats;

/// The log target of this protocol's commands and answers, enabled by `-d`.
pub const DEBUG_TARGET: &str = "sexton::lockserver::wire";
