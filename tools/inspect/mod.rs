//! `sexton inspect`: what a data directory holds, whether it is whole, and what a start would do with it.
//!
//! It never writes where it looks: slots are compared with their seals, copied elsewhere, and read there by a process of
//! their own; the journal is read. The judgement of a start is the start's own code.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand: flags, trying again on a directory in use, exit statuses |
//! | `findings.rs` | what is there and what is wrong with it |
//! | `actors.rs` | what the actors hold |
//! | `page.rs` | the findings as people read them |

mod actors;
mod command;
mod findings;
mod page;

pub(crate) use command::Inspect;
pub(crate) use findings::look;
