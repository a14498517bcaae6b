//! The state that the connections of a listener share: its counters, its bounds, and what it says about itself in `stats`.

use crate::beanstalk::VERSION;
use crate::beanstalk::counters::Counters;
use crate::beanstalk::reply::Reply;
use crate::beanstalk::show;
use crate::beanstalk::stats::{BinlogStats, ServerStats};
use crate::bounds::{LargeAnswers, Turns, UNREAD_BYTES_MAX};
use rustix::system::uname;
use rustix::time::{ClockId, clock_gettime};
use sexton::actors::queue::Totals;
use sexton::clock::{Clock, Timestamp};
use sexton::config::BeanstalkConfig;
use sexton::handle::{Drains, Handle};
use sexton::protocols::bounds::NAMED_BYTES_MAX;
use sexton::protocols::listener::Places;
use sexton::spine::budget::Budget;
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The state that the connections of a listener share.
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) job_bytes_max: u32,
    draining: watch::Receiver<Drains>,
    /// The places of open connections.
    pub(crate) places: Arc<Places>,
    pub(crate) large: LargeAnswers,
    pub(crate) turns: Turns,
    /// The memory budget for answers that clients have not read.
    pub(crate) unread: Arc<Budget>,
    /// The memory budget for jobs that have not arrived completely.
    pub(crate) unfinished: Arc<Budget>,
    /// The memory budget for watched tubes.
    pub(crate) named: Arc<Budget>,
    started: Timestamp,
    /// The server's id: 16 hexadecimal digits, chosen at random at startup.
    id: String,
    hostname: String,
    os: String,
    platform: String,
}

impl Shared {
    /// Creates the state of a listener that is opened now.
    pub(crate) fn new(config: &BeanstalkConfig, node: &Handle, id: u64) -> Self {
        let clock = node.clock();
        let system = uname();
        let text = |words: &CStr| words.to_string_lossy().into_owned();
        Self {
            counters: Counters::default(),
            started: clock.now(),
            clock,
            job_bytes_max: config.job_bytes_max,
            draining: node.drains(),
            places: Places::of_connections(config.connections_max),
            large: LargeAnswers::default(),
            turns: Turns::default(),
            unread: Budget::new(UNREAD_BYTES_MAX),
            unfinished: Budget::half_of(node.unfinished_requests()),
            named: Budget::new(NAMED_BYTES_MAX),
            id: format!("{id:016x}"),
            hostname: text(system.nodename()),
            os: text(system.version()),
            platform: text(system.machine()),
        }
    }

    /// Returns the reply to `stats`.
    pub(crate) fn server_stats(&self, totals: &Totals, now: Timestamp) -> Reply<'_> {
        let connections = self.counters.connections();
        Reply::ServerStats(Box::new(ServerStats {
            jobs: show::counts(&totals.jobs),
            commands: self.counters.commands(),
            job_timeouts: totals.timeouts,
            total_jobs: totals.added,
            job_bytes_max: self.job_bytes_max.into(),
            tubes: totals.queues.into(),
            connections: connections.open,
            producers: connections.producers,
            workers: connections.workers,
            waiting: totals.waiting.into(),
            total_connections: connections.total,
            pid: std::process::id(),
            version: VERSION,
            user_time: processor_time(),
            system_time: Duration::ZERO,
            uptime: now.since(self.started).as_secs(),
            binlog: BinlogStats::default(),
            draining: self.draining.borrow().jobs,
            id: &self.id,
            hostname: &self.hostname,
            os: &self.os,
            platform: &self.platform,
        }))
    }

    /// Resolves when the node begins to drain claims, that is, to refuse new ones; never resolves if the node stops first.
    pub(crate) async fn until_draining(&self) {
        let mut draining = self.draining.clone();
        if draining.wait_for(|drains| drains.claims).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Returns the processor time that the process has used, as reported by the system.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
