//! The record of one process. Stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Until;
use crate::actors::process::identity::Identity;
use crate::actors::process::message::{End, Failure, HookOutput, Remains};
use crate::actors::process::output::Output;
use crate::actors::process::spec::{Ready, Spec, Tags};
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{ActorId, ProcessId, Seq};
use crate::lookup::durable::Plain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// The phase of a process. A process never returns to an earlier phase.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// It has not started yet: its launch was requested, or is [deferred](RareFields::deferred).
    #[default]
    Queued,
    /// It is running.
    Running,
    /// It is being stopped and has not ended yet; or it has ended, but the record still waits for the other processes of its tree to end.
    Stopping,
    /// It has ended, or could not be started.
    Exited,
}

impl Phase {
    /// All phases, in order.
    pub const ALL: [Self; 4] = [Self::Queued, Self::Running, Self::Stopping, Self::Exited];

    /// Returns its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Stopping => "stopping",
            Self::Exited => "exited",
        }
    }
}

/// The immutable part of a record. It has a page of its own, so that it is not written again when the record changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// What is run, and how. For registered processes, only the program, the arguments and the working directory are known.
    pub spec: Spec,
    /// Type, URL and labels.
    pub tags: Tags,
}

impl Profile {
    /// Returns its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        (self.spec.bytes() + self.tags.bytes()) as u64
    }
}

/// The record of a process. `stored.rs` has its stored form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its id.
    pub id: ProcessId,
    /// The entry that created it, whose number identifies the launch to the port.
    pub made: Seq,
    /// The id of its parent, whose record may have been removed.
    pub parent: Option<ProcessId>,
    /// The root of its tree; its own id if it has no parent. It stays the same when the root's record is removed.
    pub root: ProcessId,
    /// The number of its ancestors when it was created.
    pub depth: u16,
    /// Its number among the records of its type.
    pub number: u64,
    /// Whether sexton launched the process, rather than a client that registered it or a hook that reported it.
    pub launched: bool,
    /// The phase of the process.
    pub phase: Phase,
    /// The identity of the process, once known.
    pub identity: Option<Identity>,
    /// Whether it has its own control group.
    pub contained: bool,
    /// When the record was created.
    pub queued: Date,
    /// When the process started.
    pub started: Option<Date>,
    /// When the process itself ended, or failed to start.
    pub ended: Option<Date>,
    /// The node time at which its timeout expires; `None` before it has started, or if it has no timeout. A restart of the server does not
    /// postpone this, since the process keeps running. Unlike a date, node time is not affected when the wall clock is set.
    pub expires: Option<Timestamp>,
    /// How it ended.
    pub end: Option<End>,
    /// Whether the port has reported that no process of its tree is alive. It may report this before the end of the process itself.
    pub empty: bool,
    /// What was recorded about it when it ended: its output, usage and surviving processes.
    pub remains: Option<Arc<Remains>>,
    /// The actors to notify, each with what must have ended first: the process itself, or its whole tree.
    pub watchers: BTreeSet<(ActorId, Until)>,
    /// What it announced about its readiness.
    pub announced: Announced,
    /// The actor that requested its launch, if that actor does not watch the process yet. Until it does, the record is kept: the actor may
    /// repeat the request, and without the record, the process would be launched twice. The actor is not notified of the end until it
    /// watches the process.
    pub awaited: Option<ActorId>,
    /// The fields that few records have. They take memory only if at least one of them is set.
    pub rare: Rare,
    /// The immutable part, on its own page.
    pub profile: Arc<Profile>,
    /// The number of its children that are live or have live descendants. Volatile.
    pub(super) held: u32,
}

/// The fields of a [`Record`] that few records have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RareFields {
    /// How it is being stopped, or was stopped.
    pub stop: Option<Stop>,
    /// Why it could not be started.
    pub failure: Option<Failure>,
    /// The error text that a client reported together with its end.
    pub error: Option<String>,
    /// How many processes are left after SIGKILL; `None` if there are none.
    pub stuck: Option<Stuck>,
    /// The signals to it that have not been sent yet.
    pub signals: Vec<Sending>,
    /// The result of the most recent signal.
    pub sent: Option<Sent>,
    /// The node time at which it is stopped unless it is ready by then.
    pub ready_by: Option<Timestamp>,
    /// Its latest status text.
    pub said: Option<String>,
    /// For a hook, what was found in its output.
    pub found: Option<Box<HookOutput>>,
    /// For a hook, the number of processes in its output that have been handled: a record was created for each, or was refused.
    pub handled: u32,
    /// For a hook, the number of processes in its output that were refused a record.
    pub refused: u32,
    /// That its launch is deferred until a client requests it; `None` if it is not, or not any more.
    pub deferred: Option<Deferral>,
}

/// The default values, for a record in which no rare field is set.
static NONE: RareFields = RareFields {
    stop: None,
    failure: None,
    error: None,
    stuck: None,
    signals: Vec::new(),
    sent: None,
    ready_by: None,
    said: None,
    found: None,
    handled: 0,
    refused: 0,
    deferred: None,
};

/// The rare fields of a record: allocated when one of them is written, and freed when `settle` finds that none is set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rare(Option<Box<RareFields>>);

impl Rare {
    /// Returns the fields, or `None` if they are not allocated because none of them is set.
    pub(super) fn get_mut(&mut self) -> Option<&mut RareFields> {
        self.0.as_deref_mut()
    }

    /// Frees the memory if no field is set. Called after each change, so that equal records compare equal.
    pub(super) fn settle(&mut self) {
        if self.0.as_deref() == Some(&NONE) {
            self.0 = None;
        }
    }
}

impl From<RareFields> for Rare {
    fn from(fields: RareFields) -> Self {
        Self((fields != NONE).then(|| Box::new(fields)))
    }
}

impl Deref for Rare {
    type Target = RareFields;

    fn deref(&self) -> &RareFields {
        self.0.as_deref().unwrap_or(&NONE)
    }
}

impl DerefMut for Rare {
    fn deref_mut(&mut self) -> &mut RareFields {
        self.0.get_or_insert_default()
    }
}

/// A launch that is deferred until a client requests it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deferral {
    /// Whether the process is launched only while its parent is alive: see [`Parentage::bound`](super::spec::Parentage::bound).
    pub bound: bool,
}

/// What a process announced about its readiness.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Announced {
    /// Nothing yet.
    #[default]
    Nothing,
    /// It is ready.
    Ready,
    /// It is about to exit.
    Leaving,
}

/// How a process is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Why it is stopped.
    pub cause: Cause,
    /// The first signal.
    pub signal: u8,
    /// Whether its whole tree is stopped.
    pub tree: bool,
    /// The start of the grace period: when the stop was requested or, if later, when the process started. After a restart, the server sends
    /// the signal again, and the grace period is counted from that restart.
    pub since: Timestamp,
    /// The grace period in milliseconds, after which SIGKILL follows.
    pub grace_ms: u32,
    /// Whether SIGKILL has been requested.
    pub killed: bool,
    /// The entry that requested the current step: the signal, or SIGKILL.
    pub asked: Seq,
    /// The errno if the signal could not be sent.
    pub errno: Option<i32>,
}

/// Why a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A client requested it.
    Request,
    /// It exceeded its timeout.
    Timeout,
    /// A right bound to it (a lock or a lease, for example) has ended, and is not granted again until the process is gone.
    Fence,
    /// It did not become ready in time.
    NotReady,
    /// It sent no watchdog notice in time.
    Watchdog,
}

impl Cause {
    /// Returns its stable name, for use by programs.
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

/// How many processes are left after SIGKILL was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// The number of processes of the tree that have not ended.
    pub unkillable: u32,
    /// The number of processes that may or may not belong to the tree.
    pub unknown: u32,
}

/// A pending signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    /// The entry that requested it.
    pub asked: Seq,
    /// The signal number.
    pub signal: u8,
    /// Whether it goes to the process group.
    pub group: bool,
}

/// The result of sending a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// The entry that requested it.
    pub asked: Seq,
    /// The errno if it could not be sent.
    pub errno: Option<i32>,
}

impl Record {
    /// The maximum depth of a record in the tree.
    pub const DEPTH_MAX: u16 = 1000;
    /// The maximum number of pending signals to one process.
    pub const SIGNALS_MAX: usize = 8;

    /// Returns whether the phase is not `Exited`. In phase `Stopping`, the process itself may have ended while its tree has not.
    pub const fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Exited)
    }

    /// Returns whether its launch is deferred until a client requests it.
    pub(super) fn is_deferred(&self) -> bool {
        self.rare.deferred.is_some()
    }

    /// Returns whether the process is running and, if its spec requires that, has announced that it is ready.
    pub(super) fn is_ready(&self) -> bool {
        let says = self.profile.spec.ready != Ready::Running;
        self.phase == Phase::Running && (!says || self.announced == Announced::Ready)
    }

    /// Returns the earlier of the two deadlines that apply while it is running: its timeout, and the time by which it must be ready. `None`
    /// if it has neither.
    fn expiry(&self) -> Option<Timestamp> {
        [self.expires, self.rare.ready_by].into_iter().flatten().min()
    }

    /// Returns when its retention begins: when it ended, but not before the record was made, since a process that a hook reports may have
    /// ended long before.
    pub(super) fn retained_from(&self) -> Date {
        self.ended_at().max(self.queued)
    }

    /// Returns when it ended; the default date if it has not.
    pub(super) fn ended_at(&self) -> Date {
        self.ended.unwrap_or_default()
    }

    /// Returns its size in bytes, as counted towards the limit on the size of all records.
    pub(super) fn bytes(&self) -> u64 {
        let output = |output: &Output| output.head().len() + output.tail().len();
        let remains = self.remains.as_ref();
        let remains = remains.map_or(0, |it| output(&it.stdout) + output(&it.stderr));
        let about = self.rare.failure.as_ref().and_then(|it| it.about.as_ref());
        let texts = [self.rare.error.as_ref(), about, self.rare.said.as_ref()];
        let texts = texts.into_iter().flatten();
        let texts: usize = texts.map(String::len).sum();
        let texts = texts + self.rare.found.as_ref().map_or(0, |it| it.bytes());
        self.profile.bytes() + (remains + texts) as u64
    }

    /// Returns whether the process is known to be on a machine other than `machine`.
    pub(super) fn is_on_other_machine(&self, machine: Option<u128>) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|it| machine.is_some_and(|machine| machine != it.machine))
    }

    /// Returns whether the process is known to belong to a different machine or boot than `place`, given as machine and boot.
    pub(super) fn is_from_other_boot(&self, place: Option<(u128, u128)>) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|it| place.is_some_and(|place| place != (it.machine, it.boot)))
    }

    /// Returns whether the process is gone or, if `until` is `Tree`, whether its whole tree is gone.
    pub(super) const fn is_gone(&self, until: Until) -> bool {
        match until {
            Until::Process => self.end.is_some() || !self.is_live(),
            Until::Tree => !self.is_kept(),
        }
    }

    /// Returns whether it is, or was, stopped with its tree.
    pub(super) fn is_stopped_with_tree(&self) -> bool {
        self.rare.stop.is_some_and(|stop| stop.tree)
    }

    /// Returns whether SIGKILL has no target left: the process has ended, and its stop, if there was one, did not include its tree.
    pub(super) fn kills_nothing(&self) -> bool {
        self.end.is_some() && !self.is_stopped_with_tree()
    }

    /// Returns whether it may be removed: neither it nor a descendant is live, and no actor might still repeat the request for its launch.
    pub(super) const fn is_removable(&self) -> bool {
        !self.is_kept() && self.awaited.is_none()
    }

    /// Returns whether it must keep its position in the tree, because it or a descendant is live.
    pub(super) const fn is_kept(&self) -> bool {
        self.is_live() || self.held > 0
    }
}

impl Plain for Record {
    const KIND: u8 = 0;
    const SLOTS: u32 = 8;

    /// Returns the next deadline of a process; `None` if it has none. The removal of its record is scheduled by an index instead, since it
    /// depends on descendants.
    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        match (self.phase, self.rare.stop) {
            // If the process has ended, only a stop that includes the tree still has something to kill.
            (Phase::Stopping, Some(stop)) if !stop.killed && (stop.tree || self.end.is_none()) => {
                let since = stop.since.max(epoch);
                Some(Deadline::Time(since.plus_ms(stop.grace_ms.into())))
            }
            (Phase::Running, _) => self.expiry().map(Deadline::Time),
            // Nothing runs that a stop would have to wait for: the record is cancelled at once.
            (Phase::Queued, Some(stop)) if self.is_deferred() => Some(Deadline::Time(stop.since)),
            (Phase::Queued | Phase::Stopping | Phase::Exited, _) => None,
        }
    }
}
