//! Parses time spans.

/// The placeholder for a time span in help texts.
pub(crate) const SPAN: &str = "SPAN";

const UNITS: [(&str, f64); 5] =
    [("ms", 1.0), ("s", 1e3), ("m", 60e3), ("h", 3_600e3), ("d", 86_400e3)];

/// The maximum span in milliseconds, about 285,000 years: whole numbers up to it are exact in an `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Parses a span, and returns it in milliseconds. A span is a number of seconds, or one or more numbers with units, from the largest unit
/// to the smallest. Examples: `90`, `1.5s`, `500ms`, `5m`, `1h30m`, `7d`.
pub(crate) fn milliseconds(text: &str) -> Result<u64, String> {
    let expected = || {
        format!(
            "{text:?} is not a time span: expected a number of seconds, or a span such as 500ms, 90s, 5m, 1h30m, 7d"
        )
    };
    let mut rest = text;
    let mut sum = 0.0;
    let mut larger = f64::INFINITY;
    loop {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.');
        let (number, behind) = rest.split_at(end.unwrap_or(rest.len()));
        if number.starts_with('.') || number.ends_with('.') {
            return Err(expected());
        }
        let number: f64 = number.parse().map_err(|_| expected())?;
        let end = behind.find(|letter: char| letter.is_ascii_digit());
        let (unit, behind) = behind.split_at(end.unwrap_or(behind.len()));
        let unit = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, unit)) if *unit < larger => *unit,
            None if unit.is_empty() && rest == text => 1e3,
            Some(_) | None => return Err(expected()),
        };
        sum += number * unit;
        if behind.is_empty() {
            break;
        }
        (rest, larger) = (behind, unit);
    }
    let (exact, sum) = (sum, sum.round());
    if (exact - sum).abs() > 1e-6 {
        return Err(format!("{text:?} is not a whole number of milliseconds"));
    }
    if sum > EXACT {
        return Err(format!("{text:?} is too long: the maximum is about 285,000 years"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number within bounds, and never negative"
    )]
    Ok(sum as u64)
}

/// The maximum delay of a job, in milliseconds; the coordinator has the same limit.
pub(crate) const DELAY_MS_MAX: u64 = u32::MAX as u64 * 1000;

/// Parses the delay of a job, and returns it in milliseconds. Fails above [`DELAY_MS_MAX`].
pub(crate) fn delay(text: &str) -> Result<u64, String> {
    let ms = milliseconds(text)?;
    if ms > DELAY_MS_MAX {
        let most = DELAY_MS_MAX / 1000;
        return Err(format!("{text:?} is too long: the maximum is {most} seconds"));
    }
    Ok(ms)
}

/// Returns a parser for spans that returns seconds. It accepts only whole numbers of seconds, from `least` to `most`.
pub(crate) fn seconds(least: u64, most: u64) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let ms = milliseconds(text).map_err(|_| {
            format!(
                "{text:?} is not a time span: expected a whole number of seconds, or a span such as 90s, 5m, 1h30m, 7d"
            )
        })?;
        let seconds = ms / 1000;
        if ms % 1000 != 0 {
            let up = ms.div_ceil(1000);
            Err(format!(
                "{text:?} is not a whole number of seconds, which is required here: try {up}s"
            ))
        } else if (least..=most).contains(&seconds) {
            Ok(seconds)
        } else {
            Err(format!("{seconds} seconds is not between {least} and {most}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{milliseconds, seconds};

    #[test]
    fn spans_are_read_as_people_write_them() {
        for (text, ms) in [
            ("0", 0),
            ("90", 90_000),
            ("1.5", 1500),
            ("0.25s", 250),
            ("500ms", 500),
            ("5m", 300_000),
            ("1h30m", 5_400_000),
            ("1d1ms", 86_400_001),
        ] {
            assert_eq!(milliseconds(text), Ok(ms), "{text}");
        }
        for wrong in [
            "",
            "-1",
            "+1",
            "5x",
            "m",
            "5m30",
            "30s5m",
            "5m5m",
            "1e9",
            "inf",
            "nan",
            " 5",
            "5 m",
            "1..5",
            "1.",
            ".5",
            "1.2345",
            "999999999999d",
            "5M",
        ] {
            assert!(milliseconds(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn bounds_are_of_whole_seconds() {
        let span = seconds(1, 3600);
        assert_eq!(span("5m"), Ok(300));
        for wrong in ["0", "1500ms", "61m"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        let refused = |text| span(text).expect_err("the span is invalid");
        assert!(refused("300ms").ends_with("try 1s"));
        // The message must not suggest a unit that would also be refused.
        assert!(!refused("soon").contains("ms"), "{}", refused("soon"));
    }
}
