//! Processes: the model as a reference, the clients, and the port over a simulated kernel.
//!
//! | file | holds |
//! |---|---|
//! | `judge.rs` | what the log must say, and what clients must be told |
//! | `clients.rs` `services.rs` | what clients ask for, and what the configuration has of services |
//! | `machine.rs` | the kernel under the port, and what its wiring may do wrong |
//! | `port.rs` | the port: what it is asked, what it hears, what it reports |
//! | `mischief.rs` | what processes, keepers and the kernel do of themselves |
//! | `truth.rs` `served.rs` `stuck.rs` | what records and services say against what is so |
//! | `hooks.rs` | what hooks print, and what must become of it |
//! | `planted.rs` | faults that must be caught |

mod clients;
mod hooks;
mod judge;
#[expect(dead_code, reason = "the tests of the port ask for more")]
#[path = "../../support/kernel.rs"]
mod kernel;
mod machine;
mod mischief;
#[expect(
    dead_code,
    reason = "it is part of the library's tests, which ask for more"
)]
#[path = "../../../src/actors/process/model/mod.rs"]
mod model;
mod planted;
mod port;
mod served;
mod services;
mod stuck;
mod truth;

pub(crate) use judge::Processes;
pub(crate) use planted::{is_service_stop, without_waits};
pub(crate) use port::Port;
pub(crate) use truth::{check_binding, check_bound, check_passes, is_whole};
