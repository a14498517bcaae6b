//! When something is due by the calendar: a cron expression in a time zone, and the dates that follow from it.
//!
//! What is computed depends on the arguments alone: the database of time zones is compiled in, and neither a clock nor a
//! file nor a variable of the machine is read. croner reads the expression and searches by the wall clock; which moment a
//! wall clock means where an hour is skipped or repeated is decided here:
//!
//! - **The hour field names hours** (`30 2 * * *`, `*/10 1-5 * * *`): each match is one time of day. Where the clocks skip
//!   it, it runs at the first moment after the gap, and all that one gap skipped run once. Where the clocks repeat it, it
//!   runs the first time.
//! - **The hour field begins with `*`** (`0 * * * *`, `*/15 */2 * * *`): each match runs whenever the clocks show it, so
//!   both times in a repeated hour, and not at all in one that is skipped. `0 * * * *` runs every hour that passes.
//!
//! crontab(5) of Vixie cron also looks for a `*` in the minute field. Here `*/10 2 * * *` is six times of day.

mod cron;
#[cfg(test)]
mod tests;

pub(crate) use cron::utc;
pub use cron::{EXPRESSION_BYTES_MAX, Schedule, ScheduleError, ZONE_BYTES_MAX};
