//! `sexton recover`: repairs a directory that cannot be started, by dropping the parts that cannot be read.
//!
//! The readable snapshot and the records after it are committed as in a start, which shows how far they can be. The kept records are
//! written to a new journal, which replaces the damaged one; the damaged one is kept aside.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand |
//! | `plan.rs` | what would be kept, and what would be lost |
//! | `pieces.rs` | the pass over the journal that makes a plan |
//! | `carry.rs` | carrying out a plan |
//! | `page.rs` | a plan as text and as JSON |

mod carry;
mod command;
mod page;
mod pieces;
mod plan;

pub(crate) use command::Recover;
