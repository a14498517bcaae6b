//! The subcommands of `sexton lease`.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands and their flags |
//! | `run.rs` | requesting a pass that runs a command, and following it in the foreground |
//! | `set.rs` | settings, parsed from the command line |
//! | `request.rs` | requests and answers |
//! | `page.rs` | leases as text for a terminal, and as Fossil prints them |

mod command;
mod page;
mod request;
mod run;
mod set;

pub(crate) use command::Lease;
#[cfg(test)]
pub(crate) use page::tests as samples;
pub(crate) use page::{active_row, active_table};
