//! The node over HTTP: how it is, and what its operator does with it.

use crate::actors::supervisor::SupervisorMachine;
use crate::handle::{self, Handle, Left};
use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::metric;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Json, Query, Route, Routed, Words};
use crate::protocols::http::schema::Number;
use crate::refusal::Reason;
use crate::spine::checkpoint::Taken;
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

/// How long the core may take to show that it does not stand still.
const HEALTH_PATIENCE: Duration = Duration::from_secs(5);

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
                summary: "Whether the node has halted or stands still",
                more: "Asks the actor that judges the others, and waits for no disk. It has 5 seconds to answer.",
                answer: "It has not, and does not: `ok`, or `draining` if something is taken on no more.",
            },
            &[Busy],
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
            "/v1/clock/confirm",
            Scope::Operate,
            confirm_clock,
            Words {
                id: "confirm_clock",
                summary: "Believe a wall clock that is far ahead",
                more: "Until then, or an hour without a step, no date removes anything.",
                answer: "It is believed; whether it was in doubt.",
            },
            &[],
        ),
        Route::post(
            "/v1/drain",
            Scope::Operate,
            drain,
            Words {
                id: "drain",
                summary: "Take nothing new on, and end when nothing is held any more",
                more: "New locks, or new jobs and claims of jobs, or new passes of leases, or new tasks and bursts, or all of them, are refused; renewals, releases and the ends of claims, passes and bursts go on. The coordinator ends when no lock, no claim, no pass and no attempt of a task is left. Answers when it has begun; with `wait`, when none is left or the wait is over. What drains already goes on draining.",
                answer: "It drains.",
            },
            &[Failed, Draining, Waits],
        ),
    ]
}

async fn health(call: &Call, (): ()) -> Result<HttpResponse, Problem> {
    if let Some(words) = call.node.halt_words() {
        return Err(Problem::new(Reason::Halted, words));
    }
    let actors = call.node.actors();
    match timeout(HEALTH_PATIENCE, actors.supervisor.status()).await {
        Ok(Ok(_)) if call.node.draining().any() => Ok(text(TEXT, "draining\n")),
        Ok(Ok(_)) => Ok(text(TEXT, "ok\n")),
        Ok(Err(gone)) => Err(stopped(gone)),
        Err(_) => Err(busy()),
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

/// How the node is; busy, if the actors do not say so in time.
pub(crate) async fn ask(node: &Handle) -> Result<NodeStatus, Problem> {
    match timeout(STATUS_PATIENCE, node.status()).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(stopped)) => Err(Problem::new(Reason::Stopped, stopped.to_string())),
        Err(_) => Err(busy()),
    }
}

fn busy() -> Problem {
    Problem::new(Reason::Busy, "the actors are busy, ask again later")
}

/// Takes a snapshot, and answers when it is sealed.
async fn checkpoint(call: &Call, (): ()) -> Result<Json<Taken>, Problem> {
    Ok(Json(call.node.checkpoint().await?))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ClockConfirmed {
    /// Whether it was in doubt.
    doubted: bool,
}

/// Lets dates remove again what is past them.
async fn confirm_clock(call: &Call, (): ()) -> Result<Json<ClockConfirmed>, Problem> {
    let doubted = call.node.believe_clock().await.map_err(stopped)?;
    Ok(Json(ClockConfirmed { doubted }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Drain {
    /// What is taken on no more: `locks`, `queues` (jobs and their claims), `leases` (passes), `tasks` (and their bursts), or `all`.
    #[serde(default = "all")]
    what: handle::Drain,
    /// Seconds to wait until no lock, no claim, no pass and no attempt of a task is left.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Drain")]
pub(crate) struct Drained {
    #[schemars(extend("const" = true))]
    draining: bool,
    /// Locks that are left, held and waited for.
    locks: u64,
    /// Claims of jobs that are left.
    claims: u64,
    /// Passes of leases that run.
    passes: u64,
    /// Tasks with an attempt under way.
    tasks: u64,
}

const fn all() -> handle::Drain {
    handle::Drain::All
}

/// Takes nothing new on from now on; how much is left, at once or when nothing is.
async fn drain(call: &Call, Query(asked): Query<Drain>) -> Result<Json<Drained>, Problem> {
    let Drain { what, wait } = asked;
    let node = &call.node;
    node.begin_drain(what).await.map_err(stopped)?;
    if wait.0 > 0 {
        let drained = timeout(Duration::from_secs(wait.0), node.drained());
        // When the wait is over it says how many are left.
        if let Ok(drained) = call.wait(drained).await? {
            drained.map_err(stopped)?;
        }
    }
    let Left {
        locks,
        claims,
        passes,
        tasks,
    } = node.left().await?;
    Ok(Json(Drained {
        draining: true,
        locks,
        claims,
        passes,
        tasks,
    }))
}

pub(crate) fn stopped(stopped: crate::spine::runtime::Stopped) -> Problem {
    Problem::new(Reason::Stopped, stopped.to_string())
}

fn text(content_type: &'static str, body: impl MessageBody + 'static) -> HttpResponse {
    HttpResponse::Ok().content_type(content_type).body(body)
}
