//! What a job says: bytes that never change, shared between the state, an answer and a copy of a page.

use crate::text;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The body of a job. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Body(Arc<[u8]>);

impl Body {
    /// A body of these bytes.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.serialize_str(&text::escaped(&self.0))
        } else {
            serializer.serialize_bytes(&self.0)
        }
    }
}

impl<'de> Deserialize<'de> for Body {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bodies;
        impl Visitor<'_> for Bodies {
            type Value = Body;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a body, with \\xNN for what is not text")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Body, E> {
                let bytes = text::unescaped(text);
                bytes
                    .map(Body::new)
                    .ok_or_else(|| E::custom("a broken escape"))
            }
            fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Body, E> {
                Ok(Body::new(bytes))
            }
        }
        if deserializer.is_human_readable() {
            deserializer.deserialize_str(Bodies)
        } else {
            deserializer.deserialize_bytes(Bodies)
        }
    }
}
