//! Why something was not done with a job or a queue, in words and for programs.

use crate::actors::queue::{Refused, Reply};
use crate::refusal::Reason;
use crate::spine::delivery::Failed;
use crate::spine::runtime::Stopped;

/// Why something was not done with a job or a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// There is no such job, or no such queue.
    #[error("there is no such job or queue")]
    Absent,
    /// Not done, and why.
    #[error("{}", words(*.0))]
    Refused(Refused),
    /// The command panicked and was not applied. The actor goes on.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl QueueError {
    /// Why, for programs: with its status over HTTP and the exit status of the command line.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::Absent => Reason::Absent,
            Self::Refused(Refused::Draining) => Reason::Draining,
            Self::Refused(Refused::StaleToken) => Reason::Stale,
            Self::Refused(Refused::Fencing) => Reason::Fencing,
            Self::Refused(
                Refused::Full | Refused::QueuesFull | Refused::RootsFull | Refused::KeysFull,
            ) => Reason::Full,
            Self::Refused(Refused::TooBig) => Reason::TooBig,
            Self::Refused(Refused::ReadOnly) => Reason::ReadOnly,
            Self::Refused(Refused::DiskFull) => Reason::DiskFull,
            Self::Refused(Refused::KeyReused) => Reason::KeyReused,
            Self::Failed(_) => Reason::Failed,
            Self::Stopped(_) => Reason::Stopped,
        }
    }
}

const fn words(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => "the coordinator drains: it takes no new jobs, and none is claimed",
        Refused::Fencing => "the time of the claim has run out, and its process is being killed",
        Refused::StaleToken => "the token is stale: the claim has passed on",
        Refused::Full => "there are as many jobs, or bytes of them, as are allowed",
        Refused::QueuesFull => "there are as many queues as are allowed",
        Refused::RootsFull => "there are as many root jobs as are allowed",
        Refused::KeysFull => "as many deduplication keys are remembered as are allowed",
        Refused::TooBig => "the body is longer than is allowed",
        Refused::ReadOnly => "the queue takes no jobs",
        Refused::DiskFull => "the disk is full",
        Refused::KeyReused => "the key came before, with another request",
    }
}

/// What an answer means that is not the one hoped for.
pub(super) fn refusal(reply: &Reply) -> QueueError {
    if let Reply::Refused(refused) = reply {
        QueueError::Refused(*refused)
    } else {
        QueueError::Absent
    }
}
