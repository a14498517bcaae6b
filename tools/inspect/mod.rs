//! `sexton inspect`: shows what a data directory holds, whether it is intact, and what startup would do with it.
//!
//! It never writes to the directory: snapshots are compared with their seals (lists of their files and checksums), copied elsewhere, and
//! read there by a separate process; the journal is read in place. It runs the coordinator's own recovery to find out what startup would
//! do.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand: flags, retries while a coordinator uses the directory, exit statuses |
//! | `findings.rs` | the contents of the directory, and any damage to them |
//! | `actors.rs` | the state of the actors |
//! | `page.rs` | the findings as text |

mod actors;
mod command;
mod findings;
mod page;

pub(crate) use command::Inspect;
pub(crate) use findings::look;
