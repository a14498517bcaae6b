//! Points in time as programs write them in JSON.

use crate::clock::Date;
use serde_json::Value;

/// Parses a date: seconds since the Unix epoch, or text such as `2026-01-31T12:00:00.5+01:00`; `None` if the value is neither or is out of
/// range.
pub(super) fn date(value: &Value) -> Option<Date> {
    match value {
        Value::Number(seconds) => of_seconds(seconds.as_f64()?),
        Value::String(text) => of_text(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn of_seconds(seconds: f64) -> Option<Date> {
    // The end of the year 9999.
    const SECONDS_MAX: f64 = 253_402_300_800.0;
    if !(0.0..SECONDS_MAX).contains(&seconds) {
        return None;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the value is within bounds and not negative"
    )]
    let ms = (seconds * 1000.0).round() as u64;
    Some(Date(ms))
}

/// Parses a date as in RFC 3339; `None` if it is invalid or before 1970. A date without an offset is taken as UTC.
fn of_text(text: &str) -> Option<Date> {
    let (date, time) = text.split_once(['T', 't', ' '])?;
    let mut parts = date.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || (year.len(), month.len(), day.len()) != (4, 2, 2) {
        return None;
    }
    let days = days(year.parse().ok()?, month.parse().ok()?, day.parse().ok()?)?;
    let end = time.find(['Z', 'z', '+', '-']);
    let (time, offset) = time.split_at(end.unwrap_or(time.len()));
    let mut parts = time.split(':');
    let hour: u64 = parts.next()?.parse().ok().filter(|hour| *hour < 24)?;
    let minute: u64 = parts.next()?.parse().ok().filter(|minute| *minute < 60)?;
    let second: f64 = parts.next()?.parse().ok()?;
    if parts.next().is_some() || !(0.0..61.0).contains(&second) {
        return None;
    }
    let begin = days * 86_400 + hour * 3600 + minute * 60;
    let behind = minutes(offset)? * 60;
    let begin = i64::try_from(begin).ok()?.checked_sub(behind)?;
    let begin = u64::try_from(begin).ok()?;
    Some(Date(begin * 1000 + of_seconds(second)?.0))
}

/// Returns how many minutes an offset is ahead of UTC; `None` if it is invalid.
fn minutes(offset: &str) -> Option<i64> {
    let sign = match offset.get(..1) {
        None => return Some(0),
        Some("Z" | "z") if offset.len() == 1 => return Some(0),
        Some("+") => 1,
        Some("-") => -1,
        Some(_) => return None,
    };
    let (hours, minutes) = offset.get(1..)?.split_once(':')?;
    let hours: i64 = hours.parse().ok().filter(|it| (0..24).contains(it))?;
    let minutes: i64 = minutes.parse().ok().filter(|it| (0..60).contains(it))?;
    Some(sign * (hours * 60 + minutes))
}

/// Returns the number of days since 1970-01-01; `None` if the date does not exist or is earlier.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let february = if is_leap { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let before = usize::try_from(month.checked_sub(1)?).ok()?;
    let length = lengths.get(before)?;
    if year < 1970 || !(1..=*length).contains(&day) {
        return None;
    }
    // Count the leap days before this year, minus those before 1970.
    let last = year - 1;
    let leaps = last / 4 - last / 100 + last / 400 - 477;
    let months: u64 = lengths.iter().take(before).sum();
    Some((year - 1970) * 365 + leaps + months + day - 1)
}

#[cfg(test)]
mod tests {
    use super::date;
    use serde_json::json;

    #[test]
    fn dates_are_seconds_or_text() {
        let ms = |value| date(&value).map(|date| date.0);
        assert_eq!(ms(json!(1.5)), Some(1500));
        assert_eq!(ms(json!("1970-01-01T00:00:00Z")), Some(0));
        assert_eq!(ms(json!("2000-03-01T00:00:00Z")), Some(951_868_800_000));
        assert_eq!(ms(json!("2026-01-31T12:00:00.25")), Some(1_769_860_800_250));
        assert_eq!(ms(json!("2026-01-31 13:00:00+01:00")), Some(1_769_860_800_000));
        for wrong in [
            "",
            "2026-02-29T00:00:00Z",
            "2026-01-31",
            "2026-01-31T24:00:00Z",
            "1969-12-31T23:59:59Z",
            "2026-01-31T12:00:00+1",
        ] {
            assert_eq!(ms(json!(wrong)), None, "{wrong}");
        }
        assert_eq!(ms(json!(-1)), None);
        assert_eq!(ms(json!([])), None);
    }
}
