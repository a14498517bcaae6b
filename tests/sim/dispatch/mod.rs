//! Tasks: the model as a reference, the requests of their clients, and the promises that every history keeps.
//!
//! | file | holds |
//! |---|---|
//! | `judge.rs` | the required content of the log and of answers |
//! | `clients.rs` | requests of clients and reports of commands |
//! | `promises.rs` | promises that every history keeps, without the model |
//! | `truth.rs` | tasks compared with locks and processes |
//! | `planted.rs` | faults that must be caught: in messages, and in invented histories |
//! | `forged.rs` | wrong decisions that must be caught |

mod clients;
mod forged;
mod judge;
#[expect(dead_code, reason = "it is shared with the library's tests, which use more of it")]
#[path = "../../../src/actors/dispatch/model/mod.rs"]
mod model;
mod planted;
mod promises;
mod truth;

pub(crate) use forged::forger;
pub(crate) use planted::as_if_live;
pub(crate) use truth::{check_room, check_tasks};
