//! Hosts as actix actors: mailboxes, restarts, timers. The only folder that names actix.
//!
//! A panic is caught in the host, before actix would see it; the actor's mailbox then waits for the Supervisor's verdict.
//!
//! | file | holds |
//! |---|---|
//! | `mailbox.rs` `heard.rs` | how an actor is reached, and its answers |
//! | `shell.rs` | a host inside actix |
//! | `peer.rs` `paging.rs` | how other actors, and checkpoints, reach it |
//! | `rebuild.rs` | a spent machine from the journal |
//! | `start.rs` | starting actors, and the tasks of the core |

mod heard;
mod mailbox;
mod paging;
mod peer;
mod rebuild;
mod shell;
mod start;

pub use mailbox::{Mailbox, Stopped, Waiting};
pub use peer::{Completions, Judge};
pub use shell::ActorStatus;
pub use start::{block_on, spawn, start, watch_wall_clock};
