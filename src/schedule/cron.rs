//! The expression of a [`Schedule`] and the search for its next date: croner finds the next matching wall-clock time, and jiff maps it to
//! an instant. Nothing here reads a clock, a file or an environment variable.

use crate::clock::Date;
use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The maximum length of an expression, in bytes, with single spaces between its fields.
pub const EXPRESSION_BYTES_MAX: usize = 256;

/// The maximum length of a time zone name, in bytes. The longest name in the database has 32.
pub const ZONE_BYTES_MAX: usize = 64;

/// A cron expression (five fields, or an `@` word such as `@daily`) in a time zone.
///
/// Its text form, which is also how it is stored, is the expression followed by the zone if that is not UTC: `30 2 * * 1-5 Europe/Berlin`.
/// Deserializing checks nothing, so that each version can read what an older one wrote; [`Schedule::next`] returns `None` for text that is
/// not a valid schedule. Input from outside must go through [`Schedule::new`].
///
/// ```
/// use sexton::clock::Date;
/// use sexton::schedule::Schedule;
///
/// let nightly = Schedule::new("0 3 * * *", Some("Europe/Berlin"))?;
/// let morning = Date(1_795_168_800_000); // 2026-11-20 10:00 UTC
/// assert_eq!(nightly.next(morning), Some(morning.plus_ms(16 * 3_600_000))); // 02:00 UTC
/// assert_eq!(nightly.to_string(), "0 3 * * * Europe/Berlin");
/// # Ok::<(), sexton::schedule::ScheduleError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedule(Box<str>);

/// Why an expression or a time zone was rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// The text is longer than [`EXPRESSION_BYTES_MAX`] or [`ZONE_BYTES_MAX`].
    #[error("{what} may have at most {limit} bytes")]
    TooLong {
        /// Which text: the expression or the time zone.
        what: &'static str,
        /// The limit, in bytes.
        limit: usize,
    },
    /// The expression does not have five fields.
    #[error(
        "a cron expression has five fields (minute, hour, day of month, month, day of week), but this one has {0}"
    )]
    Fields(usize),
    /// A field is not valid.
    #[error("`{text}` is not a valid {name}: expected {allowed}")]
    Field {
        /// The field's name.
        name: &'static str,
        /// The field as it was written.
        text: String,
        /// The values the field accepts.
        allowed: &'static str,
    },
    /// An `@` word that is not known.
    #[error(
        "`{0}` is not a schedule: the valid words are @hourly, @daily, @midnight, @weekly, @monthly, @yearly and @annually"
    )]
    Word(String),
    /// The time zone is not in the database.
    #[error(
        "`{0}` is not a time zone: use a name from the IANA database, such as UTC or Europe/Berlin"
    )]
    Zone(String),
    /// None of the months in the expression has any of the days in it, as with 30 February.
    #[error("`{0}` never matches: none of its months has such a day")]
    Never(String),
}

/// A field of an expression: its name, the values it accepts, and the names that may be written in place of numbers.
struct Field {
    name: &'static str,
    allowed: &'static str,
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", allowed: "0 to 59, with `*`, `,`, `-` and `/`", names: &[] },
    Field { name: "hour", allowed: "0 to 23, with `*`, `,`, `-` and `/`", names: &[] },
    Field { name: "day of the month", allowed: "1 to 31, with `*`, `,`, `-` and `/`", names: &[] },
    Field {
        name: "month",
        allowed: "1 to 12 or jan to dec, with `*`, `,`, `-` and `/`",
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Field {
        name: "day of the week",
        allowed: "0 to 7 (0 and 7 are Sunday) or sun to sat, with `*`, `,`, `-` and `/`",
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

/// The `@` words and the expressions they stand for.
const WORDS: &[(&str, &str)] = &[
    ("@hourly", "0 * * * *"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@weekly", "0 0 * * 0"),
    ("@monthly", "0 0 1 * *"),
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
];

/// The greatest number of days in each month.
const LONGEST: [u16; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// The maximum number of steps of a search. Both searches need fewer. [`times_of_day`] takes one step for each match in a time that the
/// clocks repeat, which has been at most three hours since 1970 (in Antarctica). [`whenever_shown`] takes one step for each clock change
/// before the next match, which is at most 40 years away (for a 29 February on a certain day of the week), and clocks change only a few times
/// a year.
const TRIES_MAX: usize = 1000;

impl Schedule {
    /// Parses `expression`, to be evaluated in the time zone named `zone`, or in UTC if that is `None`.
    ///
    /// The syntax is that of crontab(5): minute, hour, day of the month, month and day of the week, each `*`, numbers,
    /// ranges, lists or steps of ranges; or one of `@hourly`, `@daily`, `@midnight`, `@weekly`, `@monthly`, `@yearly`,
    /// `@annually`. Months and days of the week may be given by the first three letters of their English names, in any
    /// case. If neither day field begins with `*`, a day matches when either field does, otherwise when both do.
    pub fn new(expression: &str, zone: Option<&str>) -> Result<Self, ScheduleError> {
        // The length is checked before anything is copied, so whitespace that is removed later counts.
        bounded("a cron expression", expression, EXPRESSION_BYTES_MAX)?;
        let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
        let text = fields.join(" ");
        let cron = if text.starts_with('@') {
            word(&text).ok_or_else(|| ScheduleError::Word(text.clone()))?
        } else {
            checked(&fields)?
        };
        if never(&cron) {
            return Err(ScheduleError::Never(text));
        }
        let zone = zone.unwrap_or("UTC");
        bounded("the name of a time zone", zone, ZONE_BYTES_MAX)?;
        let zone = time_zone(zone).ok_or_else(|| ScheduleError::Zone(zone.to_owned()))?;
        Ok(match zone.iana_name() {
            Some(name) if name != "UTC" => Self(format!("{text} {name}").into()),
            Some(_) | None => Self(text.into()),
        })
    }

    /// Returns the cron expression: five fields separated by single spaces, or an `@` word.
    pub fn expression(&self) -> &str {
        self.parts().0
    }

    /// Returns the name of the time zone.
    pub fn zone(&self) -> &str {
        self.parts().1
    }

    /// Returns the first date of the schedule later than `after`, always a whole minute; `None` if there is none before the
    /// year 5000, or if this version does not understand the stored schedule.
    ///
    /// This usually takes a few tens of microseconds, and less than a millisecond even if the next date is years away.
    pub fn next(&self, after: Date) -> Option<Date> {
        let (expression, zone) = self.parts();
        let cron = word(expression).or_else(|| parsed(expression))?;
        let after = Timestamp::from_millisecond(i64::try_from(after.0).ok()?).ok()?;
        let zone = time_zone(zone)?;
        let found = if by_the_hour(expression) {
            whenever_shown(&cron, &zone, after)
        } else {
            times_of_day(&cron, &zone, after)
        };
        u64::try_from(found?.as_millisecond()).ok().map(Date)
    }

    /// Returns whether a match is an hour rather than a time of day, so that it comes whenever the clocks show it: the hour field begins with
    /// `*`.
    pub fn is_hourly(&self) -> bool {
        by_the_hour(self.expression())
    }

    fn parts(&self) -> (&str, &str) {
        let fields = if self.0.starts_with('@') { 1 } else { 5 };
        let mut blanks = self.0.match_indices(' ');
        let end = blanks.nth(fields - 1);
        end.and_then(|(at, _)| Some((self.0.get(..at)?, self.0.get(at + 1..)?)))
            .unwrap_or((&self.0, "UTC"))
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn bounded(what: &'static str, text: &str, limit: usize) -> Result<(), ScheduleError> {
    if text.len() > limit {
        return Err(ScheduleError::TooLong { what, limit });
    }
    Ok(())
}

/// Returns the expression that an `@` word stands for; `None` for an unknown word.
fn word(text: &str) -> Option<Cron> {
    let known = WORDS.iter().find(|(word, _)| *word == text);
    parsed(known?.1)
}

fn parsed(expression: &str) -> Option<Cron> {
    let parser = CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .dom_and_dow(needs_both_days(expression))
        .build();
    parser.parse(&spelled_out(expression)).ok()
}

/// Replaces each `*` in a list by the range that it stands for, since croner accepts `*` only alone.
fn spelled_out(expression: &str) -> String {
    let field = |(text, all): (&str, &str)| {
        if !text.contains(',') {
            return text.to_owned();
        }
        let items = text.split(',').map(|item| if item == "*" { all } else { item });
        items.collect::<Vec<_>>().join(",")
    };
    let fields = expression.split_ascii_whitespace();
    let fields = fields.zip(["0-59", "0-23", "1-31", "1-12", "0-6"]);
    fields.map(field).collect::<Vec<_>>().join(" ")
}

/// Parses the fields, after checking each field separately so that an error can name it.
fn checked(fields: &[&str]) -> Result<Cron, ScheduleError> {
    if fields.len() != FIELDS.len() {
        return Err(ScheduleError::Fields(fields.len()));
    }
    for (place, (text, field)) in fields.iter().zip(&FIELDS).enumerate() {
        let mut alone = ["*"; FIELDS.len()];
        if let Some(own) = alone.get_mut(place) {
            *own = text;
        }
        if !field.spells(text) || parsed(&alone.join(" ")).is_none() {
            return Err(ScheduleError::Field {
                name: field.name,
                text: (*text).to_owned(),
                allowed: field.allowed,
            });
        }
    }
    let text = fields.join(" ");
    parsed(&text).ok_or(ScheduleError::Never(text))
}

impl Field {
    /// Returns whether `text` consists only of numbers, names of this field and the signs `*`, `,`, `-` and `/`. croner accepts more: `L`,
    /// `W`, `#`, lists that end with a comma, and the name of a month in place of its
    /// number in any field.
    fn spells(&self, text: &str) -> bool {
        let items = text.split(['*', ',', '-', '/']);
        let complete = text.split(',').all(|item| !item.is_empty());
        complete
            && items.clone().all(|item| {
                item.bytes().all(|byte| byte.is_ascii_digit())
                    || self.names.iter().any(|name| item.eq_ignore_ascii_case(name))
            })
    }
}

/// Returns whether an expression never matches, because none of its months has any of its days. An expression for which a day of the week
/// suffices does match, because every day of the week occurs in every month; so does one that requires both, because every date occurs on
/// every day of the week.
fn never(cron: &Cron) -> bool {
    let Some(first) = cron.pattern.days.values().into_iter().min() else {
        return true;
    };
    let months = cron.pattern.months.values();
    let longest = months.iter().filter_map(|&month| {
        let place = usize::from(month).checked_sub(1)?;
        LONGEST.get(place)
    });
    cron.pattern.matches_dom_and_dow() && longest.max().is_none_or(|&longest| longest < first)
}

/// Returns whether a day must match both day fields, because one of them begins with `*` and so counts as unrestricted even if it has a step
/// (crontab(5)). Otherwise, a day that matches either field will do.
fn needs_both_days(expression: &str) -> bool {
    let fields = expression.split_ascii_whitespace().skip(2).step_by(2);
    fields.take(2).any(|days| days.starts_with('*'))
}

fn time_zone(name: &str) -> Option<TimeZone> {
    let zone = TimeZoneDatabase::bundled().get(name).ok()?;
    (!zone.is_unknown()).then_some(zone)
}

/// Returns whether the hour field begins with `*`, as it also does in the expression that `@hourly` stands for.
fn by_the_hour(expression: &str) -> bool {
    let hours = expression.split(' ').nth(1);
    expression == "@hourly" || hours.is_some_and(|hours| hours.starts_with('*'))
}

/// Returns the first wall-clock time at or after `from` that matches; `None` if there is none.
fn match_from(cron: &Cron, from: DateTime) -> Option<DateTime> {
    cron.find_next_occurrence(&from, true).ok()
}

/// Returns the first whole minute after `at`.
fn minute_after(at: DateTime) -> Option<DateTime> {
    let whole = at.with().second(0).subsec_nanosecond(0).build().ok()?;
    whole.checked_add(Span::new().minutes(1)).ok()
}

/// Finds the next date of an expression whose matches are times of day: each occurs once, even if the clocks skip or repeat it.
fn times_of_day(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut from = minute_after(zone.to_datetime(after))?;
    // There is a second iteration only if `after` is in the second run of a repeated hour: its matches occurred in the first run.
    for _ in 0..TRIES_MAX {
        let shown = match_from(cron, from)?;
        let at = match zone.to_ambiguous_timestamp(shown).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(shown).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(shown).ok()?,
            AmbiguousOffset::Gap { after, .. } => {
                // Converted with the offset after the gap, a skipped time is an instant before the gap. The next change from there is thus
                // the end of the gap.
                let skipped = after.to_timestamp(shown).ok()?;
                zone.following(skipped).next()?.timestamp()
            }
        };
        if at > after {
            return Some(at);
        }
        from = minute_after(shown)?;
    }
    None
}

/// Finds the next date of an expression that matches whenever the clocks show a match.
fn whenever_shown(cron: &Cron, zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let mut since = after;
    let mut from = minute_after(zone.to_datetime(after))?;
    // Between two clock changes the offset is constant, so the next match on the wall clock is also the next in time.
    for _ in 0..TRIES_MAX {
        let at = zone.to_offset(since).to_timestamp(match_from(cron, from)?).ok()?;
        let change = zone.following(since).next().map(|next| next.timestamp());
        match change {
            Some(change) if at >= change => since = change,
            Some(_) | None => return Some(at),
        }
        // The instant of the change may itself be a match, so the search continues from just before it.
        let just_before = Span::new().nanoseconds(1);
        from = minute_after(zone.to_datetime(since).checked_sub(just_before).ok()?)?;
    }
    None
}

/// Formats a date to the second, in UTC: `2026-11-20 10:00:00`.
pub(crate) fn utc(date: Date) -> String {
    let ms = i64::try_from(date.0).unwrap_or(i64::MAX);
    let at = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    at.strftime("%Y-%m-%d %H:%M:%S").to_string()
}
