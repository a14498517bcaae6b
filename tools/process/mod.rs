//! Processes of a running coordinator from a shell: `run`, `ps`, `kill`, `wait`, `register`, `logs`, `service`.
//!
//! | file | holds |
//! |---|---|
//! | `asking.rs` | what is asked and answered: as fields, for people, as JSON |
//! | `run.rs` `attached.rs` | launching, and what a shell would do around it: streams, signals, exit status |
//! | `ps.rs` `page.rs` | which processes there are; how they are shown |
//! | `kill.rs` | signals and stops, and waiting for an end |
//! | `pid_file.rs` `pid_file_command.rs` | the same by PID files of others, without a coordinator |
//! | `register.rs` | a record for what runs already |
//! | `logs.rs` | what a process wrote |
//! | `service.rs` `service_page.rs` | services; how they are shown |

mod asking;
pub(crate) mod attached;
mod kill;
mod logs;
mod page;
mod pid_file;
mod pid_file_command;
mod ps;
mod register;
mod run;
mod service;
mod service_page;

pub(crate) use asking::{Asking, Of, has_ended};
pub(crate) use kill::{Kill, WaitFor, signal};
pub(crate) use logs::Logs;
pub(crate) use page::{command, ending, standing, trees};
pub(crate) use ps::Ps;
pub(crate) use register::Register;
pub(crate) use run::{PARENT, Run, detached, here, outcome, plain, variables};
pub(crate) use service::Service;
pub(crate) use service_page::{about, last};
