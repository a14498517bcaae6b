//! Names of queues.

use serde::de::{Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::sync::Arc;

/// The name of a queue: the type of its jobs and, unless they belong to the default tenant, their tenant.
///
/// Written `TYPE` or `TENANT:TYPE`. Each part has 1 to 200 bytes: ASCII letters, digits and `-+/;.$_()`, not beginning
/// with `-`. Every name that beanstalkd allows for a tube is a valid part. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueName(Arc<[u8]>);

impl QueueName {
    /// The maximum length of a type or a tenant, in bytes.
    pub const PART_BYTES_MAX: usize = 200;

    /// Returns the name of the default tenant's queue for jobs of this type; `None` if the type is not valid.
    pub fn new(kind: &[u8]) -> Option<Self> {
        is_part(kind).then(|| Self(kind.into()))
    }

    /// Parses a name in its written form; returns `None` if it is not valid.
    pub fn parse(name: &[u8]) -> Option<Self> {
        let whole = match name.iter().position(|byte| *byte == b':') {
            None => is_part(name),
            Some(at) => {
                let (tenant, kind) = name.split_at(at);
                is_part(tenant) && is_part(kind.get(1..).unwrap_or(&[]))
            }
        };
        whole.then(|| Self(name.into()))
    }

    /// Returns the name of a tenant's queue for jobs of this type; `None` if a part is not valid. An empty `tenant` stands for
    /// the default tenant.
    pub fn of(tenant: &[u8], kind: &[u8]) -> Option<Self> {
        if tenant.is_empty() {
            return Self::new(kind);
        }
        Self::parse(&[tenant, b":", kind].concat())
    }

    /// Returns the written form of the name, as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the written form of the name.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// Returns the type of the queue's jobs.
    pub fn kind(&self) -> &[u8] {
        self.0.rsplit(|byte| *byte == b':').next().unwrap_or(&[])
    }

    /// Returns the tenant; empty for the default one.
    pub fn tenant(&self) -> &[u8] {
        let kind = self.kind().len();
        self.0.get(..self.0.len().saturating_sub(kind + 1)).unwrap_or(&[])
    }
}

fn is_part(bytes: &[u8]) -> bool {
    let first = bytes.first().is_some_and(|first| *first != b'-');
    let may_hold = |byte: &u8| byte.is_ascii_alphanumeric() || b"-+/;.$_()".contains(byte);
    first && bytes.len() <= QueueName::PART_BYTES_MAX && bytes.iter().all(may_hold)
}

impl fmt::Debug for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for QueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for QueueName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for QueueName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;
        impl Visitor<'_> for Names {
            type Value = QueueName;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("TYPE or TENANT:TYPE, each part 1 to 200 letters, digits or characters of -+/;.$_(), not beginning with -")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<QueueName, E> {
                QueueName::parse(text.as_bytes())
                    .ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_str(Names)
    }
}

/// A text is not the name of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoQueueName;

impl fmt::Display for NoQueueName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "a queue name is TYPE or TENANT:TYPE, each part 1 to 200 letters, digits or characters of -+/;.$_(), not beginning with -",
        )
    }
}

impl std::error::Error for NoQueueName {}

impl TryFrom<&str> for QueueName {
    type Error = NoQueueName;

    fn try_from(text: &str) -> Result<Self, NoQueueName> {
        Self::parse(text.as_bytes()).ok_or(NoQueueName)
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for QueueName {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "QueueIs".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "type": "string",
            "pattern": "^[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}(:[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199})?$",
            "description": "TYPE, or TENANT:TYPE. Each part has 1 to 200 letters, digits or characters of -+/;.$_(), and does not begin with -."
        })
    }
}

#[cfg(test)]
mod tests {
    use super::QueueName;

    #[test]
    fn a_name_has_one_or_two_parts() {
        let parsed = |text: &str| {
            QueueName::parse(text.as_bytes())
                .map(|name| (name.tenant().to_vec(), name.kind().to_vec()))
        };
        assert_eq!(parsed("a"), Some((b"".to_vec(), b"a".to_vec())));
        assert_eq!(parsed("t:a"), Some((b"t".to_vec(), b"a".to_vec())));
        let long = "x".repeat(201);
        for wrong in ["", ":", "a:", ":a", "a:b:c", "-a", "a:-b", "a b", long.as_str()] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }
}
