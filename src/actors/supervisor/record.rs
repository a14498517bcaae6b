//! What is kept of each actor's panics. Stored in snapshots: see the change rule in `persist/format.rs`.

use crate::clock::Timestamp;
use crate::ids::Seq;
use crate::lookup::kept::Plain;
use crate::spine::delivery::Stage;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many causes are kept for each actor. With their words they fit into a page.
pub(super) const CAUSES_MAX: usize = 8;

/// What is known of one actor's panics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Panics that left the state whole.
    pub restarts: u64,
    /// Panics that spent it.
    pub rebuilds: u64,
    /// The newest panics.
    pub causes: VecDeque<Cause>,
}

/// A panic, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// Where.
    pub stage: Stage,
    /// The entry that is marked as poisoned; if none is, the newest at that time.
    pub seq: Seq,
    /// When it was reported.
    pub at: Timestamp,
    /// The panic's words.
    pub cause: String,
    /// The item on which time acted.
    pub item: Option<u64>,
}

/// Each on a page of its own.
impl Plain for Record {
    const KIND: u8 = 0;
    const SLOTS: u32 = 1;
}

impl Record {
    pub(super) fn note(&mut self, cause: Cause, spent: bool) {
        let count = if spent {
            &mut self.rebuilds
        } else {
            &mut self.restarts
        };
        *count += 1;
        self.causes.push_back(cause);
        if self.causes.len() > CAUSES_MAX {
            self.causes.pop_front();
        }
    }
}
