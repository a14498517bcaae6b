//! What can be asked of the `LeaseActor`, what it is told, and what it wants done.
//!
//! Messages are stored: see the change rule in `persist/format.rs`.

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

/// Configuration of the `LeaseActor`. Noted in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rules {
    /// The most leases.
    pub leases_max: u32,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            leases_max: 1_000_000,
        }
    }
}

/// What may change leases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A client: a pass is wanted.
    Request(Box<Requesting>),
    /// A client that runs the pass itself: it still does. May name another process that the pass depends on from now on.
    Renew {
        /// The lease.
        name: Name,
        /// The token of the pass.
        token: Token,
        /// The process that the pass depends on instead.
        process: Option<Binding>,
    },
    /// A client that runs the pass itself: it has ended.
    Finish {
        /// The lease.
        name: Name,
        /// The token of the pass.
        token: Token,
        /// Its exit status.
        code: u8,
    },
    /// A client does not wait for its turn any more, nor, if it runs passes itself, for the answer that it has come.
    Withdraw {
        /// The lease.
        name: Name,
        /// The entry of its request.
        place: Token,
    },
    /// An administrator: from now on this is set.
    Set {
        /// The lease; made if it is not there.
        name: Name,
        /// What.
        setting: Setting,
    },
    /// An administrator: the lease is as Fossil has it.
    Import {
        /// The lease; made if it is not there.
        name: Name,
        /// Who has the pass.
        current: Imported,
        /// Who is next.
        next: Imported,
    },
    /// An administrator: forget the lease.
    Reset {
        /// The lease.
        name: Name,
        /// Whether a pass that runs is stopped first; else it is refused.
        force: bool,
    },
    /// The `ProcessActor`: a process is gone that leases depend on.
    Gone(binding::Gone),
    /// The `ProcessActor`: the launch of a pass is taken on.
    Launched(ProcessId),
    /// Time acts on the lease in this slot.
    Lapse {
        /// Which.
        slot: Slot,
    },
    /// A date of a schedule has come.
    Due {
        /// Where it stands.
        slot: Slot,
    },
}

impl Message {
    /// The lease that it names, if it names one.
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
    /// The lease; made if it is not there.
    pub name: Name,
    /// What is run; what is set if left out. Not with a claim.
    pub command: Option<Command>,
    /// The client runs the pass itself, and is known to live by this.
    pub claim: Option<Claim>,
    /// Milliseconds between the starts of this pass and the next, if another than what is set.
    pub period_ms: Option<u64>,
    /// Whether it never waits: a pass begins at once or not at all.
    pub no_delay: bool,
    /// The log file of its pass; what is set if left out.
    pub log: Option<String>,
}

/// Something to be done in the world: a line for a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// The file.
    pub file: String,
    /// The lease.
    pub lease: Name,
    /// The token of the pass.
    pub token: Token,
    /// What is to be noted.
    pub what: Noted,
}

/// What is noted of a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// It has begun.
    Began,
    /// It has ended.
    Ended {
        /// Milliseconds that it ran.
        ran_ms: u64,
        /// How its process did, if it had one and that is known.
        exit: Option<Exit>,
        /// The process that was launched for it, and the directory of its files, if that is one of its own.
        launched: Option<(ProcessId, Option<Bytes>)>,
    },
}

/// How a client that runs a pass itself is known to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Claim {
    /// By its process.
    pub process: Option<Binding>,
    /// The PID of the client, to be shown; 0 if it is not known.
    pub pid: u64,
    /// Without a process, by a renewal within so many milliseconds.
    pub ttl_ms: u64,
    /// Whether it waits on a connection for its turn.
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

/// Half a lease, as Fossil has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Imported {
    /// Its PID; 0 for nobody.
    pub pid: u64,
    /// Until when, by the wall clock.
    pub until: Date,
    /// Its process, if one of that PID lives.
    pub process: Option<ProcessId>,
}

/// A question about leases.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// One lease.
    Of(Name),
    /// Leases by name, after this one.
    List {
        /// Only those that begin so.
        prefix: Name,
        /// After this one.
        after: Option<Name>,
        /// At most so many.
        limit: u32,
    },
    /// Leases with a pass that runs or is to come: those that run, the longest first, then those that are next, then by
    /// date. Of very many, some are looked at.
    Stirring {
        /// At most so many.
        most: u32,
    },
    /// How many passes run, and how many places are taken.
    Totals,
}

/// What a request may wait for: each is answered with the lease, or with its absence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// A pass of this number or a later one has begun, and what is launched for it has a record; or none is on its way.
    Begun {
        /// The lease.
        name: Name,
        /// The number.
        number: u64,
    },
    /// A whole pass of this number or a later one has ended, or none is on its way.
    Whole {
        /// The lease.
        name: Name,
        /// The number.
        number: u64,
    },
    /// The pass with this token has ended.
    Ended {
        /// The lease.
        name: Name,
        /// Its token.
        token: Token,
    },
    /// No pass of any lease runs: answered by how many do.
    Idle,
}

impl Watch {
    /// The lease, if it is about one.
    pub const fn name(&self) -> Option<&Name> {
        match self {
            Self::Begun { name, .. } | Self::Whole { name, .. } | Self::Ended { name, .. } => {
                Some(name)
            }
            Self::Idle => None,
        }
    }
}

/// An answer of the `LeaseActor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// What came of a request, and the lease.
    Turned {
        /// What.
        turn: Turn,
        /// The entry of the request, by which its pass and its place are known; zero if it has neither.
        place: Token,
        /// The lease.
        lease: Box<LeaseView>,
    },
    /// The lease.
    Lease(Box<LeaseView>),
    /// Leases by name.
    List(Box<Listing>),
    /// How many there are.
    Totals(Totals),
    /// It is done.
    Done,
    /// There is no such lease, or pass, or place.
    Absent,
    /// Not done, and why.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
