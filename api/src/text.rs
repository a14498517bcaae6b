//! Bytes as text for users: unchanged if they are printable UTF-8 without a backslash, and otherwise with escapes that can be parsed again.

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
