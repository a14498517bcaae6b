//! Messages about services. Stored: see the change rule in `persist/format.rs`.

use crate::actors::process::service::definition::Definition;
use crate::ids::Slot;
use serde::{Deserialize, Serialize};

/// A message that may change services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From the node, at startup and when the configuration is reloaded: the definitions of all services.
    Configure(Vec<Definition>),
    /// From a user: start one service, or all. Failures and restart delays are reset.
    Start(Option<String>),
    /// From a user: stop one service, or all, until it is started again.
    Stop(Option<String>),
    /// From a user: replace the processes of one service, or of all.
    Restart(Option<String>),
    /// From the node, when it shuts down cleanly: stop all services, and keep them down until the server restarts.
    Hold,
    /// From the timer: the next step of a service is due.
    Lapse {
        /// The slot of the service.
        slot: Slot,
    },
}
