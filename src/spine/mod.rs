//! The spine: what surrounds every machine, whatever its rules.
//!
//! | file | holds |
//! |---|---|
//! | `machine.rs` | the contract of a machine: decide, commit, query; time; pages; what is shown |
//! | `effect.rs` `port.rs` | what a machine wants done outside itself; who does it in the world |
//! | `ledger.rs` | sequence numbers, time, the records of one write |
//! | `host.rs` | the shell: order, decide, commit, append; catches panics |
//! | `delivery.rs` `guard.rs` | what is delivered to a host and answered; panics as words |
//! | `each.rs` | one of something for each actor of a list |
//! | `outbox.rs` | answers and actions that wait for the journal |
//! | `event.rs` `feed.rs` | what happened, as data; the newest of it, for subscribers |
//! | `recovery.rs` | from snapshots and journal to machines: the one recovery path |
//! | `record.rs` | what a record holds, and why the past could not be repeated |
//! | `progress.rs` | how far a recovery has come |
//! | `checkpoint.rs` | when a snapshot is due, and its steps |
//! | `pages.rs` | a checkpoint's copy of a machine, slice by slice |
//! | `receipts.rs` | what was done under which key, for requests that come again |
//! | `loading.rs` | a snapshot on its way into machines |
//! | `parallel.rs` | work that is spread over the cores |
//! | `directory.rs` | addresses, and the bound on open commands |
//! | `budget.rs` | bytes that many may hold together |
//! | `shared.rs` | what the actors of a node share; when answers leave; halting |
//! | `supervision.rs` | what the spine and the Supervisor say to each other; the policy of restarts |
//! | `runtime/` | the only place that names actix |
//! | `shelf.rs` | snapshots in memory, for tests |

pub mod budget;
pub mod checkpoint;
pub mod delivery;
pub mod directory;
pub mod each;
pub mod effect;
pub mod event;
pub mod feed;
pub mod guard;
pub mod host;
pub mod items;
pub mod ledger;
pub mod loading;
pub mod machine;
pub mod outbox;
pub mod pages;
pub mod parallel;
pub mod port;
pub mod progress;
pub mod receipts;
pub mod record;
pub mod recovery;
pub mod runtime;
pub mod shared;
#[cfg(test)]
pub(crate) mod shelf;
pub mod supervision;

pub use host::Host;
pub use machine::{Actor, Machine};
