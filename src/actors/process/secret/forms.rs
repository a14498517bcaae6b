//! Further forms of secrets in arguments: more options of curl, commands within the text of a shell, JSON, and others.
//!
//! A value that begins with `$` or with a backquote is none: it is a variable, or the output of a command, that a shell inserts.

use crate::actors::process::secret::words::{MASK, names_secret, password};
use crate::bytes::Bytes;
use std::ops::Range;

/// How deep commands are looked for in the text of commands.
const DEPTH_MAX: usize = 3;

/// The minimum length of a user in a URL that has no password, to be taken for a token. A shorter one is taken for a name.
const TOKEN_BYTES_MIN: usize = 20;

/// The short options of curl that have a value.
const CURL_WITH_VALUE: &[u8] = b"AbcCdDeEFhHKmoPQrtTuUwxXyYz";

/// The long options of curl whose value is the address of a proxy.
const CURL_PROXIES: [&[u8]; 6] =
    [b"--proxy", b"--preproxy", b"--socks4", b"--socks4a", b"--socks5", b"--socks5-hostname"];

/// Returns the secrets in each of these arguments, in order and without overlaps.
pub(super) fn hidden(argv: &[Bytes]) -> Vec<Vec<Range<usize>>> {
    let mut command = Command::default();
    let found = argv.iter().map(|it| merged(command.found(it.as_bytes())));
    found.collect()
}

/// Sorts ranges, and joins those that overlap.
fn merged(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_unstable_by_key(|it| (it.start, it.end));
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match joined.last_mut().filter(|last| range.start <= last.end) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    joined
}

/// What an option says about its value.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Value {
    #[default]
    Plain,
    /// It is a secret.
    Secret,
    /// It is a user and a password, with a colon between them.
    Credentials,
    /// It is a header of HTTP.
    Header,
    /// It is a host, before which a user and a password may stand, with or without a scheme.
    Host,
    /// It is the text of commands, as after `sh -c`.
    Commands,
}

impl Value {
    fn found(self, text: &[u8]) -> Option<Range<usize>> {
        let found = match self {
            Self::Secret => Some((0, text.len())),
            Self::Credentials => password(text),
            Self::Header => header(text),
            Self::Host => {
                let at = text.iter().rposition(|byte| *byte == b'@')?;
                let from = find(text, b"://").map_or(0, |place| place + 3);
                let user = text.get(from..at)?;
                password(user).map(|(begin, end)| (from + begin, from + end))
            }
            Self::Plain | Self::Commands => None,
        };
        found.map(|(begin, end)| begin..end).filter(|it| is_given(text.get(it.clone())))
    }
}

/// A command whose words are looked at one after the other.
#[derive(Default)]
struct Command {
    next: Value,
    is_curl: bool,
    depth: usize,
}

impl Command {
    fn found(&mut self, word: &[u8]) -> Vec<Range<usize>> {
        let this = std::mem::take(&mut self.next);
        // An argument that begins with a dash is another option, not the secret.
        let is_option = this == Value::Secret && word.starts_with(b"-");
        let mut found: Vec<_> = this.found(word).filter(|_| !is_option).into_iter().collect();
        if let Some((value, begin)) = self.option(word) {
            let attached = word.get(begin..).unwrap_or_default();
            if attached.is_empty() {
                self.next = value;
            }
            let inner = unquoted(attached);
            let begin = begin + (attached.len() - inner.len()) / 2;
            found.extend(value.found(inner).map(|it| moved(it, begin)));
        }
        self.is_curl |= is_curl(word);
        found.extend(texts(word));
        let is_text = this == Value::Commands || mentions_curl(word);
        if is_text && self.depth < DEPTH_MAX && word.iter().any(u8::is_ascii_whitespace) {
            found.extend(commands(word, self.depth + 1));
        }
        found
    }

    /// Returns what an option says about its value, and where that begins in this word: at its end if it is the next word.
    fn option(&self, word: &[u8]) -> Option<(Value, usize)> {
        let letters = word.strip_prefix(b"-")?;
        if letters.starts_with(b"-") {
            let end = word.iter().position(|byte| *byte == b'=');
            let (name, begin) =
                end.map_or((word, word.len()), |end| (word.get(..end).unwrap_or(word), end + 1));
            return self.long_option(name).map(|value| (value, begin)).or_else(|| colon(word));
        }
        let cluster = || {
            let place = letters.iter().position(|it| CURL_WITH_VALUE.contains(it))?;
            Some((letters.get(place)?, place + 2))
        };
        let (letter, begin) = match letters.first()? {
            _ if self.is_curl => cluster()?,
            b'H' => (&b'H', 2),
            _ if letters.ends_with(b"c") && letters.iter().all(u8::is_ascii_alphabetic) => {
                return Some((Value::Commands, word.len()));
            }
            _ => return colon(word),
        };
        match letter {
            b'u' | b'U' => Some((Value::Credentials, begin)),
            b'H' => Some((Value::Header, begin)),
            b'x' => Some((Value::Host, begin)),
            _ => None,
        }
    }

    fn long_option(&self, name: &[u8]) -> Option<Value> {
        match name {
            b"--user" | b"--proxy-user" if self.is_curl => Some(Value::Credentials),
            b"--header" | b"--proxy-header" => Some(Value::Header),
            _ if self.is_curl && CURL_PROXIES.contains(&name) => Some(Value::Host),
            _ => names_option(name).then_some(Value::Secret),
        }
    }
}

/// Returns what `--NAME:VALUE` says about its value, and where that begins.
fn colon(word: &[u8]) -> Option<(Value, usize)> {
    let place = word.iter().position(|byte| *byte == b':')?;
    let name = word.get(..place)?;
    names_option(name).then_some((Value::Secret, place + 1))
}

/// Finds secrets in the text of commands, as a shell reads them. Quotes are taken off around words only.
fn commands(text: &[u8], depth: usize) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut command = Command { depth, ..Command::default() };
    let mut from = 0;
    while let Some(byte) = text.get(from) {
        if byte.is_ascii_whitespace() && *byte != b'\n' {
            from += 1;
            continue;
        }
        if ends_command(*byte) {
            command = Command { depth, ..Command::default() };
            from += 1;
            continue;
        }
        let end = end_of_word(text, from);
        let word = text.get(from..end).unwrap_or_default();
        let quoted = unquoted(word);
        let begin = from + (word.len() - quoted.len()) / 2;
        found.extend(command.found(quoted).into_iter().map(|it| moved(it, begin)));
        from = end;
    }
    found
}

/// Returns whether this character ends a command of a shell.
const fn ends_command(byte: u8) -> bool {
    matches!(byte, b'\n' | b';' | b'|' | b'&' | b'(' | b')')
}

/// Returns where the word ends that begins here. It has at least one byte.
fn end_of_word(text: &[u8], from: usize) -> usize {
    let (mut quote, mut escaped) = (None, false);
    for (place, byte) in text.iter().enumerate().skip(from) {
        match (quote, byte) {
            _ if escaped => escaped = false,
            (None | Some(b'"'), b'\\') => escaped = true,
            (Some(open), _) if open == *byte => quote = None,
            (None, b'\'' | b'"') => quote = Some(*byte),
            (None, _) if byte.is_ascii_whitespace() || ends_command(*byte) => return place,
            (Some(_) | None, _) => {}
        }
    }
    text.len()
}

/// Returns a word without the quotes around it, if it is one quotation.
fn unquoted(word: &[u8]) -> &[u8] {
    match word {
        [open @ (b'\'' | b'"'), inner @ .., close] if open == close && !inner.contains(open) => {
            inner
        }
        _ => word,
    }
}

/// Finds secrets in forms that are recognised anywhere in a text.
fn texts(text: &[u8]) -> Vec<Range<usize>> {
    let mut found: Vec<_> = setting(text).into_iter().collect();
    // What is in a value is not looked at again, so that the effort is in proportion to the length.
    let mut until = 0;
    for (place, byte) in text.iter().enumerate() {
        let range = match byte {
            _ if place < until => None,
            b'=' => assigned(text, place),
            b':' => {
                url(text, place).or_else(|| member(text, place)).or_else(|| cookie(text, place))
            }
            _ => None,
        };
        until = range.as_ref().map_or(until, |it| it.end);
        found.extend(range);
    }
    found.retain(|it| is_given(text.get(it.clone())));
    found
}

/// Finds the value in `NAME=VALUE`, if the name is that of a secret.
fn assigned(text: &[u8], place: usize) -> Option<Range<usize>> {
    let before = text.get(..place)?;
    let begin = before.iter().rposition(|it| !is_of_name(*it)).map_or(0, |it| it + 1);
    let name = before.get(begin..)?;
    let is_secret = if name.starts_with(b"-") { names_option(name) } else { names_argument(name) };
    let value = text.get(place + 1..).filter(|_| is_secret)?;
    let length = if begin == 0 { value.len() } else { end_of_value(value) };
    Some(place + 1..place + 1 + length)
}

/// Finds the value in `NAME = VALUE`, if the name is that of a secret and there is nothing else: it may otherwise be a condition or an
/// expression.
fn setting(text: &[u8]) -> Option<Range<usize>> {
    let place = text.iter().position(|it| *it == b'=')?;
    let name = text.get(..place)?.trim_ascii();
    let after = text.get(place + 1..)?;
    let value = after.trim_ascii();
    let is_value = match value {
        [open @ (b'"' | b'\''), .., close] => open == close,
        _ => !value.iter().any(|it| it.is_ascii_whitespace() || b"()[]{}$=~".contains(it)),
    };
    let is_name = name.iter().copied().all(is_of_name) && !name.starts_with(b"-");
    let is_secret = is_value && is_name && names_member(name);
    let begin = text.len() - after.trim_ascii_start().len();
    is_secret.then(|| begin..begin + value.len())
}

/// Finds the value in `"NAME":"VALUE"`, as JSON has it, if the name is that of a secret.
fn member(text: &[u8], place: usize) -> Option<Range<usize>> {
    let before = text.get(..place)?.trim_ascii_end();
    let before = before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'"))?;
    let before = before.strip_suffix(b"\\").unwrap_or(before);
    let begin = before.iter().rposition(|it| !is_of_name(*it))? + 1;
    if !before.get(begin.checked_sub(1)?).is_some_and(|it| b"\"'".contains(it)) {
        return None;
    }
    let name = before.get(begin..)?;
    let after = text.get(place + 1..)?;
    let value = after.trim_ascii_start();
    let begin = text.len() - value.len();
    let is_number = value.first().is_some_and(u8::is_ascii_digit);
    let is_text = value.first().is_some_and(|it| b"\"'\\".contains(it));
    let is_plural = name.last().is_some_and(|it| it.eq_ignore_ascii_case(&b's'));
    if !names_member(name) {
        return None;
    }
    let end = if is_text {
        end_of_value(value)
    } else if is_number && !is_plural {
        value.iter().position(|it| !it.is_ascii_digit()).unwrap_or(value.len())
    } else {
        return None;
    };
    Some(begin..begin + end)
}

/// Finds the password in a URL, or a user that is long enough to be a token.
fn url(text: &[u8], place: usize) -> Option<Range<usize>> {
    let rest = text.get(place..)?.strip_prefix(b"://")?;
    let ends = |byte: &u8| b"/?#'\"".contains(byte) || byte.is_ascii_whitespace();
    let end = rest.iter().position(ends).unwrap_or(rest.len());
    let authority = rest.get(..end)?;
    let at = authority.iter().rposition(|byte| *byte == b'@')?;
    let user = authority.get(..at)?;
    let begin = place + 3;
    if let Some((from, to)) = password(user) {
        return Some(begin + from..begin + to);
    }
    let before = text.get(..place)?;
    let is_http = [&b"http"[..], b"https"].into_iter().any(|it| ends_with(before, it));
    let is_letter = |it: &u8| it.is_ascii_alphanumeric() || b"_-".contains(it);
    let is_token = user.len() >= TOKEN_BYTES_MIN
        && user.iter().all(is_letter)
        && user.iter().any(u8::is_ascii_digit);
    (is_http && is_token).then(|| begin..begin + at)
}

/// Finds the cookies in `Cookie: NAME=VALUE`.
fn cookie(text: &[u8], place: usize) -> Option<Range<usize>> {
    let before = text.get(..place)?;
    let around = before.get(..before.len().checked_sub(b"cookie".len())?)?;
    let is_word = around.last().is_none_or(|it| !it.is_ascii_alphanumeric());
    if !is_word || !ends_with(before, b"cookie") {
        return None;
    }
    let value = text.get(place + 1..)?.trim_ascii_start();
    let name = value.iter().position(|it| !is_of_name(*it))?;
    let is_cookie = name > 0 && value.get(name) == Some(&b'=');
    let from = text.len() - value.len();
    let end = value.iter().position(|it| b"'\"\n".contains(it)).unwrap_or(value.len());
    is_cookie.then(|| from..from + end)
}

/// Finds the value in a header whose name is that of a secret.
fn header(text: &[u8]) -> Option<(usize, usize)> {
    let (begin, end) = password(text)?;
    let name = text.get(..begin - 1)?.trim_ascii();
    let is_secret = names_member(name) || name.eq_ignore_ascii_case(b"cookie");
    is_secret.then_some((begin, end))
}

/// Returns where a value ends that begins this text: at the quote that closes it, or before the next blank or quote.
fn end_of_value(text: &[u8]) -> usize {
    let opening = match text {
        [b'\\', quote @ (b'"' | b'\''), ..] => Some((2, quote)),
        [quote @ (b'"' | b'\''), ..] => Some((1, quote)),
        _ => None,
    };
    let end = match opening {
        Some((from, quote)) => {
            let inner = text.iter().enumerate().skip(from);
            let mut closing = inner.filter(|(place, it)| {
                *it == quote && (from == 2 || text.get(place - 1) != Some(&b'\\'))
            });
            closing.next().map(|(place, _)| place + 1)
        }
        None => text.iter().position(|it| it.is_ascii_whitespace() || b"'\"".contains(it)),
    };
    end.unwrap_or(text.len())
}

/// Returns whether a value is given in the text, and not inserted by a shell. One that is masked already is none either.
fn is_given(value: Option<&[u8]>) -> bool {
    let value = value.unwrap_or_default().trim_ascii();
    let inner = value.iter().position(|it| !b"'\"\\".contains(it));
    let inner = inner.and_then(|it| value.get(it..)).unwrap_or_default();
    !inner.is_empty()
        && !inner.starts_with(b"$")
        && !inner.starts_with(b"`")
        && value != MASK.as_bytes()
}

/// Returns whether this name is that of a secret in arguments, where there are more of them than among variables.
fn names_argument(name: &[u8]) -> bool {
    let word = b"passwd";
    names_secret(name) || name.windows(word.len()).any(|it| it.eq_ignore_ascii_case(word))
}

/// Returns whether the member of an object with this name, or a setting or a header, is a secret. Only `key` itself is often none.
fn names_member(name: &[u8]) -> bool {
    let lower = name.to_ascii_lowercase();
    let has = |word: &[u8]| find(&lower, word).is_some();
    let is_key = || {
        let before = lower.strip_suffix(b"key")?;
        let letter = name.get(before.len())?;
        let is_word = before.ends_with(b"_") || before.ends_with(b"-") || before.ends_with(b"api");
        Some(is_word || !before.is_empty() && letter.is_ascii_uppercase())
    };
    [&b"token"[..], b"secret", b"password", b"passwd"].into_iter().any(has)
        || is_key().unwrap_or(false)
}

/// Returns whether this is an option whose value is a secret, not where one is read from.
fn names_option(option: &[u8]) -> bool {
    let start = option.iter().position(|it| *it != b'-').unwrap_or(option.len());
    let name = option.get(start..).unwrap_or_default();
    let elsewhere = [&b"file"[..], b"path", b"dir", b"stdin", b"fd"];
    let is_secret = names_member(name) || find(&name.to_ascii_lowercase(), b"bearer").is_some();
    let is_elsewhere = elsewhere.into_iter().any(|it| ends_with(name, it));
    is_secret && !is_elsewhere && name.iter().copied().all(is_of_name)
}

const fn is_of_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

fn is_curl(word: &[u8]) -> bool {
    word == b"curl" || word.ends_with(b"/curl")
}

/// Returns whether curl is one of the words of this text.
fn mentions_curl(text: &[u8]) -> bool {
    let mut words =
        text.split(|it| it.is_ascii_whitespace() || ends_command(*it) || b"'\"".contains(it));
    words.any(is_curl)
}

const fn moved(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

fn ends_with(text: &[u8], word: &[u8]) -> bool {
    let begin = text.len().checked_sub(word.len());
    begin.and_then(|it| text.get(it..)).is_some_and(|it| it.eq_ignore_ascii_case(word))
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    text.windows(word.len()).position(|it| it == word)
}
