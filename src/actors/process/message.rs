//! The messages that the `ProcessActor` receives from clients, other actors and the port, and the actions that it requests from the port.
//! The port does the actor's I/O: it launches, signals and follows processes. Messages and outcomes are stored: see the change rule in
//! `persist/format.rs`.

use crate::actors::binding;
pub(super) use crate::actors::process::failure::Failure;
use crate::actors::process::identity::Identity;
use crate::actors::process::output::Output;
use crate::actors::process::spec::{Expectation, Flaw, Parentage, Spec, Tags};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ActorId, ProcessId, Slot};
use crate::spine::effect::To;
use serde::{Deserialize, Serialize};

/// A message that may change records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// From a client: launch this process.
    Launch(Box<Launching>),
    /// From a client: launch this process, whose launch was [deferred](Launching::deferred) until now.
    Begin {
        /// The id of its record.
        id: ProcessId,
    },
    /// From a client: create a record for this running process. If it already has a live record, that record is returned instead.
    Register(Box<Registering>),
    /// From the handle: create the record of the server itself, or let the existing one stand for this process, which took its place.
    Serve(Box<Registering>),
    /// From a client: a registered process has ended.
    Finish {
        /// The id of its record.
        id: ProcessId,
        /// Its exit code.
        code: u8,
        /// Its error text, at most [`Message::ERROR_BYTES_MAX`] bytes.
        error: Option<String>,
    },
    /// From a client: stop this process or, if `tree` is set, its whole tree.
    Stop {
        /// The id of its record.
        id: ProcessId,
        /// The signal to send before SIGKILL; `None` means the stop signal in its spec.
        signal: Option<u8>,
        /// Milliseconds until SIGKILL; `None` means the grace period in its spec, and 0 kills immediately.
        grace_ms: Option<u32>,
        /// Whether everything it started is stopped, too, including launched processes whose records are descendants of its record.
        tree: bool,
    },
    /// From a client: send this signal to the process; nothing else changes.
    Signal {
        /// The id of its record.
        id: ProcessId,
        /// The signal number.
        signal: u8,
        /// Whether the signal goes to its process group.
        group: bool,
    },
    /// From a client: nothing of this tree is alive any more, although that cannot be determined here.
    Settle {
        /// The id of its record.
        id: ProcessId,
    },
    /// From a client: remove records of ended processes.
    Prune {
        /// Only records of processes that ended before this date are removed; `None` means any date.
        before: Option<Date>,
        /// The number of removable records to keep, however old they are: those of the processes that ended last.
        keep: u32,
        /// The maximum number of records to remove; more than 1,024 means 1,024. The reply states whether there are more.
        limit: u32,
    },
    /// From the port: the process is running.
    Started {
        /// The id of its record.
        id: ProcessId,
        identity: Identity,
        /// The wall-clock time of its start.
        at: Date,
        /// Whether it has its own control group.
        contained: bool,
    },
    /// From the port: the process could not be started.
    Failed {
        /// The id of its record.
        id: ProcessId,
        /// The step that failed, and why.
        failure: Failure,
    },
    /// From the port: the process itself has ended. Processes that it started may still be alive.
    Ended {
        /// The id of its record.
        id: ProcessId,
        /// How it ended.
        end: End,
        /// The wall-clock time of its end.
        at: Date,
        /// What is recorded about the process at its end.
        left: Box<Remains>,
    },
    /// From the port: nothing of its tree is alive any more.
    Empty {
        /// The id of its record.
        id: ProcessId,
    },
    /// From the port: after two seconds, processes of the tree have survived SIGKILL, or it is unknown whether some processes belong to it.
    Stuck {
        /// The id of its record.
        id: ProcessId,
        /// The number of processes that have survived SIGKILL.
        unkillable: u32,
        /// The number of processes that may or may not belong to the tree.
        unknown: u32,
    },
    /// From the port: a signal was sent, or sending it failed.
    Signalled {
        /// The id of its record.
        id: ProcessId,
        /// The entry that requested the signal.
        asked: crate::ids::Seq,
        /// The errno if sending it failed.
        errno: Option<i32>,
    },
    /// From another actor: notify that actor when a process, or its whole tree, is gone.
    Watch(binding::Watch),
    /// From another actor: stop the tree of this process, since the right bound to it has ended.
    Fence(ProcessId),
    /// From another actor: launch this process, under an id that the actor chose.
    LaunchAs(Box<LaunchAs>),
    /// From the port: the process sent a notice about itself, or sent no watchdog notice in time.
    Notice {
        /// The id of its record.
        id: ProcessId,
        notice: Notice,
    },
    /// From the port: a hook reported in its output that it ran a process.
    Child {
        /// The id of the hook's record.
        of: ProcessId,
        /// The process that it ran.
        child: Box<Child>,
    },
    /// From the port: the output of a hook has been read.
    Found {
        /// The id of the hook's record.
        id: ProcessId,
        /// What was found in the output.
        found: Box<HookOutput>,
    },
    /// A message about services.
    Service(crate::actors::process::service::Message),
    /// From the timer: the timeout, the time to become ready, the grace period or the retention of a record has expired.
    Lapse {
        /// The slot of the record.
        slot: Slot,
    },
}

impl Message {
    /// Returns the id of the record that the message is about; `None` if the message contains no id.
    pub const fn id(&self) -> Option<ProcessId> {
        match self {
            Self::Begin { id }
            | Self::Finish { id, .. }
            | Self::Stop { id, .. }
            | Self::Signal { id, .. }
            | Self::Settle { id }
            | Self::Started { id, .. }
            | Self::Failed { id, .. }
            | Self::Ended { id, .. }
            | Self::Empty { id }
            | Self::Stuck { id, .. }
            | Self::Notice { id, .. }
            | Self::Child { of: id, .. }
            | Self::Found { id, .. }
            | Self::Signalled { id, .. }
            | Self::Fence(id) => Some(*id),
            Self::Watch(watch) => Some(watch.process),
            Self::LaunchAs(asked) => Some(asked.id),
            Self::Launch(_)
            | Self::Register(_)
            | Self::Serve(_)
            | Self::Prune { .. }
            | Self::Service(_)
            | Self::Lapse { .. } => None,
        }
    }

    /// The maximum length of an error text, in bytes.
    pub const ERROR_BYTES_MAX: usize = 1024;
}

/// A notice from a process about itself, sent as a line of output or with the `sd_notify` protocol, or the absence of a watchdog notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// It is ready.
    Ready,
    /// It is about to exit.
    Leaving,
    /// Its status text, at most [`Notice::WORDS_BYTES_MAX`] bytes.
    Words(String),
    /// It sent no watchdog notice within its watchdog interval.
    Silent,
}

impl Notice {
    /// The maximum length of a status text, in bytes.
    pub const WORDS_BYTES_MAX: usize = 256;
}

/// A process that a hook ran, as reported by the hook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Child {
    /// The number of the line in the hook's output, from 1.
    pub line: u32,
    /// Its program and arguments.
    pub argv: Vec<Bytes>,
    /// Its working directory; `None` means the hook's.
    pub dir: Option<Bytes>,
    /// Its PID.
    pub pid: Option<u32>,
    /// How it ended.
    pub end: Option<End>,
    /// When it started.
    pub started: Option<Date>,
    /// When it ended.
    pub ended: Option<Date>,
    /// Its number among the processes that the hook reports, from 1.
    pub nth: u32,
    /// Whether its dates are recorded as reported, and its refusal is counted. `false` in entries of earlier versions, which limited its end
    /// to the lifetime of the hook.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
}

/// A summary of the output of a hook. Here, a record is a line of the output: a JSON object with a `type`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HookOutput {
    /// The number of processes that the hook reported, in records of type `Process`, up to [`HookOutput::CHILDREN_MAX`] and
    /// [`HookOutput::CHILDREN_BYTES_MAX`]. In a record: the number of those that have records.
    pub children: u32,
    /// The number of records of other types.
    pub records: u32,
    /// The first records of other types, as the hook printed them: at most [`HookOutput::KEPT_MAX`] records and at most
    /// [`HookOutput::BYTES_MAX`] bytes in total.
    pub kept: Vec<Bytes>,
    /// The number of malformed records.
    pub broken: u32,
    /// Warnings about the first malformed records, at most [`HookOutput::WARNINGS_MAX`].
    pub warnings: Vec<Warning>,
}

/// A warning about a malformed record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Warning {
    /// The line number, from 1.
    pub line: u32,
    /// The reason, at most [`HookOutput::WORDS_BYTES_MAX`] bytes.
    pub words: String,
}

impl HookOutput {
    /// The maximum total size of the records that are kept, in bytes. The hook's output file contains all records.
    pub const BYTES_MAX: usize = 16 << 10;
    /// The maximum number of records that are kept.
    pub const KEPT_MAX: usize = 64;
    /// The maximum number of processes per hook for which records are created.
    pub const CHILDREN_MAX: u32 = 1000;
    /// The maximum total size of the processes per hook for which records are created, in bytes.
    pub const CHILDREN_BYTES_MAX: usize = 1 << 20;
    /// The maximum number of warnings.
    pub const WARNINGS_MAX: usize = 16;
    /// The maximum length of a warning, in bytes.
    pub const WORDS_BYTES_MAX: usize = 256;

    /// Returns the total size of the records that are kept and the warnings, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let kept = self.kept.iter().map(|it| it.as_bytes().len());
        let words = self.warnings.iter().map(|it| it.words.len());
        kept.chain(words).sum()
    }

    /// Returns whether it is within its limits.
    pub(super) fn fits(&self) -> bool {
        let is_short = |it: &Warning| it.words.len() <= Self::WORDS_BYTES_MAX;
        self.kept.len() <= Self::KEPT_MAX
            && self.warnings.len() <= Self::WARNINGS_MAX
            && self.warnings.iter().all(is_short)
            && self.bytes() <= Self::BYTES_MAX + Self::WARNINGS_MAX * Self::WORDS_BYTES_MAX
    }
}

/// A process to launch, and its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Launching {
    /// What to run, and how.
    pub spec: Spec,
    /// Type, URL and labels of its record.
    pub tags: Tags,
    /// Where it belongs in the tree.
    pub parentage: Parentage,
    /// Whether its record stays queued until a client requests the launch with [`Message::Begin`]. Only for a launch that a client requests.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
}

impl Launching {
    /// Returns the size of its texts in bytes.
    pub fn bytes(&self) -> u64 {
        (self.spec.bytes() + self.tags.bytes()) as u64
    }

    /// Checks spec and tags of a command that another actor will launch, whose launch must not be deferred.
    ///
    /// # Errors
    /// Returns the first flaw found.
    pub fn check(&self) -> Result<(), Flaw> {
        if self.deferred {
            return Err(Flaw::Deferred);
        }
        self.spec.check()?;
        self.tags.check()
    }
}

/// A launch requested by another actor, under an id of that actor's choice.
///
/// An upsert: if a record with this id exists, nothing is launched. The answer is `ToHolder::Launched` whether or not the record existed
/// before, even if the process has ended since. If the launch is refused, the only answer is `ToHolder::Gone` with `Exit::Failed`. A sender
/// that received `Launched` sends a `binding::Watch` for the tree, to be notified when the tree ends. Until that watch arrives, the record
/// is not removed: the answer may have been lost, and without the record a repeated request would launch a second process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchAs {
    /// The actor that requests the launch.
    pub by: ActorId,
    /// The id of the new record.
    pub id: ProcessId,
    /// What to launch.
    pub launching: Launching,
}

/// The address to which another actor sends a [`Message::LaunchAs`].
pub const LAUNCHES: To<Message> = To::new(ActorId::PROCESS);

/// A request to create a record for a process that is already running.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registering {
    /// Its identity.
    pub identity: Identity,
    /// Its program and arguments.
    pub argv: Vec<Bytes>,
    /// Its working directory.
    pub dir: Bytes,
    /// The wall-clock time of its start.
    pub started: Date,
    /// Type, URL and labels of its record. If the type is empty, it is derived from `argv`.
    pub tags: Tags,
    /// Where it belongs in the tree; it cannot be its own parent.
    pub parentage: Parentage,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// It exited with this code.
    Code(u8),
    /// It was terminated by this signal.
    Signal {
        /// The signal number.
        signal: u8,
        /// Whether the kernel wrote a core dump.
        dumped: bool,
    },
    /// It is not known how it ended.
    Lost(Lost),
}

impl End {
    /// Returns the exit code that a shell would report: the code, or 128 plus the signal number. `None` if it is not known how the process
    /// ended.
    pub const fn code(self) -> Option<u8> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal { signal, .. } => Some(128_u8.saturating_add(signal)),
            Self::Lost(_) => None,
        }
    }

    /// Returns whether nothing that the process started can be alive here, because it belongs to another boot or machine.
    pub const fn ends_tree(self) -> bool {
        matches!(self, Self::Lost(Lost::Rebooted | Lost::AnotherMachine))
    }
}

/// Why it is not known how a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// The machine was rebooted.
    Rebooted,
    /// The keeper that waited for it was killed.
    KeeperGone,
    /// It was not a child of the keeper, and nobody reported how it ended.
    NotOurs,
    /// It was launched, but no keeper has a record of it.
    Unknown,
    /// It ran on another machine, from which the data directory was moved.
    AnotherMachine,
}

impl Lost {
    /// Returns its stable name, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rebooted => "rebooted",
            Self::KeeperGone => "keeper-gone",
            Self::NotOurs => "not-ours",
            Self::Unknown => "unknown",
            Self::AnotherMachine => "another-machine",
        }
    }
}

/// What is recorded about a process when it ends: its output, usage and surviving processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remains {
    /// The number of processes of its tree that are still alive; they may hold its output open.
    pub alive: u32,
    /// Its standard output.
    pub stdout: Output,
    /// Its standard error.
    pub stderr: Output,
    /// Processor time in milliseconds, of the process and of the children it waited for.
    pub cpu_ms: u64,
    /// Its peak memory in bytes.
    pub memory_max: u64,
    /// The processes that still have its output open and may write to it, if there are any.
    pub leak: Option<Box<Leak>>,
    /// Whether its tree was proved to be empty.
    pub empty: bool,
    /// The memory limit of its tree as a whole; `None` if each process was limited separately, or not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// The memory limit of a control group, and whether it was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bound {
    /// The limit in bytes.
    pub bytes: u64,
    /// Whether processes were killed for reaching it.
    pub reached: bool,
}

/// The processes that still have the output of a process open after it has ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// The processes that have it open, at most [`Leak::HOLDERS_MAX`]. Empty if they were not looked for, or not found.
    pub holders: Vec<Holder>,
}

impl Leak {
    /// The maximum number of processes that are listed.
    pub const HOLDERS_MAX: usize = 8;
}

/// A process that has the output of another process open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its PID when it was found.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
}

/// An action requested from the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Launch the process, unless it has already been launched: answered by `Started` or `Failed`, and by `Ended` when it ends.
    Launch {
        /// The id of its record.
        id: ProcessId,
        /// What to run, and how.
        spec: Spec,
    },
    /// Follow a running process until it ends: answered by `Ended`.
    Follow {
        /// The id of its record.
        id: ProcessId,
        identity: Identity,
        /// Whether the keeper launched it, and so can report how it ended.
        launched: bool,
        /// Whether it has its own control group.
        contained: bool,
        /// The directory of its files, if not `DATA/run/ID`.
        run_dir: Option<Bytes>,
        /// The user to run as, by name or number, if not the server's.
        user: Option<String>,
        /// What to watch for while it is running, according to its spec; `None` if there is nothing to watch for.
        expects: Option<Box<Expectation>>,
    },
    /// Send a signal to the process with this identity, never to another one that has reused its PID. Answered by `Signalled`.
    Signal {
        /// The id of its record.
        id: ProcessId,
        identity: Identity,
        /// The signal number.
        signal: u8,
        /// The recipients.
        reach: Reach,
        /// Whether the signal is the beginning of a stop. It is then followed by SIGCONT, since a suspended process handles no signal.
        stops: bool,
    },
    /// Send SIGKILL repeatedly, until the process or its whole tree has ended. Answered by `Stuck` if that takes more than two seconds, and
    /// by `Empty` once the whole tree has ended. The end of the process itself is reported by `Ended`.
    Kill {
        /// The id of its record.
        id: ProcessId,
        identity: Identity,
        /// Whether its whole tree is killed, rather than only the process itself.
        tree: bool,
    },
    /// Report `Empty` when nothing of its tree is alive any more.
    Await {
        /// The id of its record.
        id: ProcessId,
        identity: Identity,
    },
    /// Read the output of an ended hook for records. Answered by `Child` for each process in it, and then by `Found`.
    Read {
        /// The id of its record.
        id: ProcessId,
        /// The directory of its files, if not `DATA/run/ID`.
        run_dir: Option<Bytes>,
    },
    /// The end of the process is durable: make the keeper forget the process, and remove its control group.
    Forget {
        /// The id of its record.
        id: ProcessId,
    },
    /// Make the keeper forget every process that no action has named since the last such action. `resume` requests this after all
    /// actions that are still needed.
    ForgetOthers,
}

/// The recipients of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// The process itself.
    Leader,
    /// Its process group.
    Group,
    /// Its whole tree.
    Tree,
}
