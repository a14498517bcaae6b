//! Expands `%(NAME)s` in values as Python's formatting does, with the names that supervisord provides.
//!
//! Secrets from the environment are never inserted. They and missing variables are replaced by a placeholder, which [`unfilled`]
//! finds.

use sexton::actors::process::{Spec, is_secret_name};
use std::collections::BTreeMap;

/// The maximum size of a value, in bytes: a command with a longer value could not be launched.
const BYTES_MAX: usize = Spec::BYTES_MAX;

/// The values of all names except `here`.
pub(super) struct Names<'a> {
    /// Strings by name.
    pub(super) texts: Vec<(&'static str, &'a str)>,
    /// Numbers by name.
    pub(super) numbers: Vec<(&'static str, i64)>,
    /// The program's own environment variables, which take precedence over `variables`.
    pub(super) own: &'a [(String, String)],
    /// Environment variables, referred to with the prefix `ENV_`.
    pub(super) variables: &'a BTreeMap<String, String>,
}

/// Expands a value; `here` is the directory of its file. The error is a message without the name of the key.
pub(super) fn expand(text: &str, here: &str, names: &Names<'_>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('%') {
        filled.push_str(before);
        rest = if let Some(after) = after.strip_prefix('%') {
            filled.push('%');
            after
        } else {
            let (format, after) = Format::read(after)?;
            filled.push_str(&format.fill(&names.get(format.name, here)?)?);
            after
        };
        if filled.len() > BYTES_MAX {
            return Err(format!("it expands to more than {BYTES_MAX} bytes"));
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Returns the name of the first variable that was not filled in, or `None` if all were.
pub(super) fn unfilled(text: &str) -> Option<&str> {
    let (_, after) = text.split_once(BEFORE)?;
    after.split_once(AFTER).map(|(name, _)| name)
}

/// The beginning and end of the placeholder for a variable that was not filled in: characters that need no quotes anywhere.
const BEFORE: &str = "__ENV_";
const AFTER: &str = "__";

enum Item {
    Text(String),
    Number(i64),
}

impl Names<'_> {
    fn get(&self, name: &str, here: &str) -> Result<Item, String> {
        if let Some(name) = name.strip_prefix("ENV_") {
            let own = self.own.iter().find(|(known, _)| known == name);
            let value = own.map(|(_, value)| value);
            let value = value.or_else(|| self.variables.get(name));
            let value = value.filter(|_| !is_secret_name(name));
            let unknown = || format!("{BEFORE}{name}{AFTER}");
            return Ok(Item::Text(value.cloned().unwrap_or_else(unknown)));
        }
        if name == "here" {
            return Ok(Item::Text(here.to_owned()));
        }
        let text = self.texts.iter().find(|(known, _)| *known == name);
        let number = self.numbers.iter().find(|(known, _)| *known == name);
        match (text, number) {
            (Some((_, text)), _) => Ok(Item::Text((*text).to_owned())),
            (None, Some((_, number))) => Ok(Item::Number(*number)),
            (None, None) => {
                let texts = self.texts.iter().map(|(known, _)| *known);
                let numbers = self.numbers.iter().map(|(known, _)| *known);
                let known: Vec<&str> = texts.chain(numbers).chain(["here", "ENV_X"]).collect();
                let known = known.join(", ");
                Err(format!("%({name})s: unknown name, expected one of {known}"))
            }
        }
    }
}

/// A parsed format: `(name)`, flags, width, precision and conversion.
struct Format<'a> {
    name: &'a str,
    is_left: bool,
    has_zeros: bool,
    sign: &'static str,
    width: usize,
    precision: Option<usize>,
    kind: char,
}

impl<'a> Format<'a> {
    /// Parses the text after a percent sign. Returns the format and the text after it.
    fn read(text: &'a str) -> Result<(Self, &'a str), String> {
        let bad = || "a % must be written as %% or begin %(NAME)s".to_owned();
        let (name, rest) =
            text.strip_prefix('(').and_then(|it| it.split_once(')')).ok_or_else(bad)?;
        let flags = rest.len() - rest.trim_start_matches(['#', '0', '-', ' ', '+']).len();
        let (flags, rest) = rest.split_at(flags);
        let (width, rest) = digits(rest);
        let (precision, rest) = match rest.strip_prefix('.') {
            Some(rest) => {
                let (digits, rest) = digits(rest);
                (Some(digits.unwrap_or(0)), rest)
            }
            None => (None, rest),
        };
        let rest = rest.strip_prefix(['h', 'l', 'L']).unwrap_or(rest);
        let kind = rest.chars().next().ok_or_else(bad)?;
        let rest = rest.get(kind.len_utf8()..).unwrap_or_default();
        let width = width.unwrap_or(0);
        if width.max(precision.unwrap_or(0)) > BYTES_MAX {
            return Err(format!("it expands to more than {BYTES_MAX} bytes"));
        }
        let format = Self {
            name,
            is_left: flags.contains('-'),
            has_zeros: flags.contains('0'),
            sign: match (flags.contains('+'), flags.contains(' ')) {
                (true, _) => "+",
                (false, true) => " ",
                (false, false) => "",
            },
            width,
            precision,
            kind,
        };
        Ok((format, rest))
    }

    fn fill(&self, item: &Item) -> Result<String, String> {
        let Self { name, kind, .. } = self;
        let text = match (kind, item) {
            ('s', Item::Text(text)) => self.cut(text),
            ('s', Item::Number(number)) => self.cut(&number.to_string()),
            ('d' | 'i' | 'u', Item::Number(number)) if self.precision.is_none() => {
                return Ok(self.number(*number));
            }
            ('d' | 'i' | 'u', Item::Text(_)) => {
                return Err(format!("%({name}){kind}: the value is not a number"));
            }
            _ => {
                return Err(format!(
                    "%({name}){kind}: expected the conversion s, or d for a number"
                ));
            }
        };
        let missing = self.width.saturating_sub(text.chars().count());
        let blank = " ".repeat(missing);
        Ok(if self.is_left { text + &blank } else { blank + &text })
    }

    fn cut(&self, text: &str) -> String {
        let letters = self.precision.unwrap_or(usize::MAX);
        text.chars().take(letters).collect()
    }

    fn number(&self, number: i64) -> String {
        let sign = if number < 0 { "-" } else { self.sign };
        let digits = number.unsigned_abs().to_string();
        let missing = self.width.saturating_sub(sign.len() + digits.len());
        match (self.is_left, self.has_zeros) {
            (true, _) => format!("{sign}{digits}{}", " ".repeat(missing)),
            (false, true) => format!("{sign}{}{digits}", "0".repeat(missing)),
            (false, false) => format!("{}{sign}{digits}", " ".repeat(missing)),
        }
    }
}

/// Parses leading digits, if there are any, and also returns the text after them. A number that is too large becomes `usize::MAX`.
fn digits(text: &str) -> (Option<usize>, &str) {
    let count = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(count);
    let number = (count > 0).then(|| digits.parse().unwrap_or(usize::MAX));
    (number, rest)
}

#[cfg(test)]
mod tests {
    use super::{Names, expand, unfilled};
    use std::collections::BTreeMap;

    fn filled(text: &str) -> Result<String, String> {
        let variables = [("HOME", "/srv/a"), ("API_TOKEN", "hush")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let names = Names {
            texts: vec![("program_name", "web")],
            numbers: vec![("process_num", 7)],
            own: &[("HERE".to_owned(), "own".to_owned())],
            variables: &BTreeMap::from(variables),
        };
        expand(text, "/etc/app", &names)
    }

    #[test]
    fn values_are_filled_in_as_python_does_it() {
        for (text, expected) in [
            ("plain", "plain"),
            ("100%%", "100%"),
            ("%(here)s/x", "/etc/app/x"),
            ("%(program_name)s_%(process_num)02d", "web_07"),
            ("%(process_num)s", "7"),
            ("[%(process_num)3d|%(process_num)-3d|%(process_num)+d]", "[  7|7  |+7]"),
            ("[%(program_name)5s|%(program_name)-5s|%(program_name).2s]", "[  web|web  |we]"),
            ("%(ENV_HOME)s %(ENV_HERE)s", "/srv/a own"),
        ] {
            assert_eq!(filled(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in [
            "50% of it",
            "%",
            "%s",
            "%(here",
            "%(here)",
            "%(here)d",
            "%(nothing)s",
            "%(process_num)*d",
            "%(process_num)c",
            "%(here)999999999999999999999s",
        ] {
            assert!(filled(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn secrets_and_variables_that_are_not_there_are_never_filled_in() {
        let secret = filled("--token %(ENV_API_TOKEN)s").expect("the text is well formed");
        assert!(!secret.contains("hush"), "{secret}");
        assert_eq!(unfilled(&secret), Some("API_TOKEN"));
        let absent = filled("%(ENV_NOWHERE)s").expect("the text is well formed");
        assert_eq!(unfilled(&absent), Some("NOWHERE"));
        assert_eq!(unfilled("__init__ ENV_X"), None);
    }
}
