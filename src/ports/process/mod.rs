//! The port of the `ProcessActor`: launches through the keeper, follows what runs, stops whole trees, and reports what
//! became of it all.
//!
//! | file | holds |
//! |---|---|
//! | `world.rs` | what it needs of kernel, keeper and files |
//! | `clearing.rs` | how a tree is proved empty |
//! | `follower.rs` | what it does with them: the same code over the real world and over that of the simulation |

mod clearing;
mod follower;
mod world;

#[cfg(test)]
mod tests;

pub use follower::Follower;
pub use world::{Found, Survivors, Tree, World};
