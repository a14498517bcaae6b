//! Limits the number of items claimed from a queue per second: each claim closes its queue temporarily.
//!
//! A queue opens again in the first millisecond that its rate allows, without a journal entry. In the long run, the
//! rate is met exactly, even across restarts: the time for which a queue is closed follows from the claims in the
//! journal and, for claims before a snapshot, from a page. That time depends on the rules, so it is not part of the
//! digest. `commit.rs` and `closing.rs` determine which claims close a queue.

use crate::actors::queue::rules::TypeRules;
use crate::clock::Timestamp;

/// One second in microseconds, times 1000: divided by thousandths of an item per second, it gives microseconds per item.
const SECOND: u64 = 1_000_000 * 1000;

/// The state of a queue's throttle.
#[derive(Debug)]
pub(super) struct Throttle {
    /// Number of microseconds for which each claimed item closes the queue; 0 if the queue is not throttled.
    item_us: u64,
    /// When the last closing ends, as node time in microseconds since 1970.
    end_us: u64,
    /// Whether the queue is closed. If so, it is in `State::closings`.
    is_closed: bool,
}

impl Throttle {
    pub(super) fn new(rules: &TypeRules) -> Self {
        Self { item_us: item_us(rules), end_us: 0, is_closed: false }
    }

    /// Changes the rate for future claims. A closing in progress keeps its end.
    pub(super) fn set_rules(&mut self, rules: &TypeRules) {
        self.item_us = item_us(rules);
    }

    /// Returns whether the queue is closed. In a replay, queues are not opened on time, so decisions use `opens_at` instead.
    pub(super) const fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the first millisecond in which the queue may be open.
    pub(super) const fn opens_at(&self) -> Timestamp {
        Timestamp(self.end_us.div_ceil(1000))
    }

    /// Returns whether the queue is throttled.
    pub(super) const fn is_set(&self) -> bool {
        self.item_us > 0
    }

    /// Opens the queue after its closing has ended.
    pub(super) fn open(&mut self) {
        self.is_closed = false;
    }

    /// Returns when the last closing ends, as node time in microseconds since 1970.
    pub(super) const fn end_us(&self) -> u64 {
        self.end_us
    }

    /// Closes the queue until `end_us`, as recorded in a snapshot.
    pub(super) fn close_until(&mut self, end_us: u64) {
        (self.end_us, self.is_closed) = (end_us, true);
    }

    /// Closes the queue for the time that its rate requires after a claim of `items` items.
    pub(super) fn close(&mut self, at: Timestamp, items: u32) {
        let now = at.0.saturating_mul(1000);
        // A claim is timed in milliseconds. If it occurs in the first open millisecond, the new closing begins at the
        // exact end of the last one, so that rounding does not lower the rate.
        let from = if self.opens_at() >= at { self.end_us } else { now };
        self.end_us = from.saturating_add(self.item_us.saturating_mul(items.into()));
        self.is_closed = true;
    }
}

/// Returns the number of microseconds for which each claimed item closes a queue; 0 if the rules set no throttle.
fn item_us(rules: &TypeRules) -> u64 {
    SECOND.checked_div(rules.throttle_milli.into()).unwrap_or(0)
}
