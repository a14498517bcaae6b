//! Tasks: the model as a reference, what their clients ask for, and what every history keeps.
//!
//! | file | holds |
//! |---|---|
//! | `judge.rs` | what the log must say, and what clients must be told |
//! | `clients.rs` | what clients and commands ask for |
//! | `promises.rs` | what holds of every history, without the model |
//! | `truth.rs` | what tasks say against locks and processes |
//! | `planted.rs` | faults that must be caught: of what is told, and in histories that are made up |
//! | `forged.rs` | wrong decisions that must be caught |

mod clients;
mod forged;
mod judge;
#[expect(
    dead_code,
    reason = "it is part of the library's tests, which ask for more"
)]
#[path = "../../../src/actors/dispatch/model/mod.rs"]
mod model;
mod planted;
mod promises;
mod truth;

pub(crate) use forged::forger;
pub(crate) use planted::as_if_live;
pub(crate) use truth::{check_room, check_tasks};
