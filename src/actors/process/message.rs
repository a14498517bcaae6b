//! What can be asked of the `ProcessActor`, what the kernel tells it, what can come of it, and what it wants done.
//! Messages and outcomes are stored: see the change rule in `persist/format.rs`.

use crate::actors::binding;
use crate::actors::process::identity::Identity;
use crate::actors::process::spec::{Expectation, Flaw, Parentage, Spec, Tags};
use crate::bytes::Bytes;
use crate::clock::Date;
use crate::ids::{ActorId, ProcessId, Slot};
use crate::spine::effect::To;
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
    /// Another actor: say when it is gone.
    Watch(binding::Watch),
    /// Another actor: stop its tree, since the right that it has is over.
    Fence(ProcessId),
    /// Another actor: run this, and say when its tree is gone.
    LaunchAs(Box<LaunchAs>),
    /// The port: it has said something of itself, or nothing for too long.
    Notice {
        /// Which.
        id: ProcessId,
        /// What.
        notice: Notice,
    },
    /// The port: a hook says in its output that it ran a process.
    Child {
        /// Which hook.
        of: ProcessId,
        /// What it ran.
        child: Box<Child>,
    },
    /// The port: the output of a hook has been read.
    Found {
        /// Which.
        id: ProcessId,
        /// What there is in it.
        found: Box<Found>,
    },
    /// Services, and what becomes of them.
    Service(crate::actors::process::service::Message),
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
            | Self::Notice { id, .. }
            | Self::Child { of: id, .. }
            | Self::Found { id, .. }
            | Self::Signalled { id, .. }
            | Self::Fence(id) => Some(*id),
            Self::Watch(watch) => Some(watch.process),
            Self::LaunchAs(asked) => Some(asked.id),
            Self::Launch(_)
            | Self::Register(_)
            | Self::Prune { .. }
            | Self::Service(_)
            | Self::Lapse { .. } => None,
        }
    }

    /// The longest error text.
    pub const ERROR_BYTES_MAX: usize = 1024;
}

/// What a process says of itself, by a line of its output or by the protocol of `sd_notify`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Notice {
    /// It is ready.
    Ready,
    /// It is about to end.
    Leaving,
    /// What it does, in at most [`Notice::WORDS_BYTES_MAX`] bytes.
    Words(String),
    /// It gave no sign of life for as long as its watchdog waits.
    Silent,
}

impl Notice {
    /// The longest words.
    pub const WORDS_BYTES_MAX: usize = 256;
}

/// A process that a hook says it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Child {
    /// The line of its output, from 1.
    pub line: u32,
    /// Program and arguments.
    pub argv: Vec<Bytes>,
    /// Its directory; that of the hook if left out.
    pub dir: Option<Bytes>,
    /// Its PID.
    pub pid: Option<u32>,
    /// How it ended.
    pub end: Option<End>,
    /// When it started.
    pub started: Option<Date>,
    /// When it ended.
    pub ended: Option<Date>,
}

/// What was found in the output of a hook beside those.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Found {
    /// Processes.
    pub children: u32,
    /// Records of other types.
    pub records: u32,
    /// The first of those as they were printed, in at most [`Found::BYTES_MAX`] bytes.
    pub kept: Vec<Bytes>,
    /// Lines that should be records and are none.
    pub broken: u32,
    /// What is wrong with the first of them, at most [`Found::WARNINGS_MAX`].
    pub warnings: Vec<Warning>,
}

/// What is wrong with a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Warning {
    /// Which line, from 1.
    pub line: u32,
    /// What, in at most [`Found::WORDS_BYTES_MAX`] bytes.
    pub words: String,
}

impl Found {
    /// The most bytes of records that are kept. All are in the file of its output.
    pub const BYTES_MAX: usize = 16 << 10;
    /// The most records that are kept.
    pub const KEPT_MAX: usize = 64;
    /// The most processes of one hook that get records.
    pub const CHILDREN_MAX: u32 = 1000;
    /// The most warnings.
    pub const WARNINGS_MAX: usize = 16;
    /// The longest words of a warning.
    pub const WORDS_BYTES_MAX: usize = 256;

    /// How many bytes it says.
    pub(super) fn bytes(&self) -> usize {
        let kept = self.kept.iter().map(|it| it.as_bytes().len());
        let words = self.warnings.iter().map(|it| it.words.len());
        kept.chain(words).sum()
    }

    /// Whether it is within its bounds.
    pub(super) fn fits(&self) -> bool {
        let is_short = |it: &Warning| it.words.len() <= Self::WORDS_BYTES_MAX;
        self.kept.len() <= Self::KEPT_MAX
            && self.warnings.len() <= Self::WARNINGS_MAX
            && self.warnings.iter().all(is_short)
            && self.bytes() <= Self::BYTES_MAX + Self::WARNINGS_MAX * Self::WORDS_BYTES_MAX
    }
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

impl Launching {
    /// What of it cannot be.
    ///
    /// # Errors
    /// The first that was found.
    pub fn check(&self) -> Result<(), Flaw> {
        self.spec.check()?;
        self.tags.check()
    }
}

/// A launch that another actor asks for, under an id that it chose itself.
///
/// An upsert: if there is a record of this id, nothing is launched, and the answer is the same. That is
/// `ToHolder::Launched` once the launch is taken on, whatever became of it since. One that is refused is answered by
/// `Gone` alone, with `Exit::Failed`. A sender that was told `Launched` states a `binding::Watch` of its tree, and is
/// told of its end by that. Until it does, the record is not removed: the answer may have been lost, and the launch that
/// is asked for again would be another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchAs {
    /// Which actor.
    pub by: ActorId,
    /// The id of the new record.
    pub id: ProcessId,
    /// What, and how.
    pub launching: Launching,
}

/// Where another actor sends a [`Message::LaunchAs`].
pub const LAUNCHES: To<Message> = To::new(ActorId::PROCESS);

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

impl Step {
    /// The word for it that programs compare.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keeper => "keeper",
            Self::Files => "files",
            Self::Output => "output",
            Self::Environment => "environment",
            Self::Parcel => "parcel",
            Self::Fork => "fork",
            Self::Group => "group",
            Self::Directory => "directory",
            Self::User => "user",
            Self::Limits => "limits",
            Self::Exec => "exec",
            Self::Abandoned => "abandoned",
        }
    }
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
    /// Whether another process has its output open, and may go on writing there.
    pub leak: Option<Leak>,
    /// Whether it was proved that nothing of its tree lives.
    pub empty: bool,
    /// How the memory of its tree was bounded; none if that of each process was, or nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
}

/// How the memory of all in a control group was bounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Bound {
    /// The most, in bytes.
    pub bytes: u64,
    /// Whether some of it was killed since that was reached.
    pub reached: bool,
}

/// Output that is open after the end of the process that it is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leak {
    /// Who has it open, at most [`Leak::HOLDERS_MAX`]. None if they were not looked for, or not found.
    pub holders: Vec<Holder>,
}

impl Leak {
    /// The most that are named.
    pub const HOLDERS_MAX: usize = 8;
}

/// A process that has output of another open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its PID then.
    pub pid: u32,
    /// The name of its program.
    pub name: String,
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
    /// How much of the beginning, and of the end, a record keeps: with the counters of what is shared, a piece is of a size that
    /// allocators have.
    pub const SHOWN_BYTES: usize = 112;
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
        /// What of it is to be looked for: the part of its spec that says so.
        expects: Option<Box<Expectation>>,
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
    /// It was a hook: read its output for records. Answered by `Child` for each process in it, and then by `Found`.
    Read {
        /// Which.
        id: ProcessId,
        /// Where its files are, if not in `DATA/run/ID`.
        run_dir: Option<Bytes>,
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
