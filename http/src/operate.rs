//! The node over HTTP: its status, and commands that operate it.

use crate::call::Call;
use crate::metric;
use crate::problem::Problem;
use crate::route::{Json, Query, Route, RouteDocs};
use crate::schema::Number;
use crate::scope::Scope;
use actix_web::HttpResponse;
use actix_web::body::MessageBody;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use sexton::handle::{self, Handle, InProgress};
use sexton::refusal::Reason;
use sexton::spine::checkpoint::Taken;
use sexton::status::NodeStatus;
use std::time::Duration;
use tokio::time::timeout;

/// The maximum time that the actors may take to report their status.
const STATUS_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum time that the supervisor actor, and the journal, may take for a health check.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

const TEXT: &str = "text/plain; charset=utf-8";

#[expect(clippy::too_many_lines, reason = "a table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Busy, Draining, Failed, NoFiles, Waits};
    vec![
        Route::get(
            "/healthz",
            Scope::Read,
            health,
            RouteDocs {
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
            RouteDocs {
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
            RouteDocs {
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
            RouteDocs {
                id: "status",
                summary: "Get the status of the coordinator",
                more: "Fields may be added, but none is renamed or removed as long as the path begins with `/v1/`.",
                answer: "The status.",
            },
            &[Busy],
        ),
        Route::post(
            "/v1/checkpoint",
            Scope::Operate,
            checkpoint,
            RouteDocs {
                id: "checkpoint",
                summary: "Take a snapshot",
                more: "Answers when the snapshot is on disk. Only one snapshot is taken at a time; further requests wait for their turn.",
                answer: "The snapshot taken.",
            },
            &[NoFiles, Failed, Busy],
        ),
        Route::post(
            "/v1/clock/confirm",
            Scope::Operate,
            confirm_clock,
            RouteDocs {
                id: "confirm_clock",
                summary: "Trust a wall clock that is far ahead",
                more: "Until the clock is trusted, or an hour has passed without a step of the clock, nothing is removed because of its date.",
                answer: "The clock is now trusted; reports whether it was in doubt.",
            },
            &[],
        ),
        Route::post(
            "/v1/drain",
            Scope::Run,
            drain,
            RouteDocs {
                id: "drain",
                summary: "Refuse new work, and stop once nothing is held",
                more: "Depending on `what`, refuses new locks, new jobs and claims, new lease passes, new tasks and bursts, or all of these. Renewals and releases are still accepted, and existing claims, passes and bursts may finish. The coordinator stops when no lock, claim, pass or task attempt is left. Answers when draining has begun; with `wait`, when nothing is left or the wait times out. Anything that is already draining continues to drain.",
                answer: "Draining has begun; the counts show what is left.",
            },
            &[Failed, Draining, Waits],
        ),
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

/// Takes a snapshot, and answers when it is complete on disk.
async fn checkpoint(call: &Call, (): ()) -> Result<Json<Taken>, Problem> {
    Ok(Json(call.node.checkpoint().await?))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ClockConfirmed {
    /// Whether the clock was in doubt.
    doubted: bool,
}

/// Trusts the wall clock again, so that removal by date resumes. Returns whether the clock was in doubt.
async fn confirm_clock(call: &Call, (): ()) -> Result<Json<ClockConfirmed>, Problem> {
    let doubted = call.node.confirm_clock().await.map_err(stopped)?;
    Ok(Json(ClockConfirmed { doubted }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Drain {
    /// What to drain: `locks`, `queues` (jobs and their claims), `leases` (passes), `tasks` (and their bursts), or `all`.
    #[serde(default = "all")]
    what: handle::Drain,
    /// The maximum time to wait until no lock, claim, pass or task attempt is left, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Drain")]
pub(crate) struct Drained {
    #[schemars(extend("const" = true))]
    draining: bool,
    /// The number of lock entries left, both holders and waiters.
    locks: u64,
    /// The number of claims of jobs left.
    claims: u64,
    /// The number of running lease passes.
    passes: u64,
    /// The number of tasks with a running attempt.
    tasks: u64,
}

const fn all() -> handle::Drain {
    handle::Drain::All
}

/// Starts draining, and returns what is left, immediately or after the wait.
async fn drain(call: &Call, Query(asked): Query<Drain>) -> Result<Json<Drained>, Problem> {
    let Drain { what, wait } = asked;
    let node = &call.node;
    let place = call.place_for(wait.0)?;
    node.begin_drain(what).await.map_err(stopped)?;
    if place.is_some() {
        let drained = timeout(Duration::from_secs(wait.0), node.drained());
        // If the wait times out, the answer shows what is left.
        if let Ok(drained) = call.wait_in(place, drained).await? {
            drained.map_err(stopped)?;
        }
    }
    let InProgress { locks, claims, passes, tasks } = node.left().await?;
    Ok(Json(Drained { draining: true, locks, claims, passes, tasks }))
}

pub(crate) fn stopped(stopped: sexton::spine::runtime::Stopped) -> Problem {
    Problem::new(Reason::Stopped, stopped.to_string())
}

fn text(content_type: &'static str, body: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok().content_type(content_type).body(body)
}
