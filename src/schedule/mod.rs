//! Calendar schedules: a cron expression in a time zone, and the dates it matches.
//!
//! The result depends on the arguments alone: the time zone database is compiled in, and no clock, file or environment variable is read.
//! croner parses the expression and finds the next matching wall-clock time. This module decides which instant that time means if an hour
//! is skipped or repeated:
//!
//! - **The hour field names hours** (`30 2 * * *`, `*/10 1-5 * * *`): each match is one time of day. If the clocks skip
//!   it, it runs at the first moment after the gap, and all matches skipped by one gap run once together. If the clocks
//!   repeat it, it runs the first time.
//! - **The hour field begins with `*`** (`0 * * * *`, `*/15 */2 * * *`): a match runs whenever the clocks show it, so
//!   twice in a repeated hour and not at all in a skipped one. `0 * * * *` runs every hour of elapsed time.
//!
//! A day must match both day fields if one of them begins with `*`, otherwise either, as in crontab(5).
//!
//! crontab(5) of Vixie cron also treats a `*` in the minute field this way. Here `*/10 2 * * *` is six times of day.

mod cron;
#[cfg(test)]
mod tests;

pub(crate) use cron::utc;
pub use cron::{EXPRESSION_BYTES_MAX, Schedule, ScheduleError, ZONE_BYTES_MAX};
