//! `sexton lock`: locks of a running coordinator from a shell, over its Unix socket.
//!
//! | file | holds |
//! |---|---|
//! | `command.rs` | the subcommands, and what they ask for |
//! | `run.rs` `by_ttl.rs` | a command that runs only while it holds a lock: bound to its processes, or over TCP by a TTL |
//! | `named.rs` | keys, indexes and owners on the command line and in JSON |
//! | `answer.rs` | what is answered: for people, as JSON, and as an exit status |

mod answer;
mod by_ttl;
mod command;
mod named;
mod run;

pub(crate) use answer::refused;
pub(crate) use command::Lock;
pub(crate) use named::{name, put, shown};
