//! One record: what is known of a process. Stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Until;
use crate::actors::process::identity::Identity;
use crate::actors::process::message::{End, Failure, Found, Output, Remains};
use crate::actors::process::spec::{Ready, Spec, Tags};
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{ActorId, ProcessId, Seq};
use crate::lookup::kept::Plain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How far a process has come. It never goes back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its launch was asked for.
    #[default]
    Queued,
    /// It runs.
    Running,
    /// It is to end, and has not, or not all that it started has.
    Stopping,
    /// It has ended, or was never started.
    Exited,
}

impl Phase {
    /// All of them, in order.
    pub const ALL: [Self; 4] = [Self::Queued, Self::Running, Self::Stopping, Self::Exited];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Exited => "exited",
        }
    }
}

/// What never changes of a record: on a page of its own, so that a change of the record writes little.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// What is run, and how. Of what was registered only program, arguments and directory are known.
    pub spec: Spec,
    /// What is said of it.
    pub tags: Tags,
}

impl Profile {
    /// How many bytes it says.
    pub(super) fn bytes(&self) -> u64 {
        (self.spec.bytes() + self.tags.bytes()) as u64
    }
}

/// What is known of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: ProcessId,
    /// The entry that made it: the attempt by which the port knows it.
    pub made: Seq,
    /// Its parent, which may have gone since.
    pub parent: Option<ProcessId>,
    /// The topmost above it; itself if it has no parent. Stays when that has gone.
    pub root: ProcessId,
    /// How many were above it when it was made.
    pub depth: u16,
    /// Its number among those of its type.
    pub number: u64,
    /// Whether it was launched here; else it registered itself.
    pub launched: bool,
    /// How far it has come.
    pub phase: Phase,
    /// The process, once it is known.
    pub identity: Option<Identity>,
    /// Whether it has a control group of its own.
    pub contained: bool,
    /// When the record was made.
    pub queued: Date,
    /// When the process started.
    pub started: Option<Date>,
    /// When the process itself ended, or could not be started.
    pub ended: Option<Date>,
    /// When it is stopped by its timeout, in node time. A start of the server does not put it off, since the process
    /// went on meanwhile; and a step of the wall clock does not move it, as it would move a date.
    pub expires: Option<Timestamp>,
    /// How it is being stopped, or was.
    pub stop: Option<Stop>,
    /// How it ended.
    pub end: Option<End>,
    /// Whether nothing of its tree lives, of which the process itself has yet to be reported.
    pub empty: bool,
    /// Why it could not be started.
    pub failure: Option<Failure>,
    /// What it said of its end.
    pub error: Option<String>,
    /// What was left of it.
    pub remains: Option<Box<Remains>>,
    /// What SIGKILL did not end.
    pub stuck: Option<Stuck>,
    /// Signals that are on their way.
    pub signals: Vec<Sending>,
    /// What became of the newest signal that was sent.
    pub sent: Option<Sent>,
    /// Which actors are told when it is gone, and when that is.
    #[serde(default)]
    pub watchers: BTreeSet<(ActorId, Until)>,
    /// What it said of its readiness.
    #[serde(default)]
    pub announced: Announced,
    /// When it is stopped if it is not ready, in node time, as `expires`.
    #[serde(default)]
    pub ready_by: Option<Timestamp>,
    /// What it said it does.
    #[serde(default)]
    pub said: Option<String>,
    /// Of a hook, what is in its output.
    #[serde(default)]
    pub found: Option<Box<Found>>,
    /// The actor that asked for its launch and does not know of it yet, as far as is known: it may ask again, and would
    /// launch it twice if the record were gone. Until then it is not told of its end, either.
    #[serde(default)]
    pub awaited: Option<ActorId>,
    /// What never changes. On a page of its own.
    #[serde(skip)]
    pub profile: Arc<Profile>,
    /// How many of its children live, or have descendants that do. Volatile.
    #[serde(skip)]
    pub(super) held: u32,
}

/// What a process said of its readiness.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Announced {
    /// Nothing.
    #[default]
    Nothing,
    /// It is ready.
    Ready,
    /// It is about to end.
    Leaving,
}

/// How a process is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Why.
    pub cause: Cause,
    /// The first signal.
    pub signal: u8,
    /// Whether all that it started is to end, too.
    pub tree: bool,
    /// Since when: the signal was asked for, or begins to count with the newest start of the server, which sends it again.
    pub since: Timestamp,
    /// Milliseconds from then until SIGKILL.
    pub grace_ms: u32,
    /// Whether SIGKILL is asked for.
    pub killed: bool,
    /// The entry that asked for what is being done now.
    pub asked: Seq,
    /// Why the signal could not be sent.
    pub errno: Option<i32>,
}

/// Why a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A client asked for it.
    Request,
    /// It ran longer than it may.
    Timeout,
    /// The right that it had is over, and nobody else has it before it is gone.
    Fence,
    /// It was not ready in time.
    NotReady,
    /// It gave no sign of life in time.
    Watchdog,
}

impl Cause {
    /// The word for it that programs compare.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Timeout => "timeout",
            Self::Fence => "fence",
            Self::NotReady => "not-ready",
            Self::Watchdog => "watchdog",
        }
    }
}

/// What SIGKILL did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// Processes that do not end.
    pub unkillable: u32,
    /// Processes of which nobody can say whether they belong to it.
    pub unknown: u32,
}

/// A signal on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    /// The entry that asked for it.
    pub asked: Seq,
    /// Which.
    pub signal: u8,
    /// Whether to the process group.
    pub group: bool,
}

/// What became of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The entry that asked for it.
    pub asked: Seq,
    /// Why it could not be sent, if it could not.
    pub errno: Option<i32>,
}

impl Record {
    /// The deepest that a record may stand.
    pub const DEPTH_MAX: u16 = 1000;
    /// The most signals on their way to one process.
    pub const SIGNALS_MAX: usize = 8;

    /// Whether it has not ended.
    pub const fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Exited)
    }

    /// Whether it runs, and is ready as far as it is to say so.
    pub(super) fn is_ready(&self) -> bool {
        let says = self.profile.spec.ready != Ready::Running;
        self.phase == Phase::Running && (!says || self.announced == Announced::Ready)
    }

    /// When time acts on it while it runs.
    fn expiry(&self) -> Option<Timestamp> {
        [self.expires, self.ready_by].into_iter().flatten().min()
    }

    /// When it ended, if it has.
    pub(super) fn ended_at(&self) -> Date {
        self.ended.unwrap_or_default()
    }

    /// How many bytes it says.
    pub(super) fn bytes(&self) -> u64 {
        let output = |output: &Output| output.head.as_bytes().len() + output.tail.as_bytes().len();
        let remains = self.remains.as_ref();
        let remains = remains.map_or(0, |it| output(&it.stdout) + output(&it.stderr));
        let about = self.failure.as_ref().and_then(|it| it.about.as_ref());
        let texts = [self.error.as_ref(), about, self.said.as_ref()];
        let texts = texts.into_iter().flatten();
        let texts: usize = texts.map(String::len).sum();
        let texts = texts + self.found.as_ref().map_or(0, |it| it.bytes());
        self.profile.bytes() + (remains + texts) as u64
    }

    /// Whether this is a process of another machine.
    pub(super) fn is_elsewhere(&self, machine: Option<u128>) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|it| machine.is_some_and(|machine| machine != it.machine))
    }

    /// Whether it is gone, as far as this asks.
    pub(super) const fn is_gone(&self, until: Until) -> bool {
        match until {
            Until::Process => self.end.is_some() || !self.is_live(),
            Until::Tree => !self.stays(),
        }
    }

    /// Whether it may be removed.
    pub(super) const fn is_removable(&self) -> bool {
        !self.stays() && self.awaited.is_none()
    }

    /// Whether it must stay where it is in the tree: it lives, or a descendant does.
    pub(super) const fn stays(&self) -> bool {
        self.is_live() || self.held > 0
    }
}

impl Plain for Record {
    const KIND: u8 = 0;
    const SLOTS: u32 = 8;

    /// When time acts on a process. Its removal is told by an index: it hangs on whether a descendant lives.
    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        match (self.phase, self.stop) {
            // Of one that has ended it is the rest that is to end, or nothing.
            (Phase::Stopping, Some(stop)) if !stop.killed && (stop.tree || self.end.is_none()) => {
                let since = stop.since.max(epoch);
                Some(Deadline::Time(since.plus_ms(stop.grace_ms.into())))
            }
            (Phase::Running, _) => self.expiry().map(Deadline::Time),
            (Phase::Queued | Phase::Stopping | Phase::Exited, _) => None,
        }
    }
}
