//! What can be asked of the `ProcessActor`, what the kernel tells it, what can come of it, and what it wants done.
//! Messages and outcomes are stored: see the change rule in `persist/format.rs`.

use crate::actors::process::identity::Identity;
use crate::actors::process::spec::{Parentage, Spec, Tags};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ProcessId, Slot};
use serde::{Deserialize, Serialize};

/// What may change records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// A client: run this.
    Launch(Box<Launching>),
    /// A client: this process is to have a record. Found again if it has one.
    Register(Box<Registering>),
    /// A client: what it registered has ended, and how.
    Finish {
        /// Which.
        id: ProcessId,
        /// Its exit code.
        code: u8,
        /// What it says of it, at most [`Message::ERROR_BYTES_MAX`] bytes.
        error: Option<String>,
    },
    /// A client: end this process; its tree with it if `tree`.
    Stop {
        /// Which.
        id: ProcessId,
        /// The first signal, that of its spec if `None`.
        signal: Option<u8>,
        /// Milliseconds until SIGKILL, those of its spec if `None`; 0 kills at once.
        grace_ms: Option<u32>,
        /// Whether all that it started is to end, too.
        tree: bool,
    },
    /// A client: send this signal to the process; nothing else changes.
    Signal {
        /// Which.
        id: ProcessId,
        /// The signal.
        signal: u8,
        /// Whether to its process group.
        group: bool,
    },
    /// A client: forget what ended.
    Prune {
        /// What ended before this.
        before: Option<Date>,
        /// The newest that stay, however old.
        keep: u32,
        /// At most so many at once; the answer says whether there are more.
        limit: u32,
    },
    /// The port: it runs, as this process.
    Started {
        /// Which.
        id: ProcessId,
        /// What the kernel gave it.
        identity: Identity,
        /// When, by the wall clock.
        at: Date,
        /// Whether it has a control group of its own.
        contained: bool,
    },
    /// The port: it could not be started.
    Failed {
        /// Which.
        id: ProcessId,
        /// Where it failed, and why.
        failure: Failure,
    },
    /// The port: the process itself has ended. What it started may live.
    Ended {
        /// Which.
        id: ProcessId,
        /// How.
        end: End,
        /// When, by the wall clock.
        at: Date,
        /// What is left of it.
        left: Box<Remains>,
    },
    /// The port: nothing of its tree lives any more.
    Empty {
        /// Which.
        id: ProcessId,
    },
    /// The port: SIGKILL was sent and so many of its tree have not ended; or of so many it cannot be known.
    Stuck {
        /// Which.
        id: ProcessId,
        /// Processes that do not end.
        unkillable: u32,
        /// Processes of which nobody can say whether they belong to it.
        unknown: u32,
    },
    /// The port: a signal was sent, or could not be (an errno).
    Signalled {
        /// Which.
        id: ProcessId,
        /// The entry that asked for it.
        asked: crate::ids::Seq,
        /// Why not.
        errno: Option<i32>,
    },
    /// Time acts on a record: its timeout, its grace, or its end of retention.
    Lapse {
        /// Which.
        slot: Slot,
    },
}

impl Message {
    /// The record that it is about, if it names one.
    pub const fn id(&self) -> Option<ProcessId> {
        match self {
            Self::Finish { id, .. }
            | Self::Stop { id, .. }
            | Self::Signal { id, .. }
            | Self::Started { id, .. }
            | Self::Failed { id, .. }
            | Self::Ended { id, .. }
            | Self::Empty { id }
            | Self::Stuck { id, .. }
            | Self::Signalled { id, .. } => Some(*id),
            Self::Launch(_) | Self::Register(_) | Self::Prune { .. } | Self::Lapse { .. } => None,
        }
    }

    /// The longest error text.
    pub const ERROR_BYTES_MAX: usize = 1024;
}

/// What is to be run, for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Launching {
    /// What, and how.
    pub spec: Spec,
    /// What is said of it.
    pub tags: Tags,
    /// Whose child it is.
    pub parentage: Parentage,
}

/// A process that runs already and is to have a record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Registering {
    /// Which.
    pub identity: Identity,
    /// Its program and arguments.
    pub argv: Vec<Bytes>,
    /// Its directory.
    pub dir: Bytes,
    /// When it started, by the wall clock.
    pub started: Date,
    /// What is said of it. An empty type is found from `argv`.
    pub tags: Tags,
    /// Whose child it is: not itself.
    pub parentage: Parentage,
}

/// Why a process could not be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Where it failed.
    pub step: Step,
    /// The error of the kernel; 0 if it was none of its.
    pub errno: i32,
    /// What it was about: a path, a name.
    pub about: Option<String>,
}

/// A step of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// There is no keeper here, or it cannot be started or reached.
    Keeper,
    /// A file or directory of its own (`DATA/run/ID`).
    Files,
    /// A file of its output.
    Output,
    /// Its environment: a secret that is missing, a file that cannot be read.
    Environment,
    /// What whoever asked was to hand over is not there (any more).
    Parcel,
    /// A new process.
    Fork,
    /// Its control group.
    Group,
    /// Its directory.
    Directory,
    /// Its user and groups.
    User,
    /// Its limits.
    Limits,
    /// The program itself: not there, not executable, no interpreter, too long a list of arguments.
    Exec,
    /// The coordinator that asked for it was gone before it began.
    Abandoned,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// By itself, with this code.
    Code(u8),
    /// By this signal.
    Signal {
        /// Which.
        signal: u8,
        /// Whether the kernel wrote its memory to a file.
        dumped: bool,
    },
    /// Nobody can know how.
    Lost(Lost),
}

impl End {
    /// As a shell says it: the code, or 128 and the signal. `None` for what nobody knows.
    pub const fn code(self) -> Option<u8> {
        match self {
            Self::Code(code) => Some(code),
            Self::Signal { signal, .. } => Some(128_u8.saturating_add(signal)),
            Self::Lost(_) => None,
        }
    }
}

/// Why nobody can know how a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lost {
    /// The machine was started again since.
    Rebooted,
    /// The keeper that waited for it was killed.
    KeeperGone,
    /// It was no child of the keeper, and did not say.
    NotOurs,
    /// It was launched, and no keeper knows of it.
    Unknown,
}

impl Lost {
    /// The word for it that programs compare.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rebooted => "rebooted",
            Self::KeeperGone => "keeper-gone",
            Self::NotOurs => "not-ours",
            Self::Unknown => "unknown",
        }
    }
}

/// What is left of a process that ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Remains {
    /// Processes of its tree that still live; they may hold its output.
    pub alive: u32,
    /// Its standard output.
    pub stdout: Output,
    /// Its standard error.
    pub stderr: Output,
    /// Milliseconds of processor time, its own and its children's that it waited for.
    pub cpu_ms: u64,
    /// The most memory that it had at once, in bytes.
    pub memory_max: u64,
}

/// A stream of output that ended in a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Output {
    /// Bytes written.
    pub bytes: u64,
    /// The first of them, at most [`Output::SHOWN_BYTES`].
    pub head: Bytes,
    /// The last of them, if there are more than those.
    pub tail: Bytes,
}

impl Output {
    /// How much of the beginning, and of the end, a record keeps.
    pub const SHOWN_BYTES: usize = 128;
}

/// What the port is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Launch it, unless that was done: answered by `Started` or `Failed`, and by `Ended` when it ends.
    Launch {
        /// Which.
        id: ProcessId,
        /// What, and how.
        spec: Spec,
    },
    /// It is said to run: answered by `Ended` as soon as it has ended.
    Follow {
        /// Which.
        id: ProcessId,
        /// The process.
        identity: Identity,
        /// Whether the keeper launched it, so that it can say how it ended.
        launched: bool,
        /// Whether it has a control group of its own.
        contained: bool,
        /// Where its files are, if not in `DATA/run/ID`.
        run_dir: Option<Bytes>,
    },
    /// Send a signal, by its verified descriptor.
    Signal {
        /// Which.
        id: ProcessId,
        /// The process.
        identity: Identity,
        /// What.
        signal: u8,
        /// To whom.
        reach: Reach,
    },
    /// Kill it, or its whole tree, with SIGKILL until nothing lives: answered by `Empty`, and by `Stuck` if that takes more than two seconds.
    Kill {
        /// Which.
        id: ProcessId,
        /// The process.
        identity: Identity,
        /// Whether all that it started, too.
        tree: bool,
    },
    /// Say when nothing of its tree lives any more: `Empty`.
    Await {
        /// Which.
        id: ProcessId,
        /// The process.
        identity: Identity,
    },
    /// That it ended is durable: the keeper need not remember it, and its PID file goes.
    Forget {
        /// Which.
        id: ProcessId,
    },
    /// All that should stand has been stated: what the keeper has beside it is to be forgotten.
    Census,
}

/// To whom a signal goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// The process.
    Leader,
    /// Its process group.
    Group,
    /// All that it started.
    Tree,
}
