//! A bound on log lines that repeat, so that they do not fill the log.

/// The maximum number of lines that are logged within [`PERIOD_MS`].
pub(crate) const LINES_MAX: u32 = 10;
/// The period of [`LINES_MAX`], in milliseconds.
pub(crate) const PERIOD_MS: u64 = 60_000;

/// Lines of which only the first [`LINES_MAX`] per minute are logged.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    /// When the current period began, in milliseconds.
    began: u64,
    /// The number of lines logged in the current period.
    logged: u32,
    /// The number of lines left out since the last one that was logged.
    left_out: u64,
}

impl Seldom {
    /// Counts a line. Returns how many were left out before it if it is to be logged, and `None` if it is left out. `now` is in milliseconds,
    /// by any clock; if that was set back, a new period begins.
    pub(crate) fn admit(&mut self, now: u64) -> Option<u64> {
        if self.logged == 0 || now < self.began || now - self.began >= PERIOD_MS {
            (self.began, self.logged) = (now, 0);
        }
        if self.logged == LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.logged += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, PERIOD_MS, Seldom};

    #[test]
    fn lines_are_bounded_and_counted() {
        let mut seldom = Seldom::default();
        for _ in 0..LINES_MAX {
            assert_eq!(seldom.admit(5), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(seldom.admit(4 + PERIOD_MS), None);
        }
        assert_eq!(seldom.admit(5 + PERIOD_MS), Some(3), "a minute later");
        assert_eq!(seldom.admit(5 + PERIOD_MS), Some(0));
        for _ in 2..LINES_MAX {
            assert!(seldom.admit(5 + PERIOD_MS).is_some());
        }
        assert_eq!(seldom.admit(6 + PERIOD_MS), None);
        assert_eq!(seldom.admit(3), Some(1), "the wall clock was set back");
    }
}
