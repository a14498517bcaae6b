//! The record of one process. Stored: see the change rule in `persist/format.rs`.

use crate::actors::binding::Until;
use crate::actors::process::identity::Identity;
use crate::actors::process::message::{End, Failure, HookOutput, Output, Remains};
use crate::actors::process::spec::{Ready, Spec, Tags};
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{ActorId, ProcessId, Seq};
use crate::lookup::kept::Plain;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The phase of a process. It never goes back.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its launch was requested.
    #[default]
    Queued,
    /// It is running.
    Running,
    /// It is being stopped and has not ended, or has ended and its tree has not.
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

/// The immutable part of a record, on its own page so that changing the record writes little.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// What is run, and how. For registered processes only program, arguments and directory are known.
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

/// The record of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its id.
    pub id: ProcessId,
    /// The entry that created it, which is the number of the attempt for the port.
    pub made: Seq,
    /// The id of its parent, whose record may have been removed.
    pub parent: Option<ProcessId>,
    /// The root of its tree; itself if it has no parent. It stays the same when the root's record is removed.
    pub root: ProcessId,
    /// The number of its ancestors when it was created.
    pub depth: u16,
    /// Its number among the records of its type.
    pub number: u64,
    /// Whether it was launched here, rather than registered.
    pub launched: bool,
    /// The phase of the process.
    pub phase: Phase,
    /// The identity of the process, once known.
    pub identity: Option<Identity>,
    /// Whether it has a control group of its own.
    pub contained: bool,
    /// When the record was created.
    pub queued: Date,
    /// When the process started.
    pub started: Option<Date>,
    /// When the process itself ended, or failed to start.
    pub ended: Option<Date>,
    /// When its timeout stops it, in node time. A start of the server does not postpone this, since the process kept running; and unlike a
    /// date, it is not affected by steps of the wall clock.
    pub expires: Option<Timestamp>,
    /// How it is being stopped, or was stopped.
    pub stop: Option<Stop>,
    /// How it ended.
    pub end: Option<End>,
    /// Whether nothing of its tree is alive although the end of the process itself has not been reported.
    pub empty: bool,
    /// Why it could not be started.
    pub failure: Option<Failure>,
    /// The error text that it reported when it ended.
    pub error: Option<String>,
    /// What was left of it when it ended.
    pub remains: Option<Box<Remains>>,
    /// The processes that survived SIGKILL.
    pub stuck: Option<Stuck>,
    /// Signals on their way to it.
    pub signals: Vec<Sending>,
    /// The result of the most recent signal.
    pub sent: Option<Sent>,
    /// The actors that are notified when it is gone, and what that means for each.
    #[serde(default)]
    pub watchers: BTreeSet<(ActorId, Until)>,
    /// What it announced about its readiness.
    #[serde(default)]
    pub announced: Announced,
    /// When it is stopped if it is not ready, in node time like `expires`.
    #[serde(default)]
    pub ready_by: Option<Timestamp>,
    /// Its latest status text.
    #[serde(default)]
    pub said: Option<String>,
    /// For a hook, what was found in its output.
    #[serde(default)]
    pub found: Option<Box<HookOutput>>,
    /// The actor that requested its launch, until it is certain that the actor knows of it: the actor may repeat the request, and without
    /// this record the process would be launched twice. Until then the actor is not notified of its end, either.
    #[serde(default)]
    pub awaited: Option<ActorId>,
    /// For a hook, how many of the processes that it reports have been handled: they have records, or were refused one.
    #[serde(default, skip_serializing_if = "is_none")]
    pub handled: u32,
    /// The immutable part, on its own page.
    #[serde(skip)]
    pub profile: Arc<Profile>,
    /// The number of its children that are live or have live descendants. Volatile.
    #[serde(skip)]
    pub(super) held: u32,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde asks about a reference"
)]
fn is_none(handled: &u32) -> bool {
    *handled == 0
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
    /// The start of the grace period: when the signal was requested, or the most recent start of the server, which sends it again.
    pub since: Timestamp,
    /// The grace period in milliseconds, after which SIGKILL follows.
    pub grace_ms: u32,
    /// Whether SIGKILL has been requested.
    pub killed: bool,
    /// The entry that requested the current step.
    pub asked: Seq,
    /// The errno if the signal could not be sent.
    pub errno: Option<i32>,
}

/// Why a process is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// A client asked for it.
    Request,
    /// It exceeded its timeout.
    Timeout,
    /// The right bound to it is over, and nobody else gets that right before it is gone.
    Fence,
    /// It did not become ready in time.
    NotReady,
    /// It sent no watchdog notice in time.
    Watchdog,
}

impl Cause {
    /// Returns its stable name, for programs.
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

/// The processes that survived SIGKILL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stuck {
    /// The number of processes that do not end.
    pub unkillable: u32,
    /// The number of processes that may or may not belong to the tree.
    pub unknown: u32,
}

/// A signal on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sending {
    /// The entry that requested it.
    pub asked: Seq,
    /// The signal number.
    pub signal: u8,
    /// Whether it goes to the process group.
    pub group: bool,
}

/// The result of a signal.
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
    /// The most signals on their way to one process.
    pub const SIGNALS_MAX: usize = 8;

    /// Returns whether the process has not ended.
    pub const fn is_live(&self) -> bool {
        !matches!(self.phase, Phase::Exited)
    }

    /// Returns whether the process is running and, if its spec requires that, has announced that it is ready.
    pub(super) fn is_ready(&self) -> bool {
        let says = self.profile.spec.ready != Ready::Running;
        self.phase == Phase::Running && (!says || self.announced == Announced::Ready)
    }

    /// Returns when time acts on it while it is running.
    fn expiry(&self) -> Option<Timestamp> {
        [self.expires, self.ready_by].into_iter().flatten().min()
    }

    /// Returns when it ended; the default date if it has not.
    pub(super) fn ended_at(&self) -> Date {
        self.ended.unwrap_or_default()
    }

    /// Returns its size in bytes, for the limit on all records.
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

    /// Returns whether the process is known to be on another machine.
    pub(super) fn is_elsewhere(&self, machine: Option<u128>) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|it| machine.is_some_and(|machine| machine != it.machine))
    }

    /// Returns whether the process is known to be of another machine or boot.
    pub(super) fn is_outside(&self, place: Option<(u128, u128)>) -> bool {
        let identity = self.identity.as_ref();
        identity.is_some_and(|it| place.is_some_and(|place| place != (it.machine, it.boot)))
    }

    /// Returns whether the process, or its tree, is gone.
    pub(super) const fn is_gone(&self, until: Until) -> bool {
        match until {
            Until::Process => self.end.is_some() || !self.is_live(),
            Until::Tree => !self.stays(),
        }
    }

    /// Returns whether it is, or was, stopped with its tree.
    pub(super) fn is_stopped_with_tree(&self) -> bool {
        self.stop.is_some_and(|stop| stop.tree)
    }

    /// Returns whether the process has ended and the rest of its tree is at most waited for, so that nothing of it can survive SIGKILL.
    pub(super) fn kills_nothing(&self) -> bool {
        self.end.is_some() && !self.is_stopped_with_tree()
    }

    /// Returns whether it may be removed.
    pub(super) const fn is_removable(&self) -> bool {
        !self.stays() && self.awaited.is_none()
    }

    /// Returns whether it must keep its position in the tree, because it or a descendant is live.
    pub(super) const fn stays(&self) -> bool {
        self.is_live() || self.held > 0
    }
}

impl Plain for Record {
    const KIND: u8 = 0;
    const SLOTS: u32 = 8;

    /// Returns when time acts on a process. Its removal is scheduled by an index, since it depends on whether a descendant is live.
    fn deadline(&self, epoch: Timestamp) -> Option<Deadline> {
        match (self.phase, self.stop) {
            // If the process has ended, the stop applies to its tree, or to nothing.
            (Phase::Stopping, Some(stop)) if !stop.killed && (stop.tree || self.end.is_none()) => {
                let since = stop.since.max(epoch);
                Some(Deadline::Time(since.plus_ms(stop.grace_ms.into())))
            }
            (Phase::Running, _) => self.expiry().map(Deadline::Time),
            (Phase::Queued | Phase::Stopping | Phase::Exited, _) => None,
        }
    }
}
