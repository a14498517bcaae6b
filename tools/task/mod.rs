//! The subcommands of `sexton task` and `sexton server`.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands of `sexton task` |
//! | `add.rs` | adding a task |
//! | `inject.rs` | fault injection |
//! | `report.rs` | reports of a task's command on its own burst |
//! | `server.rs` `inventory.rs` | the subcommands of `sexton server`; reading inventories of servers |
//! | `request.rs` | requests and answers |
//! | `held.rs` | the resources of an attempt: locks, a thread, processes |
//! | `page.rs` `transcript.rs` | tasks, groups, servers and the history of a task as text |

mod add;
mod command;
mod held;
mod inject;
mod inventory;
mod page;
mod report;
mod request;
mod server;
mod transcript;

pub(crate) use command::Task;
pub(crate) use page::overview_row;
pub(crate) use server::Server;
