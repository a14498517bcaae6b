//! The state that the connections of a listener share: its counters, its bounds, and the hosts that it admits.

use crate::bounds::{LargeAnswers, Turns, UNREAD_BYTES_MAX};
use crate::lockserver::counters::Counters;
use crate::lockserver::hosts::Hosts;
use crate::lockserver::stats::Stats;
use sexton::clock::Clock;
use sexton::config::LockserverConfig;
use sexton::protocols::listener::Places;
use sexton::spine::budget::Budget;
use std::sync::Arc;
use tokio::sync::watch;

/// The maximum number of refused connections that are closed gracefully at a time.
const REFUSALS_MAX: u32 = 256;

/// The state that the connections of a listener share.
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    /// The places of open connections.
    pub(crate) places: Arc<Places>,
    /// The hosts list. Connections of hosts that are removed from it are closed.
    pub(crate) hosts: watch::Sender<Arc<Hosts>>,
    pub(crate) large: LargeAnswers,
    pub(crate) turns: Turns,
    /// The memory budget for answers that clients have not read.
    pub(crate) unread: Arc<Budget>,
    /// The places of refused connections that are being closed.
    pub(crate) refusals: Arc<Places>,
}

impl Shared {
    /// Creates the state of a listener that is opened now.
    pub(crate) fn new(config: &LockserverConfig, hosts: Hosts, clock: Arc<dyn Clock>) -> Self {
        Self {
            counters: Counters::new(clock),
            places: Places::of_connections(config.connections_max),
            hosts: watch::Sender::new(Arc::new(hosts)),
            large: LargeAnswers::default(),
            turns: Turns::default(),
            unread: Budget::new(UNREAD_BYTES_MAX),
            refusals: Places::new(REFUSALS_MAX),
        }
    }

    /// Returns the current statistics; `live` are the numbers of lock owners and contenders.
    pub(crate) fn stats(&self, live: (u32, u32)) -> Stats {
        self.counters.stats(self.places.taken(), live)
    }

    /// Returns the hosts that are admitted now.
    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        Arc::clone(&self.hosts.borrow())
    }
}
