//! `sexton work`: a command for each job of some queues.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the flags |
//! | `runner.rs` | several workers, their limits, and their end |
//! | `shown.rs` | how far a run is, on a terminal |
//! | `claim.rs` | where jobs come from, and what the coordinator is told of them |
//! | `exchange.rs` | jobs that are done, and the next ones for them |
//! | `pace.rs` | the throttle of a run |
//! | `attempt.rs` | one job: its command, and what came of it |
//! | `lines.rs` | a command that works on one job after another |
//! | `report.rs` | what commands report of their jobs |
//! | `streams.rs` | what a command reads, and what it writes |
//! | `tally.rs` | what a run came to |

mod attempt;
mod claim;
mod command;
mod exchange;
mod lines;
mod pace;
mod report;
mod runner;
mod shown;
mod streams;
mod tally;
mod watch;

pub(crate) use command::Work;
pub(crate) use report::{ADDRESS, PATIENCE, SECRET};
