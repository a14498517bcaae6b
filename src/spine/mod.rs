//! The spine: the code that surrounds every machine, whatever its rules.
//!
//! | file | holds |
//! |---|---|
//! | `machine.rs` `items.rs` | the contract of a machine: rules, deadlines, snapshots, views; a shorter form of it for machines with items of one kind |
//! | `effect.rs` `port.rs` | the effects that a machine requests; the interface to the code that performs its actions |
//! | `ledger.rs` | sequence numbers, time, and the records to be written next |
//! | `host/` | the host of a machine: order, decide, commit, append; catches panics |
//! | `delivery.rs` `guard.rs` | deliveries to a host, and its answers; a function that catches panics |
//! | `each.rs` | structures with one element for each actor |
//! | `outbox.rs` | answers and actions that wait for the journal |
//! | `event.rs` `feed.rs` | events as plain data; the newest events, for subscribers |
//! | `recovery.rs` | recovers machines from snapshots and the journal; there is no other recovery path |
//! | `record.rs` | decodes the content of records; the errors of recovery |
//! | `matching.rs` | whether a snapshot and a log belong together |
//! | `progress.rs` | the progress of a recovery |
//! | `checkpoint.rs` `due.rs` | the steps of taking a snapshot; when one is due |
//! | `page_source.rs` | what a checkpoint asks of an actor |
//! | `pages.rs` | copies a machine for a checkpoint, slice by slice |
//! | `receipts.rs` | what was done under each idempotency key, to answer repeated requests |
//! | `loading.rs` | loads a snapshot into machines |
//! | `parallel.rs` | runs two functions at the same time, on two threads |
//! | `directory.rs` | the addresses of actors, and the bound on open commands |
//! | `budget.rs` | a byte budget shared by several holders |
//! | `shared.rs` | what the actors of a node share; sends answers when they may be sent |
//! | `halt.rs` | why a node halts; halts it when a thread or task ends that it depends on |
//! | `supervision.rs` | the messages between the spine and the Supervisor; the restart policy |
//! | `runtime/` | the only code that depends on actix |
//! | `shelf.rs` | snapshots in memory, for tests |

pub mod budget;
pub mod checkpoint;
pub mod delivery;
pub mod directory;
mod due;
pub mod each;
pub mod effect;
pub mod event;
pub mod feed;
pub mod guard;
pub mod halt;
pub mod host;
pub mod items;
pub mod ledger;
pub mod loading;
pub mod machine;
mod matching;
pub mod outbox;
pub mod page_source;
pub mod pages;
pub mod parallel;
pub mod port;
pub mod progress;
pub mod receipts;
pub mod record;
pub mod recovery;
pub mod runtime;
pub(crate) mod seldom;
pub mod shared;
#[cfg(test)]
pub(crate) mod shelf;
pub mod supervision;

pub use host::Host;
pub use machine::{Actor, Machine};
