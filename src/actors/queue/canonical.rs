//! A canonical form of job bodies: JSON without whitespace, with its members sorted by name.
//!
//! Numbers and strings stay as they are written, so bodies with the same form have the same content, apart from ignored
//! members and, where a name is repeated, all but its last member. The reverse is not guaranteed: bodies with the same
//! meaning may have different forms. JSON is not validated: a body that cannot be parsed is its own form.

use std::borrow::Cow;
use std::collections::BTreeMap;

/// The maximum length of a body that is canonicalised, in bytes. Other requests wait while a body is canonicalised.
const BYTES_MAX: usize = 64 << 10;
/// The maximum nesting of a body that is canonicalised. It bounds the recursion.
const DEPTH_MAX: u32 = 32;

/// Members that `MediaWiki` ignores when it compares jobs.
const IGNORED: [&str; 4] =
    ["jobReleaseTimestamp", "requestId", "rootJobSignature", "rootJobTimestamp"];

/// Returns the canonical form of a body that is a JSON object or array, without its ignored top-level members. Any
/// other body, and one that exceeds [`BYTES_MAX`] or [`DEPTH_MAX`], is returned unchanged.
pub(super) fn canonical<'b>(body: &'b [u8], ignored: &[String]) -> Cow<'b, [u8]> {
    let mut reader = Reader { rest: body, ignored };
    let is_json = reader.is_next(b'{') || reader.is_next(b'[');
    let form = (is_json && body.len() <= BYTES_MAX).then(|| reader.value(0));
    match form.flatten() {
        Some(form) if reader.rest.trim_ascii_start().is_empty() => Cow::Owned(form),
        Some(_) | None => Cow::Borrowed(body),
    }
}

struct Reader<'b, 'i> {
    rest: &'b [u8],
    ignored: &'i [String],
}

impl<'b> Reader<'b, '_> {
    /// Returns the canonical form of the next value; `None` if it cannot be parsed or is nested too deeply.
    fn value(&mut self, depth: u32) -> Option<Vec<u8>> {
        if depth == DEPTH_MAX {
            return None;
        }
        if self.is_next(b'"') {
            return self.string().map(<[u8]>::to_vec);
        }
        if self.take(b'{') {
            return self.object(depth);
        }
        if self.take(b'[') {
            return self.list(depth);
        }
        let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
        let len = self.rest.iter().take_while(|byte| is_of_word(byte)).count();
        self.split(len).filter(|word| !word.is_empty()).map(<[u8]>::to_vec)
    }

    fn object(&mut self, depth: u32) -> Option<Vec<u8>> {
        let mut members: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
        let mut is_over = self.take(b'}');
        while !is_over {
            let name = self.string()?;
            let value = self.take(b':').then(|| self.value(depth + 1))??;
            if depth > 0 || !self.is_ignored(name) {
                // Of several members with the same name, the last one counts, as in nearly every parser.
                members.insert(name, value);
            }
            is_over = self.take(b'}');
            if !is_over && !self.take(b',') {
                return None;
            }
        }
        let members = members.into_iter();
        let members = members.map(|(name, value)| [name, b":", &value].concat());
        let members: Vec<Vec<u8>> = members.collect();
        Some([b"{", &members.join(&b',')[..], b"}"].concat())
    }

    fn list(&mut self, depth: u32) -> Option<Vec<u8>> {
        let mut items = Vec::new();
        let mut is_over = self.take(b']');
        while !is_over {
            items.push(self.value(depth + 1)?);
            is_over = self.take(b']');
            if !is_over && !self.take(b',') {
                return None;
            }
        }
        Some([b"[", &items.join(&b',')[..], b"]"].concat())
    }

    /// Returns the next string as it is written, with its quotes; `None` if something else comes next, or if the string is unterminated.
    fn string(&mut self) -> Option<&'b [u8]> {
        if !self.is_next(b'"') {
            return None;
        }
        let mut escaped = false;
        let end = self.rest.iter().skip(1).position(|byte| {
            let is_end = *byte == b'"' && !escaped;
            escaped = *byte == b'\\' && !escaped;
            is_end
        })?;
        self.split(end + 2)
    }

    fn is_ignored(&self, name: &[u8]) -> bool {
        let own = self.ignored.iter().map(String::as_str);
        let mut all = own.chain(IGNORED);
        all.any(|it| name.get(1..name.len() - 1) == Some(it.as_bytes()))
    }

    /// Skips whitespace and returns whether `byte` comes next.
    fn is_next(&mut self, byte: u8) -> bool {
        self.rest = self.rest.trim_ascii_start();
        self.rest.first() == Some(&byte)
    }

    fn take(&mut self, byte: u8) -> bool {
        let is_next = self.is_next(byte);
        if is_next {
            self.split(1);
        }
        is_next
    }

    fn split(&mut self, len: usize) -> Option<&'b [u8]> {
        let (part, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(part)
    }
}

#[cfg(test)]
mod tests {
    use super::{BYTES_MAX, canonical};

    fn form(body: &str) -> String {
        let form = canonical(body.as_bytes(), &["at".to_owned()]).into_owned();
        String::from_utf8(form).expect("it is text")
    }

    #[test]
    fn what_says_the_same_has_one_form() {
        for (body, expected) in [
            (r#" { "b" : [ 1 , true ], "a":"x y" } "#, r#"{"a":"x y","b":[1,true]}"#),
            (r#"{"a":{"d":1,"c":{}},"a2":null}"#, r#"{"a":{"c":{},"d":1},"a2":null}"#),
            (r#"{"at":5,"requestId":"r","a":{"at":6}}"#, r#"{"a":{"at":6}}"#),
            (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{"q\"}":"\\"}"#, r#"{"q\"}":"\\"}"#),
            (r#"[ "b", "a" ]"#, r#"["b","a"]"#),
            (r#"{"n":1.50,"m":1e400}"#, r#"{"m":1e400,"n":1.50}"#),
        ] {
            assert_eq!(form(body), expected, "{body}");
            assert_eq!(form(expected), expected, "a canonical form is its own canonical form");
        }
    }

    #[test]
    fn what_is_not_understood_stands_for_itself() {
        let deep = "[".repeat(40) + &"]".repeat(40);
        let long = format!("[ \"{}\"]", "x".repeat(BYTES_MAX));
        for body in [
            "",
            " to: ann",
            "\"a \"",
            " 5",
            "{\"a\":1} x",
            "{\"a\":1,}",
            "{\"a\" 1}",
            "[1 2]",
            "{a:1}",
            "[\"",
            "{",
            &deep,
            &long,
        ] {
            assert_eq!(form(body), body);
        }
    }
}
