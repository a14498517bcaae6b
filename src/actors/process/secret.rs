//! Recognises secrets: variables whose values are not stored, and arguments that are shown masked.
//!
//! They are recognised by their names, as in `ArchiveBox`: `*TOKEN*`, `*SECRET*`, `*PASSWORD*`, `*KEY*`; in arguments also by their forms: the
//! password in `https://user:password@host`, what follows `Authorization:`, and `curl -u user:password`. Other secrets are missed, and many
//! values that are not secret are masked.

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

/// Returns the arguments as they are shown: `--password=x`, `API_TOKEN=x` and `--token x` appear without their values, and so do the other
/// forms of secrets.
pub fn masked(argv: &[Bytes]) -> Vec<Bytes> {
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

/// Finds the password in `USER:PASSWORD`.
fn password(argument: &[u8]) -> Option<(usize, usize)> {
    let place = argument.iter().position(|byte| *byte == b':')?;
    (place + 1 < argument.len()).then_some((place + 1, argument.len()))
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

/// Returns a URL as messages show it: without the password or, if it has only a user, which may be a token, without that.
pub fn masked_url(url: &str) -> String {
    let authority = url.split_once("://").map_or(0, |(scheme, _)| scheme.len() + 3);
    let (before, rest) = url.split_at(authority);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest.get(..end).and_then(|it| it.rfind('@')) {
        Some(at) => format!("{before}{MASK}{}", rest.get(at..).unwrap_or_default()),
        None => url.to_owned(),
    }
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

#[cfg(test)]
mod tests {
    use super::{has_secret, masked, masked_url};
    use crate::bytes::Bytes;

    fn shown(words: &str) -> String {
        let words = words.split('|').map(|word| Bytes::new(word.as_bytes()));
        let shown = masked(&words.collect::<Vec<_>>()).into_iter();
        let shown = shown.map(|it| String::from_utf8_lossy(it.as_bytes()).into_owned());
        shown.collect::<Vec<_>>().join("|")
    }

    #[test]
    fn secrets_are_known_by_name_and_by_form() {
        for (words, expected) in [
            ("x|--password=a b", "x|--password=***"),
            ("x|--token|-a|b", "x|--token|***|b"),
            ("x|--token|--other", "x|--token|--other"),
            ("env|API_KEY=a|x", "env|API_KEY=***|x"),
            ("curl|-u|a:b|http://h", "curl|-u|a:***|http://h"),
            ("/usr/bin/curl|-ua:b", "/usr/bin/curl|-ua:***"),
            ("curl|--user|a:b", "curl|--user|a:***"),
            ("curl|https://u:p@h/x?y", "curl|https://u:***@h/x?y"),
            ("git|clone|ssh://h/a|https://u:p:q@h", "git|clone|ssh://h/a|https://u:***@h"),
            ("DB=postgres://u:p@h/d|x", "DB=postgres://u:***@h/d|x"),
            ("sh|-c|wget http://a/ http://u:p@h/ ; x", "sh|-c|wget http://a/ http://u:***@h/ ; x"),
            ("curl|-H|Authorization: Bearer a", "curl|-H|Authorization:***"),
            ("sh|-c|curl -H 'authorization: b' h", "sh|-c|curl -H 'authorization:***"),
            ("curl|-H|X-Api-Key: a", "curl|-H|X-Api-Key:***"),
            ("curl|-H|Cookie: a=b", "curl|-H|Cookie:***"),
        ] {
            assert_eq!(shown(words), expected);
        }
        for plain in [
            "docker|run|-u|1000:1000|x",
            "curl|-u|name|https://h:8080/a@b",
            "curl|-H|Accept: text/html",
            "ssh|git@host|ssh://git@host/x",
            "grep|key: x|https://h/?a=b",
            "date|+%H:%M",
        ] {
            assert_eq!(shown(plain), plain);
            let words = plain.split('|').map(|word| Bytes::new(word.as_bytes()));
            assert!(!has_secret(&words.collect::<Vec<_>>()), "{plain}");
        }
    }

    #[test]
    fn a_url_is_shown_without_its_credentials() {
        assert_eq!(masked_url("http://u:p@h:1/a@b"), "http://***@h:1/a@b");
        assert_eq!(masked_url("https://token@h"), "https://***@h");
        assert_eq!(masked_url("u:p@h"), "***@h");
        assert_eq!(masked_url("http://h/x"), "http://h/x");
    }
}
