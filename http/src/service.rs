//! Services over HTTP: converts requests into calls to [`Services`](sexton::handle::Services). The JSON fields are documented in
//! `docs/protocols/http.md`, "Services".
//!
//! Services are defined in the configuration; no route changes their definitions.

use crate::call::Call;
use crate::problem::Problem;
use crate::process_shown::{self, lost, signal};
use crate::route::{Body, Docs, Json, Query, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::process::{Cause, Definition, InstanceView, Last, ServiceView};
use sexton::clock::{Date, Timestamp};
use sexton::handle::{ProcessError, Services};
use sexton::refusal::Reason;
use sexton::text;
use sexton_api::process::Failed;
use sexton_api::value::Number;
use std::time::Duration;
use tokio::time::timeout;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Waits};
    let failed = Reason::Failed;
    vec![
        Route::get(
            "/v1/services",
            Scope::Run,
            list,
            Docs {
                id: "list_services",
                summary: "List services with their state",
                more: "",
                answer: "Services, by name.",
            },
            &[failed],
        ),
        Route::get(
            "/v1/services/service",
            Scope::Run,
            service,
            Docs {
                id: "service",
                summary: "Get a service",
                more: "",
                answer: "The state of the service.",
            },
            &[Absent, failed],
        ),
        Route::post(
            "/v1/services/start",
            Scope::Run,
            start,
            Docs {
                id: "start_services",
                summary: "Start a service, or all services",
                more: "Also starts services that have failed. A started service runs until it is stopped, even across restarts of the coordinator.",
                answer: "The state of the services, once they are running, a process could not be started, or the wait times out.",
            },
            &[Absent, Waits, failed],
        ),
        Route::post(
            "/v1/services/stop",
            Scope::Run,
            stop,
            Docs {
                id: "stop_services",
                summary: "Stop a service, or all services",
                more: "A stopped service stays stopped until it is started, even across restarts of the coordinator.",
                answer: "The state of the services, once they are stopped or the wait times out.",
            },
            &[Absent, Waits, failed],
        ),
        Route::post(
            "/v1/services/restart",
            Scope::Run,
            restart,
            Docs {
                id: "restart_services",
                summary: "Replace the processes of a service, or of all services, with new ones",
                more: "A stopped service is started only if the request names it.",
                answer: "The state of the services, once they are running or the wait times out.",
            },
            &[Absent, Waits, failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct One {
    /// The service's name.
    name: String,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ServicesQuery {
    /// The service's name. If left out, the request applies to all services.
    name: Option<String>,
    /// The maximum time to wait until the services are running or stopped, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
}

/// The state of a service.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Service {
    name: String,
    /// `running`, `waiting` (for other services), `starting`, `stopping`, `backoff` (before the next launch), `finished`,
    /// `failed` or `stopped`. A service with several processes has the status of the one in the worst state.
    status: &'static str,
    /// Whether the service is meant to run.
    wanted: bool,
    /// Whether the configuration defines the service. A service that is no longer in the configuration is stopped, and then removed.
    configured: bool,
    /// The program and its arguments. Anything that looks like a secret is masked.
    command: Vec<String>,
    /// When the service is relaunched: `always`, `on-failure` or `never`.
    restart: &'static str,
    /// The limit on restarts, beyond which a process has failed; null if there is none.
    intensity: Option<RestartLimit>,
    /// The services that must be ready, or have finished, before this one is started.
    after: Vec<String>,
    /// The services in `after` that this one is still waiting for.
    waits_for: Vec<String>,
    /// The processes of the service.
    instances: Vec<Instance>,
}

/// How often a process of a service may be restarted.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RestartLimit {
    /// The maximum number of restarts within the period.
    restarts_max: u32,
    /// The period, in milliseconds.
    period_ms: u64,
}

/// A process of a service.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Instance {
    /// The number of the instance, counting from 1.
    number: usize,
    /// The status of the process, with the same values as the status of a service.
    status: &'static str,
    /// The id of the process's record; null if there is none.
    process: Option<String>,
    pid: Option<u32>,
    started_at: Option<Timestamp>,
    /// The last status text that the process sent (`STATUS=`); null if it sent none.
    said: Option<String>,
    /// The number of restarts within the period of the restart limit; 0 if there is no limit.
    restarts: usize,
    /// The time of the next launch, in milliseconds since 1970; null if none is scheduled.
    next_at: Option<Timestamp>,
    /// The directory of the output files; null if the coordinator stores no files.
    run_dir: Option<String>,
    /// How the previous process of this instance ended; null if there was none.
    last: Option<LastEnd>,
}

/// How a process of a service ended.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LastEnd {
    /// The id of the process's record, which may have been removed.
    process: String,
    ended_at: Timestamp,
    /// The exit code, or 128 plus the number of the signal that ended the process; null if unknown.
    code: Option<u8>,
    /// The signal that ended the process; null if no signal did.
    signal: Option<u8>,
    /// Why the exit status is unknown: `rebooted`, `keeper-gone`, `not-ours`, `another-machine` or `unknown`; null if it is
    /// known.
    lost: Option<&'static str>,
    /// Why the process could not be started; null if it was started.
    failure: Option<Failed>,
    /// Why the process was stopped: `request`, `timeout`, `not-ready` or `watchdog`; null if it was not.
    stopped_by: Option<&'static str>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct ServiceList {
    services: Vec<Service>,
}

async fn list(call: &Call, (): ()) -> Result<Json<ServiceList>, Problem> {
    listed(call, None).await
}

async fn service(call: &Call, Query(asked): Query<One>) -> Result<Json<Service>, Problem> {
    let services = call.node.services();
    let found = services.list(Some(known(asked.name)?)).await?.pop();
    let view = found.ok_or_else(|| Problem::absent("name", Reason::Absent.title()))?;
    Ok(Json(Service::of(&services, view)))
}

async fn start(
    call: &Call,
    Body(asked): Body<ServicesQuery>,
) -> Result<Json<ServiceList>, Problem> {
    let act = async |services: Services, name| services.start(name).await;
    act_on(call, asked, act).await
}

async fn stop(call: &Call, Body(asked): Body<ServicesQuery>) -> Result<Json<ServiceList>, Problem> {
    let act = async |services: Services, name| services.stop(name).await;
    act_on(call, asked, act).await
}

async fn restart(
    call: &Call,
    Body(asked): Body<ServicesQuery>,
) -> Result<Json<ServiceList>, Problem> {
    let act = async |services: Services, name| services.restart(name).await;
    act_on(call, asked, act).await
}

async fn act_on(
    call: &Call,
    ServicesQuery { name, wait }: ServicesQuery,
    act: impl AsyncFn(Services, Option<String>) -> Result<(), ProcessError>,
) -> Result<Json<ServiceList>, Problem> {
    let name = name.map(known).transpose()?;
    let services = call.node.services();
    let place = call.place_for(wait.0)?;
    act(services.clone(), name.clone()).await?;
    if place.is_some() {
        let settled = timeout(Duration::from_secs(wait.0), services.settled(name.clone()));
        // The state is also returned when the wait times out.
        if let Ok(settled) = call.wait_in(place, settled).await? {
            settled?;
        }
    }
    listed(call, name).await
}

async fn listed(call: &Call, name: Option<String>) -> Result<Json<ServiceList>, Problem> {
    let services = call.node.services();
    let views = services.list(name).await?.into_iter();
    let services = views.map(|view| Service::of(&services, view)).collect();
    Ok(Json(ServiceList { services }))
}

/// Returns the name, or refuses it if it has more than `Definition::NAME_BYTES_MAX` bytes, since no service can have such a name.
fn known(name: String) -> Result<String, Problem> {
    if name.len() > Definition::NAME_BYTES_MAX {
        let most = Definition::NAME_BYTES_MAX;
        return Err(Problem::field("name", format!("may have at most {most} bytes")));
    }
    Ok(name)
}

fn at(date: Date) -> Timestamp {
    Timestamp(date.0)
}

impl Service {
    fn of(services: &Services, view: ServiceView) -> Self {
        let instances = view.instances.into_iter();
        Self {
            name: view.name,
            status: view.status.name(),
            wanted: view.wanted,
            configured: view.listed,
            command: view.argv.iter().map(|word| text::escaped(word.as_bytes())).collect(),
            restart: view.restart.name(),
            intensity: view
                .intensity
                .map(|it| RestartLimit { restarts_max: it.restarts_max, period_ms: it.period_ms }),
            after: view.after,
            waits_for: view.waits_for,
            instances: instances.map(|it| Instance::of(services, it)).collect(),
        }
    }
}

impl Instance {
    fn of(services: &Services, view: InstanceView) -> Self {
        let run_dir = services.run_dir(&view.run_dir);
        Self {
            number: view.number,
            status: view.status.name(),
            process: view.process.map(|id| id.to_string()),
            pid: view.pid,
            started_at: view.started.map(at),
            said: view.said,
            restarts: view.restarts,
            next_at: view.next.map(at),
            run_dir: run_dir.map(|dir| dir.display().to_string()),
            last: view.last.as_ref().map(LastEnd::of),
        }
    }
}

impl LastEnd {
    fn of(last: &Last) -> Self {
        Self {
            process: last.process.to_string(),
            ended_at: at(last.at),
            code: last.end.and_then(sexton::actors::process::End::code),
            signal: signal(last.end).0,
            lost: lost(last.end),
            failure: last.failure.as_ref().map(process_shown::failed),
            stopped_by: last.stopped_by.map(Cause::name),
        }
    }
}
