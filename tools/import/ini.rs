//! Parses supervisord's dialect of INI, as Python's `RawConfigParser` does. A comment begins with a `;` or `#` that is the first non-blank
//! character of a line, or follows a blank. A line that is indented more than its key continues the value.
//!
//! Values are not interpreted. Keys are converted to lower case, since supervisord ignores their case.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The section with defaults for keys that other sections lack.
const DEFAULTS: &str = "DEFAULT";

/// The maximum number of sections.
const SECTIONS_MAX: usize = 4096;
/// The maximum number of keys in a section.
const KEYS_MAX: usize = 1024;

/// The position of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) file: Arc<Path>,
    pub(super) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file.display(), self.line)
    }
}

/// The value of a key.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub(super) place: Place,
    pub(super) text: String,
}

/// A section and its keys, in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Section {
    pub(super) place: Place,
    pub(super) name: String,
    pub(super) keys: Vec<(String, Value)>,
}

impl Section {
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let found = self.keys.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value)
    }
}

/// A remark about a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) place: Place,
    pub(super) words: String,
}

impl Note {
    pub(super) fn new(place: &Place, words: impl Into<String>) -> Self {
        Self { place: place.clone(), words: words.into() }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.words)
    }
}

/// The sections of the files parsed so far.
#[derive(Default)]
pub(super) struct Parsed {
    pub(super) sections: Vec<Section>,
    /// Invalid lines.
    pub(super) problems: Vec<Note>,
    /// Repeated keys, of which the last value counts.
    pub(super) repeated: Vec<Note>,
}

impl Parsed {
    /// Reports repeated sections as problems. supervisord would merge their keys, and neither section alone would show which values
    /// apply.
    pub(super) fn report_duplicates(&mut self) {
        for (number, section) in self.sections.iter().enumerate() {
            let mut before = self.sections.iter().take(number);
            if let Some(twin) = before.find(|it| it.name == section.name) {
                let words = format!(
                    "[{}] is already defined at {}: merge the two, or rename this one",
                    section.name, twin.place
                );
                self.problems.push(Note::new(&section.place, words));
            }
        }
    }

    /// Copies each key of `[DEFAULT]` into the sections that lack it, and removes `[DEFAULT]`.
    pub(super) fn fill_in(&mut self) {
        let is_default = |section: &Section| section.name == DEFAULTS;
        let Some(found) = self.sections.iter().position(is_default) else {
            return;
        };
        let defaults = self.sections.remove(found);
        for section in &mut self.sections {
            for (key, value) in &defaults.keys {
                if section.get(key).is_none() {
                    section.keys.push((key.clone(), value.clone()));
                }
            }
        }
    }
}

/// Parses the text of a file, and appends its sections and problems to `to`.
pub(super) fn parse(file: &Arc<Path>, text: &str, to: &mut Parsed) {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let before = to.sections.len();
    let mut reader = Reader { to, section: None, key: None, indent: 0 };
    for (number, line) in text.split('\n').enumerate() {
        let place = Place { file: Arc::clone(file), line: number + 1 };
        if !reader.line(line, place) {
            break;
        }
    }
    for section in to.sections.iter_mut().skip(before) {
        for (_, value) in &mut section.keys {
            value.text.truncate(value.text.trim_end().len());
        }
    }
}

struct Reader<'a> {
    to: &'a mut Parsed,
    /// The index of the current section.
    section: Option<usize>,
    /// The index of the current key in its section.
    key: Option<usize>,
    /// The indentation of the last line that was not a continuation. A line that is indented more continues the current value.
    indent: usize,
}

impl Reader<'_> {
    /// Parses a line. Returns whether to continue: `false` if there are more than [`SECTIONS_MAX`] sections, or more than [`KEYS_MAX`] keys
    /// in one.
    fn line(&mut self, line: &str, place: Place) -> bool {
        let comment = comment(line);
        let value = line.get(..comment.unwrap_or(line.len())).unwrap_or(line);
        let value = value.trim();
        if value.is_empty() {
            // An empty line may be part of a value; a line with only a comment is ignored.
            if comment.is_none()
                && let Some(open) = self.open()
            {
                open.text.push('\n');
            }
            return true;
        }
        let indent = line.len() - line.trim_start().len();
        if indent > self.indent
            && let Some(open) = self.open()
        {
            open.text.push('\n');
            open.text.push_str(value);
            return true;
        }
        self.indent = indent;
        match header(value) {
            Some(name) => self.begin(name, place),
            None => self.set(value, place),
        }
    }

    /// Reports an invalid line. Always returns `true`, since parsing continues with the next line.
    fn wrong(&mut self, place: &Place, words: &str) -> bool {
        self.to.problems.push(Note::new(place, words));
        true
    }

    /// Returns the current value, which an indented line continues, or `None` if there is none.
    fn open(&mut self) -> Option<&mut Value> {
        let section = self.to.sections.get_mut(self.section?)?;
        section.keys.get_mut(self.key?).map(|(_, value)| value)
    }

    fn begin(&mut self, name: &str, place: Place) -> bool {
        if self.to.sections.len() >= SECTIONS_MAX {
            self.wrong(&place, &format!("there are more than {SECTIONS_MAX} sections"));
            return false;
        }
        self.to.sections.push(Section { place, name: name.to_owned(), keys: Vec::new() });
        self.section = Some(self.to.sections.len() - 1);
        self.key = None;
        true
    }

    fn set(&mut self, line: &str, place: Place) -> bool {
        let Some((key, text)) = line.split_once(['=', ':']) else {
            return self.wrong(&place, "expected [SECTION] or KEY=VALUE");
        };
        let key = key.trim_end().to_lowercase();
        if key.is_empty() {
            return self.wrong(&place, "there is no key before the =");
        }
        let section = self.section.and_then(|it| self.to.sections.get_mut(it));
        let Some(section) = section else {
            return self.wrong(&place, "expected a [SECTION] before the first key");
        };
        if section.keys.len() >= KEYS_MAX {
            self.wrong(&place, &format!("this section has more than {KEYS_MAX} keys"));
            return false;
        }
        let before = section.keys.iter().position(|(name, _)| *name == key);
        if let Some(before) = before {
            let (_, old) = section.keys.remove(before);
            let words = format!(
                "[{}] {key}: already set at {}; the last one counts, as in supervisord",
                section.name, old.place
            );
            self.to.repeated.push(Note::new(&place, words));
        }
        let text = text.trim().to_owned();
        section.keys.push((key, Value { place, text }));
        self.key = Some(section.keys.len() - 1);
        true
    }
}

/// Returns the offset at which the comment of a line begins, or `None` if it has no comment.
fn comment(line: &str) -> Option<usize> {
    if line.trim_start().starts_with([';', '#']) {
        return Some(0);
    }
    // Search for both signs in parallel, as Python does: the first round that finds a comment decides.
    let mut places = [';', '#'].map(|sign| line.match_indices(sign));
    loop {
        let mut found: Option<usize> = None;
        let mut is_over = true;
        for places in &mut places {
            let Some((place, _)) = places.next() else {
                continue;
            };
            is_over = false;
            let before = line.get(..place).and_then(|it| it.chars().next_back());
            if before.is_none_or(char::is_whitespace) {
                found = Some(found.map_or(place, |other| other.min(place)));
            }
        }
        if found.is_some() || is_over {
            return found;
        }
    }
}

/// Returns the name of a section if the line is its header, and otherwise `None`.
fn header(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('[')?;
    let (name, _) = inner.rsplit_once(']')?;
    (!name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::{Parsed, parse};
    use std::path::Path;
    use std::sync::Arc;

    /// Returns every key as `section/key=value`, and the numbers of the lines with problems.
    fn read(text: &str) -> (Vec<String>, Vec<usize>) {
        let mut parsed = Parsed::default();
        parse(&Arc::from(Path::new("x.conf")), text, &mut parsed);
        parsed.report_duplicates();
        parsed.fill_in();
        let keys = parsed.sections.iter().flat_map(|section| {
            let name = &section.name;
            let keys = section.keys.iter();
            keys.map(move |(key, value)| format!("{name}/{key}={}", value.text))
        });
        let lines = parsed.problems.iter().map(|it| it.place.line);
        (keys.collect(), lines.collect())
    }

    #[test]
    fn lines_are_read_as_supervisord_reads_them() {
        let text = "; a comment\r\n  # another\n[a]\nCommand = run ; why\nurl=x;y#z\nb : 1 = 2\n\
                    long =\n  one\n\n  two ;three\n  ;four\n  five\nlast=\n[b] junk\nc=a;b ;x #y\n";
        let (keys, problems) = read(text);
        assert_eq!(
            keys,
            [
                "a/command=run",
                "a/url=x;y#z",
                "a/b=1 = 2",
                "a/long=\none\n\ntwo\nfive",
                "a/last=",
                "b/c=a;b ;x",
            ]
        );
        assert_eq!(problems, Vec::<usize>::new());
    }

    #[test]
    fn what_is_no_line_of_it_is_told_by_its_number() {
        let (keys, problems) = read("a=1\n[b]\nnothing\n=2\n[]\nc=3\n[b]\nd=4\n");
        assert_eq!(keys, ["b/c=3", "b/d=4"]);
        assert_eq!(problems, [1, 3, 4, 5, 7]);
    }

    #[test]
    fn defaults_stand_in_for_what_a_section_lacks() {
        let (keys, _) = read("[a]\nx=1\n[DEFAULT]\nx=2\ny=3\n");
        assert_eq!(keys, ["a/x=1", "a/y=3"]);
    }
}
