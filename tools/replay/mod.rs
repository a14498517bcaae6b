//! `sexton replay`: shows a log record by record, or the state at its end; verifies or exports a log; shows the history of one item.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand: flags, output and exit statuses |
//! | `item.rs` | the flags that select an item |
//! | `sink.rs` | where the output is written, and lines as text |
//! | `range.rs` | where the replay of a directory begins: at the first record, or with a snapshot |

mod command;
mod item;
mod range;
mod sink;

pub(crate) use command::{Replaying, print_history};
pub(crate) use item::Item;
pub(crate) use sink::words;
