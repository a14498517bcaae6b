//! Compares every answer that these tests receive with the API description, which must have its status, content type,
//! body and reason.

#![expect(clippy::indexing_slicing, reason = "an incomplete description fails the test")]

use crate::opened::Answer;
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::LazyLock;

static DESCRIPTION: LazyLock<&Value> = LazyLock::new(sexton_http::description);

/// Keywords of schemas that are only for people, or that this test does not check.
const ANNOTATIONS: [&str; 4] = ["description", "default", "contentEncoding", "pattern"];

/// Fails the test unless the description has this answer. A path that is not described must be answered with an error.
pub(crate) fn check(method: &str, target: &str, answer: &Answer) {
    let path = target.split('?').next().expect("a target has a path");
    let operation = &DESCRIPTION["paths"][path][method.to_lowercase()];
    if operation.is_null() {
        assert!(
            answer.status >= 400 || is_page(path),
            "{method} {target} is not described: {answer:?}"
        );
        return;
    }
    let status = answer.status.to_string();
    let response = resolve(&operation["responses"][&status]);
    assert!(!response.is_null(), "{method} {path} is not described to answer {status}: {answer:?}");
    let content_type = answer.header("content-type").expect("an answer has a type");
    let content = &response["content"][content_type];
    assert!(!content.is_null(), "{method} {path} {status} is not described as {content_type}");
    if content_type.ends_with("json") {
        let body: Value = serde_json::from_str(&answer.body).expect("valid JSON");
        if let Err(wrong) = valid(&content["schema"], &body) {
            panic!("{method} {path} {status}: {wrong}: {body}");
        }
        if let Some(reasons) = response["x-reasons"].as_array() {
            let reason = &body["reason"];
            assert!(
                reasons.contains(reason),
                "{method} {path} {status} is not described because of {reason}"
            );
        }
    }
}

/// Returns whether this is a path of the page. Its answers are for people, may change, and are not described.
fn is_page(path: &str) -> bool {
    path == "/" || path.starts_with("/page/") || path.starts_with("/page.")
}

/// Returns every described answer: the path, the method and the status.
pub(crate) fn answers() -> Vec<(String, String, u16)> {
    let mut found = Vec::new();
    for (path, operations) in DESCRIPTION["paths"].as_object().expect("paths") {
        for (method, operation) in operations.as_object().expect("operations") {
            for status in operation["responses"].as_object().expect("answers").keys() {
                let status = status.parse().expect("a status");
                found.push((path.clone(), method.to_uppercase(), status));
            }
        }
    }
    found
}

/// Returns the names of the fields of a request: those of its query and of its body.
pub(crate) fn fields(method: &str, path: &str) -> BTreeSet<&'static str> {
    let operation = &DESCRIPTION["paths"][path][method.to_lowercase()];
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let members = resolve(schema)["properties"].as_object();
    let members = members.into_iter().flatten().map(|(name, _)| name.as_str());
    let parameters = parameters.filter_map(|it| it["name"].as_str());
    parameters.chain(members).collect()
}

/// Returns the smallest request for a path: the query and the body with only the required members, each as short as
/// possible.
pub(crate) fn least(path: &str, method: &str) -> (Option<String>, Option<Value>) {
    let some = |schema: &Value| match resolve(schema)["type"].as_str() {
        Some("string") => Value::from("x"),
        Some("integer") => resolve(schema)["minimum"].clone(),
        Some("array") => Value::from(vec!["x"]),
        // Every required object is the command of a launch.
        Some("object") => serde_json::json!({ "command": ["true"] }),
        other => panic!("{path} takes a {other:?}, which has no case here"),
    };
    let operation = &DESCRIPTION["paths"][path][method.to_lowercase()];
    let parameters = operation["parameters"].as_array().into_iter().flatten();
    let asked = parameters.filter(|it| it["in"] == "query" && it["required"] == true);
    let pairs = asked.map(|it| {
        let value = some(&it["schema"]);
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        format!("{}={text}", it["name"].as_str().expect("a string"))
    });
    let query = pairs.collect::<Vec<_>>().join("&");
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    let body = (!schema.is_null()).then(|| {
        let schema = resolve(schema);
        let required = schema["required"].as_array().into_iter().flatten();
        let member = |name: &Value| {
            let name = name.as_str().expect("a string");
            (name.to_owned(), some(&schema["properties"][name]))
        };
        Value::Object(required.map(member).collect())
    });
    ((!query.is_empty()).then_some(query), body)
}

fn resolve(value: &Value) -> &Value {
    match value["$ref"].as_str() {
        Some(reference) => {
            let pointer = reference.strip_prefix('#').expect("it is in the same document");
            DESCRIPTION.pointer(pointer).unwrap_or_else(|| panic!("no {reference}"))
        }
        None => value,
    }
}

/// Returns an error unless a value fits a schema. Supports only the keywords of JSON Schema that the description uses.
fn valid(schema: &Value, value: &Value) -> Result<(), String> {
    let schema = resolve(schema).as_object().expect("a schema is an object");
    for (keyword, rule) in schema {
        let fits = match keyword.as_str() {
            "type" => rule.as_array().map_or_else(
                || is_a(rule, value),
                |kinds| kinds.iter().any(|kind| is_a(kind, value)),
            ),
            "const" => rule == value,
            "enum" => rule.as_array().expect("values").contains(value),
            "minimum" => value.as_i64().is_none_or(|it| it >= rule.as_i64().expect("a number")),
            "maximum" => value.as_i64().is_none_or(|it| it <= rule.as_i64().expect("a number")),
            "minLength" => length(value).is_none_or(|it| Some(it) >= rule.as_u64()),
            "maxLength" => length(value).is_none_or(|it| Some(it) <= rule.as_u64()),
            "required" => value.as_object().is_none_or(|object| {
                let mut fields = rule.as_array().expect("fields").iter();
                fields.all(|field| object.contains_key(field.as_str().expect("a field")))
            }),
            "additionalProperties" => rule == &Value::Bool(true) || is_closed(schema, value),
            "properties" => {
                for (field, schema) in rule.as_object().expect("schemas") {
                    if let Some(value) = value.get(field) {
                        valid(schema, value).map_err(|wrong| format!("{field}: {wrong}"))?;
                    }
                }
                true
            }
            "items" => {
                for value in value.as_array().into_iter().flatten() {
                    valid(rule, value)?;
                }
                true
            }
            "allOf" => {
                for schema in rule.as_array().expect("schemas") {
                    valid(schema, value)?;
                }
                true
            }
            "not" => valid(rule, value).is_err(),
            "anyOf" => {
                let mut schemas = rule.as_array().expect("schemas").iter();
                schemas.any(|schema| valid(schema, value).is_ok())
            }
            "oneOf" => {
                let schemas = rule.as_array().expect("schemas").iter();
                schemas.filter(|schema| valid(schema, value).is_ok()).count() == 1
            }
            keyword => {
                assert!(ANNOTATIONS.contains(&keyword), "this checker does not know {keyword}");
                true
            }
        };
        if !fits {
            return Err(format!("{keyword} {rule} does not hold"));
        }
    }
    Ok(())
}

/// Returns the length of a text in bytes, or `None` if the value is not a text.
fn length(value: &Value) -> Option<u64> {
    value.as_str().map(|text| text.len() as u64)
}

/// Returns whether a value has only members that its schema names.
fn is_closed(schema: &serde_json::Map<String, Value>, value: &Value) -> bool {
    let known = |field: &String| {
        let properties = schema.get("properties");
        properties.is_some_and(|known| !known[field].is_null())
    };
    value.as_object().is_none_or(|object| object.keys().all(known))
}

fn is_a(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("this checker does not know the type {other}"),
    }
}

#[test]
fn the_checker_finds_what_does_not_fit() {
    let granted = serde_json::json!({"$ref": "#/components/schemas/Granted"});
    let good = serde_json::json!({"key": "a", "index": "", "owner": "o", "place": 1, "token": 7});
    assert_eq!(valid(&granted, &good), Ok(()));
    for (field, bad) in [
        ("token", Value::Null),
        ("token", (-1).into()),
        ("place", 2.into()),
        ("key", 1.into()),
        ("key_b64", "YQ==".into()),
        ("more", 1.into()),
    ] {
        let mut object = good.clone();
        object[field] = bad;
        assert!(valid(&granted, &object).is_err(), "{object}");
    }
    let mut less = good.clone();
    less.as_object_mut().expect("an object").remove("owner");
    assert!(valid(&granted, &less).is_err());
}

/// Fails the test if `value` contains `true` as a schema. JSON Schema allows that, but client generators refuse it.
fn no_bare_schema(value: &Value, path: &str) {
    let members = value.as_object().into_iter().flatten();
    for (name, member) in members {
        let path = format!("{path}/{name}");
        let bare = match name.as_str() {
            "items" | "schema" => member.is_boolean(),
            "properties" => {
                let properties = member.as_object().into_iter().flatten();
                properties.into_iter().any(|(_, it)| it.is_boolean())
            }
            _ => false,
        };
        assert!(!bare, "{path}: {member}");
        no_bare_schema(member, &path);
    }
    for (at, member) in value.as_array().into_iter().flatten().enumerate() {
        no_bare_schema(member, &format!("{path}/{at}"));
    }
}

#[test]
fn every_schema_is_an_object() {
    no_bare_schema(&DESCRIPTION, "");
}

/// Two schemas of one name would get numbers. Clients generated from an earlier description could then confuse them.
#[test]
fn every_schema_has_a_name_of_its_own() {
    let schemas = DESCRIPTION["components"]["schemas"].as_object();
    let schemas = schemas.expect("it has schemas");
    let ends = |name: &&String| name.ends_with(|last: char| last.is_ascii_digit());
    let numbered: Vec<&String> = schemas.keys().filter(ends).collect();
    assert_eq!(numbered, Vec::<&String>::new());
}
