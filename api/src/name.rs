//! Names, and how they are written in JSON.
//!
//! A name may contain any bytes, a JSON string only text. So a member of an object that holds a name is written in one of two ways: as text
//! under the member's name if it is UTF-8, and otherwise as base64 under that name with `_b64` appended.

use crate::member::byte_members;
use crate::text;
use serde::de::{Unexpected, Visitor};
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

/// A name is longer than [`Name::BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameTooLong;

impl fmt::Display for NameTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name must not exceed 255 bytes")
    }
}

impl std::error::Error for NameTooLong {}

impl TryFrom<&str> for Name {
    type Error = NameTooLong;

    fn try_from(text: &str) -> Result<Self, NameTooLong> {
        Self::new(text.as_bytes()).ok_or(NameTooLong)
    }
}

impl TryFrom<Vec<u8>> for Name {
    type Error = NameTooLong;

    fn try_from(bytes: Vec<u8>) -> Result<Self, NameTooLong> {
        Self::new(bytes).ok_or(NameTooLong)
    }
}

byte_members! {
    /// The names of an entry of a lock.
    EntryNames {
        /// The key of the lock.
        key: Name,
        /// The index below the key.
        index: Name,
        /// The owner that holds or waits for the lock. Each owner needs a unique name.
        owner: Name,
    }

    /// The name of an owner.
    OwnerName {
        /// The owner that holds the lock.
        owner: Name,
    }

    /// The name of a lease.
    LeaseName {
        /// The name of the lease.
        name: Name,
    }

    /// The names of a task.
    TaskNames {
        /// The task's display name.
        name: Name,
        /// The task's group.
        group: Name,
        /// The work id: no two tasks with the same work id are under way at the same time. Empty if the task has none.
        work: Name,
    }

    /// The name of a server.
    ServerName {
        /// The name of the server.
        server: Name,
    }

    /// The name of a group.
    GroupName {
        /// The name of the group.
        group: Name,
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Name".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "maxLength": Self::BYTES_MAX,
            crate::member::BYTES: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryNames, Name, NameTooLong};

    #[test]
    fn names_come_back_from_json_as_they_were() {
        for bytes in
            [&b""[..], b"plain", b"not \\x41", "snowman \u{2603}\n".as_bytes(), b"\xff\x00\xfe"]
        {
            let name = |bytes: &[u8]| Name::new(bytes).expect("the name should not be too long");
            let names = EntryNames { key: name(bytes), index: name(b"\xff"), owner: name(bytes) };
            let text = serde_json::to_string(&names).expect("names should be JSON");
            let read: EntryNames = serde_json::from_str(&text).expect("it should be the same");
            assert_eq!(read, names, "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for (text, expected) in [
            (r#"{"key":"a","owner":"b"}"#, "missing field `index`"),
            (r#"{"key":"a","index":7,"owner":"b"}"#, "index is not text"),
            (r#"{"key":"a","index_b64":"?","owner":"b"}"#, "index_b64 is not base64"),
        ] {
            let error = serde_json::from_str::<EntryNames>(text).expect_err("it should be refused");
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
        assert_eq!(Name::try_from(vec![b'a'; 256]), Err(NameTooLong));
    }
}
