//! The changes to services that an entry causes. These types are stored: see the change rule in `persist/format.rs`.

use crate::actors::process::insertion::Insertion;
use crate::actors::process::service::item::{Last, Verdict};
use crate::clock::Timestamp;
use crate::ids::Slot;
use serde::{Deserialize, Serialize};

/// A change to one service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The service is new.
    Added {
        /// The slot it is inserted into.
        slot: Slot,
        /// Its index in the list of definitions in the message.
        place: u32,
    },
    /// Its definition has changed.
    Changed {
        /// The slot of the service.
        slot: Slot,
        /// Its index in the list of definitions in the message.
        place: u32,
        /// Whether its processes are replaced.
        replaces: bool,
    },
    /// It is no longer configured.
    Dropped {
        /// The slot of the service.
        slot: Slot,
    },
    /// It is removed.
    Removed {
        /// The slot it was in.
        slot: Slot,
    },
    /// The server has restarted after a clean shutdown: the service is no longer held down, and its delays, restart counts and verdicts are
    /// reset.
    Released {
        /// The slot of the service.
        slot: Slot,
        /// Whether its processes are replaced, because at least one of them is being stopped.
        replaces: bool,
    },
    /// It should be up, as a user requested.
    Started {
        /// The slot of the service.
        slot: Slot,
        /// Whether its processes are replaced, because at least one of them is being stopped.
        replaces: bool,
    },
    /// It should be down, as a user requested.
    Stopped {
        /// The slot of the service.
        slot: Slot,
    },
    /// It should be up, and its processes are replaced, as a user requested.
    Restarted {
        /// The slot of the service.
        slot: Slot,
    },
    /// It is held down because the server is shutting down.
    Held {
        /// The slot of the service.
        slot: Slot,
    },
    /// One of its processes is launched.
    Launched {
        /// The slot of the service.
        slot: Slot,
        /// The number of the instance, from 0.
        nth: u8,
        /// The record of the process.
        insertion: Box<Insertion>,
    },
    /// One of its processes cannot be launched now, for example because the limit on live processes is reached. This does not count as a
    /// failure.
    Deferred {
        /// The slot of the service.
        slot: Slot,
        /// The number of the instance, from 0.
        nth: u8,
        /// When to try the launch again.
        until: Timestamp,
    },
    /// One of its processes has ended.
    Ended {
        /// The slot of the service.
        slot: Slot,
        /// The number of the instance, from 0.
        nth: u8,
        /// How it ended.
        last: Box<Last>,
        /// The consequence for the service.
        then: Consequence,
    },
}

/// The consequence of the end of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Consequence {
    /// The process had to be stopped anyway: the service should be down, or the process was excess or outdated. The service's state
    /// determines what runs next, and no restart is counted.
    Nothing,
    /// It is launched again.
    Again {
        /// The earliest time of the launch.
        at: Timestamp,
        /// The number of consecutive restarts after short runs, including this one; 0 after a reboot of the machine.
        series: u32,
        /// Whether this restart counts towards the intensity (the limit on restarts).
        counts: bool,
    },
    /// It is not launched again automatically, for this reason.
    Never(Verdict),
}
