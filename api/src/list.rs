//! Lists that are answered page by page. A page may have fewer items than requested; the list ends where the answer has no `next`.

use crate::value::Number;
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};
use serde::ser::{Serialize, Serializer};
use std::fmt;

/// The `limit` of a request: the maximum number of items in the answer.
pub type Limit = Number<u32, 1, 1000, 100>;

/// Where a list of locks, queues or jobs continues: the `next` of one answer is the `after` of the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After(pub u32);

impl Serialize for After {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for After {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Digits)
    }
}

struct Digits;

impl Visitor<'_> for Digits {
    type Value = After;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a whole number from 0 to {}", u32::MAX)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<After, E> {
        let number = text.parse().ok().map(After);
        number.ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
    }
}

#[cfg(feature = "schemas")]
impl schemars::JsonSchema for After {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "After".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9]{1,10}$" })
    }
}
