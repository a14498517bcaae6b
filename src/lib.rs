//! sexton keeps an application's background work in order: locks today; queues, leases, processes and dispatch to
//! come. It runs inside a Rust program, or as a daemon beside one.

pub mod actors;
pub mod clock;
pub mod config;
pub mod ids;
pub mod node;
pub mod persist;
pub mod protocols;
#[cfg(feature = "replay")]
pub mod replay;

pub use config::Config;
pub use node::Node;
