//! What can be asked of the `ProcessActor` without changing anything, what can be waited for, and what is answered.

use crate::actors::process::identity::Identity;
use crate::actors::process::message::{End, Failure, Found, Remains};
use crate::actors::process::outcome::Refused;
use crate::actors::process::record::{Announced, Phase, Sent, Stop, Stuck};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ActorId, ProcessId, Seq};
use crate::spine::machine::Refusal;
use serde::Serialize;
use std::collections::BTreeMap;

/// A question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The record of this id: [`Reply::Record`], or refused as unknown.
    One(ProcessId),
    /// The one record whose id begins so, at least [`Query::PREFIX_DIGITS`] hexadecimal digits, dashes as one likes:
    /// [`Reply::Record`], [`Reply::Ambiguous`], or refused as unknown.
    Prefix(String),
    /// The live record of this process: [`Reply::Record`], or refused as unknown.
    Process(Identity),
    /// What is to be launched, or was, in full: [`Reply::Spec`], or refused as unknown.
    Spec(ProcessId),
    /// Records, by id: [`Reply::Page`].
    List(Selection),
    /// How many they are: [`Reply::Count`].
    Count(Selection),
    /// The record's parent, its parent, and so on, as far as they are there: [`Reply::Page`], or refused as unknown.
    Ancestors(ProcessId),
    /// What stands below a record, by id: [`Reply::Page`], or refused as unknown.
    Descendants {
        /// Below which.
        of: ProcessId,
        /// Only those after this one.
        after: Option<ProcessId>,
        /// At most so many.
        most: u32,
    },
    /// Services, all or the one of this name: [`Reply::Services`], or refused as no service.
    Services(Option<String>),
    /// Records of what has not ended, of which this actor is to be told, by id: [`Reply::Ids`].
    Watched {
        /// Which actor.
        by: ActorId,
        /// Only those after this one.
        after: Option<ProcessId>,
    },
    /// How many records there are, by what is the matter with them: [`Reply::Totals`].
    Totals,
}

impl Query {
    /// The fewest digits of an id that stand for it.
    pub const PREFIX_DIGITS: usize = 8;
    /// The most records in an answer.
    pub const MOST: u32 = 1000;
}

/// Which records are meant. Those for which all that is said here is so.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Of this type.
    pub kind: Option<String>,
    /// In one of these phases; in any, if there are none.
    pub phases: Vec<Phase>,
    /// Children of this one.
    pub parent: Option<ProcessId>,
    /// Of the tree of this root.
    pub root: Option<ProcessId>,
    /// With this text in arguments, as they are shown, URL, labels or type; upper and lower case are one.
    pub text: Option<String>,
    /// On this machine. What was not started yet is on any.
    pub machine: Option<u128>,
    /// With this label, and this value if there is one.
    pub label: Option<(String, Option<String>)>,
    /// The newest first.
    pub newest_first: bool,
    /// Only those after this one, in that order.
    pub after: Option<ProcessId>,
    /// At most so many, never more than [`Query::MOST`]. Not looked at where they are counted.
    pub most: u32,
}

/// Something to wait for. All are answered at once if they are so already; a record that is not there is refused as
/// unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// It has been started, or could not be: [`Reply::Record`].
    Start(ProcessId),
    /// It has ended, and all its tree if that is being stopped or a right is bound to it: [`Reply::Record`].
    End(ProcessId),
    /// The process itself has ended, or could not be started: [`Reply::Record`].
    Leader(ProcessId),
    /// A signal was sent: [`Reply::Sent`].
    Signal(ProcessId, Seq),
    /// Services stand still, all or the one of this name: each runs, or is down and stays so. [`Reply::Done`], or refused
    /// as no service.
    Services(Option<String>),
}

impl Watch {
    /// Whose record it is about, if it is about one.
    pub const fn id(&self) -> Option<ProcessId> {
        match self {
            Self::Start(id) | Self::End(id) | Self::Leader(id) | Self::Signal(id, _) => Some(*id),
            Self::Services(_) => None,
        }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A record was made, and the process is about to be launched.
    Launched(Box<RecordView>),
    /// The record of the process.
    Registered {
        /// The record.
        record: Box<RecordView>,
        /// Whether it was there.
        known: bool,
    },
    /// It is being stopped.
    Stopping(Box<RecordView>),
    /// A signal is on its way: the number by which [`Watch::Signal`] waits for it.
    Signalling(Seq),
    /// What became of a signal. `None` if nobody knows any more.
    Sent(Option<Sent>),
    /// Records were removed.
    Pruned {
        /// How many.
        count: u32,
        /// Whether there are more that were asked for.
        more: bool,
    },
    /// It was done.
    Done,
    /// A record.
    Record(Box<RecordView>),
    /// What a process runs, in full.
    Spec(Box<crate::actors::process::spec::Spec>),
    /// More than one id begins so: some of them.
    Ambiguous(Vec<ProcessId>),
    /// Records.
    Page {
        /// In the order that was asked for.
        records: Vec<RecordView>,
        /// After which one to go on, if there may be more. There may be none in an answer that says so.
        next: Option<ProcessId>,
    },
    /// A part of a count.
    Count {
        /// How many were found.
        count: u32,
        /// After which one to go on, if there may be more.
        next: Option<ProcessId>,
    },
    /// Ids of records.
    Ids {
        /// Them.
        ids: Vec<ProcessId>,
        /// After which one to go on, if there may be more.
        next: Option<ProcessId>,
    },
    /// All records.
    Totals(Totals),
    /// Services, by name.
    Services(Vec<crate::actors::process::service::ServiceView>),
    /// It was refused.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}

/// A record, to be shown: secrets in arguments are masked, and of the environment only names are there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordView {
    /// Its id.
    pub id: ProcessId,
    /// Its parent, if there is a record of it.
    pub parent: Option<ProcessId>,
    /// The topmost above it.
    pub root: ProcessId,
    /// How many were above it.
    pub depth: u16,
    /// Its type.
    pub kind: String,
    /// Its number among those of its type.
    pub number: u64,
    /// A URL that it is about.
    pub url: Option<String>,
    /// Labels.
    pub labels: Vec<(String, String)>,
    /// Program and arguments.
    pub argv: Vec<Bytes>,
    /// Its directory.
    pub dir: Bytes,
    /// Names of what its environment has beside that of the keeper.
    pub env: Vec<String>,
    /// Where its files are, if not in `DATA/run/ID`.
    pub run_dir: Option<Bytes>,
    /// Milliseconds that it may run; 0 for ever.
    pub timeout_ms: u64,
    /// Whether it was launched here.
    pub launched: bool,
    /// Whether its output is read for records.
    pub is_hook: bool,
    /// How far it has come.
    pub phase: Phase,
    /// The process.
    pub identity: Option<Identity>,
    /// Whether it has a control group of its own.
    pub contained: bool,
    /// When the record was made.
    pub queued: Date,
    /// When it started.
    pub started: Option<Date>,
    /// When it ended.
    pub ended: Option<Date>,
    /// How it is being stopped, or was.
    pub stop: Option<Stop>,
    /// How it ended. Of one whose tree is being stopped this may be there before the phase says so.
    pub end: Option<End>,
    /// Why it could not be started.
    pub failure: Option<Failure>,
    /// What it said of its end.
    pub error: Option<String>,
    /// What was left of it.
    pub remains: Option<Box<Remains>>,
    /// What SIGKILL did not end.
    pub stuck: Option<Stuck>,
    /// What became of the newest signal that was sent.
    pub sent: Option<Sent>,
    /// What it said of its readiness.
    pub announced: Announced,
    /// Of a hook, what is in its output.
    pub found: Option<Box<Found>>,
    /// What it said it does.
    pub said: Option<String>,
    /// Children that live, or have descendants that do.
    pub live_children: u32,
}

/// Every record by its id.
pub type View = BTreeMap<ProcessId, RecordView>;

/// How many records there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// About to be launched.
    pub queued: u32,
    /// Running.
    pub running: u32,
    /// Being stopped.
    pub stopping: u32,
    /// Ended.
    pub exited: u32,
    /// Of those, whose end nobody can know.
    pub lost: u32,
    /// Of those, that could not be started.
    pub failed: u32,
    /// Being stopped, of which SIGKILL left something.
    pub stuck: u32,
    /// Bytes of what they say.
    pub bytes: u64,
    /// Reports of another process for an attempt that had one, since this actor was last built.
    pub contradictions: u64,
}

impl Totals {
    /// Those in this phase.
    pub const fn of(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Queued => self.queued,
            Phase::Running => self.running,
            Phase::Stopping => self.stopping,
            Phase::Exited => self.exited,
        }
    }

    /// Those that have not ended.
    pub const fn live(&self) -> u32 {
        self.queued + self.running + self.stopping
    }
}
