//! What is asked of services. Stored: see the change rule in `persist/format.rs`.

use crate::actors::process::service::definition::Definition;
use crate::ids::Slot;
use serde::{Deserialize, Serialize};

/// What may change services.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The node, at its start and when the configuration is read again: these are all services there are.
    Configure(Vec<Definition>),
    /// A person: bring one up, or all. Ends what was given up, and every wait before a restart.
    Start(Option<String>),
    /// A person: bring one down, or all, until it is started.
    Stop(Option<String>),
    /// A person: replace the processes of one, or all, by new ones.
    Restart(Option<String>),
    /// The node stops in good order: bring all down until the next start.
    Hold,
    /// Time acts: the next step of a service.
    Lapse {
        /// Which.
        slot: Slot,
    },
}
