//! The model of queues as a reference.
//!
//! Who waits for a job stands in no log: a claim for somebody who waits must be right where it stands, and that nobody
//! waits in vain is looked at when a run has come to rest.
//!
//! | file | holds |
//! |---|---|
//! | `kinds.rs` | what kinds of queues there are, and what passes with the process |
//! | `judge.rs` | what the log must say, and what clients must be told |

mod judge;
mod kinds;
#[expect(
    clippy::indexing_slicing,
    dead_code,
    reason = "it is part of the library's tests, which ask for more"
)]
#[path = "../../../src/actors/queue/model/mod.rs"]
mod model;

pub(crate) use judge::Queues;
pub(crate) use kinds::{names, without_throttles};
