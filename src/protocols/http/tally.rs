//! Counters over HTTP: requests into messages and queries of the tally, and what came of them into answers. The members are
//! those of `docs/protocols/http.md`, "Tally".

use crate::actors::tally::{Message, Name, Query as Asked, Refused, Reply, TallyMachine};
use crate::protocols::http::call::Call;
use crate::protocols::http::operate::stopped;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Body, Json, Query, Route, Routed, Words};
use crate::protocols::http::schema::Number;
use crate::refusal::Reason;
use crate::spine::delivery::Item;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

impl Routed for TallyMachine {
    const ROUTES: &'static [fn() -> Vec<Route>] = &[routes];
}

fn routes() -> Vec<Route> {
    use Reason::{DiskFull, Failed, Full};
    vec![
        Route::get(
            "/v1/tally/read",
            read,
            Words {
                id: "read_counter",
                summary: "How far a counter has come",
                more: "One that is not there stands at 0.",
                answer: "The counter.",
            },
            &[Failed],
        ),
        Route::post_once(
            "/v1/tally/add",
            add,
            Words {
                id: "add_to_counter",
                summary: "Add to a counter",
                more: "One that is not there begins at 0. Its span begins again.",
                answer: "The counter, as it is then.",
            },
            &[Full, DiskFull, Failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Named {
    name: Name,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Addition {
    name: Name,
    /// How much.
    #[serde(default)]
    by: Number<u32, 1, 1_000_000, 1>,
    /// Milliseconds until the counter is forgotten, unless it is added to; 0 for never.
    #[serde(default)]
    ttl_ms: Number<u32, 0, 4_294_967_295>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Counter")]
pub(crate) struct Shown {
    name: Name,
    value: u64,
}

/// How far a counter has come.
async fn read(call: &Call, Query(Named { name }): Query<Named>) -> Result<Json<Shown>, Problem> {
    let value = ask(call, Item::Query(Asked::Read(name.clone()))).await?;
    Ok(Json(Shown { name, value }))
}

/// Adds to a counter.
async fn add(call: &Call, Body(wanted): Body<Addition>) -> Result<Json<Shown>, Problem> {
    let name = wanted.name;
    let message = Message::Add {
        name: name.clone(),
        by: wanted.by.0,
        ttl_ms: wanted.ttl_ms.0,
    };
    let value = ask(call, Item::once(message, call.key)).await?;
    Ok(Json(Shown { name, value }))
}

async fn ask(call: &Call, item: Item<TallyMachine>) -> Result<u64, Problem> {
    let answers = call.node.actors.tally.call(vec![item]).await;
    let reason = match answers.map_err(stopped)?.pop() {
        Some(Ok(Reply::Counted(value) | Reply::Value(value))) => return Ok(value),
        Some(Ok(Reply::Refused(Refused::Full))) => Reason::Full,
        Some(Ok(Reply::Refused(Refused::DiskFull))) => Reason::DiskFull,
        Some(Ok(Reply::Refused(Refused::KeyReused))) => Reason::KeyReused,
        Some(Ok(Reply::Refused(Refused::Nothing))) => Reason::Field,
        Some(Ok(Reply::Lapsed) | Err(_)) | None => Reason::Failed,
    };
    Err(Problem::new(reason, reason.title()))
}

impl JsonSchema for Name {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "CounterName".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "minLength": 1, "maxLength": Name::BYTES_MAX })
    }
}
