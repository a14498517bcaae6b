//! `sexton recover`: repairs a data directory on which startup is refused, by dropping the parts that cannot be read.
//!
//! To find out what can be kept, the newest readable snapshot is loaded and the records after it are applied, as at startup. The kept
//! records are written to a new journal, which replaces the damaged one. The damaged journal is moved to another folder, not deleted.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand |
//! | `plan.rs` | what would be kept, and what would be lost |
//! | `pieces.rs` | the pass over the journal that finds out which records can be kept |
//! | `carry.rs` | carrying out a plan |
//! | `page.rs` | a plan as text and as JSON |

mod carry;
mod command;
mod page;
mod pieces;
mod plan;

pub(crate) use command::Recover;
