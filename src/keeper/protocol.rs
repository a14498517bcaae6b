//! The messages between a coordinator and its keeper, as specified in `docs/protocols/keeper.md`.
//!
//! Each message is a frame on a Unix stream socket: a length of four bytes, little-endian, then a [`Request`] or a [`Report`] in
//! rmp-serde's compact encoding.
//!
//! Change rule: while a coordinator is upgraded, the two sides may have different versions, so fields and variants are only added at the
//! end, and each addition increases [`VERSION`]. A coordinator asks a keeper that executes another program, and whose version is not newer,
//! to execute the coordinator's program in its place.

use crate::bytes::Bytes;
use crate::ids::ProcessId;
use serde::{Deserialize, Serialize};

/// The version of this protocol.
pub const VERSION: u32 = 1;

/// The maximum length of a frame in bytes, without its length field.
pub const FRAME_BYTES_MAX: usize = 4 << 20;

/// The maximum number of attempts that a keeper holds, including those that have ended and are not yet forgotten.
pub const ATTEMPTS_MAX: usize = 1 << 17;

/// The maximum time a parcel waits for its launch, in seconds, unless it waits until its connection closes.
pub const PARCEL_SECONDS: u64 = 60;

/// The maximum number of parcels waiting at a time.
pub const PARCELS_MAX: usize = 64;

/// The maximum number of parcels that wait until their connections close, so that others always have room.
pub const PARCELS_STAYING_MAX: usize = 32;

/// A request to a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Request {
    /// The first frame of a coordinator. It is answered by `Welcome`, then a report on each attempt held, then `Told`. Later reports are
    /// sent as changes occur. A second coordinator replaces the first, whose connection is closed.
    Hello {
        /// The protocol version of the coordinator.
        version: u32,
    },
    /// The first frame of any other client: it hands over a parcel, accompanied by three descriptors, and is answered by `Taken`.
    Parcel {
        /// The ticket by which a launch refers to the parcel.
        ticket: u128,
        parcel: Box<Parcel>,
        /// Whether the parcel waits while this connection is open, rather than for a minute.
        #[serde(default, skip_serializing_if = "is_off")]
        stays: bool,
    },
    /// Launches an attempt unless it is held already. Answered by a report of its state.
    Launch {
        attempt: ProcessId,
        /// What to launch.
        launch: Box<Launch>,
    },
    /// Forgets these attempts, whose ends the coordinator has made durable. Those whose processes are still running as children of the
    /// keeper are not forgotten.
    Forget { attempts: Vec<ProcessId> },
    /// Executes a newer program in place of the keeper's. The new program takes over all attempts and parcels, and the connection is
    /// closed. If the program cannot be executed, nothing changes, and the answer is `Refused`.
    Upgrade {
        /// The path of the program.
        program: Bytes,
    },
    /// Asks about an attempt. Answered by `Started`, `Exited`, `Absent` or another report of its state.
    Ask { attempt: ProcessId },
    /// Like `Parcel`, with what the command takes over beyond it. The further descriptors follow the three streams.
    Inheritance {
        /// The ticket by which a launch refers to the parcel.
        ticket: u128,
        parcel: Box<Parcel>,
        /// Whether the parcel waits while this connection is open, rather than for a minute.
        stays: bool,
        /// What the command takes over beyond the parcel.
        inheritance: Box<Inheritance>,
    },
}

/// Returns whether a flag is off. Such a flag is left out of the frame, so that an older peer can read a request that does not use it.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_off(flag: &bool) -> bool {
    !*flag
}

/// The environment and limits that a client hands over for a launch. Kept in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parcel {
    /// The whole environment, as `NAME=VALUE`.
    pub env: Vec<Bytes>,
    /// The umask.
    pub umask: u32,
    /// Resource limits: resource, soft limit, hard limit. `u64::MAX` means unlimited.
    pub limits: Vec<(u32, u64, u64)>,
    /// The memory limit of the process's whole control group in bytes, applied if the group can be limited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
}

/// What a command takes over from its caller in addition to the parcel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inheritance {
    /// The numbers of the further descriptors.
    pub descriptors: Vec<i32>,
    /// The nice value, if it is to be set. A value that needs a privilege is ignored.
    pub nice: Option<i32>,
    /// The priority of input and output, as `ioprio_get` returns it, if it is to be set.
    pub io_priority: Option<i32>,
    /// The processors that may be used, as a set of bits, lowest first; empty for all.
    pub cpus: Vec<u8>,
    /// Whether the command becomes the leader of a session whose controlling terminal is its standard input.
    pub terminal: bool,
}

impl Inheritance {
    /// The maximum number of further descriptors.
    pub const DESCRIPTORS_MAX: usize = 61;
    /// The highest number of a further descriptor.
    pub const DESCRIPTOR_MAX: i32 = 767;
    /// The maximum size of the set of processors, in bytes.
    pub const CPUS_BYTES_MAX: usize = 1024;

    /// Returns whether all numbers are within their limits, and no descriptor is named twice.
    pub fn is_valid(&self) -> bool {
        let mut numbers = self.descriptors.clone();
        numbers.sort_unstable();
        numbers.dedup();
        let fits = |number: &i32| (3..=Self::DESCRIPTOR_MAX).contains(number);
        numbers.len() == self.descriptors.len()
            && numbers.len() <= Self::DESCRIPTORS_MAX
            && numbers.iter().all(fits)
            && self.cpus.len() <= Self::CPUS_BYTES_MAX
    }
}

/// What to launch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// The program and its arguments.
    pub argv: Vec<Bytes>,
    /// The working directory.
    pub dir: Bytes,
    /// The environment, as `NAME=VALUE`. If there is a parcel, these variables are added to the parcel's, and override those with the same
    /// name.
    pub env: Vec<Bytes>,
    /// The ticket of the parcel, if any, that provides streams, environment, umask and limits.
    pub parcel: Option<u128>,
    /// The files for standard output and standard error; if `None`, output is discarded. Not used if there is a parcel. Without a parcel,
    /// standard input is `/dev/null`.
    pub output: Option<(Bytes, Bytes)>,
    /// Whether output is appended to existing files rather than replacing their contents.
    pub appends: bool,
    /// The user and groups to run as, if not the keeper's: user, group, supplementary groups.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// Resource limits, which are set after those of the parcel: resource, soft limit, hard limit. For all other resources, the keeper's
    /// limits are inherited.
    pub limits: Vec<(u32, u64, u64)>,
}

/// A report from a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Report {
    /// The answer to `Hello`.
    Welcome {
        /// The protocol version of the keeper.
        version: u32,
        /// The keeper's PID.
        pid: u32,
        /// The id of the current boot, to which all its attempts belong.
        boot: u128,
        /// The path of the control group that contains the groups of attempts; `None` if there are no control groups.
        groups: Option<Bytes>,
    },
    /// All attempts held at the `Hello` have been reported.
    Told,
    /// A parcel was accepted.
    Taken { ticket: u128 },
    /// The attempt is running.
    Started(Started),
    /// The attempt could not be started.
    Failed {
        attempt: ProcessId,
        /// The step that failed, see [`step`].
        step: u8,
        /// The kernel's error number, or 0.
        errno: i32,
    },
    /// The attempt has ended.
    Exited(Exited),
    /// The attempt is not held by this keeper.
    Absent { attempt: ProcessId },
    /// A request was refused.
    Refused { reason: String },
    /// The attempt was started by an earlier keeper that has since died. Its process may still be running, but this keeper cannot learn how
    /// it ends; the coordinator has to watch the process itself. The attempt is never launched again, and is held until it is forgotten.
    Orphaned(Started),
}

/// A process that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// The attempt it belongs to.
    pub attempt: ProcessId,
    /// Its PID, which is also the id of its process group.
    pub pid: u32,
    /// The inode of the PID namespace in which that PID is valid.
    pub namespace: u64,
    /// The inode of its pidfd; 0 if this kernel's pidfd inodes are not unique.
    pub inode: u64,
    /// Its start time in clock ticks since boot.
    pub ticks: u64,
    /// Its start time in milliseconds since the Unix epoch.
    pub at: u64,
    /// Whether it has its own control group, below the keeper's group and named after its attempt.
    pub contained: bool,
}

/// A process that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exited {
    /// How it was started.
    pub started: Started,
    /// Its status in the format of `wait`: the exit code in the second byte, the signal in the first.
    pub status: u32,
    /// When it ended, in milliseconds since the Unix epoch.
    pub at: u64,
    /// The processor time of the process and of the descendants it waited for, in milliseconds.
    pub cpu_ms: u64,
    /// Its peak memory in bytes.
    pub memory_max: u64,
}

/// The steps at which a launch can fail, as numbers of this protocol.
pub mod step {
    /// Accepting the attempt: too many are held.
    pub const FULL: u8 = 1;
    /// Opening the output files, or moving the streams to their descriptors.
    pub const OUTPUT: u8 = 2;
    /// Finding the parcel.
    pub const PARCEL: u8 = 3;
    /// Creating a new process.
    pub const FORK: u8 = 4;
    /// Creating its control group. This keeper never reports it: if that fails, the process is started without a group.
    pub const GROUP: u8 = 5;
    /// Changing to its working directory.
    pub const DIRECTORY: u8 = 6;
    /// Switching to its user and groups.
    pub const USER: u8 = 7;
    /// Setting its limits.
    pub const LIMITS: u8 = 8;
    /// Executing the program.
    pub const EXEC: u8 = 9;
    /// Writing the keeper's own log.
    pub const LOG: u8 = 10;
}
