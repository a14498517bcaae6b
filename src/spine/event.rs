//! Events: what happened, as plain data for subscribers. No decision depends on them.
//!
//! An event describes the result of a journal entry, or something that happened without an entry, in terms that users know. The events of
//! each actor are defined in the actor's folder; this file defines what all events have in common.

use crate::clock::Timestamp;
use crate::ids::Seq;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// The position of an event: the entry that it describes, and its index among the events of that entry.
///
/// The text form is the sequence number of the entry, followed by a dot and the index unless the index is 0, as in `812` or `812.1`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The entry; for an event without an entry, the entry in the position of the event before it.
    pub seq: Seq,
    /// The index among the events of the entry.
    pub place: u32,
}

impl From<Seq> for Position {
    fn from(seq: Seq) -> Self {
        Self { seq, place: 0 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { seq, place: 0 } => seq.fmt(f),
            Self { seq, place } => write!(f, "{seq}.{place}"),
        }
    }
}

/// The error for text that is not a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a sequence number, optionally followed by a dot and an index, as in 812 or 812.1"
)]
pub struct NoPosition;

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        // Only digits are accepted: `parse` alone would also accept a leading plus sign.
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| digits)
        };
        let (seq, place) = text.split_once('.').unwrap_or((text, "0"));
        let place = number(place).and_then(|place| u32::try_from(place).ok());
        match (number(seq), place) {
            (Some(seq), Some(place)) => Ok(Self { seq: Seq(seq), place }),
            _ => Err(NoPosition),
        }
    }
}

/// The name that stands for the node itself where an event names an actor.
pub const NODE: &str = "node";

/// The kinds of events that are common to all actors, or that the node itself publishes. For the further kinds of each machine, see
/// `Observable::KINDS`.
pub const KINDS: [&str; 5] = ["checkpoint", "draining", "quarantined", "restarted", "stopping"];

/// The maximum length of an event's written form, in bytes, not counting its contents: the bytes of its names and texts.
const WRITTEN_BYTES: usize = 320;
/// The maximum number of bytes in the written form for each byte of the contents. A control character takes the most, as in `\u0001`.
const WRITTEN_PER_BYTE: usize = 6;

/// An event, with its position and time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The position, which is unique among the events of a node.
    pub position: Position,
    /// The node time at which it happened.
    pub at: Timestamp,
    /// The name of the actor, or `node`.
    pub actor: &'static str,
    /// What happened.
    pub what: EventBody,
    /// The event as written to subscribers over HTTP. It is formatted for the first reader, and reused for the others.
    pub written: OnceLock<Box<str>>,
}

/// The names of the members that every written event has, from the other fields of [`Event`] and the kind. No field of an [`EventBody`] may
/// have one of these names: of two members with the same name, most JSON parsers keep only the last.
pub const COMMON_FIELDS: [&str; 4] = ["position", "at", "actor", "kind"];

/// What happened, in an actor's own terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventBody {
    /// The kind, such as `granted`.
    pub kind: &'static str,
    /// The details, as pairs of field name and value, in order. The first value that is a [`Field::Name`] names the subject.
    pub fields: Vec<(&'static str, Field)>,
}

/// A value in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A name chosen by a client: arbitrary bytes.
    Name(Box<[u8]>),
    Number(u64),
    /// Text for users, or a keyword for programs.
    Text(String),
}

/// Formats one line for users: the kind, followed by details as `field=value`.
impl fmt::Display for EventBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        for (name, field) in &self.fields {
            match field {
                Field::Name(bytes) => write!(f, " {name}={}", bytes.escape_ascii())?,
                Field::Number(number) => write!(f, " {name}={number}")?,
                Field::Text(text) => write!(f, " {name}={text:?}")?,
            }
        }
        Ok(())
    }
}

impl EventBody {
    /// Creates an event body of this kind without details.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, fields: Vec::new() }
    }

    /// Adds a name.
    #[must_use]
    pub fn name(self, field: &'static str, name: &[u8]) -> Self {
        self.with(field, Field::Name(name.into()))
    }

    /// Adds a number.
    #[must_use]
    pub fn number(self, field: &'static str, number: impl Into<u64>) -> Self {
        self.with(field, Field::Number(number.into()))
    }

    /// Adds text.
    #[must_use]
    pub fn text(self, field: &'static str, text: impl Into<String>) -> Self {
        self.with(field, Field::Text(text.into()))
    }

    fn with(mut self, field: &'static str, value: Field) -> Self {
        debug_assert!(
            !COMMON_FIELDS.contains(&field) && self.fields.iter().all(|(name, _)| *name != field),
            "an event `{}` would have two members `{field}`",
            self.kind
        );
        self.fields.push((field, value));
        self
    }

    /// Returns the name of the subject, such as a lock's key; `None` if none of the fields is a [`Field::Name`].
    pub fn subject(&self) -> Option<&[u8]> {
        self.fields.iter().find_map(|(_, field)| match field {
            Field::Name(name) => Some(name.as_ref()),
            Field::Number(_) | Field::Text(_) => None,
        })
    }
}

impl Event {
    /// Returns the maximum number of bytes that the event takes in memory, including its written form.
    pub fn bytes(&self) -> usize {
        let content = |(_, field): &(&str, Field)| match field {
            Field::Name(name) => name.len(),
            Field::Number(_) => 0,
            Field::Text(text) => text.len(),
        };
        let fields = &self.what.fields;
        let contents: usize = fields.iter().map(content).sum();
        let kept = size_of::<Self>() + fields.capacity() * size_of::<(&str, Field)>() + contents;
        kept + WRITTEN_BYTES + contents * WRITTEN_PER_BYTE
    }
}

#[cfg(test)]
mod tests {
    use super::{COMMON_FIELDS, EventBody, Position};
    use crate::ids::Seq;

    #[test]
    fn no_field_hides_another() {
        let twice = |field| {
            let add = move || EventBody::new("set").number("own", 1_u64).number(field, 2_u64);
            std::panic::catch_unwind(add).is_err()
        };
        for field in COMMON_FIELDS.into_iter().chain(["own"]) {
            assert_eq!(twice(field), cfg!(debug_assertions), "{field}");
        }
        assert!(!twice("other"));
    }

    #[test]
    fn a_position_is_read_back_as_it_was_written() {
        for (text, seq, place) in [("0", 0, 0), ("812", 812, 0), ("812.1", 812, 1)] {
            let position = Position { seq: Seq(seq), place };
            assert_eq!(text.parse(), Ok(position));
            assert_eq!(position.to_string(), text);
        }
        for wrong in ["", ".", "1.", ".1", "-1", "+1", "1.+1", "1.1.1", "a", "1 ", "1\0"] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong:?}");
        }
    }
}
