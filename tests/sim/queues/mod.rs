//! The queue rules a second time: one list of jobs, searched from end to end.
//!
//! Follows the descriptions in `src/actors/queue/message.rs` and decision 0011, not the machine. Who waits for a job
//! stands in no log: a claim for somebody who waits must be right where it stands, and that nobody waits in vain is
//! looked at when a run has come to rest.
//!
//! | file | holds |
//! |---|---|
//! | `kinds.rs` | what kinds of queues there are, and what passes with the process |
//! | `list.rs` `adding.rs` `said.rs` | jobs, and what becomes of them |
//! | `judge.rs` | the list as a reference |

mod adding;
mod judge;
mod kinds;
mod list;
mod said;

pub(crate) use kinds::names;
pub(crate) use list::Queues;
