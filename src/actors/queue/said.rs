//! What is said of a job by whoever works on it: what went wrong, and how far it is. Bounded, since all of it is kept.
//!
//! Change rule: stored in the journal and in pages, see `message.rs`.

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
