//! The schedule for restating a machine's obligations (the tells and actions that it still needs, see `effect.rs`) after a refusal: soon
//! after the first, and after a longer delay if refusals continue.

use crate::clock::Timestamp;
use crate::spine::effect::{RESTATE_FIRST_MS, RESTATE_MS, RESTATE_MS_MAX};

/// The schedule by which an actor restates its obligations after one was refused.
#[derive(Default)]
pub(super) struct Restate {
    pub(super) due: Option<Timestamp>,
    /// When obligations were last restated.
    last: Timestamp,
    /// The delay before the scheduled restatement, or before the last one if none is scheduled, in milliseconds; 0 if the next refusal
    /// begins a new series.
    waited_ms: u64,
}

impl Restate {
    /// Notes a refusal, and schedules a restatement unless one is scheduled already: soon after the first refusal of a series, and after a
    /// longer delay with each further one.
    pub(super) fn refused(&mut self, at: Timestamp) {
        if self.due.is_none() {
            let goes_on_ms = self.waited_ms.max(RESTATE_MS);
            let goes_on = self.waited_ms > 0 && at <= self.last.plus_ms(goes_on_ms);
            let wait_ms =
                if goes_on { (self.waited_ms * 2).max(RESTATE_MS) } else { RESTATE_FIRST_MS };
            self.waited_ms = wait_ms.min(RESTATE_MS_MAX);
            self.due = Some(at.plus_ms(self.waited_ms));
        }
    }

    /// Brings a scheduled restatement forward, because messages refused for lack of space may be accepted now.
    pub(super) fn bring_forward(&mut self, at: Timestamp) {
        // The delays start over, because a later refusal has another cause or begins a new series.
        self.waited_ms = 0;
        self.due = self.due.map(|due| due.min(at));
    }

    /// Returns whether a restatement is due; if so, it is no longer scheduled.
    pub(super) fn take_due(&mut self, at: Timestamp) -> bool {
        let is_due = self.due.take_if(|due| *due <= at).is_some();
        if is_due {
            self.last = at;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::Restate;
    use crate::clock::Timestamp;

    #[test]
    fn it_is_said_again_at_once_and_then_less_and_less_often() {
        let mut restate = Restate::default();
        let mut now = Timestamp(5000);
        let mut waited = Vec::new();
        for _ in 0..9 {
            restate.refused(now);
            // Of several refusals at about the same time, only the first counts.
            restate.refused(now.plus_ms(1));
            let due = restate.due.expect("a restatement is scheduled");
            assert!(!restate.take_due(Timestamp(due.0 - 1)));
            assert!(restate.take_due(due));
            waited.push(due.0 - now.0);
            now = due;
        }
        assert_eq!(waited, [10, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 64_000]);
        // A refusal long after the last one starts over.
        restate.refused(now.plus_ms(64_001));
        assert_eq!(restate.due, Some(now.plus_ms(64_011)));
        // When there is space again, the restatement need not wait. Without a refusal, nothing is restated.
        restate.bring_forward(now.plus_ms(64_002));
        assert!(restate.take_due(now.plus_ms(64_002)));
        restate.bring_forward(now.plus_ms(64_003));
        assert_eq!(restate.due, None);
    }
}
