//! `sexton inspect`: shows what a data directory holds, whether it is intact, and what a start would do with it.
//!
//! It never writes to the directory: snapshots are compared with their seals, copied elsewhere, and read there by a separate
//! process; the journal is read in place. The code of the start itself determines what a start would do.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand: flags, retries on a directory in use, exit statuses |
//! | `findings.rs` | the contents of the directory, and their damage |
//! | `actors.rs` | the state of the actors |
//! | `page.rs` | the findings as text |

mod actors;
mod command;
mod findings;
mod page;

pub(crate) use command::Inspect;
pub(crate) use findings::look;
