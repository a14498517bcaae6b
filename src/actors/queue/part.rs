//! How far a request about many jobs has come.
//!
//! Change rule: these types are stored in the journal, see `message.rs`.

use crate::ids::Slot;
use serde::{Deserialize, Serialize};
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;

/// The rest of a flush that is carried out in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FlushMore {
    /// The queue.
    pub queue: QueueName,
    /// What earlier parts have done.
    pub part: FlushPart,
}

/// How far a flush has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushPart {
    /// The number of jobs that were deleted before this part.
    pub deleted: u32,
    /// Jobs with this id or a higher one stay: they were added later.
    pub upto: u64,
    /// The id with which to continue. In an outcome, `None` for the last part.
    pub next: Option<u64>,
}

/// The rest of a kick or a repush that is carried out in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KickMore {
    /// The queue.
    pub queue: QueueName,
    /// The phase that the jobs are taken from.
    pub phase: Phase,
    /// What earlier parts have done.
    pub part: KickPart,
}

/// How far a kick has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KickPart {
    /// The number of jobs that were kicked before this part.
    pub kicked: u32,
    /// The number of jobs that are still to be kicked. In an outcome, 0 for the last part.
    pub left: u32,
}

impl FlushPart {
    /// Returns the number of jobs that have been deleted after this part.
    pub(super) fn deleted_with(&self, slots: &[Slot]) -> u32 {
        let now = u32::try_from(slots.len()).unwrap_or(u32::MAX);
        self.deleted.saturating_add(now)
    }
}
