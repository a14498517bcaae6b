//! Messages, queries and replies of the `LeaseActor`, and its actions.
//!
//! Change rule: messages are stored in the journal, see `persist/format.rs`.

use crate::actors::binding::{self, Binding, Exit};
use crate::actors::lease::item::{Command, Setting, Totals};
use crate::actors::lease::outcome::{Refused, Turn};
use crate::actors::lease::view::{LeaseView, Listing};
use crate::actors::lock::Name;
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ProcessId, Slot, Token};
use crate::spine::machine::Refusal;
use serde::{Deserialize, Serialize};

/// The configuration of the `LeaseActor`. Stored in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The maximum number of leases.
    pub leases_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            leases_max: 1_000_000,
        }
    }
}

/// A request to change leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From a client: request a pass.
    Request(Box<Requesting>),
    /// From a client that runs the pass itself: the pass is still running. May name another process on which the pass depends from now on.
    Renew {
        /// The lease.
        name: Name,
        /// The token of the pass.
        token: Token,
        /// The process that the pass depends on from now on, if it changes.
        process: Option<Binding>,
    },
    /// From a client that runs the pass itself: the pass has ended.
    Finish {
        /// The lease.
        name: Name,
        /// The token of the pass.
        token: Token,
        /// The exit status of the pass.
        code: u8,
    },
    /// From a client: withdraw a request that waits for its turn. If the client would run the pass itself, and the pass has already begun,
    /// the pass ends.
    Withdraw {
        /// The lease.
        name: Name,
        /// The journal entry of the request.
        place: Token,
    },
    /// From an administrator: change a setting.
    Set {
        /// The lease; created if it does not exist.
        name: Name,
        /// The setting and its value.
        setting: Setting,
    },
    /// From an administrator: import a lease from Fossil.
    Import {
        /// The lease; created if it does not exist.
        name: Name,
        /// The holder of the pass.
        current: Imported,
        /// The next process.
        next: Imported,
    },
    /// From an administrator: delete the lease.
    Reset {
        /// The lease.
        name: Name,
        /// Whether to stop a running pass first. Otherwise the request is refused while a pass is running.
        force: bool,
    },
    /// From the `ProcessActor`: a process that leases depend on has ended.
    Gone(binding::EndNotice),
    /// From the `ProcessActor`: the launch of a pass was accepted.
    Launched(ProcessId),
    /// Tick: a deadline of the lease in this slot has passed.
    Lapse {
        /// The slot of the lease.
        slot: Slot,
    },
    /// Tick: a date of a schedule has come.
    Due {
        /// The slot of the date.
        slot: Slot,
    },
}

impl Message {
    /// Returns the name of the lease that the message is about; `None` if it names no lease.
    pub const fn name(&self) -> Option<&Name> {
        match self {
            Self::Request(requesting) => Some(&requesting.name),
            Self::Renew { name, .. }
            | Self::Finish { name, .. }
            | Self::Withdraw { name, .. }
            | Self::Set { name, .. }
            | Self::Import { name, .. }
            | Self::Reset { name, .. } => Some(name),
            Self::Gone(_) | Self::Launched(_) | Self::Lapse { .. } | Self::Due { .. } => None,
        }
    }
}

/// A request for a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Requesting {
    /// The lease; created if it does not exist.
    pub name: Name,
    /// The command to run; `None` for the command that is set for the lease. Not used with a claim.
    pub command: Option<Command>,
    /// If given, the client runs the pass itself, and this defines how the server detects that the client has died.
    pub claim: Option<Claim>,
    /// Milliseconds from the start of this pass to the start of the next; `None` for the lease's setting.
    pub period_ms: Option<u64>,
    /// Whether the request never waits: its pass begins immediately or not at all.
    pub no_delay: bool,
    /// The log file of the pass; `None` for the one that is set for the lease.
    pub log: Option<String>,
}

/// An action for the port: writing a line to a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The path of the log file.
    pub file: String,
    /// The lease.
    pub lease: Name,
    /// The token of the pass.
    pub token: Token,
    /// The event to log.
    pub what: LogEvent,
}

/// A logged event of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The pass has begun.
    Began,
    /// The pass has ended.
    Ended {
        /// How long the pass ran, in milliseconds.
        ran_ms: u64,
        /// How the process ended, if there was one and its end is known.
        exit: Option<Exit>,
        /// The process that was launched for the pass, and the directory of its output files if that is not the default.
        launched: Option<(ProcessId, Option<Bytes>)>,
    },
}

/// How the server detects the death of a client that runs a pass itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The process whose end ends the pass.
    pub process: Option<Binding>,
    /// The PID of the client, for display; 0 if unknown.
    pub pid: u64,
    /// The time within which a client without a process must renew, in milliseconds.
    pub ttl_ms: u64,
    /// Whether the client waits for its turn on a connection.
    pub waits: bool,
}

impl Default for Claim {
    fn default() -> Self {
        Self {
            process: None,
            pid: 0,
            ttl_ms: 60_000,
            waits: false,
        }
    }
}

/// One half of a Fossil lease: its current or its next holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imported {
    /// The PID; 0 if there is no process.
    pub pid: u64,
    /// When the holder's lease expires, by the wall clock.
    pub until: Date,
    /// The process, if one with that PID is alive.
    pub process: Option<ProcessId>,
}

/// A query about leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One lease.
    Of(Name),
    /// A page of leases, ordered by name.
    List {
        /// Match leases whose names begin with this prefix.
        prefix: Name,
        /// Start after this name.
        after: Option<Name>,
        /// The maximum number of leases to return.
        limit: u32,
    },
    /// Active leases: first those with a running pass, longest-running first; then those with a next request or an owed pass, by the end of
    /// their period; then those with a scheduled date, by date. At most 8192 leases are considered.
    Stirring {
        /// The maximum number of leases to return.
        most: u32,
    },
    /// The number of running passes, and the number of leases with a next request.
    Totals,
}

/// A condition that a request can wait for. The answer is the lease, or `Absent` if it does not exist, unless noted otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// A pass with this number or a higher one has begun and its process, if one is launched, has a record; or no pass is expected.
    Begun {
        /// The lease.
        name: Name,
        /// The number of the pass.
        number: u64,
    },
    /// A whole pass with this number or a higher one has ended, or no pass is expected.
    Whole {
        /// The lease.
        name: Name,
        /// The number of the pass.
        number: u64,
    },
    /// The pass with this token has ended.
    Ended {
        /// The lease.
        name: Name,
        /// The token of the pass.
        token: Token,
    },
    /// No pass of any lease is running. Answered with `Totals`.
    Idle,
}

impl Watch {
    /// Returns the lease that the condition is about; `None` if it is about all of them.
    pub const fn name(&self) -> Option<&Name> {
        match self {
            Self::Begun { name, .. } | Self::Whole { name, .. } | Self::Ended { name, .. } => {
                Some(name)
            }
            Self::Idle => None,
        }
    }
}

/// A reply of the `LeaseActor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The result of a request for a pass.
    Turned {
        /// The result.
        turn: Turn,
        /// The number of the request's journal entry, by which the client can withdraw the request; zero if the request has neither begun a
        /// pass nor is next.
        place: Token,
        /// The lease.
        lease: Box<LeaseView>,
    },
    /// One lease.
    Lease(Box<LeaseView>),
    /// A page of leases, by name.
    List(Box<Listing>),
    /// Totals over all leases.
    Totals(Totals),
    /// The request was carried out.
    Done,
    /// The lease, pass or request does not exist.
    Absent,
    /// The message was refused.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
