//! Immutable bytes, which the state, replies and copies of pages share. Human-readable formats show them as text.

use crate::text;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// Immutable bytes. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Bytes(Arc<[u8]>);

impl Bytes {
    /// Wraps `bytes`.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::new(bytes)
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Slice(&self.0).serialize(serializer)
    }
}

/// Borrowed bytes, serialized like [`Bytes`].
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a>(pub &'a [u8]);

impl Serialize for Slice<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&text::escaped(self.0))
        } else {
            serializer.serialize_bytes(self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Texts;
        impl Visitor<'_> for Texts {
            type Value = Bytes;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, with \\xNN for bytes that are not text")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Bytes, E> {
                let bytes = text::unescaped(text);
                bytes.map(Bytes::new).ok_or_else(|| E::custom("an invalid escape"))
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Bytes, E> {
                Ok(Bytes::new(bytes))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Texts)
        } else {
            deserializer.deserialize_bytes(Texts)
        }
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for Bytes {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Body".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", crate::member::BYTES: true })
    }
}
