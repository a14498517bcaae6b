//! One line of a log as JSON, as specified in `docs/formats.md`, "Exported logs".

use crate::clock::Timestamp;
use crate::ids::{RequestKey, Seq};
use crate::persist::mark::Mark;
use crate::replay::history::HistoryEvent;
use crate::replay::masked::mask;
use crate::spine::delivery::Stage;
use crate::spine::machine::About;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first line of an exported log. It is optional in a log written by hand.
pub const HEADER: &str = r#"{"sexton":"log","version":1}"#;

/// Returns the header of a log that begins after a sequence number. Such a log can be read, but not replayed, because it does not contain
/// the state at its beginning.
pub fn header_after(after: Seq) -> String {
    format!(r#"{{"sexton":"log","version":1,"after":{after}}}"#)
}

/// One line of a log: a record in readable form, or the passing of time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The sequence number; the next one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// The node time; that of the previous line if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// The actor that the record belongs to; the node itself if left out.
    #[serde(default = "node")]
    pub actor: String,
    /// The kind of record; an entry if left out.
    #[serde(default)]
    pub kind: Kind,
    /// The request, for an entry or a poisoned message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// The decision on the message. If an entry has none, the decision is made during the replay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Value>,
    /// The idempotency key of the message, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<RequestKey>,
    /// The items in the slots that the outcome refers to, if they are known. May be left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<About>,
    /// The effects on the followed item, if there is one. Ignored on input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<HistoryEvent>,
    /// The content of a mark, which is a record of the node itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// The stage at which a poisoned message panicked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The panic message of a poisoned message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// The kind of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A message and its outcome.
    #[default]
    Entry,
    /// A message that panicked. It is recorded, but never applied.
    Poisoned,
    /// A record of the node itself.
    Mark,
    /// No record: time passes up to `at`.
    Time,
}

/// The value of `actor` in the lines of marks.
pub(super) const NODE: &str = "node";

fn node() -> String {
    NODE.to_owned()
}

/// Why a log cannot be read or replayed. Each text is meant to follow "failed to".
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The line is not JSON, or not in the form of a log line.
    #[error("read the log: line {line}: {cause}")]
    Malformed {
        /// The line number, from 1.
        line: usize,
        /// The decoder's message.
        cause: String,
    },
    /// The header has a version that is too new for this program.
    #[error("read the log: its version {0} is newer than 1, the newest this program reads")]
    TooNew(u64),
    /// The log lacks its beginning, so it cannot be replayed.
    #[error(
        "replay the log: it begins after sequence number {0}, and does not contain the state up to there"
    )]
    Beheaded(u64),
}

impl Line {
    /// Creates a line with this kind and actor, and no other field.
    pub fn new(kind: Kind, actor: &str) -> Self {
        Self {
            seq: None,
            at: None,
            actor: actor.to_owned(),
            kind,
            message: None,
            outcome: None,
            key: None,
            about: Vec::new(),
            events: Vec::new(),
            mark: None,
            stage: None,
            cause: None,
        }
    }

    /// Parses a line. Returns `None` for an empty line, a comment (`#`) or the header.
    pub fn parse(text: &str, number: usize) -> Result<Option<Self>, LineError> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let malformed = |error: serde_json::Error| {
            let words = error.to_string();
            // The input is a single line, so the column is enough.
            let cause = match words.split_once(" at line ") {
                Some((cause, _)) => format!("column {}: {cause}", error.column()),
                None => words,
            };
            LineError::Malformed { line: number, cause }
        };
        let value: Value = serde_json::from_str(text).map_err(malformed)?;
        if value.get("sexton").is_some() {
            return match value.get("version").and_then(Value::as_u64) {
                Some(1) => match value.get("after").and_then(Value::as_u64) {
                    Some(after @ 1..) => Err(LineError::Beheaded(after)),
                    Some(0) | None => Ok(None),
                },
                Some(newer @ 2..) => Err(LineError::TooNew(newer)),
                Some(0) | None => Err(LineError::Malformed {
                    line: number,
                    cause: "a header must state its version".to_owned(),
                }),
            };
        }
        serde_json::from_value(value).map(Some).map_err(malformed)
    }

    /// Returns the line as it is shown, with secrets in commands masked.
    #[must_use]
    pub fn masked(&self) -> Self {
        let mut line = self.clone();
        let parts = [&mut line.message, &mut line.outcome];
        parts.into_iter().flatten().for_each(mask);
        line
    }

    /// Returns the line as it is written to a file, without the newline.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a line should have only string keys")
    }
}
