//! Node time: milliseconds since 1970 that never go back and never jump.
//!
//! [`SystemClock`] alone reads the operating system's clocks. It starts at the wall clock's time, or at the newest
//! journal entry's time if that is later, and advances with the boot-time clock alone. So steps of the wall clock
//! neither expire nor freeze anything, and deadlines that pass while the machine is suspended are due when it resumes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub use sexton_api::ids::Timestamp;

/// A moment by the wall clock, in milliseconds since 1970. If the clock steps, it may show a date twice, or skip one.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Date(pub u64);

impl Date {
    /// Returns the date `ms` milliseconds later, saturating.
    #[must_use]
    pub const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// The wall clock minus node time, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Offset(pub i64);

impl Offset {
    /// Returns what the wall clock shows at node time `at`, saturating.
    pub const fn date(self, at: Timestamp) -> Date {
        Date(at.0.saturating_add_signed(self.0))
    }

    /// Returns the node time at which the wall clock will show `date` if it does not step before then, saturating.
    pub const fn time(self, date: Date) -> Timestamp {
        Timestamp(date.0.saturating_sub_signed(self.0))
    }
}

/// The current time by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Node time, in which spans are measured.
    pub at: Timestamp,
    /// How far the wall clock is ahead of node time.
    pub offset: Offset,
}

impl Now {
    /// Returns the wall clock's time, with which dates are compared.
    pub const fn date(self) -> Date {
        self.offset.date(self.at)
    }
}

/// The time at which an item becomes due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// The end of a span, in node time; a step of the wall clock does not move it.
    Time(Timestamp),
    /// A date, reached when the wall clock shows it.
    Date(Date),
    /// A date on which something is removed permanently. While the wall clock is in doubt, because it is far ahead of its expected time,
    /// the removal is postponed.
    Removal(Date),
}

impl Deadline {
    /// Returns the node time at which the deadline falls if the wall clock does not step before then.
    pub const fn at(self, offset: Offset) -> Timestamp {
        match self {
            Self::Time(at) => at,
            Self::Date(date) | Self::Removal(date) => offset.time(date),
        }
    }
}

/// A source of time. `now` never goes back.
pub trait Clock: Send + Sync {
    /// Returns node time.
    fn now(&self) -> Timestamp;
    /// Returns the wall clock's time, which may step at any moment.
    fn wall(&self) -> Timestamp;

    /// Returns the wall clock minus node time, in milliseconds, which relates dates to `now`.
    fn offset_ms(&self) -> i64 {
        difference_ms(self.wall(), self.now())
    }

    /// Registers `callback` to be called whenever time is moved manually, until it returns false. The system clock never calls it.
    fn on_moved(&self, _callback: ClockCallback) {}
}

/// A callback that runs after time was moved manually. It returns false once it no longer needs to be called.
pub type ClockCallback = Box<dyn Fn() -> bool + Send>;

/// Node time from the operating system's clocks: the wall clock's time at startup, advanced by the boot-time clock.
#[derive(Debug)]
pub struct SystemClock {
    /// Node time at boot, in milliseconds since 1970; the boot-time clock is added to it.
    base: u64,
    /// The wall clock minus node time, in milliseconds, as last returned by `offset_ms`.
    offset: AtomicI64,
}

/// The error that the machine's clock shows a date outside the years 1970 to 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the machine's clock: it shows {seconds} seconds since 1970, which is {}", era(*.seconds))]
pub struct ClockError {
    seconds: i64,
}

fn era(seconds: i64) -> &'static str {
    if seconds < 0 { "before 1970" } else { "after 9999" }
}

/// The maximum number of attempts to read the wall clock without node time advancing meanwhile.
const READINGS_MAX: u32 = 16;

/// The first second of the year 10000.
const YEAR_10000: i64 = 253_402_300_800;

impl SystemClock {
    /// Returns an error unless the wall clock shows a date from 1970 to 9999.
    pub fn check() -> Result<(), ClockError> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        can_be_a_date(now.tv_sec)
    }

    /// Creates a clock that starts at the wall clock's time, or at `floor` (the newest journal entry's time) if that is later.
    pub fn starting_at(floor: Timestamp) -> Self {
        let start = wall_now().max(floor.0);
        let clock = Self { base: start.saturating_sub(boot_now()), offset: AtomicI64::new(0) };
        let offset = clock.measured_offset_ms();
        let offset = offset.unwrap_or_else(|| difference_ms(clock.wall(), clock.now()));
        clock.offset.store(offset, Ordering::Relaxed);
        clock
    }

    /// Returns the wall clock minus node time, in milliseconds; `None` if node time advanced during every attempt to read both.
    fn measured_offset_ms(&self) -> Option<i64> {
        (0..READINGS_MAX).find_map(|_| {
            let (before, wall) = (self.now(), self.wall());
            (self.now() == before).then(|| difference_ms(wall, before))
        })
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.base + boot_now())
    }

    fn wall(&self) -> Timestamp {
        Timestamp(wall_now())
    }

    /// Both clocks are read in whole milliseconds, so their difference can vary by 1 ms even without a step. The value returned last is
    /// returned again until the difference has changed by more than 1 ms, so that a past moment has the same date in every answer.
    fn offset_ms(&self) -> i64 {
        let last = self.offset.load(Ordering::Relaxed);
        let found = self.measured_offset_ms().unwrap_or(last);
        if found.abs_diff(last) <= 1 {
            return last;
        }
        self.offset.store(found, Ordering::Relaxed);
        found
    }
}

/// A clock that is moved manually, for simulation and for tests of programs that embed a node. Clones share the same time.
///
/// ```
/// use sexton::clock::{Clock, ManualClock, Timestamp};
/// use std::time::Duration;
///
/// let clock = ManualClock::default();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now(), Timestamp(60_000));
/// ```
#[derive(Clone, Default)]
pub struct ManualClock {
    time: Arc<ManualTime>,
}

#[derive(Default)]
struct ManualTime {
    now: AtomicU64,
    offset: AtomicI64,
    moved: Mutex<Vec<ClockCallback>>,
}

impl ManualClock {
    /// Creates a clock that shows `now`, with a wall clock that agrees.
    pub fn at(now: Timestamp) -> Self {
        let clock = Self::default();
        clock.time.now.store(now.0, Ordering::SeqCst);
        clock
    }

    /// Moves time forward by `by`, rounded down to whole milliseconds. A node on this clock does whatever becomes due before it serves any
    /// request made after this call.
    pub fn advance(&self, by: Duration) {
        self.advance_ms(u64::try_from(by.as_millis()).unwrap_or(u64::MAX));
    }

    /// Moves time forward by `ms` milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        self.time.now.fetch_add(ms, Ordering::SeqCst);
        self.notify();
    }

    /// Sets the time, even to an earlier one. Only for tests that check that time going back is detected.
    pub fn set(&self, now: Timestamp) {
        self.time.now.store(now.0, Ordering::SeqCst);
        self.notify();
    }

    /// Sets the wall clock to `offset` milliseconds ahead of node time.
    pub fn set_offset_ms(&self, offset: i64) {
        self.time.offset.store(offset, Ordering::SeqCst);
    }

    fn notify(&self) {
        let moved = self.time.moved.lock();
        moved
            .expect("no thread should panic while it holds the mutex")
            .retain(|callback| callback());
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ManualClock({})", self.now())
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.time.now.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        let now = self.time.now.load(Ordering::SeqCst);
        Timestamp(now.saturating_add_signed(self.time.offset.load(Ordering::SeqCst)))
    }

    fn on_moved(&self, callback: ClockCallback) {
        let moved = self.time.moved.lock();
        moved.expect("no thread should panic while it holds the mutex").push(callback);
    }
}

fn difference_ms(wall: Timestamp, now: Timestamp) -> i64 {
    i64::try_from(i128::from(wall.0) - i128::from(now.0)).unwrap_or(0)
}

fn can_be_a_date(seconds: i64) -> Result<(), ClockError> {
    if (0..YEAR_10000).contains(&seconds) { Ok(()) } else { Err(ClockError { seconds }) }
}

fn boot_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    millis(now.tv_sec, now.tv_nsec)
}

fn wall_now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    millis(now.tv_sec, now.tv_nsec)
}

fn millis(seconds: i64, nanos: i64) -> u64 {
    let seconds = u64::try_from(seconds).unwrap_or(0);
    let nanos = u64::try_from(nanos).unwrap_or(0);
    seconds * 1000 + nanos / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::{Clock as _, SystemClock, Timestamp, can_be_a_date};

    #[test]
    fn a_moment_of_the_past_keeps_its_date() {
        let clock = SystemClock::starting_at(Timestamp(0));
        let began = clock.now();
        let offset = clock.offset_ms();
        while clock.now().since(began).as_millis() < 20 {
            assert_eq!(clock.offset_ms(), offset);
        }
    }

    #[test]
    fn a_clock_that_shows_no_date_is_an_error_that_says_so() {
        for seconds in [0, 1_795_000_000, 253_402_300_799] {
            assert_eq!(can_be_a_date(seconds), Ok(()));
        }
        for (seconds, when) in
            [(-1, "before 1970"), (i64::MIN, "before 1970"), (253_402_300_800, "after 9999")]
        {
            let error = can_be_a_date(seconds).unwrap_err().to_string();
            assert!(error.ends_with(when) && error.contains(&seconds.to_string()), "{error}");
        }
    }
}
