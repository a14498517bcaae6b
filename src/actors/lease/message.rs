//! Messages, queries and replies of the `LeaseActor`, and its actions.
//!
//! Change rule: messages are stored in the journal, see `persist/format.rs`.

use crate::actors::binding::{self, Binding, Exit};
use crate::actors::lease::item::{Command, Missed, Setting, Totals};
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
    /// The maximum total size of the names, commands and schedules of all leases, in bytes; at this limit, new ones are refused.
    pub bytes_max: u64,
    /// The maximum number of leases that change at once because a process has ended. Earlier versions had no such limit, and their logs do
    /// not have this field.
    #[serde(default = "whole")]
    pub part: u32,
}

const fn whole() -> u32 {
    u32::MAX
}

impl Default for Rules {
    fn default() -> Self {
        Self { leases_max: 1_000_000, bytes_max: 512 << 20, part: 512 }
    }
}

/// A message that may change leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From a client: request a pass.
    Request(Box<PassRequest>),
    /// From a client that runs the pass itself: the pass is still running. The message may name another process, on which the pass then
    /// depends.
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
    /// From a client: withdraw a request that waits for its turn. If its pass has already begun, the pass ends if the client runs it
    /// itself; otherwise nothing changes.
    Withdraw {
        /// The lease.
        name: Name,
        /// The sequence number of the journal entry of the request.
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
        /// The current holder.
        current: Imported,
        /// The next holder.
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
    /// From the `ProcessActor`: the process of a pass has started.
    Started(ProcessId),
    /// Tick: a deadline of the lease in this slot has passed.
    Lapse {
        /// The slot of the lease.
        slot: Slot,
    },
    /// Tick: a date of a schedule has come, or the wall clock has stepped since the date was determined.
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
            Self::Gone(_)
            | Self::Launched(_)
            | Self::Started(_)
            | Self::Lapse { .. }
            | Self::Due { .. } => None,
        }
    }
}

/// A request for a pass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PassRequest {
    /// The lease; created if it does not exist.
    pub name: Name,
    /// The command to run; `None` for the command that is set for the lease. Not used with a claim.
    pub command: Option<Command>,
    /// If given, the client runs the pass itself, and this defines how the server detects that the client has died.
    pub claim: Option<Claim>,
    /// The minimum time from the start of this pass to the start of the next, in milliseconds; `None` for the period that is set for the
    /// lease.
    pub period_ms: Option<u64>,
    /// Whether the request never waits: its pass begins immediately or not at all.
    pub no_delay: bool,
    /// The log file of the pass; `None` for the one that is set for the lease.
    pub log: Option<String>,
    /// Milliseconds after which the pass is stopped, 0 for no limit; `None` for the limit that is set for the lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_ms: Option<u64>,
}

/// An action that the port of the `LeaseActor` performs: it writes a line to the log file of a pass, and for what an administrator should
/// know (a pass that failed or overruns its period, missed dates), a warning to the server's own log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The path of the log file; `None` if the pass has none.
    pub file: Option<String>,
    /// The lease.
    pub lease: Name,
    /// The token of the pass; 0 if the event is not about a pass.
    pub token: Token,
    /// The event to log.
    pub what: LogEvent,
}

/// An event that is logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// The pass has begun.
    Began,
    /// The pass has ended.
    Ended {
        /// How long the pass ran, in milliseconds.
        ran_ms: u64,
        /// How the process ended, or the exit status that the client reported; `None` if neither is known.
        exit: Option<Exit>,
        /// The process that was launched for the pass, and the directory of its output files if that is not the default; `None` if no
        /// command was launched.
        launched: Option<(ProcessId, Option<Bytes>)>,
        /// Whether to warn that the pass failed. Not set if the lease is deleted with the end of the pass, because a client stopped it.
        warns: bool,
        /// Whether any client may have caused it ([`Lease::is_of_plain_client`]).
        ///
        /// [`Lease::is_of_plain_client`]: crate::actors::lease::Lease::is_of_plain_client
        plain: bool,
    },
    /// The pass overruns its period.
    Overran {
        /// Whether any client may have caused it, as above.
        plain: bool,
        /// How long the pass has run, in milliseconds.
        ran_ms: u64,
        /// How long its period has been over, in milliseconds.
        over_ms: u64,
    },
    /// Dates of the schedule were missed.
    Missed(Missed),
}

/// How the server detects the death of a client that runs a pass itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// The process whose end ends the pass; `None` if the client renews the pass instead.
    pub process: Option<Binding>,
    /// The PID of the client, for display; 0 if unknown.
    pub pid: u64,
    /// The time within which a client without a process must renew its pass, in milliseconds.
    pub ttl_ms: u64,
    /// Whether the client waits for its turn on a connection.
    pub waits: bool,
}

impl Default for Claim {
    fn default() -> Self {
        Self { process: None, pid: 0, ttl_ms: 60_000, waits: false }
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
        /// The prefix with which the names of the leases must begin.
        prefix: Name,
        /// The name after which to continue; `None` to begin with the first.
        after: Option<Name>,
        /// The maximum number of leases to return. At most 1,000 are returned in any case.
        limit: u32,
    },
    /// Active leases: first those with a running pass, longest-running first; then those with a waiting request or an owed pass, by the
    /// end of the latest period; then those with a scheduled date, by date. At most 8192 leases are considered.
    Active {
        /// The maximum number of leases to return.
        most: u32,
    },
    /// Leases whose latest pass has failed ([`End::is_failure`]), the latest failure first; those whose pass any client may have claimed
    /// follow all others.
    ///
    /// [`End::is_failure`]: crate::actors::lease::End::is_failure
    Failed {
        /// The maximum number of leases to return. At most 1,000 are returned in any case.
        most: u32,
    },
    /// Active leases whose latest pass has not failed, but overruns its period, or did not run to completion like those before it; in the
    /// order of `Active`, but those whose pass any client may have claimed follow all others. At most 8192 active leases are considered.
    Unwell {
        /// The maximum number of leases to return.
        most: u32,
    },
    /// The number of running passes, and the number of leases with a waiting request.
    Totals,
}

/// A condition that a request can wait for. The answer is the lease, or `Absent` if it does not exist, unless noted otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The pass with this number has begun and, if a command is launched for it, its process has a record; or a later pass has begun; or no
    /// further pass is expected.
    Begun {
        /// The lease.
        name: Name,
        /// The number of the pass.
        number: u64,
    },
    /// A whole pass with this number or a higher one has ended, or no pass is running or expected.
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
    /// Returns the name of the lease that the condition is about; `None` if the condition is about all leases.
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
        /// The sequence number of the request's journal entry, with which the client can withdraw the request; 0 if the request neither
        /// began a pass nor became next.
        place: Token,
        /// The number of the pass that serves the request; for [`Turn::NoDelay`], which none serves, that of the next pass. If more passes
        /// have begun since, as when a request is repeated after a long time, the number of the latest.
        pass: u64,
        lease: Box<LeaseView>,
    },
    Lease(Box<LeaseView>),
    /// A list of leases, in the order that the query defines.
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
