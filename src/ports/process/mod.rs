//! The port of the `ProcessActor`: launches through the keeper, follows what runs, stops whole trees, and reports what
//! became of it all.
//!
//! | file | holds |
//! |---|---|
//! | `world.rs` | what it needs of kernel, keeper and files |
//! | `real.rs` `thread.rs` | the real world, and the thread that waits for it |
//! | `link.rs` | the connection to the keeper, and its start |
//! | `files.rs` `environment.rs` | what a launch needs, and what is left of it |
//! | `requester.rs` | who asks, and of whose line |
//! | `tree.rs` | which processes belong to a tree |
//! | `clearing.rs` | how a tree is proved empty |
//! | `follower.rs` `attempt.rs` | what it does with them: the same code over the real world and over that of the simulation |
//! | `ending.rs` `hearing.rs` | how it follows a process to its end; what the keeper says |

mod attempt;
mod clearing;
mod ending;
mod environment;
mod files;
mod follower;
mod hearing;
mod link;
mod real;
pub(crate) mod requester;
mod thread;
mod tree;
mod world;

#[cfg(test)]
mod tests;

pub use crate::kernel::pidfd::ExitStatus;
pub use follower::Follower;
pub use link::KeeperProgram;
pub use real::Place;
pub use thread::{Keeping, ProcessPort};
pub use world::{Found, Survivors, Tree, World};
