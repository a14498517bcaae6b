//! Processes: the model as a reference, the clients, and the port above a simulated kernel.
//!
//! | file | holds |
//! |---|---|
//! | `judge.rs` | the required content of the log and of answers |
//! | `clients.rs` `services.rs` | requests of clients, and services in the configuration |
//! | `machine.rs` | the simulated kernel, with planted faults |
//! | `port.rs` | the port: its requests, its observations, its reports |
//! | `mischief.rs` | random events of processes, keepers and the kernel |
//! | `truth.rs` `served.rs` `stuck.rs` | records, services and stuck trees compared with the state of the machine |
//! | `hooks.rs` | the output of hooks, and the records made from it |
//! | `planted.rs` | faults that must be caught |

mod clients;
mod hooks;
mod judge;
#[expect(dead_code, reason = "the tests of the port use more of it")]
#[path = "../../support/kernel.rs"]
mod kernel;
mod machine;
mod mischief;
#[expect(dead_code, reason = "it is shared with the library's tests, which use more of it")]
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
