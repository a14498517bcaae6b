//! Parses sizes in bytes.

/// The placeholder for a size in help texts.
pub(crate) const SIZE: &str = "SIZE";

const UNITS: [(&str, u32); 10] = [
    ("", 0),
    ("B", 0),
    ("k", 10),
    ("K", 10),
    ("KiB", 10),
    ("M", 20),
    ("MiB", 20),
    ("G", 30),
    ("GiB", 30),
    ("TiB", 40),
];

/// Parses a size: a whole number and an optional unit, such as `4096`, `64KiB`, `10M`. Units are powers of 1024.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let expected = || {
        format!(
            "{text:?} is not a size: expected a number of bytes, or a size such as 64KiB, 10M, 1GiB"
        )
    };
    let end = text.find(|letter: char| !letter.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: u64 = number.parse().map_err(|_| expected())?;
    let found = UNITS.iter().find(|(name, _)| *name == unit);
    let (_, shift) = found.ok_or_else(expected)?;
    number.checked_mul(1 << shift).ok_or_else(expected)
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_numbers_with_or_without_units() {
        for (text, size) in
            [("0", 0), ("4096", 4096), ("64KiB", 65536), ("10M", 10 << 20), ("1G", 1 << 30)]
        {
            assert_eq!(bytes(text), Ok(size), "{text}");
        }
        for text in ["", "M", "1.5M", "-1", "1 M", "1Mb", "99999999999999999TiB"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }
}
