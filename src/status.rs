//! What a node says of itself: the answer of `/v1/status`, of `sexton status`, and of [`crate::handle::Handle::status`].
//!
//! Plain data with stable names; what asks for it is in `handle/`.

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

/// What stands in a status as others have it.
#[cfg(feature = "http")]
type Object = BTreeMap<String, serde_json::Value>;

/// What a node says of itself.
#[cfg_attr(
    feature = "http",
    derive(schemars::JsonSchema),
    schemars(rename = "Status", extend("x-open" = true))
)]
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct NodeStatus {
    /// Version of the program.
    pub version: &'static str,
    /// The process.
    pub pid: u32,
    /// The data directory; none if the node keeps no files.
    pub data: Option<PathBuf>,
    /// `always`, `interval:MS`, `never`, or `memory`.
    pub fsync: String,
    /// Where the doors are.
    pub doors: Doors,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Node time.
    pub now: Timestamp,
    /// Wall clock less node time, in milliseconds.
    pub wall_offset_ms: i64,
    /// How far the wall clock is ahead of what was expected, in milliseconds, while it is in doubt: nothing is pruned then.
    pub clock_ahead_ms: Option<u64>,
    /// What the start found.
    #[cfg_attr(feature = "http", schemars(with = "Object"))]
    pub recovered: Recovered,
    /// What came of the newest reload of the configuration; none before the first.
    #[cfg_attr(feature = "http", schemars(with = "Option<Object>"))]
    pub reloaded: Option<Reloaded>,
    /// Whether something is taken on no more until the next start.
    pub draining: bool,
    /// What that is: `locks`, `jobs`, `claims` of jobs, `passes` of leases, `tasks`.
    pub draining_what: Vec<&'static str>,
    /// Owners of locks.
    pub lock_owners: u32,
    /// Contenders for locks.
    pub lock_contenders: u32,
    /// Jobs and queues.
    #[cfg_attr(feature = "http", schemars(with = "Object"))]
    pub queues: Totals,
    /// Passes of leases.
    #[cfg_attr(feature = "http", schemars(with = "Object"))]
    pub leases: lease::Totals,
    /// Tasks.
    #[cfg_attr(feature = "http", schemars(with = "Object"))]
    pub tasks: dispatch::Totals,
    /// What a limit of memory bounds here: `tree`, a process and all that it started together, or `process`, each of them; none
    /// as long as no process was launched.
    pub memory_limits: Option<&'static str>,
    /// Commands delivered and not yet answered.
    pub open_commands: u64,
    /// The journal; none if the node keeps no files.
    #[cfg_attr(feature = "http", schemars(with = "Option<Object>"))]
    pub journal: Option<JournalStatus>,
    /// The snapshots; none if the node keeps no files.
    #[cfg_attr(feature = "http", schemars(with = "Option<Object>"))]
    pub snapshots: Option<SnapshotStatus>,
    /// The actors.
    #[cfg_attr(feature = "http", schemars(with = "Vec<Object>"))]
    pub actors: Vec<ActorReport>,
    /// The LockServer door's statistics.
    pub lockserver: Option<LockserverStats>,
    /// What became of those who came to the beanstalkd door.
    pub beanstalk: Option<BeanstalkStats>,
    /// The HTTP door's statistics.
    pub http: Option<HttpStats>,
    /// The machine that it runs on.
    #[cfg_attr(feature = "http", schemars(with = "Object"))]
    pub host: HostStatus,
    /// What its process has.
    #[cfg_attr(feature = "http", schemars(with = "Object"))]
    pub process: ProcessStatus,
    /// Why the node halted, if it did.
    pub halted: Option<String>,
}

/// The machine that a node runs on. What cannot be read is none.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct HostStatus {
    /// Tasks that run or wait to, averaged over 1, 5 and 15 minutes.
    pub load: Option<[f64; 3]>,
    /// Processors that the process may use.
    pub processors: Option<usize>,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// What of it could be had without swapping.
    pub memory_available_bytes: Option<u64>,
    /// Milliseconds since the machine started.
    pub uptime_ms: Option<u64>,
}

/// What a node's process has. What cannot be read is none.
#[derive(Clone, Copy, Debug, Default, serde::Serialize)]
pub struct ProcessStatus {
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// The most that it ever had.
    pub memory_peak_bytes: Option<u64>,
    /// Open descriptors: files and connections.
    pub descriptors: Option<u64>,
    /// How many it may open; none if that is not limited.
    pub descriptors_max: Option<u64>,
}

/// Where the doors are.
#[cfg_attr(
    feature = "http",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Doors {
    /// LockServer protocol.
    pub lockserver: Option<SocketAddr>,
    /// beanstalkd's protocol.
    #[cfg_attr(feature = "http", schemars(with = "Option<String>"))]
    pub beanstalk: Option<Address>,
    /// HTTP over TCP.
    pub http: Option<SocketAddr>,
    /// HTTP over a Unix socket.
    pub socket: Option<PathBuf>,
}

/// What listeners show: where they are, and what became of those who came.
#[derive(Clone, Debug, Default)]
pub struct Listening {
    /// Where they are.
    pub doors: Doors,
    /// Statistics of LockServer's.
    pub lockserver: Option<LockserverStats>,
    /// Statistics of beanstalkd's.
    pub beanstalk: Option<BeanstalkStats>,
    /// Statistics of HTTP's.
    pub http: Option<HttpStats>,
}

/// The LockServer door's statistics of one moment, in the order of its command 8.
#[cfg_attr(
    feature = "http",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct LockserverStats {
    /// Seconds since the start.
    pub uptime: u32,
    /// Lock requests.
    pub requests: u32,
    /// Owner lookups.
    pub owner_lookups: u32,
    /// Contender lookups.
    pub contender_lookups: u32,
    /// Renewals.
    pub renewals: u32,
    /// Releases of one lock.
    pub releases: u32,
    /// Releases of all locks.
    pub release_alls: u32,
    /// Listings.
    pub dumps: u32,
    /// Requests for these numbers.
    pub statistics: u32,
    /// Connections accepted.
    pub accepted: u64,
    /// Connections from hosts that are not let in.
    pub rejected_hosts: u64,
    /// Connections beyond the limit.
    pub rejected_busy: u64,
    /// Lock owners now.
    pub owners: u64,
    /// Contenders now.
    pub contenders: u64,
    /// Connections now.
    pub active: u32,
}

/// What became of those who came to the beanstalkd door since it opened.
#[cfg_attr(
    feature = "http",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct BeanstalkStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections from hosts that are not in the list.
    pub rejected_hosts: u64,
    /// Connections beyond the limit.
    pub rejected_busy: u64,
    /// Connections now.
    pub active: u32,
    /// How often each command came, by its name.
    #[cfg_attr(feature = "http", schemars(with = "Object"))]
    pub commands: BTreeMap<&'static str, u64>,
}

/// The HTTP door's statistics, both listeners together.
#[cfg_attr(
    feature = "http",
    derive(schemars::JsonSchema),
    schemars(extend("x-open" = true))
)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HttpStats {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections beyond the limit.
    pub rejected_busy: u64,
    /// Requests answered as asked.
    pub answered: u64,
    /// Requests refused: statuses 400 to 499.
    pub refused: u64,
    /// Requests that could not be answered: statuses from 500.
    pub failed: u64,
    /// Connections now.
    pub active: u32,
}

/// What came of a reload of the configuration.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Reloaded {
    /// Which since the start, from 1.
    pub count: u64,
    /// Why something stayed as it was, in words; empty if all was read.
    pub problems: Vec<String>,
}

/// What a start found.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Recovered {
    /// Records replayed.
    pub records: u64,
    /// Whether the coordinator before had stopped in good order, or there was none.
    pub clean: bool,
    /// How long recovery took, in milliseconds.
    pub ms: u64,
    /// The end of the log that was cut, as text.
    pub cut: Option<String>,
    /// The snapshot that the start began with, and up to where it went.
    pub snapshot: Option<(String, Seq)>,
    /// What was wrong with snapshots, in words. They are written anew.
    pub mended: Vec<String>,
}

/// The journal, as the status shows it.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub struct JournalStatus {
    /// Entries up to here may be answered.
    pub released: Seq,
    /// What it has done since the start.
    #[serde(flatten)]
    pub counts: JournalCounts,
    /// `ample`, or what a full disk leaves.
    pub room: &'static str,
}

/// One actor, as the status shows it.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ActorReport {
    /// What it says of itself.
    #[serde(flatten)]
    pub status: ActorStatus,
    /// Its panics.
    #[serde(flatten)]
    pub panics: supervisor::Record,
}

/// The durability as flags name it.
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
