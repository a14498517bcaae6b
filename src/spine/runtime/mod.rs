//! Runs each host as an actix actor, with a mailbox, a timer, and restarts after panics. No other folder uses actix's actors; HTTP uses
//! only actix-web's router and codec.
//!
//! A panic is caught in the host, before actix would see it. The actor's mailbox then waits until the Supervisor has
//! decided whether the actor is restarted or the node halts.
//!
//! | file | holds |
//! |---|---|
//! | `mailbox.rs` `answering.rs` | sending to an actor, and receiving its answers |
//! | `shell.rs` | a host inside actix |
//! | `peer.rs` `paging.rs` | how other actors and checkpoints reach an actor |
//! | `rebuild.rs` | rebuilding a spent machine from the journal |
//! | `start.rs` | starting actors, and the tasks of the core thread |

mod answering;
mod mailbox;
mod paging;
mod peer;
mod rebuild;
mod shell;
mod start;

pub use mailbox::{Mailbox, Stopped, Waiting};
pub use peer::{Completions, Judge};
pub use shell::ActorStatus;
pub use start::{block_on, spawn, spawn_brief, start, watch_tasks, watch_wall_clock};
