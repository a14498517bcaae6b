//! `sexton queue`: queues of a running coordinator.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands |
//! | `job.rs` | commands on single jobs |
//! | `batch.rs` | adding several jobs atomically |
//! | `bulk.rs` | commands on all jobs that match a filter |
//! | `list.rs` | read-only commands: queues, jobs and their states |
//! | `result.rs` | results of jobs that ended |
//! | `config.rs` | the configuration of job types |
//! | `answer.rs` | requests and answers: as text, as JSON, and as an exit status |

mod answer;
mod batch;
mod bulk;
mod command;
mod config;
mod job;
mod list;
mod result;

pub(crate) use command::Queue;
