//! The deterministic simulation: one seed is one run of the whole node in one thread, with every kind of fault, checked
//! against the promises. `docs/testing.md` describes how to read and rerun a seed that failed.
//!
//! | file | holds |
//! |---|---|
//! | `setting.rs` `workload.rs` `jobs.rs` `chance.rs` | the parameters of a seed, the requests of clients |
//! | `storage.rs` `disk.rs` `log.rs` `actor.rs` `each.rs` `node.rs` | the node, divided into steps, on a disk that loses unsynced data |
//! | `world.rs` | the external world on which counters act |
//! | `checkpoint.rs` `store.rs` | a checkpoint, divided into steps, and the store of slots |
//! | `run.rs` `taking.rs` `endings.rs` | the steps of a run and of its checkpoints, the ends of nodes and of the run |
//! | `reference.rs` `locks.rs` `leases.rs` `counters.rs` `supervisor.rs` `queues/` `processes/` `dispatch/` | a second implementation of the rules: the models of the library's tests, and counters; for processes also the machine that they run on |
//! | `tap.rs` `witness.rs` `check.rs` `damage.rs` `snapshots.rs` | the checkers |
//! | `coverage.rs` `violation.rs` | counts of what happened, and the broken promise |
//! | `campaign.rs` `killed.rs` | the tests: many seeds; a checkpoint killed in each of its disk calls |
//! | `planted.rs` `planted_claims.rs` `planted_slots.rs` `found.rs` | faults that must be caught, and faults that the campaign found |

mod actor;
mod bounded;
mod campaign;
mod chance;
mod check;
mod checkpoint;
#[path = "../support/counter.rs"]
mod counter;
mod counters;
mod coverage;
mod damage;
mod disk;
mod dispatch;
mod each;
mod endings;
mod found;
mod holds;
mod jobs;
mod killed;
mod leases;
mod locks;
mod log;
mod node;
mod parts;
mod planted;
mod planted_claims;
mod planted_effects;
mod planted_slots;
mod processes;
mod queues;
mod reference;
mod repeated;
mod run;
mod setting;
mod snapshots;
mod storage;
mod store;
mod supervisor;
mod taking;
mod tap;
mod violation;
mod witness;
mod workload;
mod world;

/// Prints a line. No other function of the simulation prints.
#[expect(clippy::print_stderr, reason = "the trace of a run, and the coverage")]
pub(crate) fn print(line: &str) {
    eprintln!("{line}");
}
