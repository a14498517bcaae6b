//! `sexton recover`: a directory that a start refuses, without what cannot be read of it.
//!
//! The snapshot that reads and the records after it are committed as a start would, which says where they stop. What is kept
//! is written to a journal of its own, which takes the place of the damaged one; that is kept beside.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommand |
//! | `plan.rs` | what would be kept, and what would be lost |
//! | `pieces.rs` | the journal piece by piece, as a plan goes through it |
//! | `carry.rs` | carrying a plan out |
//! | `page.rs` | a plan as people read it |

mod carry;
mod command;
mod page;
mod pieces;
mod plan;

pub(crate) use command::Recover;
