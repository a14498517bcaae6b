//! The fields of a new record that are not in the message. Stored: see the change rule in `persist/format.rs`.

use crate::actors::process::record::Stop;
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use serde::{Deserialize, Serialize};

/// A new record, and the records removed to make room for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insertion {
    /// The slot it is inserted into.
    pub slot: Slot,
    /// Its id.
    pub id: ProcessId,
    /// Its parent.
    pub parent: Option<ProcessId>,
    /// The root of its tree; its own id if it has no parent.
    pub root: ProcessId,
    /// The number of its ancestors.
    pub depth: u16,
    /// Its number among the records of its type.
    pub number: u64,
    /// Its type, which is derived if the message names none.
    pub kind: String,
    /// The wall-clock time of its creation.
    pub at: Date,
    /// The slots of the records that are removed to make room.
    pub evicted: Vec<Slot>,
    /// The stop that it inherits if its process is launched below one that is being stopped with its tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
}
