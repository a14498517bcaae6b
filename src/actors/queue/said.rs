//! What is said of a job by whoever works on it: what went wrong, how far it is, and how it ended. Bounded, since all of it is kept.
//!
//! Change rule: stored in the journal and in pages, see `message.rs`.

use crate::actors::queue::right::Right;
use crate::bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What was said of a failure: no more than its first [`ErrorText::BYTES_MAX`] bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct ErrorText(Box<str>);

impl ErrorText {
    /// The most bytes that are kept.
    pub const BYTES_MAX: usize = 1000;

    /// The text.
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

/// How far the work on a job has come, as its worker reports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    /// How much is done, in percent: 0 to 100.
    pub percent: Option<u8>,
    /// What is being done: the newest text.
    pub text: Option<ErrorText>,
}

impl Progress {
    /// Takes over what a newer report has; what that leaves out stays.
    pub(super) fn update(&mut self, newer: &Self) {
        self.percent = newer.percent.map(|it| it.min(100)).or(self.percent);
        if newer.text.is_some() {
            self.text.clone_from(&newer.text);
        }
    }

    /// Bytes of its text.
    pub(super) fn bytes(&self) -> usize {
        self.text.as_ref().map_or(0, |text| text.as_str().len())
    }
}

/// How the work on a claimed job ended, to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeepResult {
    /// Which job.
    pub id: u64,
    /// Who has it.
    pub by: Right,
    /// For so many milliseconds, at most [`super::Message::RESULT_MS_MAX`].
    pub ms: u64,
    /// How.
    pub end: JobEnd,
}

/// How the work on a job ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobEnd {
    /// Whether the job is done; else it has failed.
    pub done: bool,
    /// The exit status of its command, if it has one.
    pub exit: Option<u8>,
    /// What went wrong.
    pub error: Option<ErrorText>,
    /// The end of what it wrote.
    pub output: OutputTail,
    /// Milliseconds that its last try took.
    pub took_ms: u64,
}

/// The end of what a command wrote: no more than its last [`OutputTail::BYTES_MAX`] bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Bytes", into = "Bytes")]
pub struct OutputTail(Bytes);

impl OutputTail {
    /// The most bytes that are kept.
    pub const BYTES_MAX: usize = 16 << 10;

    /// The bytes.
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
