//! The node over HTTP: how it is, and what its operator does with it.

use crate::actors::lock::{LockMachine, Query as LockQuery, Reply};
use crate::actors::supervisor::SupervisorMachine;
use crate::handle::Handle;
use crate::protocols::http::call::Call;
use crate::protocols::http::metric;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Json, Query, Route, Routed, Scope, Words};
use crate::protocols::http::schema::Number;
use crate::refusal::Reason;
use crate::spine::checkpoint::Taken;
use crate::spine::delivery::Item;
use crate::status::NodeStatus;
use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::time::timeout;

/// How long the actors may take to say how they are.
const STATUS_PATIENCE: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";

impl Routed for SupervisorMachine {}

#[expect(clippy::too_many_lines, reason = "a table, route after route")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Busy, Draining, Failed, NoFiles, Waits};
    vec![
        Route::get(
            "/healthz",
            health,
            Words {
                id: "health",
                summary: "Whether the node has halted",
                more: "Asks no actor, so it answers while the disk is slow.",
                answer: "It has not: `ok`.",
            },
            &[],
        )
        .with_content_type(TEXT),
        Route::get(
            "/metrics",
            metrics,
            Words {
                id: "metrics",
                summary: "The status as metrics",
                more: "OpenMetrics text. A page is built from one status.",
                answer: "The page.",
            },
            &[Busy],
        )
        .with_content_type(metric::CONTENT_TYPE),
        Route::get(
            "/v1/openapi.json",
            describe,
            Words {
                id: "describe",
                summary: "This description",
                more: "",
                answer: "This description.",
            },
            &[],
        ),
        Route::get(
            "/v1/status",
            status,
            Words {
                id: "status",
                summary: "How the coordinator is",
                more: "Fields are added, and not renamed or removed, as long as the path says v1.",
                answer: "The status.",
            },
            &[Busy],
        ),
        Route::post(
            "/v1/checkpoint",
            Scope::Operate,
            checkpoint,
            Words {
                id: "checkpoint",
                summary: "Take a snapshot",
                more: "Answers when it is on disk. One is taken at a time; a second request waits for its turn.",
                answer: "What was taken.",
            },
            &[NoFiles, Failed, Busy],
        ),
        Route::post(
            "/v1/drain",
            Scope::Operate,
            drain,
            Words {
                id: "drain",
                summary: "Take no new locks or jobs, and end when no lock is left",
                more: "Answers when it has begun; with `wait`, when no lock is left or the wait is over.",
                answer: "It drains.",
            },
            &[Failed, Draining, Waits],
        ),
    ]
}

async fn health(call: &Call, (): ()) -> Result<HttpResponse, Problem> {
    match call.node.halt_words() {
        None => Ok(text(TEXT, "ok\n")),
        Some(words) => Err(Problem::new(Reason::Stopped, words)),
    }
}

async fn metrics(call: &Call, (): ()) -> Result<HttpResponse, Problem> {
    let status = ask(&call.node).await?;
    // A node that stops meanwhile has none to show.
    let queues = metric::largest(&call.node.queues())
        .await
        .unwrap_or_default();
    Ok(text(metric::CONTENT_TYPE, metric::page(&status, &queues)))
}

/// The description, which grows as a status does.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct Description(#[schemars(with = "Map<String, Value>")] &'static Value);

async fn describe(call: &Call, (): ()) -> Result<Json<Description>, Problem> {
    Ok(Json(Description(call.shared.description)))
}

async fn status(call: &Call, (): ()) -> Result<Json<NodeStatus>, Problem> {
    ask(&call.node).await.map(Json)
}

async fn ask(node: &Handle) -> Result<NodeStatus, Problem> {
    match timeout(STATUS_PATIENCE, node.status()).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(stopped)) => Err(Problem::new(Reason::Stopped, stopped.to_string())),
        Err(_) => Err(Problem::new(
            Reason::Busy,
            "the actors are busy, ask again later",
        )),
    }
}

/// Takes a snapshot, and answers when it is sealed.
async fn checkpoint(call: &Call, (): ()) -> Result<Json<Taken>, Problem> {
    Ok(Json(call.node.checkpoint().await?))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Drain {
    /// Seconds to wait until no lock is left.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Drain")]
pub(crate) struct Drained {
    #[schemars(extend("const" = true))]
    draining: bool,
    /// Entries that are left, held and waiting.
    locks: u64,
}

/// Takes no new locks from now on; how many are left, at once or when none is.
async fn drain(call: &Call, Query(Drain { wait }): Query<Drain>) -> Result<Json<Drained>, Problem> {
    let node = &call.node;
    node.begin_drain().await?;
    if wait.0 > 0 {
        let drained = timeout(Duration::from_secs(wait.0), node.drained());
        // When the wait is over it says how many are left.
        if let Ok(drained) = call.wait(drained).await? {
            drained.map_err(stopped)?;
        }
    }
    let counts: Vec<Item<LockMachine>> = vec![Item::Query(LockQuery::Counts)];
    let counts = node.locks().batch(counts).await.map_err(stopped)?;
    match counts.first() {
        Some(Ok(Reply::Counts { owners, contenders })) => Ok(Json(Drained {
            draining: true,
            locks: u64::from(*owners) + u64::from(*contenders),
        })),
        Some(_) | None => Err(Problem::new(Reason::Failed, Reason::Failed.title())),
    }
}

pub(crate) fn stopped(stopped: crate::spine::runtime::Stopped) -> Problem {
    Problem::new(Reason::Stopped, stopped.to_string())
}

fn text(content_type: &'static str, body: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok().content_type(content_type).body(body)
}
