//! What can come of a message. Stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Exit;
use crate::actors::lease::item::Setting;
use crate::clock::{Date, Timestamp};
use crate::ids::{ProcessId, Slot};
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};

/// What was decided about a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// This becomes of leases, in order.
    Changed {
        /// Of which, and what.
        steps: Vec<(Slot, Step)>,
        /// What the sender is answered, if it asked for a pass.
        turn: Option<Turn>,
    },
    /// The sender asked for a pass and there is none for it. Changes nothing.
    Turned {
        /// The lease.
        slot: Slot,
        /// Why.
        turn: Turn,
    },
    /// Nothing of the kind is there. Changes nothing.
    Absent,
    /// The message says nothing new. Changes nothing.
    Unchanged,
    /// Not done, and why. Changes nothing.
    Refused(Refused),
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// Its pass has begun.
    Current,
    /// It is next.
    Next,
    /// Somebody else is next: its pass will do for this request, too.
    NotNeeded,
    /// The same, and what to run for this request is kept in case that one dies.
    Kept,
    /// Its pass cannot begin at once, and it does not wait.
    NoDelay,
}

/// Something that becomes of a lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It is made.
    Made,
    /// Its pass has ended.
    Ended {
        /// How its process did, if that is known.
        exit: Option<Exit>,
        /// Whether the pass ran to its end.
        whole: bool,
    },
    /// A pass begins.
    Began {
        /// Whose.
        source: Source,
        /// The record of its process, if one is launched.
        process: Option<ProcessId>,
        /// Until when no other begins.
        until: Timestamp,
        /// Whether a whole pass is owed for it.
        owed: bool,
    },
    /// Its process could not have what its caller was to hand over: another is launched without that.
    Relaunched {
        /// The record of the other.
        process: ProcessId,
    },
    /// A pass is owed, with this one's command.
    Owed(Source),
    /// The sender of the message is next.
    Placed {
        /// Until when it may come again, if it does not wait.
        until: Timestamp,
    },
    /// It has come again, and is next still.
    Returned {
        /// Until when it may come again.
        until: Timestamp,
    },
    /// Nobody is next any more.
    Left,
    /// The sender was turned away, since the pass of who is next will do for it.
    Shared,
    /// Nobody's request is made up for any more: too many passes in a row were not whole, or the lease is disabled.
    GaveUp,
    /// The pass is to end.
    Stopping,
    /// The pass overruns its period, which is said.
    Warned,
    /// Its holder still runs it, and says by which process.
    Renewed,
    /// Its launch is taken on.
    Taken,
    /// This is set from now on.
    Set(Setting),
    /// It asks by itself on this date; on none if `None`.
    Scheduled {
        /// The date.
        at: Option<Date>,
        /// Where it stands.
        place: Slot,
    },
    /// It is as it was imported.
    Imported {
        /// Until when, in node time: of current and next.
        until: (Timestamp, Timestamp),
    },
    /// Nothing begins until the next start, since the server drains.
    Rests,
    /// It is forgotten, once its pass has ended.
    Forgotten,
}

/// Whose pass begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// That of the request that the message is.
    Request,
    /// That of the place next in line.
    Place,
    /// A request is made up for.
    Kept,
    /// A date has come.
    Date,
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// The lease is disabled.
    #[error("the lease is disabled")]
    Disabled,
    /// No pass begins: the coordinator drains.
    #[error("the coordinator drains and begins no passes")]
    Draining,
    /// There are as many leases as are allowed.
    #[error("there are as many leases as are allowed")]
    Full,
    /// The name is empty.
    #[error("the name of a lease is empty")]
    NoName,
    /// A span is too short or too long.
    #[error("a span is 1 ms to 366 days")]
    Span,
    /// The command cannot be run.
    #[error("{0}")]
    Command(crate::actors::process::Flaw),
    /// There is nothing to run.
    #[error("the lease has no command")]
    NoCommand,
    /// The path of a log file is not absolute, or too long.
    #[error("a log file is an absolute path of at most 4096 bytes")]
    Log,
    /// No date follows.
    #[error("no date of the schedule is left")]
    NoDate,
    /// The pass has another token.
    #[error("the token is stale: the pass is over")]
    StaleToken,
    /// A pass runs.
    #[error("a pass runs")]
    Running,
    /// The disk is full.
    #[error("the disk is full")]
    DiskFull,
    /// The key came before, with another request.
    #[error("the key came before, with another request")]
    KeyReused,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
            Refusal::KeyReused => Self::KeyReused,
        }
    }
}
