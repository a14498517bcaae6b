//! What becomes of services by an entry. Stored: see the change rule in `persist/format.rs`.

use crate::actors::process::insertion::Insertion;
use crate::actors::process::service::item::{Last, Verdict};
use crate::clock::Timestamp;
use crate::ids::Slot;
use serde::{Deserialize, Serialize};

/// What becomes of a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It is new.
    Added {
        /// Where it is put.
        slot: Slot,
        /// Its place in the list of the message.
        place: u32,
    },
    /// It is defined otherwise.
    Changed {
        /// Where.
        slot: Slot,
        /// Its place in the list of the message.
        place: u32,
        /// Whether its processes are replaced.
        replaces: bool,
    },
    /// The configuration no longer has it.
    Dropped {
        /// Where.
        slot: Slot,
    },
    /// It is gone.
    Removed {
        /// Where it was.
        slot: Slot,
    },
    /// The server was stopped in good order, and is back: it begins anew.
    Released {
        /// Where.
        slot: Slot,
        /// Whether its processes are replaced: they were being stopped.
        replaces: bool,
    },
    /// It is to be up.
    Started {
        /// Where.
        slot: Slot,
        /// Whether its processes are replaced: they were being stopped.
        replaces: bool,
    },
    /// It is to be down.
    Stopped {
        /// Where.
        slot: Slot,
    },
    /// Its processes are to be replaced.
    Restarted {
        /// Where.
        slot: Slot,
    },
    /// It is to be down while the server is.
    Held {
        /// Where.
        slot: Slot,
    },
    /// A process of it is launched.
    Launched {
        /// Where.
        slot: Slot,
        /// Which of its processes.
        nth: u8,
        /// Its record.
        insertion: Box<Insertion>,
    },
    /// A process of it cannot be launched now: nothing is wrong with the service.
    Deferred {
        /// Where.
        slot: Slot,
        /// Which of its processes.
        nth: u8,
        /// When that is tried again.
        until: Timestamp,
    },
    /// A process of it has ended.
    Ended {
        /// Where.
        slot: Slot,
        /// Which of its processes.
        nth: u8,
        /// How.
        last: Box<Last>,
        /// What follows.
        then: Then,
    },
}

/// What follows from the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Then {
    /// It was to end: whatever is to be is as it was before.
    Nothing,
    /// It is launched again.
    Again {
        /// Not before.
        at: Timestamp,
        /// How many restarts in a row this is.
        series: u32,
        /// Whether this is one of those that may be too many.
        counts: bool,
    },
    /// It is not launched again.
    Never(Verdict),
}
