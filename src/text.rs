//! Formats values as text for users: counts, sizes and durations in customary units.

pub use sexton_api::text::{escaped, steers, unescaped};

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
