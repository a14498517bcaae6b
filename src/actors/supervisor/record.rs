//! The record of each actor's panics. Stored in snapshots: see the change rule in `persist/format.rs`.

use crate::clock::Timestamp;
use crate::ids::Seq;
use crate::lookup::durable::Plain;
use crate::spine::delivery::Stage;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The maximum number of causes kept for each actor. With their texts, this many fit on one page of a snapshot.
pub(super) const CAUSES_MAX: usize = 8;

/// The panics of one actor.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The number of panics that left the state intact.
    pub restarts: u64,
    /// The number of panics after which the state had to be rebuilt.
    pub rebuilds: u64,
    /// The most recent panics, oldest first; at most `CAUSES_MAX`.
    pub causes: VecDeque<Cause>,
}

/// A recorded panic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The stage of the delivery in which the actor panicked.
    pub stage: Stage,
    /// The journal entry that stores the message that caused the panic, marked as poisoned; if there is no such entry, the newest one at
    /// the time of the panic.
    pub seq: Seq,
    /// When the panic was reported.
    pub at: Timestamp,
    /// The panic message.
    pub cause: String,
    /// The item whose tick panicked; `None` if the panic was not in a tick.
    pub item: Option<u64>,
}

/// Each record is stored on its own page.
impl Plain for Record {
    const KIND: u8 = 0;
    const SLOTS: u32 = 1;
}

impl Record {
    pub(super) fn note(&mut self, cause: Cause, spent: bool) {
        let count = if spent { &mut self.rebuilds } else { &mut self.restarts };
        *count += 1;
        self.causes.push_back(cause);
        if self.causes.len() > CAUSES_MAX {
            self.causes.pop_front();
        }
    }
}
