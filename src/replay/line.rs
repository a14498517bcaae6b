//! One line of a log as JSON. `docs/formats.md`, "Exported logs", is the text of it.

use crate::clock::Timestamp;
use crate::ids::{RequestKey, Seq};
use crate::persist::mark::Mark;
use crate::replay::story::StoryEvent;
use crate::spine::delivery::Stage;
use crate::spine::machine::About;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The first line of an exported log. A hand-written one may leave it out.
pub const HEADER: &str = r#"{"sexton":"log","version":1}"#;

/// That line for a log which begins behind a sequence number: it can be read, and not be replayed by itself.
pub fn header_after(after: Seq) -> String {
    format!(r#"{{"sexton":"log","version":1,"after":{after}}}"#)
}

/// One record, readable by people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// Sequence number. If left out: the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<Seq>,
    /// Node time. If left out: that of the line before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
    /// Whose record it is. If left out: the node's.
    #[serde(default = "node")]
    pub actor: String,
    /// What it is. If left out: an entry.
    #[serde(default)]
    pub kind: Kind,
    /// What was asked, for an entry or a poisoned message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<Value>,
    /// What was decided. If left out of an entry: it is decided now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Value>,
    /// What the message came with, if it is not to be done twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<RequestKey>,
    /// What stood in the slots that the outcome speaks of, where that is known. It may be left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub about: Vec<About>,
    /// What it came to for the item that is followed, if one is. It is not read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<StoryEvent>,
    /// What the node noted about itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<Mark>,
    /// Where a poisoned message panicked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<Stage>,
    /// The words of that panic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
}

/// What a line is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A message and its outcome.
    #[default]
    Entry,
    /// A message that panicked: history, never applied.
    Poisoned,
    /// Something of the node itself.
    Mark,
    /// Nothing but the passing of time, up to `at`.
    Time,
}

/// Whose marks are.
pub(super) const NODE: &str = "node";

fn node() -> String {
    NODE.to_owned()
}

/// A line that is not one.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// Not JSON, or not of a line's form.
    #[error("read the log: line {line}: {cause}")]
    Malformed {
        /// The line, from one.
        line: usize,
        /// What the decoder says.
        cause: String,
    },
    /// A header of a version that cannot be read.
    #[error("read the log: its version {0} is newer than 1, the newest this program reads")]
    TooNew(u64),
    /// A log without its beginning.
    #[error(
        "replay the log: it begins behind sequence number {0}, and the state up to there is not in it"
    )]
    Beheaded(u64),
}

impl Line {
    /// A line of this kind with nothing in it yet.
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

    /// Reads a line; `None` for an empty one, a comment (`#`) and the header.
    pub fn parse(text: &str, number: usize) -> Result<Option<Self>, LineError> {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            return Ok(None);
        }
        let malformed = |error: serde_json::Error| {
            let words = error.to_string();
            // What is read is one line: where in it is enough.
            let cause = match words.split_once(" at line ") {
                Some((cause, _)) => format!("column {}: {cause}", error.column()),
                None => words,
            };
            LineError::Malformed {
                line: number,
                cause,
            }
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
                    cause: "a header says which version it is of".to_owned(),
                }),
            };
        }
        serde_json::from_value(value).map(Some).map_err(malformed)
    }

    /// The line as it stands in a file, without its end.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a line has only string keys")
    }
}
