//! The keeper: the second process of a node. It launches children and waits for them, so that no child or exit status is lost if the
//! coordinator exits or crashes, or an actor stops.
//!
//! | file | holds |
//! |---|---|
//! | `protocol.rs` | the messages between a coordinator and its keeper |
//! | `frame.rs` | the encoding of the messages |
//! | `run.rs` | startup of a keeper: lock, socket, log |
//! | `core.rs` | the event loop of a keeper |
//! | `serving.rs` `children.rs` | the parts of the event loop for connections and for children |
//! | `poll.rs` | the events that a keeper waits for |
//! | `attempts.rs` | the attempts that a keeper holds: running and ended |
//! | `record.rs` `log.rs` | the attempts on disk |
//! | `launch.rs` | turning a launch request into a process |
//! | `parcels.rs` | environments and streams handed over by clients |
//! | `client.rs` | a connection, and the reports waiting to be sent on it |
//! | `upgrade.rs` `succession.rs` | replacing the program of a running keeper, with everything that it holds |
//!
//! A keeper has one thread and no async runtime, to keep it too simple to crash. Everything but the protocol is Linux-only.

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
pub(crate) use upgrade::NAME;
#[cfg(target_os = "linux")]
pub use upgrade::Resumption;
