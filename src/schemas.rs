//! JSON schemas of the values of this crate that other packages show as they are: names and bodies.

use crate::actors::lock::Name;
use crate::actors::queue::{Body, QueueName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use std::borrow::Cow;

/// The schema keyword that marks a string of arbitrary bytes. A description of an API splits a member with such a value into two, one for
/// text and one for base64, since a JSON string can contain only text.
pub const BYTES: &str = "x-bytes";

/// Implements `JsonSchema` for types that are JSON strings or numbers, either inline or as a named schema.
macro_rules! schemas {
    ($($type:ty, $name:literal, $inline:literal: $schema:tt;)*) => {
        $(impl JsonSchema for $type {
            fn inline_schema() -> bool {
                $inline
            }

            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!($schema)
            }
        })*
    };
}

schemas! {
    Name, "Name", true: { "type": "string", "maxLength": Name::BYTES_MAX, BYTES: true };
    Body, "Body", true: { "type": "string", BYTES: true };
    QueueName, "QueueIs", false: {
        "type": "string",
        "pattern": "^[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}(:[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199})?$",
        "description": "TYPE, or TENANT:TYPE. Each part has 1 to 200 letters, digits or characters of -+/;.$_(), and does not begin with -."
    };
}
