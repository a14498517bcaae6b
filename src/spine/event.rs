//! What happened, as plain data: told to whoever listens, and never what anything rests on.
//!
//! An event says what an entry of the journal came to, in names that people know. Which events there are is said in
//! the folder of each actor; this is what they have in common.

use crate::clock::Timestamp;
use crate::ids::Seq;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// Where an event stands: behind the entry that it tells of, and among the events of that entry.
///
/// As text the number of the entry, and behind a dot the place among its events unless it is the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The entry; for what is no entry, that of the newest event before.
    pub seq: Seq,
    /// Which of its events.
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

/// This is no position.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a sequence number, and perhaps a dot and a place, as in 812 or 812.1")]
pub struct NoPosition;

impl FromStr for Position {
    type Err = NoPosition;

    fn from_str(text: &str) -> Result<Self, NoPosition> {
        // Only digits: what `parse` takes beside them would be written in two ways.
        let number = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse::<u64>().ok().filter(|_| digits)
        };
        let (seq, place) = text.split_once('.').unwrap_or((text, "0"));
        let place = number(place).and_then(|place| u32::try_from(place).ok());
        match (number(seq), place) {
            (Some(seq), Some(place)) => Ok(Self {
                seq: Seq(seq),
                place,
            }),
            _ => Err(NoPosition),
        }
    }
}

/// The name that stands for the node, where that of an actor could.
pub const NODE: &str = "node";

/// What happens to any actor, and to the node. Each machine says what else happens to it, see `Shown::KINDS`.
pub const KINDS: [&str; 5] = [
    "checkpoint",
    "draining",
    "quarantined",
    "restarted",
    "stopping",
];

/// What is written of an event beside its contents, and for each byte of them, at most.
const WRITTEN_BYTES: usize = 320;
const WRITTEN_PER_BYTE: usize = 6;

/// An event in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Where it stands. No two events of a node stand in one place.
    pub position: Position,
    /// When it happened, in node time.
    pub at: Timestamp,
    /// To which actor, or `node`.
    pub actor: &'static str,
    /// What.
    pub what: Happening,
    /// The event as it is written for those who listen over HTTP: by whoever comes first, for all of them.
    pub written: OnceLock<Box<str>>,
}

/// What happened, by whichever actor's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// A word for it, such as `granted`.
    pub kind: &'static str,
    /// Whatever else is known, in order. The first name is what it happened to.
    pub fields: Vec<(&'static str, Field)>,
}

/// A value in an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A name that a client gave: any bytes.
    Name(Box<[u8]>),
    /// A number.
    Number(u64),
    /// Words for people, or a word for programs.
    Text(String),
}

/// A line for people: the kind, and what else is known as `field=value`.
impl fmt::Display for Happening {
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

impl Happening {
    /// Something of this kind, of which nothing is known yet.
    pub fn new(kind: &'static str) -> Self {
        Self {
            kind,
            fields: Vec::new(),
        }
    }

    /// With a name.
    #[must_use]
    pub fn name(mut self, field: &'static str, name: &[u8]) -> Self {
        self.fields.push((field, Field::Name(name.into())));
        self
    }

    /// With a number.
    #[must_use]
    pub fn number(mut self, field: &'static str, number: impl Into<u64>) -> Self {
        self.fields.push((field, Field::Number(number.into())));
        self
    }

    /// With words.
    #[must_use]
    pub fn text(mut self, field: &'static str, text: impl Into<String>) -> Self {
        self.fields.push((field, Field::Text(text.into())));
        self
    }

    /// The name of what it happened to: a lock's key.
    pub fn subject(&self) -> Option<&[u8]> {
        self.fields.iter().find_map(|(_, field)| match field {
            Field::Name(name) => Some(name.as_ref()),
            Field::Number(_) | Field::Text(_) => None,
        })
    }
}

impl Event {
    /// How many bytes it takes in memory at most, with what is written of it.
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
    use super::Position;
    use crate::ids::Seq;

    #[test]
    fn a_position_is_read_back_as_it_was_written() {
        for (text, seq, place) in [("0", 0, 0), ("812", 812, 0), ("812.1", 812, 1)] {
            let position = Position {
                seq: Seq(seq),
                place,
            };
            assert_eq!(text.parse(), Ok(position));
            assert_eq!(position.to_string(), text);
        }
        for wrong in [
            "", ".", "1.", ".1", "-1", "+1", "1.+1", "1.1.1", "a", "1 ", "1\0",
        ] {
            assert!(wrong.parse::<Position>().is_err(), "{wrong:?}");
        }
    }
}
