//! The deterministic simulation: one seed is one run of the whole node in one thread, with everything that may go
//! wrong, judged against the promises. `docs/testing.md` says how to read and rerun a seed that failed.
//!
//! | file | holds |
//! |---|---|
//! | `setting.rs` `workload.rs` `jobs.rs` `chance.rs` | what a seed says, what clients ask for |
//! | `platter.rs` `disk.rs` `log.rs` `actor.rs` `each.rs` `node.rs` | the node, cut into moves, on a disk that forgets |
//! | `world.rs` | the world that counters act on |
//! | `checkpoint.rs` `store.rs` | a checkpoint, cut into steps, and the store that slots are written to |
//! | `run.rs` `taking.rs` `endings.rs` | the steps of a run, those of checkpoints, how a node goes down, how a run ends |
//! | `reference.rs` `locks.rs` `leases.rs` `counters.rs` `supervisor.rs` `queues/` `processes/` `dispatch/` | the rules a second time: the models of the library's tests, and counters; with processes, the machine that they run on |
//! | `tap.rs` `witness.rs` `check.rs` `damage.rs` `snapshots.rs` | the checkers |
//! | `coverage.rs` `violation.rs` | what was met, and what was broken |
//! | `campaign.rs` `killed.rs` | the tests: many seeds; a checkpoint killed in each of its calls |
//! | `planted.rs` `planted_claims.rs` `planted_slots.rs` `found.rs` | faults that must be caught, and what once went wrong |

mod actor;
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
mod jobs;
mod killed;
mod leases;
mod locks;
mod log;
mod node;
mod planted;
mod planted_claims;
mod planted_effects;
mod planted_slots;
mod platter;
mod processes;
mod queues;
mod reference;
mod repeated;
mod run;
mod setting;
mod snapshots;
mod store;
mod supervisor;
mod taking;
mod tap;
mod violation;
mod witness;
mod workload;
mod world;

/// The one place that prints.
#[expect(clippy::print_stderr, reason = "the trace of a run, and the coverage")]
pub(crate) fn print(line: &str) {
    eprintln!("{line}");
}
