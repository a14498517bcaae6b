//! `sexton lock`: locks of a running coordinator.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands, and the requests they make |
//! | `run.rs` | runs a command only while it holds a lock, which is bound to its processes |
//! | `by_ttl.rs` | the same over TCP, where the lock has a TTL instead |
//! | `named.rs` | keys, indexes and owners on the command line and in JSON |
//! | `left.rs` | what keeps a lock whose process has ended |
//! | `answer.rs` | answers: as text, as JSON, and as an exit status |

mod answer;
mod by_ttl;
mod command;
mod left;
mod named;
mod run;

pub(crate) use answer::{HELPS, refused};
pub(crate) use command::Lock;
pub(crate) use named::{name, put, shown};
