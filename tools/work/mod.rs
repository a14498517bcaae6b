//! `sexton work`: a command for each job of some queues.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the flags |
//! | `runner.rs` | several workers, their limits, and their end |
//! | `claim.rs` | where jobs come from, and what the coordinator is told of them |
//! | `attempt.rs` | one job: its command, and what came of it |
//! | `streams.rs` | what a command reads, and the end of what it says went wrong |
//! | `tally.rs` | what a run came to |

mod attempt;
mod claim;
mod command;
mod runner;
mod streams;
mod tally;

pub(crate) use command::Work;
