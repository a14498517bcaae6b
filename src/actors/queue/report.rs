//! Reports of workers about a job: errors, progress, and how the job ended. Reports are stored, so their sizes are limited.
//!
//! Change rule: these types are stored in the journal and in pages, see `message.rs`.

use crate::actors::queue::right::Right;
use crate::bytes::Bytes;
use crate::text;
use serde::{Deserialize, Serialize};

/// An error message, truncated to at most [`ErrorText::BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ErrorText(Box<str>);

impl ErrorText {
    /// The maximum length in bytes.
    pub const BYTES_MAX: usize = 1000;

    /// The length that is reserved for what says how much was left out.
    const MARK_BYTES_MAX: usize = 48;

    /// Returns the text, or if that is too long its beginning and its end, with a line in between that says how much was left out.
    ///
    /// For texts from outside. What is in a journal is not shortened again in this way: it must remain what it is.
    pub fn excerpt(text: &str) -> Self {
        if text.len() <= Self::BYTES_MAX {
            return Self(text.into());
        }
        let kept = Self::BYTES_MAX - Self::MARK_BYTES_MAX;
        let (head, rest) = text.split_at(text.floor_char_boundary(kept / 2));
        let (left_out, tail) = rest.split_at(rest.ceil_char_boundary(rest.len() - kept / 2));
        let left_out = text::bytes(left_out.len() as u64);
        Self(format!("{head}\n[... {left_out} left out ...]\n{tail}").into())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ErrorText {
    fn from(mut text: String) -> Self {
        text.truncate(text.floor_char_boundary(Self::BYTES_MAX));
        Self(text.into())
    }
}

impl From<ErrorText> for String {
    fn from(ErrorText(text): ErrorText) -> Self {
        text.into()
    }
}

/// The progress of a job, as reported by its worker.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// The percentage of the work that is done: 0 to 100.
    pub percent: Option<u8>,
    /// The last reported text, which describes what is being done.
    pub text: Option<ErrorText>,
}

impl Progress {
    /// Applies the fields of a newer report. A percentage above 100 counts as 100. Fields that the report leaves out stay
    /// the same.
    pub(super) fn update(&mut self, newer: &Self) {
        self.percent = newer.percent.map(|it| it.min(100)).or(self.percent);
        if newer.text.is_some() {
            self.text.clone_from(&newer.text);
        }
    }

    /// Returns the length of its text in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.as_str().len())
    }
}

/// A request to store how the work on a claimed job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepResult {
    /// The job id.
    pub id: u64,
    /// The right to the claim.
    pub by: Right,
    /// Milliseconds for which the result is kept, at most [`super::Message::RESULT_MS_MAX`].
    pub ms: u64,
    /// How the job ended.
    pub end: JobEnd,
}

/// How the work on a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobEnd {
    /// Whether the job is done; otherwise it failed.
    pub done: bool,
    /// The exit status of the job's command; `None` if the worker reported none.
    pub exit: Option<u8>,
    /// The error message.
    pub error: Option<ErrorText>,
    /// The end of its output.
    pub output: OutputTail,
    /// Duration of its last try in milliseconds.
    pub took_ms: u64,
}

/// The last bytes of a command's output, at most [`OutputTail::BYTES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Bytes", into = "Bytes")]
pub struct OutputTail(Bytes);

impl OutputTail {
    /// The maximum length in bytes.
    pub const BYTES_MAX: usize = 16 << 10;

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl From<Bytes> for OutputTail {
    fn from(bytes: Bytes) -> Self {
        let all = bytes.as_bytes();
        let start = all.len().saturating_sub(Self::BYTES_MAX);
        match all.get(start..) {
            Some(end) if start > 0 => Self(Bytes::new(end)),
            Some(_) | None => Self(bytes),
        }
    }
}

impl From<OutputTail> for Bytes {
    fn from(OutputTail(bytes): OutputTail) -> Self {
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::ErrorText;

    #[test]
    fn a_text_that_is_too_long_keeps_its_beginning_and_its_end() {
        let whole = "x".repeat(ErrorText::BYTES_MAX);
        assert_eq!(ErrorText::excerpt(&whole).as_str(), whole);
        let long = format!("begin {} the end", "é".repeat(2000));
        let excerpt = ErrorText::excerpt(&long);
        let lines: Vec<&str> = excerpt.as_str().lines().collect();
        let [head, mark, tail] = lines[..] else { panic!("{lines:?}") };
        assert!(head.starts_with("begin é") && tail.ends_with("é the end"), "{lines:?}");
        assert_eq!(mark, "[... 2.9 KiB left out ...]");
        assert!(excerpt.as_str().len() <= ErrorText::BYTES_MAX);
        let huge = ErrorText::excerpt(&"x".repeat(100 << 20));
        assert!(huge.as_str().len() <= ErrorText::BYTES_MAX && huge.as_str().contains("left out"));
    }

    /// A journal may have any text: what is in it does not change.
    #[test]
    fn an_excerpt_is_not_shortened_again() {
        let excerpt = ErrorText::excerpt(&"y".repeat(5000));
        assert_eq!(ErrorText::from(String::from(excerpt.clone())), excerpt);
        let cut = ErrorText::from("z".repeat(5000));
        assert_eq!(cut.as_str(), "z".repeat(ErrorText::BYTES_MAX));
    }
}
