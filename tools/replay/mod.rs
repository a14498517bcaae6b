//! `sexton replay`: a log entry by entry, its state, its verification, its export.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand and what it shows |
//! | `beginning.rs` | where the replay of a directory begins: with the first entry, or with a snapshot |

mod beginning;
mod command;

pub(crate) use command::Replaying;
