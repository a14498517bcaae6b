//! The reasons for which the `QueueActor` refuses a message. They are stored: see the change rule of `message.rs`.

use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The server is draining, and accepts no new jobs or, if the drain includes claims, no claims.
    Draining,
    /// The job is not, or no longer, claimed under this token, or it was cancelled. In either case, its worker must stop.
    StaleToken,
    /// The claim has timed out, and its process is being killed.
    Fencing,
    /// The configured maximum number or total size of jobs is reached.
    Full,
    /// The configured maximum number of queues is reached.
    QueuesFull,
    /// The configured maximum number of root jobs is reached.
    RootsFull,
    /// The body is longer than the configured maximum.
    TooBig,
    /// The queue is read-only: it accepts no jobs.
    ReadOnly,
    /// The disk is full.
    DiskFull,
    /// The idempotency key was already used for a different request.
    KeyReused,
    /// It would start or end a process, or change what a process depends on, which the sender may not do.
    Forbidden,
    /// The configured maximum number of remembered deduplication keys is reached.
    KeysFull,
    /// The limit on idempotency keys is reached.
    ReceiptsFull,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
            Refusal::KeyReused => Self::KeyReused,
            Refusal::ReceiptsFull => Self::ReceiptsFull,
            Refusal::Forbidden => Self::Forbidden,
        }
    }
}
