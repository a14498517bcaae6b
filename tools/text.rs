//! Values of an answer as people read them: words, counts, sizes, spans.

use serde_json::Value;
use sexton::clock::Timestamp;
use sexton::text::steers;
use std::borrow::Cow;
use std::fmt::Write as _;
use time::UtcDateTime;

/// What stands there, as a word; `-` if nothing does. Nothing of it can steer a terminal.
pub(crate) fn words(value: &Value, path: &str) -> String {
    match value.pointer(path) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => plain(text),
        Some(other) => other.to_string(),
    }
}

/// Text that may hold what somebody else made up, such as the name of a file, in one line that cannot steer a terminal.
pub(crate) fn plain(text: &str) -> String {
    let shown = |letter| if steers(letter) { ' ' } else { letter };
    text.chars().map(shown).collect()
}

/// Text of any lines, in which what could steer a terminal is escaped.
pub(crate) fn lines(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if steers(letter) && !['\n', '\t'].contains(&letter) {
            shown.extend(letter.escape_default());
        } else {
            shown.push(letter);
        }
    }
    shown
}

/// JSON of any lines, in which what could steer a terminal is escaped as JSON has it.
pub(crate) fn json(text: &str) -> Cow<'_, str> {
    let is_left = |letter: char| letter == '\n' || !steers(letter);
    if text.chars().all(is_left) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_left(letter) {
            shown.push(letter);
        } else {
            let unit = u32::from(letter);
            write!(shown, "\\u{unit:04x}").expect("writing to memory does not fail");
        }
    }
    shown.into()
}

pub(crate) fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or(0)
}

/// A count with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.char_indices() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// So many of them, in words.
pub(crate) fn count(number: u64, one: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {one}{plural}", grouped(number))
}

/// A size in the unit that leaves it at least one whole.
pub(crate) fn bytes(number: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let mut scaled = (number, 0, "B");
    for unit in units {
        if scaled.0 < 1024 {
            break;
        }
        scaled = (scaled.0 / 1024, scaled.0 % 1024 * 10 / 1024, unit);
    }
    match scaled {
        (whole, _, "B") => format!("{whole} B"),
        (whole, tenths, unit) => format!("{whole}.{tenths} {unit}"),
    }
}

/// A span in its two largest units.
pub(crate) fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (_, _, _) => format!("{days} d {} h", hours % 24),
    }
}

/// Node time as a date; `-` if it is none.
pub(crate) fn time(at: Timestamp) -> String {
    let at = UtcDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000);
    at.map_or("-".to_owned(), |at| {
        let (date, (hour, minute, second, milli)) = (at.date(), at.as_hms_milli());
        format!("{date}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    })
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, grouped, lines, plain, span, time, words};
    use serde_json::json;
    use sexton::clock::Timestamp;

    #[test]
    fn numbers_are_written_for_people() {
        let counts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        let records = [0, 1, 2000].map(|number| count(number, "record"));
        assert_eq!(records, ["0 records", "1 record", "2,000 records"]);
        let sizes = [0, 1023, 1024, 1536, 5 << 30].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB"]);
        let spans = [0, 59_999, 61_000, 3_661_000, 90_000_000].map(span);
        assert_eq!(spans, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }

    #[test]
    fn times_are_as_rfc_3339_has_them() {
        let last = 253_402_300_799_999;
        let times = [0, 1_763_713_800_007, last, last + 1, u64::MAX].map(|ms| time(Timestamp(ms)));
        assert_eq!(
            times,
            [
                "1970-01-01T00:00:00.000Z",
                "2025-11-21T08:30:00.007Z",
                "9999-12-31T23:59:59.999Z",
                "-",
                "-",
            ]
        );
    }

    #[test]
    fn words_cannot_steer_a_terminal() {
        let value = json!({"cause": "a\u{1b}[2Jb\nc", "none": null});
        assert_eq!(words(&value, "/cause"), "a [2Jb c");
        assert_eq!(plain("a\u{202e}b"), "a b");
        assert_eq!(
            lines("a\tb\r\n\u{202e}c\u{200f}d\u{9b}1m"),
            "a\tb\\r\n\\u{202e}c\\u{200f}d\\u{9b}1m"
        );
        assert_eq!(words(&value, "/none"), "-");
        assert_eq!(words(&value, "/absent"), "-");
    }
}
