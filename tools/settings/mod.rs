//! Settings of `sexton serve`: definitions, sources and precedence.
//!
//! | file | holds |
//! |---|---|
//! | `flag.rs` | the settings with their defaults, and the node configuration made from them |
//! | `layer.rs` | flag, environment, file, default: precedence, and all problems |
//! | `file.rs` | the configuration file, with the line of each key |
//! | `queue.rs` | the tables `[queues.TYPE]` of the file |
//! | `tenant.rs` | the tables `[tenants.NAME]` |
//! | `task.rs` | the table `[tasks]` |
//! | `service.rs` `worker.rs` | the tables `[services.NAME]` and `[workers.NAME]`; every worker becomes a service |
//! | `value.rs` | booleans and whole numbers in these tables |
//! | `command.rs` | `sexton config`, which shows the settings |

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
pub(crate) use layer::{Effective, Entry, ParsedFlags, find_unknown_variables, nearest};
pub(crate) use queue::{rate_of, types_table};
