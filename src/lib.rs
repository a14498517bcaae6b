//! sexton keeps an application's background work in order: locks today; leases, job queues, processes and task dispatch
//! to come. It runs inside a Rust program, as here, or as a daemon beside one (`sexton serve`).
//!
//! A [`Node`] is a coordinator on threads of its own. What it acknowledges is on disk before the answer leaves, and
//! every change stands in a journal that [`replay`] can read. A node installs no signal handlers, prints nothing and
//! never ends the program.
//!
//! ```
//! use sexton::node::{Entry, Terms};
//! use sexton::{Config, Node, block_on};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::open(Config::in_memory())?; // or Config::at("/var/lib/app/locks")
//! let locks = node.handle().locks(); // from any thread, in any runtime
//!
//! let nightly = Entry::new("nightly-report", "worker-7")?;
//! let terms = Terms { ttl: 60, wait: 30, priority: 5 }; // seconds, seconds, the larger goes first
//! let token = block_on(locks.acquire(&nightly, terms))?;
//! // Show the token to what the lock guards: it only ever grows, so an older one has lost the lock since.
//! println!("the nightly report is ours, token {token}");
//! block_on(locks.release(&nightly, Some(token)))?;
//! node.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`node`] | opening, stopping, asking |
//! | [`config`] | every setting |
//! | [`actors`] | pure machines in one shell; [`actors::lock`] has the messages of locks |
//! | [`persist`] | the journal |
//! | [`protocols`] | the doors |
//! | [`replay`] | logs as JSON lines |
//! | [`status`] | what a node says of itself |

pub mod actors;
mod block_on;
pub mod clock;
pub mod config;
pub mod ids;
pub mod node;
pub mod persist;
pub mod protocols;
#[cfg(feature = "replay")]
pub mod replay;
pub mod status;

pub use block_on::block_on;
pub use config::Config;
pub use node::Node;
