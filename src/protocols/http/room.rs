//! What one listener has to give: connections, requests that wait, large answers. The Unix socket has a room of its
//! own, so that whatever happens on TCP, the command line gets in and is served.

use crate::protocols::http::problem::Problem;
use crate::protocols::listener::{Place, Places};
use actix_web::http::StatusCode;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Large answers that are gathered, or lie unread, at a time.
const LARGE_MAX: usize = 128;

/// How long a request waits for its turn to gather one.
const LARGE_PATIENCE: Duration = Duration::from_secs(10);

/// The places of a listener.
pub(crate) struct Room {
    pub(crate) connections: Arc<Places>,
    waits: Arc<Places>,
    large: Arc<Semaphore>,
}

impl Room {
    pub(crate) fn new(connections_max: u32, waits_max: u32) -> Self {
        Self {
            connections: Places::new(connections_max),
            waits: Places::new(waits_max),
            large: Arc::new(Semaphore::new(LARGE_MAX)),
        }
    }

    /// A place among the requests that wait.
    pub(crate) fn wait(&self) -> Result<Place, Problem> {
        let words = "as many requests wait as are allowed: ask again later, or without waiting";
        self.waits.take().ok_or_else(|| busy(words, "waits"))
    }

    /// A place among the large answers: taken before one is gathered, and kept until it is written.
    pub(crate) async fn large(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let words = "as many large answers lie unread as are allowed: ask again later";
        let place = Arc::clone(&self.large).acquire_owned();
        match timeout(LARGE_PATIENCE, place).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(busy(words, "large")),
        }
    }
}

fn busy(words: &str, reason: &'static str) -> Problem {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, words).because(reason)
}
