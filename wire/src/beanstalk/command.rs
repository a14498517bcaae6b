//! The commands of a client, borrowed from the input. How they are carried out is not defined here.

use std::borrow::Cow;
use std::fmt;

/// A command, as sent by a client. Times are in whole seconds; ids and other numbers are as received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `put`, with a complete and correctly terminated body.
    Put(Put<'a>),
    /// The `use` command.
    Use(TubeName<'a>),
    /// The `reserve` command.
    Reserve,
    /// `reserve-with-timeout`, with a timeout of at most 2,147,483,647 seconds.
    ReserveWithTimeout(u32),
    /// The `reserve-job` command.
    ReserveJob(u64),
    /// `reserve-mode`, an extension.
    ReserveMode(ReserveMode),
    /// `reserve-batch`, an extension, with the maximum number of jobs to reserve: 1 to [`RESERVE_BATCH_MAX`].
    ReserveBatch(u32),
    /// The `delete` command.
    Delete(u64),
    /// `delete-batch`, an extension, with one or more job ids. Only the length of a line limits their number.
    DeleteBatch(Vec<u64>),
    /// The `release` command.
    Release {
        /// The job's id.
        id: u64,
        /// The job's new priority.
        priority: u32,
        /// Seconds until the job is ready again.
        delay: u32,
    },
    /// The `bury` command.
    Bury {
        /// The job's id.
        id: u64,
        /// The job's new priority.
        priority: u32,
    },
    /// The `touch` command.
    Touch(u64),
    /// The `watch` command.
    Watch {
        /// The tube's name.
        tube: TubeName<'a>,
        /// The tube's weight, at least 1; an extension. `None` if the command does not set a weight.
        weight: Option<u32>,
    },
    /// The `ignore` command.
    Ignore(TubeName<'a>),
    /// The `peek` command.
    Peek(u64),
    /// The `peek-ready` command.
    PeekReady,
    /// The `peek-delayed` command.
    PeekDelayed,
    /// The `peek-buried` command.
    PeekBuried,
    /// `kick`, with the maximum number of jobs to kick.
    Kick(u32),
    /// The `kick-job` command.
    KickJob(u64),
    /// The `pause-tube` command.
    PauseTube {
        /// The tube's name.
        tube: TubeName<'a>,
        /// The length of the pause in seconds; 0 ends a pause.
        seconds: u32,
    },
    /// `flush-tube`, an extension.
    FlushTube(TubeName<'a>),
    /// The `stats` command.
    Stats,
    /// The `stats-job` command.
    StatsJob(u64),
    /// The `stats-tube` command.
    StatsTube(TubeName<'a>),
    /// The `list-tubes` command.
    ListTubes,
    /// The `list-tubes-watched` command.
    ListTubesWatched,
    /// The `list-tube-used` command.
    ListTubeUsed,
    /// `quit`, which ends the connection without a reply.
    Quit,
    /// A line of an HTTP request or of a TLS handshake. The connection is then closed, since a web page can make a browser send commands in
    /// either.
    Http,
    /// A command that is answered with an error when its turn comes.
    Refused {
        /// The error.
        refusal: Refusal,
        /// The command that it counts as in the statistics, if any.
        counted: Option<Counted>,
    },
}

/// The maximum number of jobs in a single `reserve-batch`.
pub const RESERVE_BATCH_MAX: u32 = 1000;

/// A job to add to the tube in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put<'a> {
    /// The priority; 0 is the most urgent.
    pub priority: u32,
    /// Seconds until the job is ready.
    pub delay: u32,
    /// The time to run: how long a reservation lasts, in seconds; at least 1.
    pub ttr: u32,
    /// The deduplication key; an extension.
    pub dedup: Option<Dedup>,
    /// The body: borrowed if it arrived in one piece, otherwise owned and without spare capacity.
    pub body: Cow<'a, [u8]>,
}

/// A deduplication key, sent as `idp:key` or `idp:key:ttl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup {
    /// The key, which has the form of a tube name.
    pub key: Box<[u8]>,
    /// The number of seconds for which the key is to stay reserved after the job is deleted; 0 if not given. It is parsed, but not used.
    pub ttl: u32,
}

/// The name of a tube: 1 to 200 bytes of letters, digits and `-+/;.$_()`, not beginning with `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TubeName<'a>(&'a [u8]);

impl TubeName<'static> {
    /// The tube that a client uses and watches initially.
    pub const DEFAULT: Self = Self(b"default");
}

impl<'a> TubeName<'a> {
    /// The maximum length of a name, in bytes.
    pub const BYTES_MAX: usize = 200;

    /// Returns `bytes` as a name, or `None` if they are not a valid one.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let first = bytes.first()?;
        let valid = *first != b'-'
            && bytes.len() <= Self::BYTES_MAX
            && bytes.iter().all(|byte| Self::may_hold(*byte));
        valid.then_some(Self(bytes))
    }

    /// Returns the name as it was sent.
    pub fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    pub(super) fn may_hold(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(&byte)
    }
}

impl fmt::Debug for TubeName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

/// How `reserve` chooses among the watched tubes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReserveMode {
    /// `default`: the most urgent job of all watched tubes.
    Default,
    /// `fifo`: the same as `default`, under the extension's earlier name for it.
    Fifo,
    /// `weighted`: a tube drawn at random by weight, then its most urgent job.
    Weighted,
}

impl ReserveMode {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Fifo => "fifo",
            Self::Weighted => "weighted",
        }
    }
}

/// Why a command is rejected. Each variant is named after the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The reply `BAD_FORMAT`.
    BadFormat,
    /// The reply `UNKNOWN_COMMAND`.
    UnknownCommand,
    /// `JOB_TOO_BIG`: the announced body exceeds the limit. The announced number of bytes, plus two for the line end, was skipped.
    JobTooBig,
    /// `EXPECTED_CRLF`: no line end follows the body. The announced number of bytes, plus two for the line end, was skipped. The client
    /// counts as a producer nevertheless.
    ExpectedCrlf,
    /// `OUT_OF_MEMORY`: there was no memory for the body. The announced number of bytes, plus two for the line end, was skipped.
    OutOfMemory,
}

/// The commands that are counted, in the order of the server's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// The `put` command.
    Put,
    /// The `peek` command.
    Peek,
    /// The `peek-ready` command.
    PeekReady,
    /// The `peek-delayed` command.
    PeekDelayed,
    /// The `peek-buried` command.
    PeekBuried,
    /// The `reserve` command.
    Reserve,
    /// The `reserve-with-timeout` command.
    ReserveWithTimeout,
    /// The `delete` command.
    Delete,
    /// The `release` command.
    Release,
    /// The `use` command.
    Use,
    /// The `watch` command.
    Watch,
    /// The `ignore` command.
    Ignore,
    /// The `bury` command.
    Bury,
    /// The `kick` command.
    Kick,
    /// The `touch` command.
    Touch,
    /// The `stats` command.
    Stats,
    /// The `stats-job` command.
    StatsJob,
    /// The `stats-tube` command.
    StatsTube,
    /// The `list-tubes` command.
    ListTubes,
    /// The `list-tube-used` command.
    ListTubeUsed,
    /// The `list-tubes-watched` command.
    ListTubesWatched,
    /// The `pause-tube` command.
    PauseTube,
}

impl Counted {
    /// The number of variants. Any variant `as usize` is less than this.
    pub const COUNT: usize = 22;
}

impl Command<'_> {
    /// Returns the counter of this command in the statistics, or `None` if the command is not counted.
    pub fn counted(&self) -> Option<Counted> {
        Some(match self {
            Self::Put(_) => Counted::Put,
            Self::Use(_) => Counted::Use,
            Self::Reserve => Counted::Reserve,
            Self::ReserveWithTimeout(_) => Counted::ReserveWithTimeout,
            Self::Delete(_) => Counted::Delete,
            Self::Release { .. } => Counted::Release,
            Self::Bury { .. } => Counted::Bury,
            Self::Touch(_) => Counted::Touch,
            Self::Watch { .. } => Counted::Watch,
            Self::Ignore(_) => Counted::Ignore,
            Self::Peek(_) => Counted::Peek,
            Self::PeekReady => Counted::PeekReady,
            Self::PeekDelayed => Counted::PeekDelayed,
            Self::PeekBuried => Counted::PeekBuried,
            Self::Kick(_) => Counted::Kick,
            Self::PauseTube { .. } => Counted::PauseTube,
            Self::Stats => Counted::Stats,
            Self::StatsJob(_) => Counted::StatsJob,
            Self::StatsTube(_) => Counted::StatsTube,
            Self::ListTubes => Counted::ListTubes,
            Self::ListTubesWatched => Counted::ListTubesWatched,
            Self::ListTubeUsed => Counted::ListTubeUsed,
            Self::Refused { counted, .. } => return *counted,
            Self::ReserveJob(_)
            | Self::KickJob(_)
            | Self::Quit
            | Self::Http
            | Self::ReserveMode(_)
            | Self::ReserveBatch(_)
            | Self::DeleteBatch(_)
            | Self::FlushTube(_) => return None,
        })
    }
}

/// Formats the command for the log, with the length of a job's body in place of the body.
impl fmt::Display for Command<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Put(put) = self else {
            return write!(f, "{self:?}");
        };
        let (priority, delay, ttr) = (put.priority, put.delay, put.ttr);
        write!(f, "Put {priority} {delay} {ttr} {}", put.body.len())?;
        match &put.dedup {
            None => Ok(()),
            Some(Dedup { key, ttl }) => write!(f, " idp:{}:{ttl}", key.escape_ascii()),
        }
    }
}
