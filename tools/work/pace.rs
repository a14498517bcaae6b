//! The throttle of a run: how soon after one job its next one may begin.

use crate::client::{instant, rest};
use crate::report::Failure;
use crate::work::claim::Found;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets workers claim one after another, at most as many jobs a second as the run may begin.
pub(super) struct Pace {
    /// From the claim of one job to that of the next.
    interval: Duration,
    /// When the next job may be claimed.
    opens: Mutex<Instant>,
}

impl Pace {
    /// Creates the pace of a run, from thousandths of jobs a second; `None` for 0.
    pub(super) fn of(milli: u32) -> Option<Self> {
        let interval = 1_000_000_000_u64.checked_div(milli.into())?;
        Some(Self {
            interval: Duration::from_micros(interval),
            opens: Mutex::new(instant()),
        })
    }

    /// Claims once it is this worker's time. Others wait meanwhile: whatever becomes ready is for the first of them. A claim that
    /// finds nothing uses up no time.
    pub(super) fn claim(
        &self,
        claim: impl FnOnce() -> Result<Found, Failure>,
    ) -> Result<Found, Failure> {
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        rest(opens.saturating_duration_since(instant()));
        let found = claim();
        if matches!(found, Ok(Found::Claim(_))) {
            *opens = instant() + self.interval;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;
    use std::time::Duration;

    #[test]
    fn a_rate_is_an_interval() {
        let interval = |milli| Pace::of(milli).map(|pace| pace.interval);
        assert_eq!(interval(0), None);
        assert_eq!(interval(500), Some(Duration::from_secs(2)));
        assert_eq!(interval(2000), Some(Duration::from_millis(500)));
        assert_eq!(interval(1_000_000), Some(Duration::from_millis(1)));
    }
}
