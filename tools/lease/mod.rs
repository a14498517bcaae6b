//! Leases of a running coordinator from a shell.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands of `sexton lease` |
//! | `run.rs` | asking for a pass of a command, and what a shell would do around it |
//! | `set.rs` | settings, as words of the command line |
//! | `asking.rs` | what is asked and answered |
//! | `page.rs` | leases as people read them, and as Fossil prints one |

mod asking;
mod command;
mod page;
mod run;
mod set;

pub(crate) use command::Lease;
pub(crate) use page::{all_stirring, stirring};
