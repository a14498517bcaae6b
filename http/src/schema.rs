//! The types that requests and answers are made of, each with its bounds, encoding and schema in one place.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, SerializeMap, Serializer};
use sexton::actors::lock::Name;
use sexton::actors::queue::Body;
use std::borrow::Cow;

pub(crate) use sexton_api::value::Number;

/// A span in milliseconds, of less than 2^32 seconds.
pub(crate) type Span = Number<u64, 0, { u32::MAX as u64 * 1000 }>;

/// A non-empty list of bounded length.
#[derive(Clone, Debug)]
pub(crate) struct List<T, const MAX: usize>(pub(crate) Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let items = Vec::deserialize(deserializer)?;
        if (1..=MAX).contains(&items.len()) {
            Ok(Self(items))
        } else {
            let words = format_args!("must be a list of 1 to {MAX} items");
            Err(D::Error::custom(words))
        }
    }
}

impl<T: JsonSchema, const MAX: usize> JsonSchema for List<T, MAX> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("ListOf{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "type": "array", "items": items, "minItems": 1, "maxItems": MAX })
    }
}

/// The names of a lock entry, as fields of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct EntryNames {
    /// The key of the lock.
    pub(crate) key: Name,
    /// The index below the key.
    pub(crate) index: Name,
    /// The owner that holds or waits for the lock. Each owner needs a unique name.
    pub(crate) owner: Name,
}

/// The name of an owner, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct OwnerName {
    /// The owner that holds the lock.
    pub(crate) owner: Name,
}

/// The name of a lease, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct LeaseName {
    /// The name of the lease.
    pub(crate) name: Name,
}

/// The body of a job, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct JobText {
    /// The job's body.
    pub(crate) body: Body,
}

/// The output of a command, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct OutputText {
    /// The end of the output.
    pub(crate) output: Body,
}

impl Serialize for OutputText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        encode(&mut members, "output", self.output.as_bytes())?;
        members.end()
    }
}

/// The names of a task, as fields of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct TaskNames {
    /// The task's display name.
    pub(crate) name: Name,
    /// The task's group.
    pub(crate) group: Name,
    /// The work id: no two tasks with the same work id are under way at the same time. Empty if the task has none.
    pub(crate) work: Name,
}

/// The name of a server, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct ServerName {
    /// The name of the server.
    pub(crate) server: Name,
}

/// The name of a group, as a field of an API response.
#[derive(Clone, Debug, JsonSchema)]
pub(crate) struct GroupName {
    /// The name of the group.
    pub(crate) group: Name,
}

impl Serialize for TaskNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(3))?;
        encode(&mut members, "name", self.name.as_bytes())?;
        encode(&mut members, "group", self.group.as_bytes())?;
        encode(&mut members, "work", self.work.as_bytes())?;
        members.end()
    }
}

impl Serialize for ServerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        encode(&mut members, "server", self.server.as_bytes())?;
        members.end()
    }
}

impl Serialize for GroupName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        encode(&mut members, "group", self.group.as_bytes())?;
        members.end()
    }
}

impl Serialize for EntryNames {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(3))?;
        encode(&mut members, "key", self.key.as_bytes())?;
        encode(&mut members, "index", self.index.as_bytes())?;
        encode(&mut members, "owner", self.owner.as_bytes())?;
        members.end()
    }
}

impl Serialize for OwnerName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        encode(&mut members, "owner", self.owner.as_bytes())?;
        members.end()
    }
}

impl Serialize for LeaseName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        encode(&mut members, "name", self.name.as_bytes())?;
        members.end()
    }
}

impl Serialize for JobText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(Some(1))?;
        encode(&mut members, "body", self.body.as_bytes())?;
        members.end()
    }
}

/// Serializes bytes as a member of an object: if they are UTF-8, as text under the name `field`, otherwise as base64 under that name
/// with `_b64` appended.
pub(crate) fn encode<M: SerializeMap>(
    members: &mut M,
    field: &str,
    bytes: &[u8],
) -> Result<(), M::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => members.serialize_entry(field, text),
        Err(_) => members.serialize_entry(&format!("{field}_b64"), &STANDARD.encode(bytes)),
    }
}
