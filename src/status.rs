//! What a node says of itself: the answer of `/v1/status`, of `sexton status`, and of [`crate::node::Handle::status`].
//!
//! Plain data with stable names; who asks for what is in `node/`.

use crate::actors::queue::Totals;
use crate::actors::supervisor;
use crate::clock::Timestamp;
use crate::config::Address;
use crate::ids::Seq;
use crate::node::Recovered;
use crate::persist::journal::{Fsync, Journal, JournalCounts, Room};
use crate::protocols::{beanstalk, lockserver};
use crate::spine::checkpoint::SnapshotStatus;
use crate::spine::runtime::ActorStatus;
use std::net::SocketAddr;
use std::path::PathBuf;

/// What a node says of itself.
#[derive(Clone, Debug, serde::Serialize)]
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
    /// What the start found.
    pub recovered: Recovered,
    /// Whether new locks are refused until the end.
    pub draining: bool,
    /// Owners of locks.
    pub lock_owners: u32,
    /// Contenders for locks.
    pub lock_contenders: u32,
    /// Jobs and queues.
    pub queues: Totals,
    /// Commands delivered and not yet answered.
    pub open_commands: u64,
    /// The journal; none if the node keeps no files.
    pub journal: Option<JournalStatus>,
    /// The snapshots; none if the node keeps no files.
    pub snapshots: Option<SnapshotStatus>,
    /// The actors.
    pub actors: Vec<ActorReport>,
    /// The LockServer door's statistics.
    pub lockserver: Option<lockserver::Stats>,
    /// What became of those who came to the beanstalkd door.
    pub beanstalk: Option<beanstalk::Stats>,
    /// The HTTP door's statistics.
    #[cfg(feature = "http")]
    pub http: Option<crate::protocols::http::Stats>,
    /// Why the node halted, if it did.
    pub halted: Option<String>,
}

/// Where the doors are.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Doors {
    /// LockServer protocol.
    pub lockserver: Option<SocketAddr>,
    /// beanstalkd's protocol.
    pub beanstalk: Option<Address>,
    /// HTTP over TCP.
    pub http: Option<SocketAddr>,
    /// HTTP over a Unix socket.
    pub socket: Option<PathBuf>,
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
