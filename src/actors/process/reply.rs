//! The queries, watches and replies of the `ProcessActor`.

use crate::actors::process::identity::Identity;
use crate::actors::process::message::{End, Failure, HookOutput, Remains};
use crate::actors::process::outcome::Refused;
use crate::actors::process::record::{Announced, Deferral, Phase, Sent, Stop, Stuck};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ActorId, ProcessId, Seq};
use crate::spine::machine::Refusal;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A query about records or services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// The record with this id. Answered with [`Reply::Record`], or refused as [`Refused::Unknown`].
    One(ProcessId),
    /// The one record whose id begins with this prefix, which has at least [`Query::PREFIX_DIGITS`] hexadecimal digits; dashes are ignored.
    /// Answered with [`Reply::Record`] or, if several ids match, [`Reply::Ambiguous`], or refused as [`Refused::Unknown`].
    Prefix(String),
    /// The live record of this process. Answered with [`Reply::Record`], or refused as [`Refused::Unknown`].
    Process(Identity),
    /// The record of the server itself. Answered with [`Reply::Record`], or refused as [`Refused::Unknown`] if it has none.
    Server,
    /// The full spec of the process with this record id. Answered with [`Reply::Spec`], or refused as [`Refused::Unknown`].
    Spec(ProcessId),
    /// The records that match, ordered by id: ascending, or descending with [`Selection::newest_first`]. Answered with [`Reply::Page`].
    List(Selection),
    /// The number of records that match. Answered with [`Reply::Count`], which may be partial.
    Count(Selection),
    /// The ancestors of a record, from its parent up to the root, or to the last one before a removed record. Answered with
    /// [`Reply::Page`], or refused as [`Refused::Unknown`].
    Ancestors(ProcessId),
    /// The descendants of a record, ordered by id. Answered with [`Reply::Page`], or refused as [`Refused::Unknown`].
    Descendants {
        /// The id of the record.
        of: ProcessId,
        /// The descendant after which to continue; `None` for the first page.
        after: Option<ProcessId>,
        /// The maximum number of records in the reply.
        most: u32,
    },
    /// All services, or the one with this name. Answered with [`Reply::Services`], or refused as [`Refused::NoService`].
    Services(Option<String>),
    /// The ids of the live records of processes that this actor watches or requested to launch, in ascending order. Answered with
    /// [`Reply::Ids`].
    Watched {
        by: ActorId,
        /// The id after which to continue; `None` for the first page.
        after: Option<ProcessId>,
    },
    /// The number of records in each state. Answered with [`Reply::Totals`].
    Totals,
}

impl Query {
    /// The minimum number of digits in the prefix of an id.
    pub const PREFIX_DIGITS: usize = 8;
    /// The maximum number of records in a reply.
    pub const MOST: u32 = 1000;
}

/// A selection of records: those that meet all conditions that are set. The default sets no condition, and allows [`Query::MOST`] records
/// in one reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Records of this type.
    pub kind: Option<String>,
    /// Records in one of these phases; in any phase if empty.
    pub phases: Vec<Phase>,
    /// Children of this record.
    pub parent: Option<ProcessId>,
    /// Records in the tree with this root.
    pub root: Option<ProcessId>,
    /// Records that contain this text in their arguments (as shown, with secrets masked), URL, labels or type, or in the recorded beginning
    /// or end of their output. Case is ignored.
    pub text: Option<String>,
    /// Records of processes that have or had this PID.
    pub pid: Option<u32>,
    /// Records of processes on this machine. A process that has not started yet matches any machine.
    pub machine: Option<u128>,
    /// Records with this label, and with this value if given.
    pub label: Option<(String, Option<String>)>,
    /// Whether the most recently created records come first.
    pub newest_first: bool,
    /// The record after which to continue, in the order set by `newest_first`; `None` for the first page.
    pub after: Option<ProcessId>,
    /// The maximum number of records in the reply, up to [`Query::MOST`]. Ignored when counting.
    pub most: u32,
}

impl Default for Selection {
    fn default() -> Self {
        Self {
            kind: None,
            phases: Vec::new(),
            parent: None,
            root: None,
            label: None,
            text: None,
            pid: None,
            machine: None,
            newest_first: false,
            after: None,
            most: Query::MOST,
        }
    }
}

/// A condition to wait for. If it is already met, the reply is immediate. A watch of a record that does not exist is refused as unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// The process has started, or could not be started. Answered with [`Reply::Record`].
    Start(ProcessId),
    /// The process could not be started, or has ended. If its tree is being stopped, or has a right bound to it, the tree has ended as
    /// well; if it is being stopped, so have the launched processes with records below its own. Answered with [`Reply::Record`].
    End(ProcessId),
    /// The process itself has ended, or could not be started. Answered with [`Reply::Record`].
    Leader(ProcessId),
    /// The signal requested by this entry was sent, or could not be sent. Answered with [`Reply::Sent`], or refused as [`Refused::Ended`] if
    /// the process has ended and nothing is known of the signal, because it was not sent before.
    Signal(ProcessId, Seq),
    /// All services, or the one with this name, have settled: each is running and ready, or is down and stays down, could not be
    /// launched and waits for the next attempt, or waits for a failed one. Answered with [`Reply::Done`], or refused as
    /// [`Refused::NoService`].
    Services(Option<String>),
}

impl Watch {
    /// Returns the id of the record concerned, if there is one.
    pub const fn id(&self) -> Option<ProcessId> {
        match self {
            Self::Start(id) | Self::End(id) | Self::Leader(id) | Self::Signal(id, _) => Some(*id),
            Self::Services(_) => None,
        }
    }
}

/// The reply to a message, a query or a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A record was created, and the process is about to be launched, unless its launch is deferred; or a deferred launch was requested.
    Launched(Box<RecordView>),
    /// The record of a registered process.
    Registered {
        record: Box<RecordView>,
        /// Whether it existed before this registration.
        known: bool,
    },
    /// The process is being stopped.
    Stopping(Box<RecordView>),
    /// A signal is pending. To wait for its result, use [`Watch::Signal`] with this entry number.
    Signalling(Seq),
    /// The result of a signal; `None` if it is no longer known, because that of a later one is.
    Sent(Option<Sent>),
    /// Records were removed.
    Pruned {
        /// The number of records removed.
        count: u32,
        /// Whether more records match the request.
        more: bool,
    },
    /// The request was carried out.
    Done,
    Record(Box<RecordView>),
    /// The full spec of a process.
    Spec(Box<crate::actors::process::spec::Spec>),
    /// Several ids begin with the prefix; some of them are listed.
    Ambiguous(Vec<ProcessId>),
    /// A page of records.
    Page {
        /// The records, in the requested order.
        records: Vec<RecordView>,
        /// The record after which to continue, if there may be more. Even an empty page may have this set.
        next: Option<ProcessId>,
    },
    /// A partial count.
    Count {
        /// The number of records found so far.
        count: u32,
        /// The record after which to continue, if there may be more.
        next: Option<ProcessId>,
    },
    /// A page of record ids.
    Ids {
        ids: Vec<ProcessId>,
        /// The id after which to continue, if there may be more.
        next: Option<ProcessId>,
    },
    /// The number of records in each state.
    Totals(Totals),
    /// Services, ordered by name.
    Services(Vec<crate::actors::process::service::ServiceView>),
    /// The request was refused.
    Refused(Refused),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}

/// The view of a record: secrets in arguments are masked, and only the names of environment variables are included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordView {
    /// Its id.
    pub id: ProcessId,
    /// The id of its parent, if the parent still has a record.
    pub parent: Option<ProcessId>,
    /// The root of its tree.
    pub root: ProcessId,
    /// The number of its ancestors when it was created.
    pub depth: u16,
    /// The type of the process.
    pub kind: String,
    /// Its number among the records of its type.
    pub number: u64,
    /// A URL associated with it.
    pub url: Option<String>,
    /// Its labels, each with name and value.
    pub labels: Vec<(String, String)>,
    /// Program and arguments.
    pub argv: Vec<Bytes>,
    /// The working directory.
    pub dir: Bytes,
    /// Names of environment variables set in addition to the keeper's.
    pub env: Vec<String>,
    /// The directory of its files, if not `DATA/run/ID`.
    pub run_dir: Option<Bytes>,
    /// Its timeout in milliseconds; 0 means none.
    pub timeout_ms: u64,
    /// Whether sexton launched the process, rather than a client that registered it or a hook that reported it.
    pub launched: bool,
    /// Whether it is a hook: a command that reports what it did as JSON objects in its output.
    pub is_hook: bool,
    /// The phase of the process.
    pub phase: Phase,
    /// That its launch is deferred until a client requests it; `None` if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<Deferral>,
    /// The identity of the process.
    pub identity: Option<Identity>,
    /// Whether it has its own control group.
    pub contained: bool,
    /// When the record was created.
    pub queued: Date,
    /// When it started.
    pub started: Option<Date>,
    /// When it ended.
    pub ended: Option<Date>,
    /// How it is being stopped, or was stopped.
    pub stop: Option<Stop>,
    /// How it ended. If its tree is being stopped or is watched, this may be set before the phase is `Exited`.
    pub end: Option<End>,
    /// Why it could not be started.
    pub failure: Option<Failure>,
    /// The error text that a client reported together with its end.
    pub error: Option<String>,
    /// What was recorded about it when it ended: its output, usage and surviving processes.
    pub remains: Option<Arc<Remains>>,
    /// How many processes are left after SIGKILL; `None` if there are none.
    pub stuck: Option<Stuck>,
    /// The result of the most recent signal.
    pub sent: Option<Sent>,
    /// What it announced about its readiness.
    pub announced: Announced,
    /// For a hook, what was found in its output.
    pub found: Option<Box<HookOutput>>,
    /// Its latest status text.
    pub said: Option<String>,
    /// The number of its children that are live or have live descendants.
    pub live_children: u32,
}

/// The views of all records, by id.
pub type View = BTreeMap<ProcessId, RecordView>;

/// The number of records in each state, and their total size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Records of processes waiting to be launched.
    pub queued: u32,
    /// Of the queued records, those of processes whose launch is deferred until a client requests it.
    pub deferred: u32,
    /// Records of running processes.
    pub running: u32,
    /// Records of processes being stopped.
    pub stopping: u32,
    /// Records of processes that have ended or could not be started.
    pub exited: u32,
    /// Of the exited records, those of processes that ended in an unknown way.
    pub lost: u32,
    /// Of the exited records, those of processes that could not be started. Those that were stopped before do not count.
    pub failed: u32,
    /// Of the stopping records, those of processes whose trees have members that survived SIGKILL.
    pub stuck: u32,
    /// The total size of all records, in bytes.
    pub bytes: u64,
    /// The number of reports, since this actor's state was last built, that contradicted an earlier one: they reported another process for
    /// the same launch, or the failure of a launch that had succeeded.
    pub contradictions: u64,
}

impl Totals {
    /// Returns the number of records in this phase.
    pub const fn of(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Queued => self.queued,
            Phase::Running => self.running,
            Phase::Stopping => self.stopping,
            Phase::Exited => self.exited,
        }
    }

    /// Returns the number of live records: those whose phase is not `Exited`.
    pub const fn live(&self) -> u32 {
        self.queued + self.running + self.stopping
    }
}
