//! Reports of workers about a job: errors, progress, and how the job ended. Reports are stored, so their sizes are limited.
//!
//! Change rule: these types are stored in the journal and in pages, see `message.rs`.

use crate::actors::queue::right::Right;
use crate::bytes::Bytes;
use serde::{Deserialize, Serialize};

/// An error message, truncated to at most [`ErrorText::BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ErrorText(Box<str>);

impl ErrorText {
    /// The maximum length in bytes.
    pub const BYTES_MAX: usize = 1000;

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
