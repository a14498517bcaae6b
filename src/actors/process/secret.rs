//! What looks like a secret: names of variables whose values are not stored, and arguments that are shown masked.
//!
//! By name alone, as `ArchiveBox` does it: `*TOKEN*`, `*SECRET*`, `*PASSWORD*`, `*KEY*`. A secret under another name is not
//! found, and much that is none is taken for one.

use crate::bytes::Bytes;

/// What stands where a secret was.
pub const MASK: &str = "***";

/// A name that has one of these in it, in whatever case, is that of a secret.
const WORDS: [&str; 4] = ["TOKEN", "SECRET", "PASSWORD", "KEY"];

/// Whether a variable of this name has a value that is not to be stored.
pub fn is_secret_name(name: &str) -> bool {
    names_secret(name.as_bytes())
}

/// Whether an argument of these would be masked.
pub fn has_secret(argv: &[Bytes]) -> bool {
    parts(argv).any(|part| matches!(part, Part::Masked(..)))
}

/// The arguments as they are shown: `--password=x`, `API_TOKEN=x` and `--token x` without their values.
pub fn masked(argv: &[Bytes]) -> Vec<Bytes> {
    let shown = parts(argv).map(|part| match part {
        Part::Plain(argument) => argument.clone(),
        Part::Masked(before) => Bytes::new([before, MASK.as_bytes()].concat()),
    });
    shown.collect()
}

/// An argument, as it is shown.
enum Part<'a> {
    Plain(&'a Bytes),
    /// Only what stands before its secret.
    Masked(&'a [u8]),
}

fn parts(argv: &[Bytes]) -> impl Iterator<Item = Part<'_>> {
    let mut expected = false;
    argv.iter().map(move |argument| {
        let bytes = argument.as_bytes();
        let is_option = bytes.starts_with(b"-");
        // Two options in a row: the first had no value, or one that begins with a dash, which is masked rather than shown.
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

/// What a value is given to: of `https://host/?a=1&token` the last name.
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
