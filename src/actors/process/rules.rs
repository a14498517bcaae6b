//! Configuration of the `ProcessActor`.

use serde::{Deserialize, Serialize};

/// Configuration of the `ProcessActor`. Noted in the journal: see the change rule in `persist/format.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// Milliseconds for which the record of a process that has ended is kept, counted from its end.
    pub retention_ms: u64,
    /// The most records. At the limit the oldest that may go makes room for a new one.
    pub records_max: u32,
    /// The most records of processes that have not ended.
    pub live_max: u32,
    /// The most bytes of what records say: arguments, environments, labels, the ends of outputs. At the limit the same
    /// holds as for `records_max`.
    pub bytes_max: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            retention_ms: 30 * 24 * 3_600_000,
            records_max: 100_000,
            live_max: 10_000,
            bytes_max: 512 << 20,
        }
    }
}
