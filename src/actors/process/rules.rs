//! Configuration of the `ProcessActor`.

use serde::{Deserialize, Serialize};

/// The configuration of the `ProcessActor`. Recorded in the journal: see the change rule in `persist/format.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// How long the record of an ended process is kept after its end, in milliseconds.
    pub retention_ms: u64,
    /// The maximum number of records. At the limit, the oldest removable record makes room for a new one.
    pub records_max: u32,
    /// The maximum number of live records. At the limit, launches and registrations are refused.
    pub live_max: u32,
    /// The maximum total size of the arguments, environments, labels and stored output of all records, in bytes. At this limit as well, the
    /// oldest removable records make room for a new one.
    pub bytes_max: u64,
    /// The maximum number of processes that one part of a request stops. Earlier versions had no parts, and their logs do not have this
    /// field.
    #[serde(default = "whole")]
    pub part: u32,
}

const fn whole() -> u32 {
    u32::MAX
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            retention_ms: 30 * 24 * 3_600_000,
            records_max: 100_000,
            live_max: 10_000,
            bytes_max: 512 << 20,
            part: 512,
        }
    }
}
