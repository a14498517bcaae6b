//! Queues from which no more is claimed than so many items a second: what is claimed closes its queue for a while.
//!
//! Promises: a queue is open again in the first millisecond that its rate allows, by its own deadline, and in the long
//! run the rate is met exactly, whatever starts there are meanwhile: how long a queue is closed follows from the claims in
//! the journal, and stands in a page for those before a snapshot. It hangs on the rules, so it is in no digest.
//! Never here: which claims close a queue (`commit.rs`).

use crate::actors::queue::rules::TypeRules;
use crate::clock::Timestamp;

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

    /// Whether it ever is closed.
    pub(super) const fn is_set(&self) -> bool {
        self.item_us > 0
    }

    /// Opens it, now that its time has come.
    pub(super) fn open(&mut self) {
        self.is_closed = false;
    }

    /// When its newest closing ends, in microseconds since 1970.
    pub(super) const fn end_us(&self) -> u64 {
        self.end_us
    }

    /// Closes it until then, as a snapshot says.
    pub(super) fn close_until(&mut self, end_us: u64) {
        (self.end_us, self.is_closed) = (end_us, true);
    }

    /// Closes it for so many items more.
    pub(super) fn close(&mut self, at: Timestamp, items: u32) {
        let now = at.0.saturating_mul(1000);
        // Time has milliseconds: what is claimed in the first that is open counts from the end itself.
        let from = if self.opens() >= at { self.end_us } else { now };
        self.end_us = from.saturating_add(self.item_us.saturating_mul(items.into()));
        self.is_closed = true;
    }
}

/// Microseconds that an item closes a queue for.
fn item_us(rules: &TypeRules) -> u64 {
    SECOND.checked_div(rules.throttle_milli.into()).unwrap_or(0)
}
