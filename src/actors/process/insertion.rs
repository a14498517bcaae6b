//! What a new record is, beside what the message says. Stored: see the change rule in `persist/format.rs`.

use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use serde::{Deserialize, Serialize};

/// A new record, and what makes room for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Insertion {
    /// Where it is put.
    pub slot: Slot,
    /// Its id.
    pub id: ProcessId,
    /// Whose child it is.
    pub parent: Option<ProcessId>,
    /// Its root; itself if it has no parent.
    pub root: ProcessId,
    /// How many are above it.
    pub depth: u16,
    /// Its number among those of its type.
    pub number: u64,
    /// Its type, also where the message names none.
    pub kind: String,
    /// When, by the wall clock.
    pub at: Date,
    /// Records that are removed to make room.
    pub evicted: Vec<Slot>,
}
