//! The counters of the HTTP listener since startup.

use actix_web::http::StatusCode;
pub use sexton::status::HttpStats as Stats;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counters of connections and answers. Open connections are not counted here; their number is passed to [`Counters::stats`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    accepted: AtomicU64,
    rejected_busy: AtomicU64,
    answered: AtomicU64,
    refused: AtomicU64,
    failed: AtomicU64,
}

impl Counters {
    pub(crate) fn accepted(&self) {
        self.accepted.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn rejected_busy(&self) {
        self.rejected_busy.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer by its status: 5xx as failed, 4xx as refused, any other as answered.
    pub(crate) fn answer(&self, status: StatusCode) {
        let counter = if status.is_server_error() {
            &self.failed
        } else if status.is_client_error() {
            &self.refused
        } else {
            &self.answered
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, active: u32) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            accepted: count(&self.accepted),
            rejected_busy: count(&self.rejected_busy),
            answered: count(&self.answered),
            refused: count(&self.refused),
            failed: count(&self.failed),
            active,
        }
    }
}
