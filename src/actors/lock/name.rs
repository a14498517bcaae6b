//! The names of locks and of their owners.

use crate::text;
use serde::de::{Error as _, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// A key, an index or an owner: 0 to 255 bytes of any value.
///
/// Binary formats store a name as bytes, human-readable formats as the text that [`Name::to_text`] returns.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Name(Box<[u8]>);

impl Name {
    /// The maximum length of a name, in bytes: the LockServer protocol encodes the length in one byte.
    pub const BYTES_MAX: usize = 255;

    /// Creates a name from bytes; `None` if there are more than [`Name::BYTES_MAX`].
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Option<Self> {
        let bytes = bytes.into();
        (bytes.len() <= Self::BYTES_MAX).then_some(Self(bytes))
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the name as text: unchanged if it is printable UTF-8 without a backslash, otherwise with `\xNN` escapes,
    /// which [`Name::from_text`] reads back.
    pub fn to_text(&self) -> String {
        text::escaped(&self.0)
    }

    /// Parses the output of [`Name::to_text`]. Returns `None` if an escape is invalid or the name is too long.
    pub fn from_text(text: &str) -> Option<Self> {
        Self::new(text::unescaped(text)?)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&self.to_text())
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl Visitor<'_> for Names {
            type Value = Name;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name of at most 255 bytes")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Name, E> {
                Name::from_text(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Name, E> {
                Name::new(bytes).ok_or_else(|| E::invalid_length(bytes.len(), &self))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Names)
        } else {
            deserializer.deserialize_bytes(Names)
        }
    }
}

impl TryFrom<&str> for Name {
    type Error = serde::de::value::Error;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        Self::new(text.as_bytes())
            .ok_or_else(|| Self::Error::custom("a name must not exceed 255 bytes"))
    }
}
