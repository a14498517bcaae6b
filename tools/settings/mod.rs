//! Settings of `sexton serve`: what they are, where they come from, and which prevails.
//!
//! | file | holds |
//! |---|---|
//! | `flag.rs` | each setting with its default, and the node's configuration they lead to |
//! | `layer.rs` | flag, environment, file, default: which prevails, and everything that is wrong |
//! | `file.rs` | the configuration file, with the line of each key |
//! | `queue.rs` | the tables of that file that say what holds for the jobs of a type |
//! | `tenant.rs` | the tables that say how often tenants have their turns |
//! | `task.rs` | the table of what holds for tasks |
//! | `service.rs` `worker.rs` | the tables that define services, and workers as services |
//! | `command.rs` | `sexton config`, which shows them |

mod command;
mod file;
mod flag;
mod layer;
mod queue;
mod service;
mod task;
mod tenant;
mod value;
mod worker;

pub(crate) use command::ShowConfig;
pub(crate) use file::problems_of;
pub(crate) use flag::{LogFormat, OnStop, Settings, data_directory};
pub(crate) use layer::{Effective, Entry, Given, strange_variables};
pub(crate) use queue::{rate_of, types_table};
