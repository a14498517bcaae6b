//! What the connections of the door share.

use crate::clock::{Clock, Date, Offset};
use crate::config::REQUEST_BYTES_MAX;
use crate::protocols::http::access::Peer;
use crate::protocols::http::counters::Counters;
use crate::protocols::http::queue_rates::QueueRates;
use crate::protocols::http::rates::Rates;
use crate::protocols::http::room::Room;
use crate::protocols::http::tls::Identity;
use crate::protocols::http::token::Tokens;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What the door's connections share.
pub(crate) struct Shared {
    pub(crate) counters: Counters,
    pub(crate) names: Vec<String>,
    pub(crate) lets_others_in: bool,
    pub(super) token_file: Option<PathBuf>,
    pub(super) tokens: Mutex<Option<Arc<Tokens>>>,
    pub(super) tls_files: Option<(PathBuf, PathBuf)>,
    pub(super) identity: Mutex<Option<Identity>>,
    pub(super) connections_max: u32,
    /// The longest body of a request that adds jobs or launches processes.
    pub(super) request_bytes_max: usize,
    pub(super) tcp: Room,
    pub(super) unix: Room,
    /// The paths that take jobs and commands.
    pub(super) long: [&'static str; 6],
    /// The description of all routes.
    pub(crate) description: &'static Value,
    pub(super) clock: Arc<dyn Clock>,
    /// What listeners and journal did of late.
    pub(crate) rates: Rates,
    /// How fast the queues that the page shows are worked off.
    pub(crate) queue_rates: QueueRates,
}

impl Shared {
    /// The longest body of a request to this path.
    pub(crate) fn body_bytes_max(&self, path: &str) -> usize {
        if self.long.contains(&path) {
            self.request_bytes_max
        } else {
            REQUEST_BYTES_MAX
        }
    }

    /// The wall clock, as the node has it.
    pub(crate) fn date(&self) -> Date {
        Offset(self.clock.offset_ms()).date(self.clock.now())
    }

    /// Whether TCP speaks TLS.
    pub(crate) const fn is_private(&self) -> bool {
        self.tls_files.is_some()
    }

    /// The tokens of this moment.
    pub(crate) fn tokens(&self) -> Option<Arc<Tokens>> {
        let tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.as_ref().map(Arc::clone)
    }

    /// What there is to give to such a client.
    pub(crate) const fn room(&self, peer: Peer) -> &Room {
        match peer {
            Peer::Tcp(_) => &self.tcp,
            Peer::Socket { .. } => &self.unix,
        }
    }

    /// What TLS clients are shown at this moment; none if TCP is plain.
    pub(super) fn identity(&self) -> Option<Identity> {
        let identity = self.identity.lock();
        identity.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
