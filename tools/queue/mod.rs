//! `sexton queue`: queues of a running coordinator from a shell, over its Unix socket.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands |
//! | `job.rs` | what is done with jobs |
//! | `batch.rs` | several jobs that are added as one |
//! | `list.rs` | what only looks: which queues and jobs there are |
//! | `result.rs` | how jobs ended |
//! | `config.rs` | what holds for types of jobs |
//! | `answer.rs` | what is asked and answered: as fields, for people, as JSON, and as an exit status |

mod answer;
mod batch;
mod bulk;
mod command;
mod config;
mod job;
mod list;
mod result;

pub(crate) use command::Queue;
