//! Locks, job queues, processes and services, leases, and tasks for the programs on one Linux machine, kept on disk so that they survive
//! crashes. sexton runs inside a Rust program, as shown here, or as a server next to it (`sexton serve`).
//!
//! A [`Node`] is a complete coordinator running on its own threads. Whatever it acknowledges is on disk before the answer is sent, and
//! every change is recorded in a journal that [`replay`] can read.
//!
//! # In ten lines
//!
//! ```
//! use sexton::node::{Entry, Terms};
//! use sexton::{Config, Node, block_on};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let node = Node::open(Config::in_memory())?; // or Config::at("/var/lib/app/locks")
//! let locks = node.handle().locks();
//!
//! let nightly = Entry::new("nightly-report", "worker-7")?; // what is locked, and for whom
//! let token = block_on(locks.acquire(&nightly, Terms::default()))?;
//! println!("the nightly report is ours, token {token}");
//! block_on(locks.release(&nightly, Some(token)))?;
//! node.stop()?;
//! # Ok(())
//! # }
//! ```
//!
//! # From plain threads, and from async code
//!
//! A [`Handle`](node::Handle) and its [`Locks`](node::Locks) can be cloned freely and used from any thread. Every call is a
//! future that works in any async runtime and needs none: on a plain thread, [`block_on`] waits for it. For many
//! operations at once, [`Locks::batch`](node::Locks::batch) costs one wake-up and one sync for all of them.
//!
//! # Waiting
//!
//! [`acquire`](node::Locks::acquire) waits in line, without polling, for as long as its [`Terms`](node::Terms) allow.
//! Dropping the future leaves the line, so the runtime's own timeouts and `select!` work as expected.
//!
//! ```
//! # use sexton::node::{Entry, LockError, Terms};
//! # use sexton::{Config, Node, block_on};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let node = Node::open(Config::in_memory())?;
//! # let locks = node.handle().locks();
//! let (ann, bob) = (Entry::new("printer", "ann")?, Entry::new("printer", "bob")?);
//! let terms = Terms { ttl: 60, wait: 30, priority: 5 }; // seconds, seconds, the larger goes first
//! let held = block_on(locks.acquire(&ann, terms))?;
//! let bobs = std::thread::spawn({
//!     let locks = locks.clone();
//!     move || block_on(locks.acquire(&bob, terms))
//! });
//! block_on(locks.release(&ann, Some(held)))?;
//! match bobs.join().expect("the thread should not panic") {
//!     Ok(token) => println!("bob has the printer, token {token}"),
//!     Err(LockError::Held { place }) => println!("30 seconds passed; bob was number {place} in line"),
//!     Err(other) => return Err(other.into()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Loss, and tokens
//!
//! A lock expires after its `ttl` unless it is [renewed](node::Locks::renew) in time. It then passes to the next in line, even
//! if its last holder is still working. [`lost`](node::Locks::lost) resolves when that happens. A resource that checks the
//! [`Token`](ids::Token) is safe in any case: tokens only grow, so a client whose token is older than one already seen
//! has lost the lock. `examples/service.rs` does both.
//!
//! # What survives
//!
//! With [`Config::at`], everything that was acknowledged survives a panic, a kill and a power cut, as long as [`Config::fsync`] is left at
//! `Always`. A restart of the node restarts all timeouts in full. With [`Config::in_memory`], nothing survives. A node that can no longer
//! keep its promises halts: every call then returns [`Stopped`](spine::runtime::Stopped), and [`Node::halted`] gives the reason. The
//! program around it continues: a node installs no signal handlers, prints nothing, and never exits the process. It logs to
//! [`tracing`](https://docs.rs/tracing).
//!
//! # Testing
//!
//! [`Config::manual`] describes an in-memory node whose time advances only when its [`ManualClock`](clock::ManualClock) does: whatever
//! becomes due happens immediately, waiters are notified, and tests need not sleep.
//!
//! ```
//! use sexton::clock::ManualClock;
//! use sexton::node::{Entry, LockError, Terms};
//! use sexton::{Config, Node, block_on};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let clock = ManualClock::default();
//! let node = Node::open(Config::manual(&clock))?;
//! let locks = node.handle().locks();
//! let report = Entry::new("report", "worker-7")?;
//! let token = block_on(locks.acquire(&report, Terms { ttl: 60, ..Terms::default() }))?;
//!
//! clock.advance(Duration::from_secs(60));
//! block_on(locks.lost(&report, token))?; // resolves: the lock has expired
//! assert_eq!(block_on(locks.renew(&report, Some(token))), Err(LockError::Absent));
//! # Ok(())
//! # }
//! ```
//!
//! The log of an incident can become a test: `sexton replay --export` writes a log that [`replay`] (feature `replay`) can run
//! again; see `examples/recorded_log.rs`.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `jobs` (default) | jobs as Rust types, and workers in the program's own process |
//! | `replay` (default) | logs as JSON lines, their replay, and queries about earlier states of a running node |
//! | `schemas` | JSON schemas of what a node shows; enables `replay` |
//!
//! The protocols are packages of their own: `sexton-wire` has those of LockServer and beanstalkd, `sexton-http` has HTTP. The `open` of each
//! opens a node that serves its protocols as well, and [`Node::open_with`] one that serves several.
//!
//! # Where things are
//!
//! | module | holds |
//! |---|---|
//! | [`node`] | opening and stopping a node |
//! | [`handle`] | every operation on a running node; `node` re-exports it |
//! | [`config`] | every setting |
//! | [`actors`] | the state machines: lock, queue, process, lease, dispatch, supervisor |
//! | [`keeper`] | the process that launches a node's child processes and waits for them |
//! | `kernel` (Linux) | process descriptors (pidfds), control groups |
//! | [`persist`] | the journal |
//! | [`protocols`] | what the listeners of several protocols need |
//! | [`replay`] | logs as JSON lines |
//! | [`schedule`] | cron expressions in time zones |
//! | [`status`] | the status of a node, as data |

// Code that the simulation shares with the library's tests refers to this crate as `sexton`.
#[cfg(test)]
extern crate self as sexton;

pub mod actors;
pub mod address;
mod block_on;
pub mod clock;
pub mod config;
mod decode;
pub mod handle;
pub mod ids;
pub mod keeper;
#[cfg(target_os = "linux")]
pub mod kernel;
pub mod lookup;
pub mod node;
pub mod persist;
pub mod ports;
pub mod protocols;
pub use sexton_api::{bytes, refusal};
#[cfg(feature = "replay")]
pub mod replay;
pub mod schedule;
pub mod spine;
pub mod status;
#[doc(hidden)]
pub mod text;
mod thread;
pub mod trouble;

/// Compiles the README's Rust examples.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub use block_on::block_on;
pub use config::Config;
pub use node::Node;
