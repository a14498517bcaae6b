//! A bound on log lines that any client may cause, so that none fills the log.

use crate::clock::Date;

/// The maximum number of lines in a window.
const LINES_MAX: u32 = 10;
/// The length of a window: a minute.
const WINDOW_MS: u64 = 60_000;

/// The lines of the current window.
#[derive(Debug, Default)]
pub(super) struct Seldom {
    since: Date,
    lines: u32,
    left_out: u64,
}

impl Seldom {
    /// Returns whether a line may be logged at `now`, and if so, how many have been left out before it.
    pub(super) fn admit(&mut self, now: Date) -> Option<u64> {
        if self.lines == 0 || now < self.since || now.0 - self.since.0 >= WINDOW_MS {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines >= LINES_MAX {
            self.left_out += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::{LINES_MAX, Seldom, WINDOW_MS};
    use crate::clock::Date;

    #[test]
    fn lines_that_any_client_may_cause_are_bounded_and_counted() {
        let mut seldom = Seldom::default();
        for _ in 0..LINES_MAX {
            assert_eq!(seldom.admit(Date(5)), Some(0));
        }
        for _ in 0..3 {
            assert_eq!(seldom.admit(Date(4 + WINDOW_MS)), None);
        }
        assert_eq!(seldom.admit(Date(5 + WINDOW_MS)), Some(3), "a minute later");
        assert_eq!(seldom.admit(Date(5 + WINDOW_MS)), Some(0));
        for _ in 2..LINES_MAX {
            assert!(seldom.admit(Date(5 + WINDOW_MS)).is_some());
        }
        assert_eq!(seldom.admit(Date(6 + WINDOW_MS)), None);
        assert_eq!(seldom.admit(Date(3)), Some(1), "the wall clock was set back");
    }
}
