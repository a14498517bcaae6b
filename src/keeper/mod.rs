//! The keeper: the one other process of a node. It launches children and waits for them, so that neither the end of the
//! coordinator nor that of an actor loses a child or its exit status.
//!
//! | file | holds |
//! |---|---|
//! | `protocol.rs` | what a coordinator and its keeper say to each other |
//! | `frame.rs` | the bytes of that |
//! | `run.rs` | how a keeper comes to be: lock, socket, log |
//! | `core.rs` | what it does when something happens |
//! | `serving.rs` `children.rs` | the same for connections, and for children |
//! | `poll.rs` | what it waits for |
//! | `attempts.rs` | what it holds: who runs, and who has ended |
//! | `record.rs` `log.rs` | the same on disk |
//! | `launch.rs` | from a request to a process |
//! | `parcels.rs` | what callers hand over themselves |
//! | `client.rs` | a connection, and what waits to be reported on it |
//! | `upgrade.rs` `succession.rs` | how it becomes a newer program with all that it holds |
//!
//! It has one thread and no runtime: there is little that could go wrong. Everything but the protocol is for Linux alone.

#[cfg(target_os = "linux")]
mod attempts;
#[cfg(target_os = "linux")]
mod children;
#[cfg(target_os = "linux")]
mod client;
#[cfg(target_os = "linux")]
mod core;
#[cfg(target_os = "linux")]
mod frame;
#[cfg(target_os = "linux")]
mod launch;
#[cfg(target_os = "linux")]
mod log;
#[cfg(target_os = "linux")]
mod parcels;
#[cfg(target_os = "linux")]
mod poll;
pub mod protocol;
#[cfg(target_os = "linux")]
mod record;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod serving;
#[cfg(target_os = "linux")]
mod succession;
#[cfg(target_os = "linux")]
mod upgrade;

pub use frame::framed;
pub use run::SOCKET;
#[cfg(target_os = "linux")]
pub use run::{KeeperError, arguments, run, run_if_asked};
#[cfg(target_os = "linux")]
pub use upgrade::Resumption;
