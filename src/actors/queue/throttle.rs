//! Queues from which no more is claimed than so many items a second: what is claimed closes its queue for a while.
//!
//! Promises: a queue is open again in the first millisecond that its rate allows, by its own deadline, and in the long
//! run the rate is met exactly. Volatile: neither in digest, journal nor pages, and every start begins with all queues open.
//! Never here: which claims close a queue (`commit.rs`).

use crate::actors::queue::rules::TypeRules;
use crate::actors::queue::state::State;
use crate::clock::Timestamp;
use crate::ids::Slot;

/// A second, in microseconds and by thousandths of an item.
const SECOND: u64 = 1_000_000 * 1000;

/// When something can be claimed from a queue again.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Microseconds that an item closes it for; 0 if nothing does.
    item_us: u64,
    /// When its newest closing ends, in microseconds since 1970.
    end_us: u64,
    /// Whether it waits for that, and is among those that do.
    is_closed: bool,
}

impl Throttle {
    pub(super) fn new(rules: &TypeRules) -> Self {
        Self {
            item_us: item_us(rules),
            end_us: 0,
            is_closed: false,
        }
    }

    /// Closes by another rate from now on.
    pub(super) fn go_by(&mut self, rules: &TypeRules) {
        self.item_us = item_us(rules);
    }

    /// Whether it waits to be opened. Where nobody opens queues when their time has come, as in a replay, `opens` counts.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The first moment at which it is open.
    pub(super) const fn opens(&self) -> Timestamp {
        Timestamp(self.end_us.div_ceil(1000))
    }

    /// Closes it for an item more.
    fn close(&mut self, at: Timestamp) {
        let now = at.0.saturating_mul(1000);
        // Time has milliseconds: what is claimed in the first that is open counts from the end itself.
        let from = if self.opens() >= at { self.end_us } else { now };
        self.end_us = from.saturating_add(self.item_us);
        self.is_closed = true;
    }
}

/// Microseconds that an item closes a queue for.
fn item_us(rules: &TypeRules) -> u64 {
    SECOND.checked_div(rules.throttle_milli.into()).unwrap_or(0)
}

impl State {
    /// Closes the queue of this job, which was claimed at `at`, if its type is throttled. A duplicate is no work.
    pub(super) fn close(&mut self, job: Slot, at: Timestamp) {
        let Some(job) = self.jobs.get(job) else {
            return;
        };
        let slot = job.queue;
        if self.queue(slot).throttle.item_us == 0 || self.is_duplicate(job) {
            return;
        }
        // In a replay it is among them still.
        let before = self.queue(slot).throttle.opens();
        self.closings.remove(&(before, slot));
        self.attend(slot, |queue| queue.throttle.close(at));
        let opens = self.queue(slot).throttle.opens();
        self.closings.insert((opens, slot));
        self.review(slot);
    }

    /// Opens every queue whose time has come at `at`.
    pub(super) fn open(&mut self, at: Timestamp) {
        while let Some((opens, slot)) = self.closings.first().copied()
            && opens <= at
        {
            self.open_first(slot, |throttle| throttle.is_closed = false);
        }
    }

    /// Opens every queue, whatever was claimed from it.
    pub(super) fn open_all(&mut self) {
        while let Some((_, slot)) = self.closings.first().copied() {
            self.open_first(slot, |throttle| {
                (throttle.end_us, throttle.is_closed) = (0, false);
            });
        }
    }

    fn open_first(&mut self, slot: Slot, open: impl FnOnce(&mut Throttle)) {
        self.closings.pop_first();
        self.attend(slot, |queue| open(&mut queue.throttle));
        self.review(slot);
        self.forsake(slot);
    }

    /// When the first queue is to be opened.
    pub(super) fn opens(&self) -> Option<Timestamp> {
        self.closings.first().map(|(opens, _)| *opens)
    }
}
