//! Subcommands on processes: `run`, `ps`, `start`, `kill`, `wait`, `register`, `logs`, `service`.
//!
//! | file | holds |
//! |---|---|
//! | `request.rs` | requests and answers |
//! | `run.rs` `attached.rs` | launching commands, and running them in the foreground: streams, signals, exit status |
//! | `start.rs` | launching commands whose launch was deferred |
//! | `inheritance.rs` | the descriptors and priorities of this process, which a command in the foreground takes over |
//! | `terminal.rs` | a pseudo-terminal between the caller's terminal and a command |
//! | `ps.rs` `page.rs` | listing processes; formatting them |
//! | `kill.rs` | signalling and stopping processes, and waiting until they have exited |
//! | `pid_file.rs` `pid_file_command.rs` | listing and signalling processes by PID files of other programs, without a coordinator |
//! | `register.rs` | a record for a process that is already running |
//! | `pinned.rs` | files that other users cannot redirect |
//! | `logs.rs` `follow.rs` | the output of a process; reading it while it is rotated |
//! | `service.rs` `service_page.rs` | services; formatting them |

pub(crate) mod attached;
mod follow;
mod inheritance;
mod kill;
mod logs;
mod page;
mod pid_file;
mod pid_file_command;
mod pinned;
mod ps;
mod register;
mod request;
mod run;
mod service;
mod service_page;
mod start;
mod terminal;

pub(crate) use kill::{Kill, WaitFor, signal};
pub(crate) use logs::Logs;
pub(crate) use page::{
    command, command_line, ending, left, shown_command, shown_command_line, standing, trees,
};
pub(crate) use ps::Ps;
pub(crate) use register::Register;
pub(crate) use request::{ClientOptions, WaitExtent, has_ended};
pub(crate) use run::{PARENT, Run, detached, here, outcome, plain, variables};
pub(crate) use service::Service;
pub(crate) use service_page::{about, last};
pub(crate) use start::Start;
