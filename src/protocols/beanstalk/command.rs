//! What a client may ask of the queues, borrowed from the bytes it came in. Knows nothing of how it is carried out.

use std::borrow::Cow;
use std::fmt;

/// A command, as a client sends it. Times are whole seconds; ids and numbers are as they came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// `put`, with its body complete and its end as it must be.
    Put(Put<'a>),
    /// `use`
    Use(TubeName<'a>),
    /// `reserve`
    Reserve,
    /// `reserve-with-timeout`; at most 2,147,483,647 seconds.
    ReserveWithTimeout(u32),
    /// `reserve-job`
    ReserveJob(u64),
    /// `reserve-mode`, of the extensions.
    ReserveMode(ReserveMode),
    /// `reserve-batch`, of the extensions: from 1 to [`RESERVE_BATCH_MAX`] jobs.
    ReserveBatch(u32),
    /// `delete`
    Delete(u64),
    /// `delete-batch`, of the extensions: one id at least, as many as fit into a line.
    DeleteBatch(Vec<u64>),
    /// `release`
    Release {
        /// Which job.
        id: u64,
        /// Its priority from now on.
        priority: u32,
        /// Seconds until it is ready again.
        delay: u32,
    },
    /// `bury`
    Bury {
        /// Which job.
        id: u64,
        /// Its priority from now on.
        priority: u32,
    },
    /// `touch`
    Touch(u64),
    /// `watch`
    Watch {
        /// Which tube.
        tube: TubeName<'a>,
        /// Of the extensions: its weight, at least 1.
        weight: Option<u32>,
    },
    /// `ignore`
    Ignore(TubeName<'a>),
    /// `peek`
    Peek(u64),
    /// `peek-ready`
    PeekReady,
    /// `peek-delayed`
    PeekDelayed,
    /// `peek-buried`
    PeekBuried,
    /// `kick`: at most so many.
    Kick(u32),
    /// `kick-job`
    KickJob(u64),
    /// `pause-tube`
    PauseTube {
        /// Which tube.
        tube: TubeName<'a>,
        /// For how many seconds; 0 ends a pause.
        seconds: u32,
    },
    /// `flush-tube`, of the extensions.
    FlushTube(TubeName<'a>),
    /// `stats`
    Stats,
    /// `stats-job`
    StatsJob(u64),
    /// `stats-tube`
    StatsTube(TubeName<'a>),
    /// `list-tubes`
    ListTubes,
    /// `list-tubes-watched`
    ListTubesWatched,
    /// `list-tube-used`
    ListTubeUsed,
    /// `quit`: the connection ends without a reply.
    Quit,
    /// A line of an HTTP request: a web page may have had a browser send it, with commands behind it. The connection ends.
    Http,
    /// Something that is answered with an error, in its turn.
    Refused {
        /// Which error.
        refusal: Refusal,
        /// What it is counted as all the same.
        counted: Option<Counted>,
    },
}

/// The most jobs that one `reserve-batch` may ask for.
pub const RESERVE_BATCH_MAX: u32 = 1000;

/// A job to be put into the tube in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put<'a> {
    /// 0 is the most urgent.
    pub priority: u32,
    /// Seconds until it is ready.
    pub delay: u32,
    /// Seconds that whoever reserves it has; at least 1.
    pub ttr: u32,
    /// Of the extensions: what makes it one with another job.
    pub dedup: Option<Dedup>,
    /// Borrowed if it came in one piece, else owned and without room to spare.
    pub body: Cow<'a, [u8]>,
}

/// `idp:key` or `idp:key:ttl`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dedup {
    /// Of the alphabet of tube names.
    pub key: Box<[u8]>,
    /// Seconds that the key stays taken after the job is deleted; 0 if nothing was said.
    pub ttl: u32,
}

/// A tube's name: 1 to 200 bytes of letters, digits and `-+/;.$_()`, the first no `-`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TubeName<'a>(&'a [u8]);

impl<'a> TubeName<'a> {
    /// The longest name.
    pub const BYTES_MAX: usize = 200;

    /// The name, if it is one.
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let first = bytes.first()?;
        let valid = *first != b'-'
            && bytes.len() <= Self::BYTES_MAX
            && bytes.iter().all(|byte| Self::may_hold(*byte));
        valid.then_some(Self(bytes))
    }

    /// The name as it stands in the line.
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
    /// `default`: the most urgent job of all of them.
    Default,
    /// `fifo`: the same, under the name that the extension had first.
    Fifo,
    /// `weighted`: a tube by chance and weight, then its most urgent job.
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

/// Why something is answered with an error before anybody looks at the queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `BAD_FORMAT`
    BadFormat,
    /// `UNKNOWN_COMMAND`
    UnknownCommand,
    /// `JOB_TOO_BIG`: as many bytes as announced, and two, were swallowed.
    JobTooBig,
    /// `EXPECTED_CRLF`: as many bytes as announced, and two, were swallowed. A client that gets this is a producer.
    ExpectedCrlf,
    /// `OUT_OF_MEMORY`: as many bytes as announced, and two, were swallowed, since there was no room for them.
    OutOfMemory,
}

/// What a command is counted as, in the order of the server's statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counted {
    /// `put`
    Put,
    /// `peek`
    Peek,
    /// `peek-ready`
    PeekReady,
    /// `peek-delayed`
    PeekDelayed,
    /// `peek-buried`
    PeekBuried,
    /// `reserve`
    Reserve,
    /// `reserve-with-timeout`
    ReserveWithTimeout,
    /// `delete`
    Delete,
    /// `release`
    Release,
    /// `use`
    Use,
    /// `watch`
    Watch,
    /// `ignore`
    Ignore,
    /// `bury`
    Bury,
    /// `kick`
    Kick,
    /// `touch`
    Touch,
    /// `stats`
    Stats,
    /// `stats-job`
    StatsJob,
    /// `stats-tube`
    StatsTube,
    /// `list-tubes`
    ListTubes,
    /// `list-tube-used`
    ListTubeUsed,
    /// `list-tubes-watched`
    ListTubesWatched,
    /// `pause-tube`
    PauseTube,
}

impl Counted {
    /// How many there are; `counted as usize` is below it.
    pub const COUNT: usize = 22;
}

impl Command<'_> {
    /// What the command is counted as, if the statistics know it.
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

/// For the log: the body of a job is told by its length.
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
