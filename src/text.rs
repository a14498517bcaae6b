//! Formats values as text for users. Bytes are shown unchanged if they are printable UTF-8 without a backslash, and otherwise with escapes
//! that can be parsed again. Counts, sizes and durations are shown in customary units.

/// Returns whether a character is not shown itself but affects how text is displayed: a control character, a line separator, or a
/// character that changes the direction of text.
pub fn steers(letter: char) -> bool {
    let turns = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    turns || letter.is_control()
}

/// Formats bytes as text: unchanged if they are printable UTF-8 without a backslash, otherwise with escapes such as `\n` and `\xNN` for all
/// bytes that are not printable ASCII, and for backslashes and quotes.
pub fn escaped(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.contains(|c: char| steers(c) || c == '\\') => text.to_owned(),
        Ok(_) | Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// Parses the output of [`escaped`] back into bytes. Returns `None` if an escape is invalid.
pub fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'\\' {
            bytes.push(*first);
            continue;
        }
        let (escape, after) = rest.split_first()?;
        rest = after;
        bytes.push(match escape {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' | b'\'' | b'"' => *escape,
            b'x' => {
                let (digits, after) = rest.split_at_checked(2)?;
                rest = after;
                u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?
            }
            _ => return None,
        });
    }
    Some(bytes)
}

/// Formats a number with its thousands separated by commas.
pub fn grouped(number: u64) -> String {
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

/// Formats a count with its noun, such as `2,000 records`. `one` is the noun in the singular.
pub fn count(number: u64, one: &str) -> String {
    let plural = match number {
        1 => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {one}{plural}", grouped(number))
}

/// Formats a size in the largest unit that does not exceed it.
pub fn bytes(number: u64) -> String {
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

/// Formats a duration in its two largest units, or in seconds if it is shorter than a minute.
pub fn span(ms: u64) -> String {
    let seconds = ms / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        (_, _, _) => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::{bytes, count, grouped, span};

    #[test]
    fn numbers_are_written_for_people() {
        let counts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(counts, ["0", "999", "1,000", "1,234,567"]);
        let records = [0, 1, 2000].map(|number| count(number, "record"));
        assert_eq!(records, ["0 records", "1 record", "2,000 records"]);
        assert_eq!(count(2, "process"), "2 processes");
        let sizes = [0, 1023, 1024, 1536, 5 << 30].map(bytes);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "5.0 GiB"]);
        let spans = [0, 59_999, 61_000, 3_661_000, 90_000_000].map(span);
        assert_eq!(spans, ["0 s", "59 s", "1 min 1 s", "1 h 1 min", "1 d 1 h"]);
    }
}
