//! The errors of queue and job operations, for users and for programs.

use crate::actors::queue::{Refused, Reply};
use crate::handle::unexpected::{reason_of, unexpected};
use crate::refusal::Reason;
use crate::spine::delivery::Failed;
use crate::spine::machine::DISK_FULL;
use crate::spine::runtime::Stopped;

/// Why an operation on a job or a queue failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// There is no such job, or no such queue.
    #[error("there is no such job or queue")]
    Absent,
    /// The operation was refused, for this reason.
    #[error("{}", words(*.0))]
    Refused(Refused),
    /// The job was refused because the configuration of its type makes the queue read-only, for this reason.
    #[error("the queue accepts no jobs: {0}")]
    ReadOnly(String),
    /// The actor panicked while it handled the request, which was not applied, or only in part ([`Failed::Interrupted`]). The actor continues.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl QueueError {
    /// Returns the machine-readable reason, which determines the HTTP status and the command line's exit status.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Absent => Reason::Absent,
            Self::Refused(Refused::Draining) => Reason::Draining,
            Self::Refused(Refused::StaleToken) => Reason::Stale,
            Self::Refused(Refused::Fencing) => Reason::Fencing,
            Self::Refused(
                Refused::Full
                | Refused::QueuesFull
                | Refused::RootsFull
                | Refused::KeysFull
                | Refused::ReceiptsFull,
            ) => Reason::Full,
            Self::Refused(Refused::TooBig) => Reason::TooBig,
            Self::ReadOnly(_) | Self::Refused(Refused::ReadOnly) => Reason::ReadOnly,
            Self::Refused(Refused::DiskFull) => Reason::DiskFull,
            Self::Refused(Refused::KeyReused) => Reason::KeyReused,
            Self::Refused(Refused::Forbidden) => Reason::OutOfScope,
            Self::Failed(failed) => reason_of(*failed),
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

const fn words(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => {
            "the coordinator is draining: it accepts no new jobs and gives out no claims"
        }
        Refused::Fencing => "the claim has expired, and its process is being killed",
        Refused::StaleToken => "the token is stale: the claim is over",
        Refused::Full => "the limit on jobs, or on their total size, is reached",
        Refused::QueuesFull => "the limit on queues is reached",
        Refused::RootsFull => "the limit on root jobs is reached",
        Refused::KeysFull => "the limit on remembered deduplication keys is reached",
        Refused::TooBig => "the body is longer than allowed",
        Refused::ReadOnly => "the queue accepts no jobs",
        Refused::DiskFull => DISK_FULL,
        Refused::KeyReused => "the idempotency key was already used for a different request",
        Refused::ReceiptsFull => {
            "too many idempotency keys were used in the last ten minutes: repeat the request later, or without a key"
        }
        Refused::Forbidden => {
            "the job is claimed for a process that the coordinator knows: this requires the scope run"
        }
    }
}

/// Converts a reply of an unexpected kind to an error.
#[expect(clippy::wildcard_enum_match_arm, reason = "every other reply is unexpected")]
pub(super) fn refusal(reply: &Reply) -> QueueError {
    match reply {
        Reply::Refused(refused) => QueueError::Refused(*refused),
        Reply::ReadOnly(reason) => QueueError::ReadOnly(reason.clone()),
        Reply::Absent => QueueError::Absent,
        other => unexpected(other).into(),
    }
}
