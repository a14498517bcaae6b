//! Outcomes of messages. Stored in the journal: see the change rule in `persist/format.rs`.

use crate::actors::binding::Exit;
use crate::actors::lease::item::{ClockReading, Missed, Setting};
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::{DISK_FULL, Refusal};
use serde::{Deserialize, Serialize};

/// The decision about a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Leases change in these steps.
    Changed {
        /// The steps, each with the slot of its lease.
        steps: Vec<(Slot, Step)>,
        /// The result for the sender, if it requested a pass.
        turn: Option<Turn>,
    },
    /// The sender requested a pass, and the request neither begins one nor becomes next. Changes nothing.
    Turned {
        /// The slot of the lease.
        slot: Slot,
        /// The result for the sender.
        turn: Turn,
    },
    /// The lease, pass or request does not exist. Changes nothing.
    Absent,
    /// The message has no effect. Changes nothing.
    Unchanged,
    /// The message was refused. Changes nothing.
    Refused(Refused),
}

/// The result of a request for a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// The pass has begun.
    Current,
    /// The request is next: it waits for its turn.
    Next,
    /// Another request is next, and its pass will serve this request too.
    NotNeeded,
    /// Like `NotNeeded`, but the command of this request is kept in case the other client dies.
    Kept,
    /// The pass cannot begin immediately, and the request does not wait.
    NoDelay,
}

/// A change to a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The lease is created.
    Made,
    /// The pass has ended.
    Ended {
        /// How the process ended, or the exit status that the client reported; `None` if neither is known.
        exit: Option<Exit>,
        /// Whether the pass was whole.
        whole: bool,
    },
    /// A pass begins.
    Began {
        /// The origin of the pass.
        source: Source,
        /// The id of the process record, if a command is launched.
        process: Option<ProcessId>,
        /// The last instant of the period: no other pass may begin up to and including it.
        until: Timestamp,
        /// Whether a whole pass is owed to the request, so that this pass is repeated if it is not whole. Used only if the source is
        /// [`Source::Request`].
        owed: bool,
    },
    /// The command could not be launched with the streams and environment of its caller, so it is launched again without them.
    Relaunched {
        /// The id of the new process record.
        process: ProcessId,
    },
    /// Another whole pass is owed, which runs the command of this source.
    Owed(Source),
    /// The request in the message becomes next.
    Placed {
        /// When the request expires unless the client repeats it. Applies only if there is no command and the client does not wait on a
        /// connection.
        until: Timestamp,
    },
    /// The next request was repeated, and stays next.
    Returned {
        /// When the request expires unless the client repeats it again.
        until: Timestamp,
    },
    /// The next request is removed.
    Left,
    /// Requests other than the next one rely on its pass too.
    Shared,
    /// Owed passes are given up, because too many passes in a row were not whole, the lease was disabled, or the only request was
    /// withdrawn.
    GaveUp,
    /// The pass is being stopped.
    Stopping,
    /// The pass overruns its period, and a warning is issued.
    Warned,
    /// The client has renewed the pass, and may have named another process.
    Renewed,
    /// The launch was accepted.
    Taken,
    /// The process of the pass has started, which counts as the beginning of the pass.
    Started {
        /// The last instant of the period: no other pass may begin up to and including it.
        until: Timestamp,
    },
    /// Dates of the schedule came and went without a pass.
    Missed(Missed),
    /// A setting is changed.
    Set(Setting),
    /// The next date of the schedule is set or removed.
    Scheduled {
        /// The date; `None` to remove it.
        at: Option<Date>,
        /// The slot of the date.
        place: Slot,
        /// The clock by which the date was determined.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clock: Option<ClockReading>,
    },
    /// The holders of the lease are replaced by the imported ones. Its settings remain.
    Imported {
        /// When the leases of the imported current holder and next holder expire, in node time.
        until: (Timestamp, Timestamp),
    },
    /// No pass of the lease begins until the server is restarted, because the server is draining.
    Rests,
    /// The lease is deleted; if a pass is running, only when that pass has ended.
    Forgotten,
}

/// The origin of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// The request in the message.
    Request,
    /// The request that is next.
    Place,
    /// No particular request: an owed pass, with the command that the lease kept.
    Kept,
    /// A date of the schedule.
    Date,
}

/// Why a message was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The lease is disabled.
    #[error("the lease is disabled")]
    Disabled,
    /// The server is draining, so no pass begins.
    #[error("the coordinator is draining and starts no passes")]
    Draining,
    /// The configured maximum number of leases is reached.
    #[error(
        "the limit on leases, or on the size of their texts, is reached: delete some with `sexton lease reset`, or raise --text-bytes"
    )]
    Full,
    /// The name is empty.
    #[error("the lease name is empty")]
    NoName,
    /// A period or a time limit is too short or too long.
    #[error("periods and time limits must be between 1 ms and 366 days")]
    Span,
    /// The command is not valid.
    #[error("{0}")]
    Command(crate::actors::process::Flaw),
    /// There is no command to run.
    #[error("the lease has no command")]
    NoCommand,
    /// The path of a log file is not absolute, is too long, or contains a NUL byte.
    #[error("a log file must be an absolute path of at most 4096 bytes")]
    Log,
    /// The schedule has no future dates.
    #[error("the schedule has no future dates")]
    NoDate,
    /// No client runs a pass with this token.
    #[error("the token is stale: the pass is over")]
    StaleToken,
    /// A pass is running.
    #[error("a pass is running")]
    Running,
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
