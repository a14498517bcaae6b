//! The port of the `ProcessActor`: launches processes through the keeper, follows them, stops whole trees, and reports the results.
//!
//! | file | holds |
//! |---|---|
//! | `world.rs` | the operations that the port needs from kernel, keeper and files |
//! | `real.rs` `place.rs` `thread.rs` | the real world, its environment, and the thread that waits for its events |
//! | `link.rs` `starts.rs` | the connection to the keeper, and starting a keeper; how often one may be started |
//! | `files.rs` `environment.rs` | the files and the environment of a process |
//! | `fetches.rs` | what launches need from paths at which another user may keep a process that opens them waiting |
//! | `pid_files.rs` | the PID files of running processes |
//! | `output.rs` `growth.rs` `rotation.rs` | a thread that limits the size of output files and reads the output of hooks; how files grow; the rotation itself |
//! | `hook.rs` `moment.rs` | records in the output of hooks |
//! | `observed.rs` | observations of the kernel and of the followed processes, for the status |
//! | `account.rs` | users and groups by name |
//! | `notices.rs` `line.rs` | notices that processes send about themselves |
//! | `inbox.rs` `sender.rs` `unread.rs` | the sockets for notices; which process a notice is from; how many the actor has yet to handle |
//! | `requester.rs` | the process that makes a request, and its ancestors |
//! | `reporting.rs` | the socket and the secrets with which processes report on tasks |
//! | `faults.rs` | faults injected on request |
//! | `tree.rs` `members.rs` `sweep.rs` | the processes of a tree; the rules by which they belong to it; passes over all processes |
//! | `usage.rs` | the current resource usage of a process |
//! | `clearing.rs` `emptying.rs` | proving that a tree is empty; notifications of the kernel that it may be empty |
//! | `follower.rs` `attempt.rs` | the logic: the same code runs on the real world and on that of the simulation |
//! | `reconcile.rs` | checking on request whether recorded processes are still alive |
//! | `ending.rs` `report.rs` | following a process to its end; the keeper's reports |
//! | `orphans.rs` `namespaces.rs` | children that PID 1 inherits and has to reap; PID namespaces that have ended with their PID 1 |

mod account;
mod attempt;
mod clearing;
mod emptying;
mod ending;
mod environment;
mod faults;
mod fetches;
pub(crate) mod files;
mod follower;
mod growth;
#[cfg(feature = "replay")]
mod hook;
mod inbox;
mod line;
mod link;
pub mod members;
#[cfg(feature = "replay")]
mod moment;
mod namespaces;
mod notices;
mod observed;
mod orphans;
mod output;
mod pid_files;
mod place;
mod real;
mod reconcile;
mod report;
pub(crate) mod reporting;
pub(crate) mod requester;
mod rotation;
mod sender;
mod starts;
mod sweep;
mod thread;
mod tree;
mod unread;
mod usage;
mod world;

#[cfg(test)]
mod tests;

pub use crate::kernel::pidfd::ExitStatus;
pub use faults::{Fault, Faults, variable_for};
pub use follower::Follower;
pub use link::KeeperProgram;
pub use observed::{Observations, Observed};
pub use place::Place;
pub use reporting::Reporting;
pub use requester::Requester;
pub use thread::{ProcessPort, ProcessPortHandle};
pub use tree::Left;
pub use unread::Unread;
pub use usage::Usage;
pub use world::{Lookup, Survivors, Tree, World};
