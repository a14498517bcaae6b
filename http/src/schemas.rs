//! The schemas of the inputs and outputs of routes, for the `OpenAPI` description.
//!
//! schemars generates a schema for each type. This module adapts it where JSON cannot express a type (members that hold
//! bytes) and where this API is stricter (it accepts neither unknown members nor null in place of a missing member).

#![expect(clippy::indexing_slicing, reason = "indexes only objects created here")]

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use sexton_api::member::BYTES;

const BASE64: &str =
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// The keyword that marks an object to which later versions may add members.
pub(crate) const OPEN: &str = "x-open";

/// The schemas of inputs and outputs. The same type has two schemas if members may be missing in a request but not in an answer.
pub(crate) struct Schemas {
    taken: SchemaGenerator,
    given: SchemaGenerator,
}

/// The input of a route.
#[derive(Default)]
pub(crate) struct Content {
    pub(super) parameters: Vec<Value>,
    pub(super) body: Option<Value>,
}

impl Schemas {
    pub(super) fn new() -> Self {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.meta_schema = None;
                settings.definitions_path = "/components/schemas".into();
            })
        };
        Self {
            taken: settings().for_deserialize().into_generator(),
            given: settings().for_serialize().into_generator(),
        }
    }

    pub(crate) fn of_answer<T: JsonSchema>(&mut self) -> Value {
        self.given.subschema_for::<T>().to_value()
    }

    /// Returns the schemas that are referred to by name.
    pub(super) fn into_components(mut self) -> Map<String, Value> {
        let mut components = self.given.take_definitions(true);
        for schema in components.values_mut() {
            settle(schema, false);
        }
        for (name, mut schema) in self.taken.take_definitions(true) {
            settle(&mut schema, true);
            components.insert(name, schema);
        }
        components
    }
}

impl Content {
    pub(crate) fn body<T: JsonSchema>(schemas: &mut Schemas) -> Self {
        Self { parameters: Vec::new(), body: Some(schemas.taken.subschema_for::<T>().to_value()) }
    }

    pub(crate) fn query<T: JsonSchema>(schemas: &mut Schemas) -> Self {
        let mut schema = T::json_schema(&mut schemas.taken).to_value();
        let required = schema.get("required").cloned().unwrap_or_default();
        settle(&mut schema, true);
        let members = schema.get("properties").and_then(Value::as_object);
        let parameters = members.into_iter().flatten().map(|(name, schema)| {
            let is_bytes = members.is_some_and(|all| all.contains_key(&encoded(name)));
            let is_required = required.as_array().is_some_and(|all| all.contains(&json!(name)));
            let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
            if let Some(description) = take(&mut parameter["schema"], "description") {
                parameter["description"] = description;
            }
            if is_required && !is_bytes {
                parameter["required"] = true.into();
            }
            parameter
        });
        Self { parameters: parameters.collect(), body: None }
    }
}

/// Adapts a schema to what this API accepts (`is_taken`) or returns.
pub(super) fn settle(schema: &mut Value, is_taken: bool) {
    if let Value::Array(schemas) = schema {
        for schema in schemas {
            settle(schema, is_taken);
        }
        return;
    }
    let Value::Object(object) = schema else {
        return;
    };
    for (keyword, within) in object.iter_mut() {
        match (keyword.as_str(), within) {
            // The names of properties are not keywords.
            ("properties", Value::Object(members)) => {
                for member in members.values_mut() {
                    settle(member, is_taken);
                }
            }
            (_, within) => settle(within, is_taken),
        }
    }
    if object.remove("format") == Some("uint32".into()) {
        object.entry("maximum").or_insert(u32::MAX.into());
    }
    if let Some(Value::String(description)) = object.get_mut("description") {
        *description = description.replace('\n', " ");
    }
    if is_taken {
        refuse_null(object);
    } else {
        object.remove("default");
    }
    choose_words(object);
    if object.contains_key("properties") {
        object.remove("unevaluatedProperties");
        let is_open = object.remove(OPEN).is_some();
        split_bytes(object);
        if !is_open {
            object.insert("additionalProperties".to_owned(), false.into());
        }
    }
}

/// Disallows null for optional values.
fn refuse_null(object: &mut Map<String, Value>) {
    if let Some(Value::Array(kinds)) = object.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            let kind = kind.clone();
            object.insert("type".to_owned(), kind);
        }
    }
    if object.get("default") == Some(&Value::Null) {
        object.remove("default");
    }
    let null = json!({ "type": "null" });
    if let Some(Value::Array(of)) = object.get_mut("anyOf") {
        of.retain(|schema| *schema != null);
        if let [Value::Object(only)] = of.as_slice() {
            let only = only.clone();
            object.remove("anyOf");
            object.extend(only);
        }
    }
}

/// Merges enumeration values that have separate descriptions into a single enumeration.
fn choose_words(object: &mut Map<String, Value>) {
    let Some(Value::Array(of)) = object.get("oneOf") else {
        return;
    };
    let words: Option<Vec<Value>> = of.iter().map(|word| word.get("const").cloned()).collect();
    if let Some(words) = words {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        object.insert("enum".to_owned(), words.into());
    }
}

/// Splits each member that holds bytes into two, of which exactly one is present if the member is required, and at most one if it is
/// optional.
fn split_bytes(object: &mut Map<String, Value>) {
    let mut rules = Vec::new();
    let Some(Value::Object(members)) = object.remove("properties") else {
        return;
    };
    let mut required = match object.remove("required") {
        Some(Value::Array(required)) => required,
        _ => Vec::new(),
    };
    let mut split = Map::new();
    for (name, mut member) in members {
        if let (Value::Object(member), false) = (&mut member, required.contains(&json!(name))) {
            refuse_null(member);
        }
        if take(&mut member, BYTES).is_none() {
            split.insert(name, member);
            continue;
        }
        let other = encoded(&name);
        let mut base64 =
            json!({ "type": "string", "contentEncoding": "base64", "pattern": BASE64 });
        if let Some(most) = member["maxLength"].as_u64() {
            base64["maxLength"] = (most.div_ceil(3) * 4).into();
        }
        base64["description"] = format!(
            "The same as {name}, for bytes that are not UTF-8. Only one of the two may be given."
        )
        .into();
        let is_required = required.iter().position(|field| *field == name);
        rules.push(if let Some(at) = is_required {
            required.remove(at);
            json!({ "oneOf": [{ "required": [name] }, { "required": [other] }] })
        } else {
            json!({ "not": { "required": [name, other] } })
        });
        split.insert(name, member);
        split.insert(other, base64);
    }
    object.insert("properties".to_owned(), split.into());
    object.insert("required".to_owned(), required.into());
    if !rules.is_empty() {
        object.insert("allOf".to_owned(), rules.into());
    }
}

fn encoded(name: &str) -> String {
    format!("{name}_b64")
}

fn take(schema: &mut Value, member: &str) -> Option<Value> {
    schema.as_object_mut()?.remove(member)
}
