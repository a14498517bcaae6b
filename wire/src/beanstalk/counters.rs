//! What the listener counts: commands and connections since it was opened, and the producers and workers among the open connections. It
//! counts in memory only, so everything begins at zero when the listener is opened.

use crate::beanstalk::command::Counted;
use crate::beanstalk::stats;
pub use sexton::status::BeanstalkStats as Stats;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The counters of a listener.
#[derive(Debug)]
pub(crate) struct Counters {
    commands: [AtomicU64; Counted::COUNT],
    connections: AtomicI64,
    connections_total: AtomicU64,
    rejected_hosts: AtomicU64,
    rejected_busy: AtomicU64,
    http: AtomicU64,
    producers: AtomicI64,
    workers: AtomicI64,
}

/// The connections, as they are counted now.
pub(crate) struct Connections {
    /// The number of open ones.
    pub(crate) open: u64,
    /// The number of connections so far.
    pub(crate) total: u64,
    /// The number of open ones that have used `put`.
    pub(crate) producers: u64,
    /// The number of open ones that have used `reserve`, or reserved a job with `reserve-job`.
    pub(crate) workers: u64,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            commands: std::array::from_fn(|_| AtomicU64::new(0)),
            connections: AtomicI64::new(0),
            connections_total: AtomicU64::new(0),
            rejected_hosts: AtomicU64::new(0),
            rejected_busy: AtomicU64::new(0),
            http: AtomicU64::new(0),
            producers: AtomicI64::new(0),
            workers: AtomicI64::new(0),
        }
    }
}

impl Counters {
    pub(crate) fn command(&self, counted: Counted) {
        if let Some(count) = self.commands.get(counted as usize) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
        self.connections_total.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn disconnected(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn producers(&self, more: i64) {
        self.producers.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn workers(&self, more: i64) {
        self.workers.fetch_add(more, Ordering::Relaxed);
    }

    /// Counts a connection of a host that is not allowed, and returns the number so far.
    pub(crate) fn rejected_host(&self) -> u64 {
        self.rejected_hosts.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a connection for which no place was free, and returns the number so far.
    pub(crate) fn rejected_busy(&self) -> u64 {
        self.rejected_busy.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Counts a connection that was closed because it carried an HTTP request, and returns the number so far.
    pub(crate) fn http(&self) -> u64 {
        self.http.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns how often each command was received, indexed by `Counted as usize`.
    pub(crate) fn commands(&self) -> [u64; Counted::COUNT] {
        self.commands.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    pub(crate) fn connections(&self) -> Connections {
        let shown = |count: &AtomicI64| u64::try_from(count.load(Ordering::Relaxed)).unwrap_or(0);
        Connections {
            open: shown(&self.connections),
            total: self.connections_total.load(Ordering::Relaxed),
            producers: shown(&self.producers),
            workers: shown(&self.workers),
        }
    }

    /// Returns the listener's statistics. The number of places that connections hold is an argument, because it is not counted here.
    pub(crate) fn stats(&self, active: u32) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            accepted: count(&self.connections_total),
            rejected_hosts: count(&self.rejected_hosts),
            rejected_busy: count(&self.rejected_busy),
            active,
            commands: stats::named(self.commands()).collect(),
        }
    }
}
