//! The outcomes of messages. Stored: see the change rule in `persist/format.rs`.

pub(super) use crate::actors::process::insertion::Insertion;
use crate::actors::process::message::End;
use crate::actors::process::record::Stop;
use crate::actors::process::service::Step;
use crate::actors::process::spec::Flaw;
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::{DISK_FULL, Refusal};
use serde::{Deserialize, Serialize};

/// The decision about a message. It contains the slots of the records concerned, so that the commit does not have to look them up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A record was created for a process that will be launched, at once or when a client requests it.
    Launched(Box<Insertion>),
    /// A process whose launch was deferred will be launched.
    Begun {
        /// The slot of its record.
        slot: Slot,
    },
    /// A process whose launch was deferred will not be launched any more, because it was stopped.
    Cancelled {
        /// The slot of its record.
        slot: Slot,
        /// When it was stopped.
        at: Date,
    },
    /// A record was created for a process that is already running.
    Registered(Box<Insertion>),
    /// A record was created for the server itself.
    Serving(Box<Insertion>),
    /// The record of the server stands for another process from now on.
    Renewed {
        /// The slot of the record.
        slot: Slot,
        id: ProcessId,
    },
    /// The process to register already has a record: nothing changes.
    Known {
        /// The id of its record.
        id: ProcessId,
    },
    /// The process is running.
    Started {
        /// The slot of its record.
        slot: Slot,
        /// The node time at which it started. Its timeout and its readiness timeout are counted from then.
        since: Timestamp,
    },
    /// The process could not be started.
    Failed {
        /// The slot of its record.
        slot: Slot,
        /// When the failure was reported.
        at: Date,
    },
    /// The process itself has ended.
    Ended {
        /// The slot of its record.
        slot: Slot,
        /// How it ended.
        end: End,
        /// The date of its end as reported, or the date of the report itself if that is earlier.
        at: Date,
        /// Whether the record still waits for the other processes of its tree to end.
        tree: bool,
    },
    /// No process of the record's tree is alive any more.
    Emptied {
        /// The slot of its record.
        slot: Slot,
    },
    /// The process will be stopped, or the way in which it is stopped changes.
    Stopping {
        /// The slot of its record.
        slot: Slot,
        /// How it is stopped.
        stop: Stop,
    },
    /// The grace period of a stop has expired: SIGKILL follows.
    Killing {
        /// The slot of the record.
        slot: Slot,
    },
    /// The number of processes that survived SIGKILL, or that may or may not belong to the tree, has changed.
    Stuck {
        /// The slot of its record.
        slot: Slot,
    },
    /// A signal will be sent.
    Signalling {
        /// The slot of the record.
        slot: Slot,
    },
    /// A signal was sent, or sending it failed.
    Signalled {
        /// The slot of the record.
        slot: Slot,
    },
    /// These records are removed.
    Pruned {
        slots: Vec<Slot>,
        /// Whether more records match the request.
        more: bool,
    },
    /// Another actor will be notified when the process is gone.
    Watched {
        /// The slot of its record.
        slot: Slot,
    },
    /// The process that another actor asked to watch, or its whole tree, is already gone, or has no record: the actor is notified.
    Gone,
    /// A launch requested by another actor has already been accepted: the actor is notified.
    Taken,
    /// A launch requested by another actor is refused, and the actor is notified; or a process that a hook ran is refused a record. The
    /// field is the reason.
    Declined(Refused),
    /// The launched processes of a tree will be stopped, because a right bound to it (a lock or a lease, for example) has ended.
    Fenced {
        /// The slots of their records, and how each is stopped.
        stops: Vec<(Slot, Stop)>,
    },
    /// A process will be stopped with its tree, including launched processes with records below its own.
    StoppingTree {
        /// The slots of the records to stop, and how each is stopped.
        stops: Vec<(Slot, Stop)>,
    },
    /// Some of the processes that will be stopped, as by `Fenced` or `StoppingTree`. The others follow.
    StoppingPart {
        /// The slots of the records to stop, and how each is stopped.
        stops: Vec<(Slot, Stop)>,
    },
    /// A notice from a process is stored.
    Noticed {
        /// The slot of its record.
        slot: Slot,
    },
    /// A record was created for a process that a hook ran.
    Child(Box<Insertion>),
    /// The result of reading a hook's output is stored.
    Found {
        /// The slot of the hook's record.
        slot: Slot,
    },
    /// Services change.
    Service(Box<Turn>),
    /// The message has no effect, or concerns a process that has ended or whose record was removed: nothing changes.
    Unchanged,
    /// The port reported another process for the same launch, or the failure of a launch that had succeeded: nothing changes, but the
    /// report is counted.
    Contradicted,
    /// The request is refused: nothing changes.
    Refused(Refused),
}

impl Outcome {
    /// Returns the stops of several processes; empty if it has none.
    pub(super) fn stops(&self) -> &[(Slot, Stop)] {
        if let Self::Fenced { stops }
        | Self::StoppingTree { stops }
        | Self::StoppingPart { stops } = self
        {
            stops
        } else {
            &[]
        }
    }
}

/// The consequences of a message for services.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Turn {
    /// The outcome for the process of a service; `None` if the message concerns services only.
    pub process: Option<Outcome>,
    /// The changes to services, in the order in which they are applied.
    pub steps: Vec<Step>,
}

/// The reason why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// No service has this name.
    #[error("no service has this name")]
    NoService,
    /// There is no record with this id, or it has been removed.
    #[error("no process has this id")]
    Unknown,
    /// The process has already ended. For a launch: the process that it is bound to has ended or has no record, or an ancestor of the new
    /// process is being fenced, or killed with its tree.
    #[error("the process has ended")]
    Ended,
    /// The process has not started yet, so there is nothing to signal.
    #[error("the process has not started yet")]
    Queued,
    /// The launch of the process is not deferred, so it cannot be requested.
    #[error("the launch of the process is not deferred: it was requested already")]
    NotDeferred,
    /// Sexton launched the process and observes its exit, so a client must not report the exit.
    #[error("the process was launched by sexton, so its exit must not be reported")]
    Launched,
    /// The tree is not in doubt: it has not been killed, or processes that certainly belong to it are alive.
    #[error(
        "the tree of the process is not unknown: stop it with sexton kill --tree --now, and wait until its status is `stopping, unknown`"
    )]
    NotUnknown,
    /// The record is that of the server itself, or of a tree that contains the server.
    #[error(
        "this is the server itself, or a tree that contains it: stop services with sexton service stop, and the server with SIGTERM"
    )]
    Server,
    /// The limit on live processes, or on the number or the total size of records, is reached.
    #[error(
        "the limit on processes, or on the size of their texts, is reached: end some, or raise --text-bytes"
    )]
    Full,
    /// The record would exceed the maximum depth of the tree.
    #[error("the process tree has reached its maximum depth")]
    TooDeep,
    /// The limit on pending signals to the process is reached.
    #[error("too many signals to the process are pending")]
    Busy,
    /// The server is draining: it accepts no new processes until it restarts.
    #[error("the server is draining and accepts no new processes")]
    Draining,
    /// The request is invalid.
    #[error("{0}")]
    Invalid(Flaw),
    /// The disk is full.
    #[error("{}", DISK_FULL)]
    DiskFull,
    /// The idempotency key was already used for a different request.
    #[error("the idempotency key was already used for a different request")]
    KeyReused,
    /// The limit on idempotency keys is reached.
    #[error(
        "too many idempotency keys were used in the last ten minutes: repeat the request later, or without a key"
    )]
    ReceiptsFull,
    /// It would start or end a process, or change what a process depends on, which the sender may not do.
    #[error(
        "this would start or end a process, or change what one depends on: it requires the scope run"
    )]
    Forbidden,
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
