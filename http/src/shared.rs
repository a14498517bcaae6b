//! The state that the listener's connections share.

use crate::access::Peer;
use crate::capacity::Capacity;
use crate::counters::Counters;
use crate::guesses::Guesses;
use crate::queue_rates::QueueRates;
use crate::rates::Rates;
use crate::tls::Identity;
use crate::token::Tokens;
use serde_json::value::RawValue;
use sexton::clock::{Clock, Date, Offset};
use sexton::config::{INVENTORY_BYTES_MAX, REQUEST_BYTES_MAX};
use sexton::kernel::socket::{Peers, is_own};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// The state that the listener's connections share.
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) names: Vec<String>,
    pub(crate) lets_others_in: bool,
    pub(super) token_file: Option<PathBuf>,
    /// The current tokens; `None` if no token is required. Requests that were accepted by a token watch whether it is still one of them.
    pub(super) tokens: watch::Sender<Option<Arc<Tokens>>>,
    /// The paths of the certificate and of its key; `None` if TCP connections do not use TLS.
    pub(super) tls_files: Option<(PathBuf, PathBuf)>,
    pub(super) identity: Mutex<Option<Identity>>,
    pub(super) connections_max: u32,
    /// The maximum body size of a request that adds jobs or launches processes, in bytes.
    pub(super) request_bytes_max: usize,
    pub(super) tcp: Capacity,
    /// The limits of other users on the Unix socket, and those of all users on its connections.
    pub(super) unix: Capacity,
    /// The limits of the coordinator's own user and root on the Unix socket.
    pub(super) own: Capacity,
    /// The paths that accept jobs and commands, and therefore larger bodies.
    pub(super) long: [&'static str; 6],
    /// The path that accepts inventories (lists of all servers). Its limit on the size of a body is [`INVENTORY_BYTES_MAX`].
    pub(super) inventory: &'static str,
    /// The content of `/v1/openapi.json`.
    pub(crate) description: &'static RawValue,
    /// The recent wrong tokens.
    pub(crate) guesses: Guesses,
    pub(super) clock: Arc<dyn Clock>,
    /// The recent activity of the listeners, the actors and the journal.
    pub(crate) rates: Rates,
    /// The rates of the queues that the page shows.
    pub(crate) queue_rates: QueueRates,
}

impl Shared {
    /// Returns the users that the Unix socket serves.
    pub(super) const fn peers(&self) -> Peers {
        if self.lets_others_in { Peers::OfFile } else { Peers::Own }
    }

    /// Returns the maximum body size of requests to this path, in bytes.
    pub(crate) fn body_bytes_max(&self, path: &str) -> usize {
        if self.long.contains(&path) {
            self.request_bytes_max
        } else if path == self.inventory {
            INVENTORY_BYTES_MAX
        } else {
            REQUEST_BYTES_MAX
        }
    }

    /// Returns the current date: node time plus the difference between the wall clock and node time.
    pub(crate) fn date(&self) -> Date {
        Offset(self.clock.offset_ms()).date(self.clock.now())
    }

    /// Returns whether TCP connections use TLS.
    pub(crate) const fn is_private(&self) -> bool {
        self.tls_files.is_some()
    }

    /// Returns the current tokens; `None` if no token is required.
    pub(crate) fn tokens(&self) -> Option<Arc<Tokens>> {
        self.tokens.borrow().as_ref().map(Arc::clone)
    }

    /// Returns the capacity limits that apply to `peer`.
    pub(crate) fn room(&self, peer: Peer) -> &Capacity {
        match peer {
            Peer::Tcp { .. } => &self.tcp,
            Peer::Socket { uid, .. } if is_own(uid) => &self.own,
            Peer::Socket { .. } => &self.unix,
        }
    }

    /// Returns the current certificate and key; `None` if TCP connections do not use TLS.
    pub(super) fn identity(&self) -> Option<Identity> {
        let identity = self.identity.lock();
        identity.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
