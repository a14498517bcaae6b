//! The forms of secrets that were recognised first.
//!
//! The records of processes that a hook ran have their arguments masked by these forms alone, when an entry is committed. Therefore they must
//! not change: an old journal would be replayed to another state. New forms belong into [`forms`](super::forms).

use crate::actors::process::secret::words::{MASK, names_secret, password};
use crate::bytes::Bytes;

/// Returns whether one of these arguments would be masked.
pub(super) fn has_secret(argv: &[Bytes]) -> bool {
    parts(argv).any(|part| matches!(part, Part::Masked(..)))
}

/// Returns the arguments without the secrets in these forms.
pub(in crate::actors::process) fn masked(argv: &[Bytes]) -> Vec<Bytes> {
    let shown = parts(argv).map(|part| match part {
        Part::Plain(argument) => argument.clone(),
        Part::Masked(before, after) => Bytes::new([before, MASK.as_bytes(), after].concat()),
    });
    shown.collect()
}

/// An argument as it is shown.
enum Part<'a> {
    Plain(&'a Bytes),
    /// Only these parts, which precede and follow the secret, are shown.
    Masked(&'a [u8], &'a [u8]),
}

/// What an option says about the argument after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Plain,
    /// It is a secret.
    Secret,
    /// It is a user and a password, with a colon between them.
    Credentials,
    /// It is a header of HTTP.
    Header,
}

fn parts(argv: &[Bytes]) -> impl Iterator<Item = Part<'_>> {
    let mut next = Next::Plain;
    let mut is_curl = false;
    argv.iter().map(move |argument| {
        let bytes = argument.as_bytes();
        let this = std::mem::replace(&mut next, after(bytes, is_curl));
        is_curl |= bytes == b"curl" || bytes.ends_with(b"/curl");
        let hidden = match this {
            // The argument after an option with a secret name is the value of that option, even if it begins with one dash. An argument
            // that begins with two dashes is another option.
            Next::Secret if !bytes.starts_with(b"--") => {
                next = Next::Plain;
                Some((0, bytes.len()))
            }
            Next::Credentials => password(bytes),
            Next::Header => header(bytes),
            Next::Secret | Next::Plain => None,
        };
        let attached = || {
            let value = bytes.strip_prefix(b"-u").filter(|_| is_curl)?;
            let (begin, end) = password(value)?;
            Some((begin + 2, end + 2))
        };
        let hidden = hidden
            .or_else(|| assigned(bytes))
            .or_else(|| in_url(bytes))
            .or_else(|| authorization(bytes))
            .or_else(attached);
        match hidden {
            None => Part::Plain(argument),
            Some((begin, end)) => Part::Masked(
                bytes.get(..begin).unwrap_or_default(),
                bytes.get(end..).unwrap_or_default(),
            ),
        }
    })
}

/// Returns what `option` says about the argument after it.
fn after(option: &[u8], is_curl: bool) -> Next {
    if !option.starts_with(b"-") || option.contains(&b'=') {
        return Next::Plain;
    }
    match option {
        b"-u" | b"-U" | b"--user" | b"--proxy-user" if is_curl => Next::Credentials,
        b"-H" | b"--header" | b"--proxy-header" => Next::Header,
        _ if names_secret(option) => Next::Secret,
        _ => Next::Plain,
    }
}

/// Finds the value in `NAME=VALUE`, if the name is that of a secret.
fn assigned(argument: &[u8]) -> Option<(usize, usize)> {
    let place = argument.iter().position(|byte| *byte == b'=')?;
    let (name, _) = argument.split_at(place);
    names_secret(last_word(name)).then_some((place + 1, argument.len()))
}

/// Finds the value in a header whose name is that of a secret.
fn header(argument: &[u8]) -> Option<(usize, usize)> {
    let (begin, end) = password(argument)?;
    let (name, _) = argument.split_at(begin);
    let is_secret = names_secret(name) || name.eq_ignore_ascii_case(b"cookie:");
    is_secret.then_some((begin, end))
}

/// Finds the password in the first URL with a user and a password.
fn in_url(text: &[u8]) -> Option<(usize, usize)> {
    let mut from = 0;
    while let Some(found) = find(text.get(from..)?, b"://") {
        let begin = from + found + 3;
        let rest = text.get(begin..)?;
        let ends = |byte: &u8| b"/?#'\"".contains(byte) || byte.is_ascii_whitespace();
        let end = rest.iter().position(ends).unwrap_or(rest.len());
        let authority = rest.get(..end)?;
        if let Some(at) = authority.iter().rposition(|byte| *byte == b'@')
            && let Some((word, _)) = password(authority.get(..at)?)
        {
            return Some((begin + word, begin + at));
        }
        from = begin;
    }
    None
}

/// Finds what follows `Authorization:`.
fn authorization(text: &[u8]) -> Option<(usize, usize)> {
    const NAME: &[u8] = b"authorization:";
    let windows = text.windows(NAME.len());
    let begin = windows.enumerate().find(|(_, it)| it.eq_ignore_ascii_case(NAME));
    let begin = begin?.0 + NAME.len();
    (begin < text.len()).then_some((begin, text.len()))
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|it| it == word)
}

/// Returns the last word of the text before a `=`. This word names the value after it, as `token` does in `https://host/?token=x`.
fn last_word(name: &[u8]) -> &[u8] {
    let parts = name.rsplit(|byte| b"?&;, \t\n'\"".contains(byte));
    parts.into_iter().next().unwrap_or_default()
}
