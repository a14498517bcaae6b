//! Builds the `OpenAPI` 3.1 description of all routes from the table of routes and the schemas of their types.

#![expect(clippy::indexing_slicing, reason = "indexes only objects created here")]

use crate::problem::{self, Document};
use crate::route::{Described, Route};
use crate::schemas::{Content, Schemas, settle};
use crate::scope::Scope;
use actix_web::http::Method;
use serde_json::{Map, Value, json};
use sexton::refusal::{Reason, Retry};
use std::collections::BTreeMap;

/// The reasons for which any route may refuse a request. Some of them apply only to requests with a body.
const ANY: [Reason; 15] = [
    Reason::Malformed,
    Reason::Field,
    Reason::NotHttp,
    Reason::Unauthorized,
    Reason::Throttled,
    Reason::Foreign,
    Reason::NotAllowed,
    Reason::TooSlow,
    Reason::TooLarge,
    Reason::Misdirected,
    Reason::HeadTooLarge,
    Reason::NotUpgraded,
    Reason::Stopped,
    Reason::Halted,
    Reason::Crowded,
];

pub(super) fn describe(routes: &[Route]) -> Value {
    let mut schemas = Schemas::new();
    schemas.of_answer::<Document<'_>>();
    let mut paths: Map<String, Value> = Map::new();
    let described = routes.iter().filter_map(|route| Some((route, route.described.as_ref()?)));
    for (route, described) in described {
        let method = route.method.as_str().to_lowercase();
        let operation = operation(route, described, &mut schemas);
        paths.insert(route.path.to_owned(), json!({ method: operation }));
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sexton",
            "version": "1",
            "summary": "Locks and job queues that survive any crash, over HTTP.",
            "description": "See docs/protocols/http.md for details. Names of locks (keys, indexes, owners) are 0 to 255 arbitrary bytes. Names that are UTF-8 are given as text in `key`, `index` and `owner`, others as base64 in `key_b64`, `index_b64` and `owner_b64`. Likewise, the body of a job is given as text in `body` if it is UTF-8, otherwise as base64 in `body_b64`. Every path that accepts GET also accepts HEAD.",
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:11380" }],
        "paths": paths,
        "components": {
            "schemas": schemas.into_components(),
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer", "description": "Required on TCP if the coordinator was started with `--token-file`." },
            },
        },
    })
}

fn operation(route: &Route, described: &Described, schemas: &mut Schemas) -> Value {
    let Content { parameters, body } = (described.takes)(schemas);
    let mut answer = (described.answers)(schemas);
    settle(&mut answer, false);
    let mut reasons: Vec<Reason> = ANY.to_vec();
    reasons.extend(&described.refusals);
    reasons.extend(body.as_ref().map(|_| Reason::NotJson));
    if route.scope != Scope::Open {
        reasons.push(Reason::OutOfScope);
    }
    if described.refusals.contains(&Reason::Waits) {
        reasons.push(Reason::Gone);
    }
    let mut responses = BTreeMap::from([(
        200,
        json!({
            "description": described.words.answer,
            "content": { described.content_type: { "schema": answer } },
        }),
    )]);
    for reason in &reasons {
        let status = reason.status();
        let alike = reasons.iter().filter(|other| other.status() == status);
        responses.insert(status, refusal(&alike.copied().collect::<Vec<_>>()));
    }
    let responses = responses.into_iter();
    let responses: Map<String, Value> =
        responses.map(|(status, response)| (status.to_string(), response)).collect();
    let mut operation = json!({
        "operationId": described.words.id,
        "summary": described.words.summary,
        "security": [{}, { "token": [route.scope.name()] }],
        "responses": responses,
    });
    let description = match route.condition {
        None => described.words.more.to_owned(),
        Some(condition) => {
            operation["x-run-if"] = condition.into();
            let more = format!("{} Requires the scope `run` if {condition}.", described.words.more);
            more.trim_start().to_owned()
        }
    };
    if !description.is_empty() {
        operation["description"] = description.into();
    }
    let parameters: Vec<Value> = described.headers.iter().cloned().chain(parameters).collect();
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

/// Describes the refusals with these reasons, all of which have the same status.
fn refusal(reasons: &[Reason]) -> Value {
    let words = reasons.iter().map(|reason| reason.word());
    let told = reasons.iter().map(|reason| format!("`{}`: {}.", reason.word(), reason.title()));
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
        response["headers"]["Allow"] = header("The methods that the path accepts.");
    }
    if reasons.iter().any(|reason| reason.retry() == Retry::Later) {
        response["headers"]["Retry-After"] = header("Seconds after which the request may succeed.");
    }
    response
}
