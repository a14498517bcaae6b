//! What the listener counts: commands and connections since it was opened. The counters are not part of the LockActor's state or digest, so
//! neither a restart of the actor nor a replay changes them.

use crate::lockserver::codec::Command;
use crate::lockserver::stats::Stats;
use sexton::clock::{Clock, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of commands and connections.
pub(crate) struct Counters {
    clock: Arc<dyn Clock>,
    began: Timestamp,
    requests: AtomicU64,
    owner_lookups: AtomicU64,
    contender_lookups: AtomicU64,
    renewals: AtomicU64,
    releases: AtomicU64,
    release_alls: AtomicU64,
    dumps: AtomicU64,
    statistics: AtomicU64,
    accepted: AtomicU64,
    rejected_hosts: AtomicU64,
    rejected_busy: AtomicU64,
}

impl Counters {
    /// Creates counters at zero; the uptime is counted from now.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            began: clock.now(),
            clock,
            requests: AtomicU64::new(0),
            owner_lookups: AtomicU64::new(0),
            contender_lookups: AtomicU64::new(0),
            renewals: AtomicU64::new(0),
            releases: AtomicU64::new(0),
            release_alls: AtomicU64::new(0),
            dumps: AtomicU64::new(0),
            statistics: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            rejected_hosts: AtomicU64::new(0),
            rejected_busy: AtomicU64::new(0),
        }
    }

    /// Counts a command, whatever its result.
    pub(crate) fn command(&self, command: &Command) {
        let counter = match command {
            Command::FindOwner(_) => &self.owner_lookups,
            Command::Request { .. } => &self.requests,
            Command::FindContender(..) => &self.contender_lookups,
            Command::Renew(..) => &self.renewals,
            Command::Release(..) => &self.releases,
            Command::ReleaseAll(_) => &self.release_alls,
            Command::List(_) => &self.dumps,
            Command::Stats => &self.statistics,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rejected_host(&self) -> u64 {
        self.rejected_hosts.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn rejected_busy(&self) -> u64 {
        self.rejected_busy.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the current statistics. The numbers of open connections, owners and contenders are arguments, because they are not counted
    /// here.
    pub(crate) fn stats(&self, active: u32, (owners, contenders): (u32, u32)) -> Stats {
        let long = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Row 31 of `docs/protocols/lockserver.md`: wraps modulo 2^32.
        let int = |counter: &AtomicU64| {
            u32::try_from(long(counter) & u64::from(u32::MAX)).unwrap_or(u32::MAX)
        };
        let uptime = self.clock.now().since(self.began).as_secs();
        Stats {
            uptime: u32::try_from(uptime).unwrap_or(u32::MAX),
            requests: int(&self.requests),
            owner_lookups: int(&self.owner_lookups),
            contender_lookups: int(&self.contender_lookups),
            renewals: int(&self.renewals),
            releases: int(&self.releases),
            release_alls: int(&self.release_alls),
            dumps: int(&self.dumps),
            statistics: int(&self.statistics),
            accepted: long(&self.accepted),
            rejected_hosts: long(&self.rejected_hosts),
            rejected_busy: long(&self.rejected_busy),
            owners: owners.into(),
            contenders: contenders.into(),
            active,
        }
    }
}
