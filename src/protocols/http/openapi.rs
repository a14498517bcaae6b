//! The description of all routes (`OpenAPI` 3.1), from the table of routes and the schemas of their types.
//!
//! schemars gives a schema for each type; what JSON cannot have (members of bytes) and what this API does not take (null
//! for what is left out, members that are not known) is worked in here.

#![expect(
    clippy::indexing_slicing,
    reason = "members of objects that are made here"
)]

use crate::protocols::http::problem::{self, Document};
use crate::protocols::http::route::{self, Route, Scope};
use crate::protocols::http::schema::BYTES;
use crate::refusal::{Reason, Retry};
use actix_web::http::Method;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// What `/v1/openapi.json` answers.
pub fn description() -> &'static Value {
    static DESCRIPTION: LazyLock<Value> = LazyLock::new(describe);
    &DESCRIPTION
}

const BASE64: &str =
    "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$";

/// Marks an object to which members may be added.
pub(crate) const OPEN: &str = "x-open";

/// What any route may refuse, and what any that takes a body may.
const ANY: [Reason; 13] = [
    Reason::Malformed,
    Reason::Field,
    Reason::NotHttp,
    Reason::Unauthorized,
    Reason::Foreign,
    Reason::NotAllowed,
    Reason::TooSlow,
    Reason::TooLarge,
    Reason::Misdirected,
    Reason::HeadTooLarge,
    Reason::NotUpgraded,
    Reason::Stopped,
    Reason::Crowded,
];

/// Schemas of what is taken and of what is answered: what may be left out is not the same in both.
pub(crate) struct Schemas {
    taken: SchemaGenerator,
    given: SchemaGenerator,
}

/// What a route takes.
#[derive(Default)]
pub(crate) struct Content {
    parameters: Vec<Value>,
    body: Option<Value>,
}

impl Schemas {
    fn new() -> Self {
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

    /// The schemas that others refer to, by name.
    fn into_components(mut self) -> Map<String, Value> {
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
        Self {
            parameters: Vec::new(),
            body: Some(schemas.taken.subschema_for::<T>().to_value()),
        }
    }

    pub(crate) fn query<T: JsonSchema>(schemas: &mut Schemas) -> Self {
        let mut schema = T::json_schema(&mut schemas.taken).to_value();
        let required = schema.get("required").cloned().unwrap_or_default();
        settle(&mut schema, true);
        let members = schema.get("properties").and_then(Value::as_object);
        let parameters = members.into_iter().flatten().map(|(name, schema)| {
            let is_bytes = members.is_some_and(|all| all.contains_key(&encoded(name)));
            let is_required = required
                .as_array()
                .is_some_and(|all| all.contains(&json!(name)));
            let mut parameter = json!({ "name": name, "in": "query", "schema": schema });
            if let Some(description) = take(&mut parameter["schema"], "description") {
                parameter["description"] = description;
            }
            if is_required && !is_bytes {
                parameter["required"] = true.into();
            }
            parameter
        });
        Self {
            parameters: parameters.collect(),
            body: None,
        }
    }
}

/// The parameter of what is not to be done twice.
pub(crate) fn idempotency_key() -> Value {
    json!({
        "name": "Idempotency-Key",
        "in": "header",
        "description": "1 to 128 visible ASCII characters, one for each request and its repetitions: a repetition within ten minutes is answered as the first was, and nothing is done twice.",
        "schema": { "type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$" },
    })
}

fn describe() -> Value {
    let mut schemas = Schemas::new();
    schemas.of_answer::<Document<'_>>();
    let mut paths: Map<String, Value> = Map::new();
    for route in route::table() {
        let method = route.method.as_str().to_lowercase();
        let operation = operation(&route, &mut schemas);
        paths.insert(route.path.to_owned(), json!({ method: operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sexton",
            "version": "1",
            "summary": "Locks and job queues that survive any crash, over HTTP.",
            "description": "docs/protocols/http.md says more. Names of locks (keys, indexes, owners) are 0 to 255 bytes of any value: those that are UTF-8 stand as text in `key`, `index`, `owner`, others as base64 in `key_b64`, `index_b64`, `owner_b64`. What a job says stands as text in `body` if it is UTF-8, else as base64 in `body_b64`. Every path that takes GET takes HEAD.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:11380" }],
        "paths": paths,
        "components": {
            "schemas": schemas.into_components(),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "With `--token-file`, on TCP." },
            },
        },
    })
}

fn operation(route: &Route, schemas: &mut Schemas) -> Value {
    let Content { parameters, body } = (route.takes)(schemas);
    let scope = match route.scope {
        Scope::Read => "read",
        Scope::Use => "use",
        Scope::Operate => "operate",
    };
    let mut answer = (route.answers)(schemas);
    settle(&mut answer, false);
    let mut reasons: Vec<Reason> = ANY.to_vec();
    reasons.extend(&route.refusals);
    reasons.extend(body.as_ref().map(|_| Reason::NotJson));
    if route.refusals.contains(&Reason::Waits) {
        reasons.push(Reason::Gone);
    }
    let mut responses = BTreeMap::from([(
        200,
        json!({
            "description": route.words.answer,
            "content": { route.content_type: { "schema": answer } },
        }),
    )]);
    for reason in &reasons {
        let status = reason.status();
        let alike = reasons.iter().filter(|other| other.status() == status);
        responses.insert(status, refusal(&alike.copied().collect::<Vec<_>>()));
    }
    let responses = responses.into_iter();
    let responses: Map<String, Value> = responses
        .map(|(status, response)| (status.to_string(), response))
        .collect();
    let mut operation = json!({
        "operationId": route.words.id,
        "summary": route.words.summary,
        "security": [{}, { "token": [scope] }],
        "responses": responses,
    });
    if !route.words.more.is_empty() {
        operation["description"] = route.words.more.into();
    }
    let parameters: Vec<Value> = route.headers.iter().cloned().chain(parameters).collect();
    if !parameters.is_empty() {
        operation["parameters"] = parameters.into();
    }
    if let Some(schema) = body {
        let content = json!({ "application/json": { "schema": schema } });
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    debug_assert!(route.method == Method::POST || operation["requestBody"].is_null());
    operation
}

/// An answer with one of these reasons, which have one status.
fn refusal(reasons: &[Reason]) -> Value {
    let words = reasons.iter().map(|reason| reason.word());
    let told = reasons
        .iter()
        .map(|reason| format!("`{}`: {}.", reason.word(), reason.title()));
    let schema = json!({ "$ref": "#/components/schemas/Problem" });
    let mut response = json!({
        "description": told.collect::<Vec<_>>().join(" "),
        "x-reasons": words.collect::<Vec<_>>(),
        "content": { problem::CONTENT_TYPE: { "schema": schema } },
    });
    let header = |says: &str| json!({ "description": says, "schema": { "type": "string" } });
    if reasons.contains(&Reason::Unauthorized) {
        response["headers"]["WWW-Authenticate"] = header("`Bearer`.");
    }
    if reasons.contains(&Reason::NotAllowed) {
        response["headers"]["Allow"] = header("What it takes.");
    }
    if reasons.iter().any(|reason| reason.retry() == Retry::Later) {
        response["headers"]["Retry-After"] = header("Seconds, if it may succeed later.");
    }
    response
}

/// Makes of a schema what this API takes or answers.
fn settle(schema: &mut Value, is_taken: bool) {
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
            // Their names are no keywords.
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

/// What may be left out may not be null.
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

/// Words, each described by itself, as one list of words.
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

/// Each member of bytes as two, of which one is there.
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
        base64["description"] =
            format!("The same as {name}, for what is no UTF-8. They exclude each other.").into();
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
