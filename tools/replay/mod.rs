//! `sexton replay`: a log entry by entry, its state, its verification, its export, and what happened to one item.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand |
//! | `item.rs` | which item is followed |
//! | `shown.rs` | what is printed |
//! | `beginning.rs` | where the replay of a directory begins: with the first entry, or with a snapshot |

mod beginning;
mod command;
mod item;
mod shown;

pub(crate) use command::{Replaying, tell_story};
pub(crate) use item::Item;
pub(crate) use shown::words;
