//! Formats values from API responses for display: text, counts, sizes, durations and times.

use crate::figure::Figure;
pub(crate) use crate::figure::{number, required};
use serde_json::Value;
use sexton::clock::Timestamp;
use sexton::text::{self, steers};
use std::borrow::Cow;
use std::fmt::Write as _;
use time::UtcDateTime;

/// Returns the value at `path`, a JSON pointer, as text, or `-` if it is absent or null. In a string, control characters are replaced by
/// spaces.
pub(crate) fn words(value: &Value, path: &str) -> String {
    match value.pointer(path) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) => plain(text),
        Some(other) => other.to_string(),
    }
}

/// Returns `text` with control characters, including line breaks, replaced by spaces, so that untrusted text, such as a file name, cannot
/// affect how a terminal shows the rest.
pub(crate) fn plain(text: &str) -> String {
    let shown = |letter| if steers(letter) { ' ' } else { letter };
    text.chars().map(shown).collect()
}

/// Returns `text` with all control characters except `\n` and tabs escaped.
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

/// Returns a JSON document with all control characters except `\n` replaced by JSON escapes (`\uXXXX`).
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
            write!(shown, "\\u{unit:04x}").expect("writing to memory should not fail");
        }
    }
    shown.into()
}

/// Returns `text`, or `-` if there is none.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "-".to_owned())
}

/// Formats a number with commas between groups of three digits.
pub(crate) fn grouped(number: impl Into<Figure>) -> String {
    number.into().shown(text::grouped)
}

/// Formats a size in bytes.
pub(crate) fn bytes(number: impl Into<Figure>) -> String {
    number.into().shown(text::bytes)
}

/// Formats a span of time, given in milliseconds.
pub(crate) fn span(ms: impl Into<Figure>) -> String {
    ms.into().shown(text::span)
}

/// Formats a number of things, in the singular or plural.
pub(crate) fn count(number: impl Into<Figure>, one: &str) -> String {
    match number.into().known() {
        Some(number) => text::count(number, one),
        None => text::count(0, one).replacen('0', "-", 1),
    }
}

/// Formats a duration: in milliseconds if it is shorter than ten seconds, and otherwise as [`span`] does.
pub(crate) fn brief(ms: impl Into<Figure>) -> String {
    match ms.into() {
        short if short < 10_000 => format!("{} ms", grouped(short)),
        ms => span(ms),
    }
}

/// Returns the part of a process's output that its record has, line by line: its beginning and, if it is longer, its end, with a line in
/// between that says how much is left out.
pub(crate) fn excerpt(stream: &Value) -> Vec<String> {
    let part = |name| {
        let text = stream.pointer(name).and_then(Value::as_str);
        text.unwrap_or_default()
    };
    let (head, tail) = (part("/head"), part("/tail"));
    let mut shown: Vec<String> = head.lines().map(plain).collect();
    if tail.is_empty() {
        return shown;
    }
    let left_out = number(stream, "/bytes").minus((head.len() + tail.len()) as u64);
    if left_out == 0 {
        let whole = [head, tail].concat();
        return whole.lines().map(plain).collect();
    }
    shown.push(format!("[... {} left out ...]", bytes(left_out)));
    shown.extend(tail.lines().map(plain));
    shown
}

/// Returns the last line of a text that is not blank, trimmed and with control characters replaced by spaces, or an empty string if there
/// is none. Programs usually report the cause of an error in that line, for example after a traceback.
pub(crate) fn last_line(text: &str) -> String {
    let mut lines = text.lines().map(|line| plain(line).trim().to_owned());
    lines.rfind(|line| !line.is_empty()).unwrap_or_default()
}

/// Formats a time as an RFC 3339 date and time in UTC, with milliseconds. Returns `-` if it is later than the year 9999.
pub(crate) fn time(at: Timestamp) -> String {
    let at = UtcDateTime::from_unix_timestamp_nanos(i128::from(at.0) * 1_000_000);
    at.map_or("-".to_owned(), |at| {
        let (date, (hour, minute, second, milli)) = (at.date(), at.as_hms_milli());
        format!("{date}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
    })
}

#[cfg(test)]
mod tests {
    use super::{brief, excerpt, last_line, lines, plain, time, words};
    use serde_json::json;
    use sexton::clock::Timestamp;

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
    fn what_was_quick_is_in_milliseconds() {
        let shown = [0, 119, 9999, 10_000, 61_000].map(brief);
        assert_eq!(shown, ["0 ms", "119 ms", "9,999 ms", "10 s", "1 min 1 s"]);
    }

    #[test]
    fn the_last_line_says_what_went_wrong() {
        let traceback = "Traceback (most recent call last):\n  File \"x\"\nKeyError: 'a'\n \n\n";
        assert_eq!(last_line(traceback), "KeyError: 'a'");
        assert_eq!(last_line("a\n  \u{1b}b"), "b");
        assert_eq!(last_line("\n"), "");
    }

    #[test]
    fn what_an_excerpt_leaves_out_is_said_and_its_end_is_there() {
        let stream = |bytes: u64, head: &str, tail: &str| {
            excerpt(&json!({ "bytes": bytes, "head": head, "tail": tail }))
        };
        assert_eq!(stream(8, "one\ntwo\n", ""), ["one", "two"]);
        assert_eq!(stream(6, "one", "two"), ["onetwo"]);
        let shown = stream(5000, "Traceback\n  File", "last)\nValueError: x\n");
        assert_eq!(shown[..2], ["Traceback", "  File"]);
        assert!(shown[2].contains("left out"), "{shown:?}");
        assert_eq!(shown[3..], ["last)", "ValueError: x"]);
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
