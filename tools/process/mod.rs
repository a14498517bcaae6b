//! Processes of a running coordinator from a shell: `run`, `ps`, `kill`, `wait`, `register`, `logs`.
//!
//! | file | holds |
//! |---|---|
//! | `asking.rs` | what is asked and answered: as fields, for people, as JSON |
//! | `run.rs` `attached.rs` | launching, and what a shell would do around it: streams, signals, exit status |
//! | `ps.rs` `page.rs` | which processes there are; how they are shown |
//! | `kill.rs` | signals and stops, and waiting for an end |
//! | `register.rs` | a record for what runs already |
//! | `logs.rs` | what a process wrote |

mod asking;
mod attached;
mod kill;
mod logs;
mod page;
mod ps;
mod register;
mod run;

pub(crate) use kill::{Kill, WaitFor};
pub(crate) use logs::Logs;
pub(crate) use ps::Ps;
pub(crate) use register::Register;
pub(crate) use run::Run;
