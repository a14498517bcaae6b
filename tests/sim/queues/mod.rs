//! The model of queues as a reference.
//!
//! Waiting clients are not in the log. So a claim for a waiting client must be right at its position, and whether a
//! client waits although there is a job for it is checked when a run has settled.
//!
//! | file | holds |
//! |---|---|
//! | `kinds.rs` | the queues, and the changes that a crash of the process may lose |
//! | `judge.rs` | the required content of the log and of answers |

mod judge;
mod kinds;
#[expect(
    clippy::indexing_slicing,
    dead_code,
    reason = "it is shared with the library's tests, which use more of it"
)]
#[path = "../../../src/actors/queue/model/mod.rs"]
mod model;

pub(crate) use judge::Queues;
pub(crate) use kinds::{names, without_throttles};
