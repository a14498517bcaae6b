//! Tasks and servers of a running coordinator from a shell.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands of `sexton task` |
//! | `add.rs` | adding a task |
//! | `inject.rs` | faults on demand |
//! | `report.rs` | what the command of a task says of its own burst |
//! | `server.rs` `inventory.rs` | the subcommands of `sexton server`; which servers there are, and how that is read |
//! | `asking.rs` | what is asked and answered |
//! | `held.rs` | what an attempt holds: locks, a thread, processes |
//! | `page.rs` | tasks, groups and servers as people read them |

mod add;
mod asking;
mod command;
mod held;
mod inject;
mod inventory;
mod page;
mod report;
mod server;
mod transcript;

pub(crate) use command::Task;
pub(crate) use page::stirring;
pub(crate) use server::Server;
