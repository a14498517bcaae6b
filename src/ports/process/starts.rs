//! How often a keeper may be started, so that one that exits at once is not restarted in a tight loop.

use crate::actors::process::{Failure, Step};
use std::collections::VecDeque;

/// The maximum number of keepers started within [`STARTS_WITHIN_MS`].
const STARTS_MAX: usize = 5;

/// The period to which [`STARTS_MAX`] applies, in milliseconds.
const STARTS_WITHIN_MS: u64 = 10_000;

/// The latest starts of keepers.
#[derive(Debug, Default)]
pub(super) struct Starts {
    times: VecDeque<u64>,
    paused_until: Option<u64>,
}

impl Starts {
    /// Notes that a keeper is started now. Fails if too many were started lately: see [`paused_until`](Self::paused_until).
    pub(super) fn begin(&mut self, now: u64) -> Result<(), Failure> {
        let is_old = |at: &u64| now > at + STARTS_WITHIN_MS;
        while self.times.front().is_some_and(is_old) {
            self.times.pop_front();
        }
        if self.times.len() < STARTS_MAX {
            self.times.push_back(now);
            self.paused_until = None;
            return Ok(());
        }
        let first = self.times.front().copied().unwrap_or(now);
        self.paused_until = Some(first + STARTS_WITHIN_MS + 1);
        let within = STARTS_WITHIN_MS / 1000;
        Err(Failure {
            step: Step::Keeper,
            errno: 0,
            about: Some(format!(
                "{STARTS_MAX} keepers have exited within {within} seconds: the next one is started when these {within} seconds are over"
            )),
        })
    }

    /// Notes that a keeper is there, so that none has to be started.
    pub(super) const fn joined(&mut self) {
        self.paused_until = None;
    }

    /// Returns when the next keeper may be started, if the last attempt came too soon.
    pub(super) const fn paused_until(&self) -> Option<u64> {
        self.paused_until
    }
}

#[cfg(test)]
mod tests {
    use super::Starts;

    #[test]
    fn the_sixth_start_within_ten_seconds_is_postponed() {
        let mut starts = Starts::default();
        for at in 0..5 {
            assert_eq!(starts.begin(at * 1000), Ok(()));
        }
        assert_eq!(starts.paused_until(), None);
        let refused = starts.begin(5000).unwrap_err();
        assert!(refused.about.is_some_and(|it| it.contains("5 keepers have exited")));
        assert_eq!(starts.paused_until(), Some(10_001));
        assert_eq!((starts.begin(10_001), starts.paused_until()), (Ok(()), None));
    }
}
