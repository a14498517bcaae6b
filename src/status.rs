//! The status of a node, as returned by `/v1/status` and [`crate::handle::Handle::status`], and shown by `sexton status`.
//!
//! Plain data with stable names; the code that collects it is in `handle/`.

use crate::actors::dispatch;
use crate::actors::lease;
use crate::actors::queue::Totals;
use crate::actors::supervisor;
use crate::address::Address;
use crate::clock::Timestamp;
use crate::ids::Seq;
use crate::persist::journal::{Fsync, Journal, JournalCounts, Room};
use crate::spine::checkpoint::SnapshotStatus;
use crate::spine::runtime::ActorStatus;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

/// A part of the status that the schema describes only as an object.
#[cfg(feature = "schemas")]
type Object = BTreeMap<String, serde_json::Value>;

/// The status of a node.
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(rename = "Status", extend("x-open" = true))
)]
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct NodeStatus {
    /// The version of the program.
    pub version: &'static str,
    /// The id of the node's process.
    pub pid: u32,
    /// The data directory; absent if the node keeps no files.
    pub data: Option<PathBuf>,
    /// When changes are synced to disk: `always`, `interval:MS` or `never`; `memory` if the node keeps no files.
    pub fsync: String,
    /// The addresses of the listeners.
    pub listeners: Listeners,
    /// Milliseconds since the node started.
    pub uptime_ms: u64,
    /// Node time, in milliseconds since 1970.
    pub now: Timestamp,
    /// The wall clock minus node time, in milliseconds.
    pub wall_offset_ms: i64,
    /// How far the wall clock is ahead of its expected time, in milliseconds, if that is more than a day: the clock is then in doubt, and
    /// nothing is pruned.
    pub clock_ahead_ms: Option<u64>,
    /// What recovery found at startup.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub recovered: Recovered,
    /// The result of the newest reload of the configuration; absent if there was none since startup.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<Object>"))]
    pub reloaded: Option<Reloaded>,
    /// Whether some kinds of new work are refused until the node restarts.
    pub draining: bool,
    /// The kinds of work that are refused: `locks`, `jobs`, `claims` of jobs, `passes` of leases, `tasks`.
    pub draining_what: Vec<&'static str>,
    /// The number of lock owners.
    pub lock_owners: u32,
    /// The number of contenders for locks.
    pub lock_contenders: u32,
    /// Totals of jobs and queues.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub queues: Totals,
    /// Totals of leases and their passes.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub leases: lease::Totals,
    /// Totals of tasks.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub tasks: dispatch::Totals,
    /// How processes are followed.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub following: FollowingStatus,
    /// What a memory limit applies to on this machine: `tree` (a process together with everything that it started) or `process` (each
    /// process separately). Absent until a process has been launched.
    pub memory_limits: Option<&'static str>,
    /// The number of commands delivered and not yet answered.
    pub open_commands: u64,
    /// The journal; absent if the node keeps no files.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<Object>"))]
    pub journal: Option<JournalStatus>,
    /// The snapshots; absent if the node keeps no files.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<Object>"))]
    pub snapshots: Option<SnapshotStatus>,
    /// The actors.
    #[cfg_attr(feature = "schemas", schemars(with = "Vec<Object>"))]
    pub actors: Vec<ActorReport>,
    /// Statistics of the LockServer listener; absent if it is not open.
    pub lockserver: Option<LockserverStats>,
    /// Statistics of the beanstalkd listener; absent if it is not open.
    pub beanstalk: Option<BeanstalkStats>,
    /// Statistics of the HTTP listeners; absent if none is open.
    pub http: Option<HttpStats>,
    /// The machine that the node runs on.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub host: HostStatus,
    /// The resources that the node's process uses.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub process: ProcessStatus,
    /// Why the node halted, if it did.
    pub halted: Option<String>,
}

/// How a node follows processes: the features of its kernel, and the number of processes whose state is unknown.
#[derive(Clone, Debug, Default, serde::Serialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate feature")]
pub struct FollowingStatus {
    /// How well the kernel supports following processes: `A` (best), `B` or `C`.
    pub tier: &'static str,
    /// Whether the kernel has process descriptors (pidfds).
    pub descriptors: bool,
    /// Whether the inode of a descriptor identifies its process.
    pub inodes: bool,
    /// Whether a process can be opened by the inode of its descriptor.
    pub handles: bool,
    /// Whether the kernel reports the exit status of processes that are not children of the caller.
    pub exits: bool,
    /// Whether each launched process gets its own control group. Absent until a process has been launched.
    pub control_groups: Option<bool>,
    /// The number of followed processes for which it is unknown whether they are alive: their lookup failed and is repeated.
    pub unknown: u32,
    /// The features of the kernel as text for users.
    pub words: String,
}

/// The machine that a node runs on. Values that cannot be read are `None`.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct HostStatus {
    /// The load averages over 1, 5 and 15 minutes.
    pub load: Option<[f64; 3]>,
    /// The number of processors that the process may use.
    pub processors: Option<usize>,
    /// The memory of the machine, in bytes.
    pub memory_bytes: Option<u64>,
    /// The memory available without swapping, in bytes.
    pub memory_available_bytes: Option<u64>,
    /// Milliseconds since the machine started.
    pub uptime_ms: Option<u64>,
}

/// The resources that a node's process uses. Values that cannot be read are `None`.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct ProcessStatus {
    /// Memory in use, in bytes.
    pub memory_bytes: Option<u64>,
    /// The peak of memory in use, in bytes.
    pub memory_peak_bytes: Option<u64>,
    /// The number of open descriptors, such as files and connections.
    pub descriptors: Option<u64>,
    /// The maximum number of open descriptors; `None` if there is no limit.
    pub descriptors_max: Option<u64>,
}

/// The addresses of the listeners; absent for those that are not open.
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Listeners {
    /// The LockServer protocol.
    pub lockserver: Option<SocketAddr>,
    /// The beanstalkd protocol.
    #[cfg_attr(feature = "schemas", schemars(with = "Option<String>"))]
    pub beanstalk: Option<Address>,
    /// HTTP over TCP.
    pub http: Option<SocketAddr>,
    /// HTTP over a Unix socket.
    pub socket: Option<PathBuf>,
}

/// The addresses and the statistics of the listeners.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    /// The addresses.
    pub listeners: Listeners,
    /// Statistics of the LockServer listener; `None` if it is not open.
    pub lockserver: Option<LockserverStats>,
    /// Statistics of the beanstalkd listener; `None` if it is not open.
    pub beanstalk: Option<BeanstalkStats>,
    /// Statistics of the HTTP listeners; `None` if none is open.
    pub http: Option<HttpStats>,
}

/// Statistics of the LockServer listener, in the order in which the protocol's command 8 reports them. The counts are since it opened.
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LockserverStats {
    /// Seconds since the listener opened.
    pub uptime: u32,
    /// Lock requests.
    pub requests: u32,
    /// Owner lookups.
    pub owner_lookups: u32,
    /// Contender lookups.
    pub contender_lookups: u32,
    /// Renewals.
    pub renewals: u32,
    /// Releases of a single lock.
    pub releases: u32,
    /// Releases of all locks of an owner.
    pub release_alls: u32,
    /// Listings.
    pub dumps: u32,
    /// Requests for these statistics.
    pub statistics: u32,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because the host is not allowed.
    pub rejected_hosts: u64,
    /// Connections refused because the limit was reached.
    pub rejected_busy: u64,
    /// Current lock owners.
    pub owners: u64,
    /// Current contenders.
    pub contenders: u64,
    /// Current connections.
    pub active: u32,
}

/// Statistics of the beanstalkd listener since it opened.
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct BeanstalkStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because the host is not allowed.
    pub rejected_hosts: u64,
    /// Connections refused because the limit was reached.
    pub rejected_busy: u64,
    /// Current connections.
    pub active: u32,
    /// How often each command was received, by name.
    #[cfg_attr(feature = "schemas", schemars(with = "Object"))]
    pub commands: BTreeMap<&'static str, u64>,
}

/// Statistics of the HTTP listeners, TCP and Unix socket together.
#[cfg_attr(
    feature = "schemas",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HttpStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections refused because the limit was reached.
    pub rejected_busy: u64,
    /// Requests answered without an error: statuses below 400.
    pub answered: u64,
    /// Requests refused: statuses 400 to 499.
    pub refused: u64,
    /// Requests that could not be answered: statuses from 500.
    pub failed: u64,
    /// Current connections.
    pub active: u32,
}

/// The result of a reload of the configuration.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Reloaded {
    /// The number of reloads since startup, including this one.
    pub count: u64,
    /// The reasons why settings were not applied; empty if all of them were.
    pub problems: Vec<String>,
}

/// What recovery found at startup.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Recovered {
    /// The number of records replayed.
    pub records: u64,
    /// Whether the previous run shut down cleanly, or there was none.
    pub clean: bool,
    /// Whether there was no previous run: nothing was recorded yet.
    pub new: bool,
    /// The time that recovery took, in milliseconds.
    pub ms: u64,
    /// A description of the unfinished end of the journal that was cut off, if there was one.
    pub cut: Option<String>,
    /// The snapshot that recovery began with, and the last sequence number it covers.
    pub snapshot: Option<(String, Seq)>,
    /// Descriptions of problems with snapshots, and of damage to parts of the journal that were not needed. If there are any, a new
    /// snapshot is taken.
    pub mended: Vec<String>,
}

/// The journal, as shown in the status.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct JournalStatus {
    /// The sequence number of the last entry whose answer may be sent.
    pub released: Seq,
    /// Counters since startup.
    #[serde(flatten)]
    pub counts: JournalCounts,
    /// How much disk space is left for the journal: `ample`, `low` or `scant`.
    pub room: &'static str,
}

/// An actor, as shown in the status.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ActorReport {
    /// The actor's status, as reported by the actor itself.
    #[serde(flatten)]
    pub status: ActorStatus,
    /// The actor's panics, as recorded by the Supervisor.
    #[serde(flatten)]
    pub panics: supervisor::Record,
}

/// Returns the durability as the flag `--fsync` spells it; `memory` if the node keeps no files.
pub(crate) fn fsync_words(fsync: Fsync, files: bool) -> String {
    match fsync {
        _ if !files => "memory".to_owned(),
        Fsync::Always => "always".to_owned(),
        Fsync::Interval(interval) => format!("interval:{}", interval.as_millis()),
        Fsync::Never => "never".to_owned(),
    }
}

impl From<&Journal> for JournalStatus {
    fn from(journal: &Journal) -> Self {
        Self {
            released: journal.released(),
            counts: journal.counts(),
            room: match journal.room() {
                Room::Ample => "ample",
                Room::Low => "low",
                Room::Scant => "scant",
            },
        }
    }
}
