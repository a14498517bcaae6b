//! The order in which items become due: spans end by node time, and dates are reached by the wall clock.
//!
//! A step of the wall clock moves every date relative to every span, so spans and dates have separate wheels, whose first items are
//! compared on demand. Removals that are due on a date have a third wheel, which is not advanced while the wall clock is in doubt. The
//! wheels are volatile: nothing in them is stored.

use crate::clock::{Date, Deadline, Now, Offset, Timestamp};
use crate::ids::Slot;
use crate::lookup::wheel::Wheel;

/// Slots ordered by deadline.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    times: Wheel,
    dates: Wheel,
    removals: Wheel,
    /// Whether removals are held back.
    held: bool,
}

impl Deadlines {
    /// Adds an item that is in none of the wheels.
    pub(super) fn insert(&mut self, slot: Slot, deadline: Deadline) {
        match deadline {
            Deadline::Time(at) => self.times.insert(slot, at),
            Deadline::Date(date) => self.dates.insert(slot, shown(date)),
            Deadline::Removal(date) => self.removals.insert(slot, shown(date)),
        }
    }

    /// Removes an item, if it is in the wheel for this kind of `deadline`, which must be the one that the item was inserted with.
    pub(super) fn remove(&mut self, slot: Slot, deadline: Deadline) {
        match deadline {
            Deadline::Time(at) => self.times.remove(slot, at),
            Deadline::Date(date) => self.dates.remove(slot, shown(date)),
            Deadline::Removal(date) => self.removals.remove(slot, shown(date)),
        }
    }

    /// Removes all items.
    pub(super) fn clear(&mut self) {
        let held = self.held;
        *self = Self { held, ..Self::default() };
    }

    /// Sets whether removals that are due on a date are held back.
    pub(super) fn hold_removals(&mut self, held: bool) {
        self.held = held;
    }

    /// Returns a node time before which nothing is due; `None` if nothing has a deadline. Ignores removals while they are held back.
    pub(super) fn first(&self, offset: Offset) -> Option<Timestamp> {
        let removals = (!self.held).then_some(&self.removals);
        let dates = [Some(&self.dates), removals].into_iter().flatten();
        let dates = dates.filter_map(Wheel::deadline);
        let dates = dates.map(|date| offset.time(Date(date.0)));
        self.times.deadline().into_iter().chain(dates).min()
    }

    /// Returns the first item that is due, in (deadline, slot) order, with its deadline in node time; `None` if no item is due.
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
        let removal = if self.held { None } else { self.removals.due(shown(now.date()), raw) };
        let due = [time, date, removal].into_iter().flatten();
        due.map(|slot| (deadline_of(slot).at(now.offset), slot)).min()
    }

    /// Returns whether an item is in one of the wheels.
    pub(super) fn holds(&self, slot: Slot) -> bool {
        self.times.holds(slot) || self.dates.holds(slot) || self.removals.holds(slot)
    }
}

/// Converts a date to the type that a wheel counts in.
const fn shown(date: Date) -> Timestamp {
    Timestamp(date.0)
}
