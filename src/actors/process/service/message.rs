//! Messages about services. These types are stored: see the change rule in `persist/format.rs`.

use crate::actors::process::service::definition::Definition;
use crate::ids::Slot;
use serde::{Deserialize, Serialize};

/// A message that may change services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From the node, at startup and when the configuration is reloaded: the definitions of all services.
    Configure(Vec<Definition>),
    /// From a user: start the service with this name, or all services if `None`. Failures and restart delays are reset.
    Start(Option<String>),
    /// From a user: stop the service with this name, or all services if `None`. A stopped service stays down until a user starts it.
    Stop(Option<String>),
    /// From a user: replace the processes of the service with this name, starting it if it is down. If `None`, replace the processes of
    /// all services that should be up.
    Restart(Option<String>),
    /// From the node, when the server shuts down cleanly: stop all services, and keep them down until the next `Configure`, or until a user
    /// starts them.
    Hold,
    /// From the timer: the next step of a service is due.
    Lapse {
        /// The slot of the service.
        slot: Slot,
    },
}
