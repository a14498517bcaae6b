//! The throttle of a run: the minimum time between the starts of two jobs.

use crate::client::{instant, rest};
use crate::report::Failure;
use crate::work::claim::ClaimAnswer;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Serialises the claims of a run's workers, with a minimum interval between two jobs.
pub(super) struct Pace {
    /// The minimum time between the claims of two jobs.
    interval: Duration,
    /// The earliest time of the next claim.
    opens: Mutex<Instant>,
}

impl Pace {
    /// Creates a pace of `milli` thousandths of a job per second; `None` for 0, which means no limit.
    pub(super) fn of(milli: u32) -> Option<Self> {
        let interval = 1_000_000_000_u64.checked_div(milli.into())?;
        Some(Self { interval: Duration::from_micros(interval), opens: Mutex::new(instant()) })
    }

    /// Claims a job once the interval has passed. Other workers wait until the claim is answered, so only one worker at a time waits for
    /// a job. A claim that finds no job does not start the interval.
    pub(super) fn claim(
        &self,
        claim: impl FnOnce() -> Result<ClaimAnswer, Failure>,
    ) -> Result<ClaimAnswer, Failure> {
        let mut opens = self.opens.lock().unwrap_or_else(PoisonError::into_inner);
        rest(opens.saturating_duration_since(instant()));
        let found = claim();
        if matches!(found, Ok(ClaimAnswer::Claim(_))) {
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
