//! JSON schemas of the values of this crate that other packages show as they are: bodies and names of queues.

use crate::actors::queue::{Body, QueueName};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use sexton_api::member::BYTES;
use std::borrow::Cow;

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
    Body, "Body", true: { "type": "string", BYTES: true };
    QueueName, "QueueIs", false: {
        "type": "string",
        "pattern": "^[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199}(:[A-Za-z0-9+/;.$_()][A-Za-z0-9+/;.$_()-]{0,199})?$",
        "description": "TYPE, or TENANT:TYPE. Each part has 1 to 200 letters, digits or characters of -+/;.$_(), and does not begin with -."
    };
}
