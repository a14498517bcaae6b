//! `sexton replay`: shows a log record by record, or the state after it; verifies and exports it; shows the history of one item.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand |
//! | `item.rs` | the flags that select an item |
//! | `sink.rs` | the output |
//! | `beginning.rs` | where the replay of a directory begins: with the first record, or with a snapshot |

mod beginning;
mod command;
mod item;
mod sink;

pub(crate) use command::{Replaying, tell_story};
pub(crate) use item::Item;
pub(crate) use sink::words;
