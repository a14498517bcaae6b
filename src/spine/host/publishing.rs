//! Events: which of them are logged, and how often; the others go only to the feed.

use crate::clock::Timestamp;
use crate::spine::event::EventBody;
use crate::spine::guard::guard;
use crate::spine::host::Host;
use crate::spine::machine::{Actor, Stamp};
use crate::spine::seldom::Seldom;
use std::collections::BTreeMap;

/// The maximum number of subjects to remember. If there are more, all are forgotten, so that at worst too much is logged.
const SUBJECTS_MAX: usize = 1024;

/// The repeated warnings that were logged recently, by subject.
#[derive(Default)]
pub(super) struct Repeated(BTreeMap<Box<[u8]>, Seldom>);

impl Repeated {
    /// Counts a warning about `subject`. Returns how many were left out before it if it is to be logged, and `None` if it is left out.
    fn admit(&mut self, now: Timestamp, subject: &[u8]) -> Option<u64> {
        if self.0.len() >= SUBJECTS_MAX && !self.0.contains_key(subject) {
            self.0.clear();
        }
        self.0.entry(subject.into()).or_default().admit(now.0)
    }
}

impl<M: Actor> Host<M> {
    /// Publishes the events of an outcome: logs those that are warnings, and adds all to the feed if it is open. Returns whether it is.
    pub(super) fn publish(&self, entry: Stamp, message: &M::Message, outcome: &M::Outcome) -> bool {
        let feed = self.feed.as_ref().filter(|feed| feed.is_open());
        if feed.is_none() && (self.feed.is_none() || M::WARNINGS.is_empty()) {
            return false;
        }
        let mut publish = |what: EventBody| {
            debug_assert!(
                M::KINDS.contains(&what.kind),
                "the kind of {what:?} is listed in `KINDS`"
            );
            if M::WARNINGS.contains(&what.kind) {
                self.warn(entry.at, &what);
            }
            if let Some(feed) = feed {
                feed.put(entry.seq, entry.at, M::NAME, what);
            }
        };
        let published = guard(|| self.machine.events(entry, message, outcome, &mut publish));
        if let Err(cause) = published {
            tracing::error!(actor = M::NAME, cause, "failed to publish events");
        }
        feed.is_some()
    }

    /// Logs an event as a warning. Of those that may repeat, only the first [`LINES_MAX`](crate::spine::seldom::LINES_MAX) per minute about
    /// a subject are logged.
    fn warn(&self, now: Timestamp, what: &EventBody) {
        if !M::REPEATED_WARNINGS.contains(&what.kind) {
            tracing::warn!(actor = M::NAME, "{what}");
            return;
        }
        let subject = what.subject().unwrap_or_default();
        match self.repeated.borrow_mut().admit(now, subject) {
            Some(0) => tracing::warn!(actor = M::NAME, "{what}"),
            Some(left_out) => tracing::warn!(actor = M::NAME, left_out, "{what}"),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Repeated;
    use crate::clock::Timestamp;
    use crate::spine::seldom::{LINES_MAX, PERIOD_MS};

    #[test]
    fn a_subject_that_repeats_is_logged_only_so_often_and_affects_no_other() {
        let mut repeated = Repeated::default();
        let begin = Timestamp(1_000);
        for _ in 0..LINES_MAX {
            assert_eq!(repeated.admit(begin, b"web"), Some(0));
        }
        for _ in 0..7 {
            assert_eq!(repeated.admit(begin.plus_ms(PERIOD_MS - 1), b"web"), None);
        }
        assert_eq!(repeated.admit(begin, b"mail"), Some(0));
        let later = begin.plus_ms(PERIOD_MS);
        assert_eq!(repeated.admit(later, b"web"), Some(7));
        assert_eq!(repeated.admit(later, b"web"), Some(0));
    }
}
