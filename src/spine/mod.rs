//! The spine: the code that surrounds every machine, whatever its rules.
//!
//! | file | holds |
//! |---|---|
//! | `machine.rs` `items.rs` | the contract of a machine: decide, commit, query; time; pages; what is shown; its short form for items of one kind |
//! | `effect.rs` `port.rs` | the effects that a machine requests outside itself; the interface to the code that performs its actions |
//! | `ledger.rs` | sequence numbers, time, the records of one write |
//! | `host/` | the host of a machine: order, decide, commit, append; catches panics |
//! | `delivery.rs` `guard.rs` | deliveries to a host and its answers; catching panics |
//! | `each.rs` | structures with one element for each actor |
//! | `outbox.rs` | answers and actions that wait for the journal |
//! | `event.rs` `feed.rs` | events as data; the newest of them, for subscribers |
//! | `recovery.rs` | from snapshots and journal to machines: the only recovery path |
//! | `record.rs` | the content of a record, and why recovery failed |
//! | `progress.rs` | the progress of a recovery |
//! | `checkpoint.rs` | when a snapshot is due, and its steps |
//! | `pages.rs` | a checkpoint's copy of a machine, slice by slice |
//! | `receipts.rs` | what was done under each idempotency key, to answer repeated requests |
//! | `loading.rs` | loading a snapshot into machines |
//! | `parallel.rs` | work on two threads at a time |
//! | `directory.rs` | addresses, and the bound on open commands |
//! | `budget.rs` | a byte budget shared by several holders |
//! | `shared.rs` | what the actors of a node share; when answers are sent; halting |
//! | `supervision.rs` | the messages between the spine and the Supervisor; the restart policy |
//! | `runtime/` | the only code that depends on actix |
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
