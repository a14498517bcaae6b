//! What the forms of secrets have in common. The [first forms](super::first) depend on it, so it must not change either.

/// The replacement for a masked secret.
pub const MASK: &str = "***";

/// A name that contains one of these words, in upper or lower case, is the name of a secret.
const WORDS: [&str; 4] = ["TOKEN", "SECRET", "PASSWORD", "KEY"];

/// Returns whether a value with this name is a secret.
pub(super) fn names_secret(name: &[u8]) -> bool {
    let has = |word: &str| {
        let mut windows = name.windows(word.len());
        windows.any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
    };
    WORDS.iter().any(|word| has(word))
}

/// Finds the password in `USER:PASSWORD`.
pub(super) fn password(argument: &[u8]) -> Option<(usize, usize)> {
    let place = argument.iter().position(|byte| *byte == b':')?;
    (place + 1 < argument.len()).then_some((place + 1, argument.len()))
}
