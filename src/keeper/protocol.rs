//! What a coordinator and its keeper say to each other. `docs/protocols/keeper.md` is the text this answers to.
//!
//! Frames on a Unix stream socket: a length of four bytes, little end first, then a [`Request`] or a [`Report`] as
//! rmp-serde writes it, compact. Change rule: the two sides may be of different versions while a coordinator is
//! upgraded, so a field or a variant is added at the end, and [`VERSION`] grows; a keeper of another version is asked to
//! execute the newer program in its place.

use crate::bytes::Bytes;
use crate::ids::ProcessId;
use serde::{Deserialize, Serialize};

/// The version of this protocol.
pub const VERSION: u32 = 1;

/// The longest frame.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// The most that a keeper holds: attempts that live, and those that have ended and are not forgotten.
pub const ATTEMPTS_MAX: usize = 1 << 17;

/// How long a parcel waits for its launch, in seconds.
pub const PARCEL_SECONDS: u64 = 60;

/// The most parcels that wait.
pub const PARCELS_MAX: usize = 64;

/// The most of those that wait for as long as their connections are open: the others have room in any case.
pub const PARCELS_STAYING_MAX: usize = 32;

/// What is asked of a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first frame of a coordinator: answered by `Welcome`, then a report on each attempt that is held, then `Told`. From
    /// then on reports come as things happen. A second coordinator takes the place of the first, whose connection ends.
    Hello {
        /// The version that it speaks.
        version: u32,
    },
    /// The first frame of any other client: it hands over a parcel, with three descriptors beside it, and is answered by `Taken`.
    Parcel {
        /// The ticket by which a launch names it.
        ticket: u128,
        /// What it is.
        parcel: Box<Parcel>,
        /// Whether it waits for as long as this connection is open, and not a minute.
        #[serde(default, skip_serializing_if = "is_off")]
        stays: bool,
    },
    /// Launch this attempt, unless it is held already: answered by what is known of it.
    Launch {
        /// Which.
        attempt: ProcessId,
        /// What.
        launch: Box<Launch>,
    },
    /// Their ends are durable elsewhere: forget them. What lives is not forgotten.
    Forget {
        /// Which.
        attempts: Vec<ProcessId>,
    },
    /// Execute this program in your place, with all that is held.
    Upgrade {
        /// Its path.
        program: Bytes,
    },
    /// Say what is known of this attempt: `Started`, `Exited`, or `Absent`.
    Ask {
        /// Which.
        attempt: ProcessId,
    },
}

/// What is off is left out: so an older side reads what asks for nothing that it does not know.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_off(flag: &bool) -> bool {
    !*flag
}

/// What whoever asks for a launch hands over itself. Kept in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// The whole environment, as `NAME=VALUE`.
    pub env: Vec<Bytes>,
    /// The umask.
    pub umask: u32,
    /// Resource limits: which, soft, hard. `u64::MAX` is none.
    pub limits: Vec<(u32, u64, u64)>,
    /// The most bytes of memory of all in its control group, where that can be bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
}

/// What is launched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The program and its arguments.
    pub argv: Vec<Bytes>,
    /// The directory that it runs in.
    pub dir: Bytes,
    /// Its environment, as `NAME=VALUE`; beside that of the parcel if there is one, of which it is the later part.
    pub env: Vec<Bytes>,
    /// The ticket of a parcel, which has its streams, its umask and its limits.
    pub parcel: Option<u128>,
    /// The files of its standard output and standard error, if there is no parcel. Its standard input is `/dev/null`.
    pub output: Option<(Bytes, Bytes)>,
    /// Whether output goes behind what is there.
    pub appends: bool,
    /// The user and the groups to be, if others than the keeper's: user, group, further groups.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// Resource limits beside those of the keeper: which, soft, hard.
    pub limits: Vec<(u32, u64, u64)>,
}

/// What a keeper says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The answer to `Hello`.
    Welcome {
        /// The version that it speaks.
        version: u32,
        /// Its PID.
        pid: u32,
        /// The boot that its attempts are of.
        boot: u128,
        /// The control group below which attempts have theirs, if there can be any: its path.
        groups: Option<Bytes>,
    },
    /// All that was held has been reported.
    Told,
    /// A parcel is here.
    Taken {
        /// Which.
        ticket: u128,
    },
    /// It runs.
    Started(Started),
    /// It could not be started.
    Failed {
        /// Which.
        attempt: ProcessId,
        /// Where, see [`step`].
        step: u8,
        /// The error of the kernel, or 0.
        errno: i32,
    },
    /// It has ended.
    Exited(Exited),
    /// It is not known here.
    Absent {
        /// Which.
        attempt: ProcessId,
    },
    /// A request was not carried out, for this reason.
    Refused {
        /// Why.
        reason: String,
    },
    /// It was started by a keeper that has died since: it may run, but this one cannot say how it ends. Whoever asked
    /// follows it by its own descriptor. It is never launched again, and it is held until it is forgotten.
    Orphaned(Started),
}

/// A process that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// Which.
    pub attempt: ProcessId,
    /// Its PID, and that of its process group.
    pub pid: u32,
    /// The PID namespace of that PID: its inode.
    pub namespace: u64,
    /// The inode of its pidfd; 0 where those mean nothing.
    pub inode: u64,
    /// When it started, in ticks since the boot.
    pub ticks: u64,
    /// When it started: milliseconds since 1970.
    pub at: u64,
    /// Whether it has a control group of its own, below the keeper's by the name of its attempt.
    pub contained: bool,
}

/// A process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// How it ran.
    pub started: Started,
    /// How it ended, as `wait` has it: code in the second byte, signal in the first.
    pub status: u32,
    /// When: milliseconds since 1970.
    pub at: u64,
    /// Milliseconds of processor time.
    pub cpu_ms: u64,
    /// The most memory at once, in bytes.
    pub memory_max: u64,
}

/// Where a launch failed, as numbers of this protocol.
pub mod step {
    /// Too many are held.
    pub const FULL: u8 = 1;
    /// A file of its output.
    pub const OUTPUT: u8 = 2;
    /// Its parcel is not there.
    pub const PARCEL: u8 = 3;
    /// A new process.
    pub const FORK: u8 = 4;
    /// Its control group.
    pub const GROUP: u8 = 5;
    /// Its directory.
    pub const DIRECTORY: u8 = 6;
    /// Its user and groups.
    pub const USER: u8 = 7;
    /// Its limits.
    pub const LIMITS: u8 = 8;
    /// The program.
    pub const EXEC: u8 = 9;
    /// The keeper's own log.
    pub const LOG: u8 = 10;
}
