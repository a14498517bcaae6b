//! Recognises secrets: variables whose values are not stored, and arguments that are shown masked.
//!
//! They are recognised by name alone, as in `ArchiveBox`: `*TOKEN*`, `*SECRET*`, `*PASSWORD*`, `*KEY*`. Secrets with other names are
//! missed, and many values that are not secret are masked.

use crate::bytes::Bytes;

/// The replacement for a masked secret.
pub const MASK: &str = "***";

/// A name that contains one of these words, in upper or lower case, is the name of a secret.
const WORDS: [&str; 4] = ["TOKEN", "SECRET", "PASSWORD", "KEY"];

/// Returns whether the value of a variable with this name must not be stored.
pub fn is_secret_name(name: &str) -> bool {
    names_secret(name.as_bytes())
}

/// Returns whether one of these arguments would be masked.
pub fn has_secret(argv: &[Bytes]) -> bool {
    parts(argv).any(|part| matches!(part, Part::Masked(..)))
}

/// Returns the arguments as they are shown: `--password=x`, `API_TOKEN=x` and `--token x` appear without their values.
pub fn masked(argv: &[Bytes]) -> Vec<Bytes> {
    let shown = parts(argv).map(|part| match part {
        Part::Plain(argument) => argument.clone(),
        Part::Masked(before) => Bytes::new([before, MASK.as_bytes()].concat()),
    });
    shown.collect()
}

/// An argument as it is shown.
enum Part<'a> {
    Plain(&'a Bytes),
    /// Only this part, which precedes the secret, is shown.
    Masked(&'a [u8]),
}

fn parts(argv: &[Bytes]) -> impl Iterator<Item = Part<'_>> {
    let mut expected = false;
    argv.iter().map(move |argument| {
        let bytes = argument.as_bytes();
        let is_option = bytes.starts_with(b"-");
        // The argument after an option with a secret name is the value of that option, even if it begins with one dash. An argument that
        // begins with two dashes is another option.
        if std::mem::take(&mut expected) && !bytes.starts_with(b"--") {
            return Part::Masked(&[]);
        }
        match bytes.iter().position(|byte| *byte == b'=') {
            Some(place) => {
                let (name, _) = bytes.split_at(place);
                let (before, _) = bytes.split_at(place + 1);
                if names_secret(last_word(name)) {
                    Part::Masked(before)
                } else {
                    Part::Plain(argument)
                }
            }
            None => {
                expected = is_option && names_secret(bytes);
                Part::Plain(argument)
            }
        }
    })
}

/// Returns the last word of the text before a `=`. This word names the value after it, as `token` does in `https://host/?token=x`.
fn last_word(name: &[u8]) -> &[u8] {
    let parts = name.rsplit(|byte| b"?&;, \t\n'\"".contains(byte));
    parts.into_iter().next().unwrap_or_default()
}

fn names_secret(name: &[u8]) -> bool {
    let has = |word: &str| {
        let mut windows = name.windows(word.len());
        windows.any(|window| window.eq_ignore_ascii_case(word.as_bytes()))
    };
    WORDS.iter().any(|word| has(word))
}
