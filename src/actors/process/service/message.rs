//! Messages about services. Stored: see the change rule in `persist/format.rs`.

use crate::actors::process::service::definition::Definition;
use crate::ids::Slot;
use serde::{Deserialize, Serialize};

/// A message that may change services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From the node, at its start and when the configuration is reloaded: these are all the services.
    Configure(Vec<Definition>),
    /// From a user: start one service, or all. This also resets failures and restart delays.
    Start(Option<String>),
    /// From a user: stop one service, or all, until it is started again.
    Stop(Option<String>),
    /// From a user: replace the processes of one service, or of all.
    Restart(Option<String>),
    /// From the node, when it shuts down cleanly: keep all services down until the next start.
    Hold,
    /// From the timer: the next step of a service is due.
    Lapse {
        /// The slot of the service.
        slot: Slot,
    },
}
