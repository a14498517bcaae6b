//! Members of JSON objects that hold bytes: as text under their name or, if they are not UTF-8, as base64 under that name with `_b64`
//! appended. See [`name`](crate::name).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny};
use serde::ser::SerializeMap;
use std::collections::HashMap;

/// The keyword of a schema that marks a string of arbitrary bytes. A description of an API splits a member with such a value into two, one
/// for text and one for base64, since a JSON string can contain only text.
#[cfg(feature = "schemas")]
pub const BYTES: &str = "x-bytes";

/// Writes bytes as a member of an object.
///
/// # Errors
/// Returns an error if the object cannot be written.
pub fn write<M: SerializeMap>(members: &mut M, name: &str, bytes: &[u8]) -> Result<(), M::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => members.serialize_entry(name, text),
        Err(_) => members.serialize_entry(&in_base64(name), &STANDARD.encode(bytes)),
    }
}

/// Returns the name of a member that is written as base64.
pub(crate) fn in_base64(name: &str) -> String {
    format!("{name}_b64")
}

/// The members of an object that are text, of which some hold bytes.
pub(crate) struct Members(HashMap<String, Value>);

/// The value of a member.
#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Value {
    Text(String),
    Other(IgnoredAny),
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        HashMap::deserialize(deserializer).map(Self)
    }
}

impl Members {
    /// Reads the bytes of a member.
    pub(crate) fn bytes<E: Error>(&self, name: &'static str) -> Result<Vec<u8>, E> {
        let encoded = in_base64(name);
        match (self.0.get(name), self.0.get(&encoded)) {
            (Some(Value::Text(text)), _) => Ok(text.as_bytes().to_vec()),
            (None, Some(Value::Text(text))) => STANDARD
                .decode(text)
                .map_err(|_| E::custom(format_args!("the field {encoded} is not base64"))),
            (None, None) => Err(E::missing_field(name)),
            (_, _) => Err(E::custom(format_args!("the field {name} is not text"))),
        }
    }
}

/// Declares a struct of names or other bytes that an answer contains, to be flattened into the object around them.
macro_rules! byte_members {
    ($($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $field:ident: $type:ty,)+ })+) => {
        $(
            $(#[$meta])*
            #[derive(Clone, Debug, PartialEq, Eq)]
            #[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
            pub struct $name { $($(#[$doc])* pub $field: $type,)+ }

            impl serde::Serialize for $name {
                fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    let mut members = serializer.serialize_map(None)?;
                    $($crate::member::write(&mut members, stringify!($field), self.$field.as_bytes())?;)+
                    serde::ser::SerializeMap::end(members)
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    let members = $crate::member::Members::deserialize(deserializer)?;
                    Ok(Self { $($field: <$type>::try_from(members.bytes(stringify!($field))?)
                        .map_err(serde::de::Error::custom)?,)+ })
                }
            }
        )+
    };
}
pub(crate) use byte_members;
