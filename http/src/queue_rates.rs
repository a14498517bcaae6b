//! The rates at which jobs are added to and removed from the queues that the page shows. Whenever a queue is shown, its counters are
//! compared with those of a reading taken at least [`APART`] and at most [`OLD`] earlier.

use sexton::actors::queue::{QueueName, QueueView};
use sexton::clock::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The minimum time between two readings of a queue.
const APART: Duration = Duration::from_secs(5);

/// The age beyond which a reading is no longer used.
const OLD: Duration = Duration::from_mins(1);

/// The maximum number of queues whose readings are stored.
const QUEUES_MAX: usize = 1000;

/// The rates at which jobs are added to a queue and removed from it (`done`), in jobs per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Rate {
    pub(crate) added: f64,
    pub(crate) done: f64,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Timestamp,
    added: u64,
    done: u64,
}

impl Reading {
    fn is_old(self, now: Timestamp) -> bool {
        now.since(self.at) > OLD
    }

    fn rate(self, now: Self) -> Rate {
        let seconds = now.at.since(self.at).as_secs_f64().max(1.0);
        let rate = |before: u64, after: u64| {
            let more = u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX);
            f64::from(more) / seconds
        };
        Rate { added: rate(self.added, now.added), done: rate(self.done, now.done) }
    }
}

/// The two most recent readings of each queue that was shown recently, the older one first. The older one is `None` if there is only one.
#[derive(Debug, Default)]
pub(crate) struct QueueRates(Mutex<BTreeMap<QueueName, (Option<Reading>, Reading)>>);

impl QueueRates {
    /// Returns the current rates of each queue, or `None` for a queue without an earlier reading that is recent enough. Stores a new
    /// reading of each queue whose last reading is at least [`APART`] old.
    pub(crate) fn of(&self, queues: &[QueueView], now: Timestamp) -> Vec<Option<Rate>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (_, newest)| !newest.is_old(now));
        let rates = queues.iter().map(|view| {
            let reading = Reading { at: now, added: view.total, done: view.deletes };
            let Some((before, newest)) = kept.get_mut(&view.name) else {
                if kept.len() < QUEUES_MAX {
                    kept.insert(view.name.clone(), (None, reading));
                }
                return None;
            };
            if now.since(newest.at) >= APART {
                *before = Some(*newest);
                *newest = reading;
            }
            let before = before.filter(|it| !it.is_old(now))?;
            Some(before.rate(reading))
        });
        rates.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{QUEUES_MAX, QueueRates, Rate};
    use sexton::actors::queue::{Counts, QueueView};
    use sexton::clock::Timestamp;

    fn view(name: &str, total: u64, deletes: u64) -> QueueView {
        QueueView {
            name: name.try_into().expect("the name is valid"),
            jobs: Counts::default(),
            total,
            using: 0,
            watching: 0,
            waiting: 0,
            deletes,
            pauses: 0,
            pause_ms: 0,
            paused_until: None,
            throttled_until: None,
            oldest: None,
        }
    }

    #[test]
    fn a_rate_is_what_was_added_since_a_reading_some_seconds_old() {
        let rates = QueueRates::default();
        let at = |ms, total, deletes| {
            let queues = [view("mail", total, deletes)];
            rates.of(&queues, Timestamp(ms)).pop().flatten()
        };
        assert_eq!(at(0, 10, 0), None, "the first reading has nothing to compare with");
        assert_eq!(at(1000, 20, 0), None, "the previous reading is too recent");
        let rate = |added, done| Some(Rate { added, done });
        assert_eq!(at(10_000, 30, 5), rate(2.0, 0.5));
        assert_eq!(at(11_000, 43, 11), rate(3.0, 1.0), "over 11 seconds");
        assert_eq!(at(20_000, 30, 5), rate(0.0, 0.0));
        assert_eq!(at(90_000, 40, 5), None, "readings older than a minute are discarded");
    }

    #[test]
    fn readings_of_only_so_many_queues_are_kept() {
        let rates = QueueRates::default();
        let queues = (0..=QUEUES_MAX).map(|it| view(&format!("q{it}"), 1, 0));
        let queues: Vec<QueueView> = queues.collect();
        for ms in [0, 5000] {
            rates.of(&queues, Timestamp(ms));
        }
        let found = rates.of(&queues, Timestamp(10_000));
        assert_eq!(found.iter().flatten().count(), QUEUES_MAX);
    }
}
