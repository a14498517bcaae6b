//! The order in which time acts on items: the ends of spans by node time, dates by the wall clock.
//!
//! A step of the wall clock moves every date against every span, so each kind has a wheel of its own and the two are
//! compared when somebody asks. What is removed on its date has one more, which stands still while the wall clock is in
//! doubt. Volatile, as the wheels are.

use crate::clock::{Date, Deadline, Now, Offset, Timestamp};
use crate::ids::Slot;
use crate::lookup::wheel::Wheel;

/// Slots by deadline.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    times: Wheel,
    dates: Wheel,
    removals: Wheel,
    /// Whether nothing is removed.
    held: bool,
}

impl Deadlines {
    /// Adds an item that has none yet.
    pub(super) fn insert(&mut self, slot: Slot, deadline: Deadline) {
        match deadline {
            Deadline::Time(at) => self.times.insert(slot, at),
            Deadline::Date(date) => self.dates.insert(slot, shown(date)),
            Deadline::Removal(date) => self.removals.insert(slot, shown(date)),
        }
    }

    /// Takes an item out, if it is in. `deadline` is the one it was inserted with.
    pub(super) fn remove(&mut self, slot: Slot, deadline: Deadline) {
        match deadline {
            Deadline::Time(at) => self.times.remove(slot, at),
            Deadline::Date(date) => self.dates.remove(slot, shown(date)),
            Deadline::Removal(date) => self.removals.remove(slot, shown(date)),
        }
    }

    /// Takes all of them out.
    pub(super) fn clear(&mut self) {
        let held = self.held;
        *self = Self {
            held,
            ..Self::default()
        };
    }

    /// Holds back what is removed on its date, or no longer.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// A time before which nothing is due.
    pub(super) fn first(&self, offset: Offset) -> Option<Timestamp> {
        let removals = (!self.held).then_some(&self.removals);
        let dates = [Some(&self.dates), removals].into_iter().flatten();
        let dates = dates.filter_map(Wheel::deadline);
        let dates = dates.map(|date| offset.time(Date(date.0)));
        self.times.deadline().into_iter().chain(dates).min()
    }

    /// The item due first, in (deadline, slot) order, and when it was.
    pub(super) fn due(
        &mut self,
        now: Now,
        deadline_of: impl Fn(Slot) -> Deadline,
    ) -> Option<(Timestamp, Slot)> {
        let raw = |slot| match deadline_of(slot) {
            Deadline::Time(at) => at,
            Deadline::Date(date) | Deadline::Removal(date) => shown(date),
        };
        let time = self.times.due(now.at, raw);
        let date = self.dates.due(shown(now.date()), raw);
        let removal = if self.held {
            None
        } else {
            self.removals.due(shown(now.date()), raw)
        };
        let due = [time, date, removal].into_iter().flatten();
        due.map(|slot| (deadline_of(slot).at(now.offset), slot))
            .min()
    }

    /// Whether an item is in.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.times.holds(slot) || self.dates.holds(slot) || self.removals.holds(slot)
    }
}

/// What the wall clock shows, as a wheel counts it.
const fn shown(date: Date) -> Timestamp {
    Timestamp(date.0)
}
