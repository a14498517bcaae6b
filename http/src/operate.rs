//! The node over HTTP: its status, and commands that operate it.

use crate::call::Call;
use crate::metric;
use crate::problem::Problem;
use crate::route::{Docs, Json, Route};
use crate::scope::Scope;
use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sexton::handle::{Handle, InProgress};
use sexton::refusal::Reason;
use sexton::status::NodeStatus;
use sexton_api::operate::{
    Checkpoint, ClockConfirmed, ConfirmClock, Draining, StartDrain, TakeCheckpoint,
};
use std::time::Duration;
use tokio::time::timeout;

/// The maximum time that the actors may take to report their status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time that the supervisor actor, and the journal, may take for a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";

pub(crate) fn routes() -> Vec<Route> {
    use Reason::Busy;
    vec![
        Route::get(
            "/healthz",
            Scope::Read,
            health,
            Docs {
                id: "health",
                summary: "Check whether the node is alive",
                more: "Queries the supervisor actor, and waits until everything accepted so far is durable. Each may take 5 seconds.",
                answer: "The node is alive and its disk accepts writes: `ok`, or `draining` if some new work is refused.",
            },
            &[Busy],
        )
        .with_content_type(TEXT),
        Route::get(
            "/metrics",
            Scope::Read,
            metrics,
            Docs {
                id: "metrics",
                summary: "Get the status as metrics",
                more: "Returns the metrics in the OpenMetrics text format. All of them, except those of individual queues and `sexton_troubles`, come from a single status.",
                answer: "The metrics.",
            },
            &[Busy],
        )
        .with_content_type(metric::CONTENT_TYPE),
        Route::get(
            "/v1/openapi.json",
            Scope::Read,
            describe,
            Docs {
                id: "describe",
                summary: "Get this description",
                more: "",
                answer: "This description.",
            },
            &[],
        ),
        Route::get(
            "/v1/status",
            Scope::Read,
            status,
            Docs {
                id: "status",
                summary: "Get the status of the coordinator",
                more: "Fields may be added, but none is renamed or removed as long as the path begins with `/v1/`.",
                answer: "The status.",
            },
            &[Busy],
        ),
        Route::of(checkpoint),
        Route::of(confirm_clock),
        Route::of(drain),
    ]
}

async fn health(call: &Call, (): ()) -> Result<HttpResponse, Problem> {
    if let Some(words) = call.node.halt_reason() {
        return Err(Problem::new(Reason::Halted, words));
    }
    let actors = call.node.actors();
    match timeout(HEALTH_TIMEOUT, actors.supervisor.status()).await {
        Ok(Ok(_)) => {}
        Ok(Err(gone)) => return Err(call.problem(stopped(gone))),
        Err(_) => return Err(busy()),
    }
    match timeout(HEALTH_TIMEOUT, call.node.until_durable()).await {
        Ok(Ok(())) if call.node.draining().any() => Ok(text(TEXT, "draining\n")),
        Ok(Ok(())) => Ok(text(TEXT, "ok\n")),
        Ok(Err(gone)) => Err(call.problem(stopped(gone))),
        Err(_) => {
            let words = "the disk has made nothing durable for 5 seconds: look at the data directory's disk";
            Err(call.problem(Problem::new(Reason::Busy, words)))
        }
    }
}

async fn metrics(call: &Call, (): ()) -> Result<HttpResponse, Problem> {
    let status = ask(&call.node).await?;
    // If the node has stopped in the meantime, the metrics are still returned, without those of individual queues.
    let queues = metric::largest(&call.node.queues()).await.unwrap_or_default();
    // Numbers without names, so that everybody may see them. They are left out if an actor does not answer.
    let troubles = call.node.troubles_of(&status, true).await.ok();
    let page = metric::page(&status, &queues, troubles.as_deref());
    Ok(text(metric::CONTENT_TYPE, page))
}

/// The description of all routes. Like the status, it may get additional members in later versions.
#[derive(Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub(crate) struct Description(#[schemars(with = "Map<String, Value>")] &'static RawValue);

async fn describe(call: &Call, (): ()) -> Result<Json<Description>, Problem> {
    Ok(Json(Description(call.shared.description)))
}

async fn status(call: &Call, (): ()) -> Result<Json<NodeStatus>, Problem> {
    ask(&call.node).await.map(Json)
}

/// Returns the status of the node, or a problem if the node has stopped or its actors do not answer within `STATUS_TIMEOUT`.
pub(crate) async fn ask(node: &Handle) -> Result<NodeStatus, Problem> {
    match timeout(STATUS_TIMEOUT, node.status()).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(stopped)) => Err(Problem::new(Reason::Stopped, stopped.to_string())),
        Err(_) => Err(busy()),
    }
}

fn busy() -> Problem {
    Problem::new(Reason::Busy, "the actors are busy, try again later")
}

async fn checkpoint(call: &Call, _: TakeCheckpoint) -> Result<Checkpoint, Problem> {
    Ok(call.node.checkpoint().await?)
}

async fn confirm_clock(call: &Call, _: ConfirmClock) -> Result<ClockConfirmed, Problem> {
    let doubted = call.node.confirm_clock().await.map_err(stopped)?;
    Ok(ClockConfirmed { doubted })
}

/// Starts draining, and returns what is left, immediately or after the wait.
async fn drain(call: &Call, asked: StartDrain) -> Result<Draining, Problem> {
    let wait = asked.wait.0;
    let node = &call.node;
    let place = call.place_for(wait)?;
    node.begin_drain(asked.what.into()).await.map_err(stopped)?;
    if place.is_some() {
        let drained = timeout(Duration::from_secs(wait), node.drained());
        // If the wait times out, the answer shows what is left.
        if let Ok(drained) = call.wait_in(place, drained).await? {
            drained.map_err(stopped)?;
        }
    }
    let InProgress { locks, claims, passes, tasks } = node.left().await?;
    Ok(Draining { draining: true, locks, claims, passes, tasks })
}

pub(crate) fn stopped(stopped: sexton::spine::runtime::Stopped) -> Problem {
    Problem::new(Reason::Stopped, stopped.to_string())
}

fn text(content_type: &'static str, body: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok().content_type(content_type).body(body)
}
