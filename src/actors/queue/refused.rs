//! Why a queue does not do what is asked. Stored: see the change rule of `message.rs`.

use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// No new jobs: the coordinator drains.
    Draining,
    /// The job is claimed under another token: the right has passed on.
    StaleToken,
    /// The time of the claim has run out, and its process is being killed.
    Fencing,
    /// There are as many jobs, or as many bytes of them, as are allowed.
    Full,
    /// There are as many queues as are allowed.
    QueuesFull,
    /// There are as many root jobs as are allowed.
    RootsFull,
    /// The body is longer than is allowed.
    TooBig,
    /// The queue takes no jobs.
    ReadOnly,
    /// The disk is full.
    DiskFull,
    /// The key came before, with another request.
    KeyReused,
    /// As many deduplication keys are remembered as are allowed.
    KeysFull,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
            Refusal::KeyReused => Self::KeyReused,
        }
    }
}
