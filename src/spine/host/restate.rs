//! When what was refused is said again: soon, and later each time that it goes on.

use crate::clock::Timestamp;
use crate::spine::effect::{RESTATE_MS, RESTATE_MS_MAX};

/// When the obligations of an actor are stated again, since one was refused.
#[derive(Default)]
pub(super) struct Restate {
    pub(super) due: Option<Timestamp>,
    /// The last time, and how long it was waited for.
    last: Timestamp,
    waited_ms: u64,
}

impl Restate {
    /// Something was refused: a first time soon, and later each time that it goes on.
    pub(super) fn refused(&mut self, at: Timestamp) {
        if self.due.is_none() {
            let goes_on = self.waited_ms > 0 && at <= self.last.plus_ms(self.waited_ms);
            let wait_ms = if goes_on {
                self.waited_ms * 2
            } else {
                RESTATE_MS
            };
            self.waited_ms = wait_ms.min(RESTATE_MS_MAX);
            self.due = Some(at.plus_ms(self.waited_ms));
        }
    }

    /// Whether it is time. If so, that is done with.
    pub(super) fn take_due(&mut self, at: Timestamp) -> bool {
        let is_due = self.due.take_if(|due| *due <= at).is_some();
        if is_due {
            self.last = at;
        }
        is_due
    }
}
