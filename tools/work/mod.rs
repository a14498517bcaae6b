//! `sexton work`: runs a command for each job of some queues.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the flags |
//! | `runner.rs` | several workers, their limits, and their end |
//! | `progress_display.rs` | the progress of a run |
//! | `claim.rs` | claiming jobs and reporting their results |
//! | `exchange.rs` | reporting finished jobs in batches, and claiming the next ones |
//! | `pace.rs` | the throttle of a run |
//! | `attempt.rs` | one job: its command and its result |
//! | `lines.rs` | a command that works on one job after another |
//! | `report.rs` | reports of commands on their jobs |
//! | `streams.rs` | the input and output of a command |
//! | `watch.rs` | stopping commands whose claims were lost |
//! | `tally.rs` | the results of a run |

mod attempt;
mod claim;
mod command;
mod exchange;
mod lines;
mod pace;
mod progress_display;
mod report;
mod runner;
mod streams;
mod tally;
mod watch;

pub(crate) use command::Work;
pub(crate) use report::{ADDRESS, SECRET, TIMEOUT};
