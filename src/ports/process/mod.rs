//! The port of the `ProcessActor`: launches through the keeper, follows what runs, stops whole trees, and reports what
//! became of it all.
//!
//! | file | holds |
//! |---|---|
//! | `world.rs` | what it needs of kernel, keeper and files |
//! | `real.rs` `thread.rs` | the real world, and the thread that waits for it |
//! | `link.rs` | the connection to the keeper, and its start |
//! | `files.rs` `environment.rs` | what a launch needs, and what is left of it |
//! | `output.rs` `rotation.rs` | files of output that are not to grow without end |
//! | `hook.rs` `moment.rs` | records in the output of hooks |
//! | `account.rs` | users and groups by name |
//! | `notices.rs` `line.rs` `sender.rs` | what processes say of themselves, and who may |
//! | `requester.rs` | who asks, and of whose line |
//! | `reporting.rs` | how a process that works on a task reports: where, and by which secret |
//! | `faults.rs` | faults that are made on demand |
//! | `tree.rs` | which processes belong to a tree |
//! | `usage.rs` | what a process uses now |
//! | `clearing.rs` `emptying.rs` | how a tree is proved empty; when the kernel says that it may be |
//! | `follower.rs` `attempt.rs` | what it does with them: the same code over the real world and over that of the simulation |
//! | `reconcile.rs` | looking again for what is said to live |
//! | `ending.rs` `hearing.rs` | how it follows a process to its end; what the keeper says |
//! | `orphans.rs` `namespaces.rs` | what PID 1 inherits, and has to reap; what ended with one |

mod account;
mod attempt;
mod clearing;
mod emptying;
mod ending;
mod environment;
mod faults;
pub(crate) mod files;
mod follower;
mod hearing;
#[cfg(any(feature = "http", feature = "replay"))]
mod hook;
mod line;
mod link;
#[cfg(any(feature = "http", feature = "replay"))]
mod moment;
mod namespaces;
mod notices;
mod orphans;
mod output;
mod real;
mod reconcile;
pub(crate) mod reporting;
pub(crate) mod requester;
mod rotation;
mod sender;
mod thread;
mod tree;
mod usage;
mod world;

#[cfg(test)]
mod tests;

pub use crate::kernel::pidfd::ExitStatus;
pub use faults::{Fault, Faults, asking_for};
pub use follower::Follower;
pub use link::KeeperProgram;
pub use real::Place;
pub use reporting::Reporting;
pub use requester::Requester;
pub use thread::{Keeping, ProcessPort};
pub use usage::Usage;
pub use world::{Found, Survivors, Tree, World};
