//! Administration of leases over HTTP: settings, imports from Fossil, and deletion. The JSON fields are documented in
//! `docs/protocols/http.md`, "Leases".
//!
//! A request that cannot be parsed is refused before any part of it is applied. Settings are then applied one after another: if one of them
//! is refused, those before it remain in effect.

use crate::call::Call;
use crate::lease_look::Lease;
use crate::problem::Problem;
use crate::process::Launch;
use crate::route::{Body, Docs, Json, Route};
use crate::schema::Number;
use crate::scope::{OrRun as _, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::lease::{FossilLease, Imported, Refused, Setting, Settings};
use sexton::actors::lock::Name;
use sexton::actors::process::Tags;
use sexton::clock::Date;
use sexton::handle::{LeaseError, ProcessError};
use sexton::refusal::Reason;
use sexton::schedule::Schedule;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The path of the route that changes the settings of a lease. Its requests may contain a command with its arguments, so they may be longer
/// than those of most routes.
pub(crate) const SET: &str = "/v1/leases/set";

/// The period of a lease, or the time within which a pass must be renewed, in milliseconds.
pub(crate) type Span = Number<u64, 1, { Settings::SPAN_MS_MAX }, { Settings::PERIOD_MS }>;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, DiskFull, Failed, Full, Running, Waits};
    vec![
        Route::post(
            SET,
            Scope::Run,
            set,
            Docs {
                id: "set_lease",
                summary: "Change the settings of a lease",
                more: "Creates the lease if it does not exist. Settings that are left out are unchanged.",
                answer: "The lease.",
            },
            &[Full, DiskFull, Failed],
        ),
        Route::post(
            "/v1/leases/import",
            Scope::Run,
            import,
            Docs {
                id: "import_lease",
                summary: "Import a lease from Fossil",
                more: "Refused while a pass is running. `text` consists of four numbers: the PID of the process that holds the current pass and the end of its period, in seconds since 1970, then the same two numbers for the next request. Those of the two processes that are still alive are registered.",
                answer: "The lease.",
            },
            &[Running, Full, DiskFull, Failed],
        ),
        Route::post(
            "/v1/leases/reset",
            Scope::Operate.or_run(
                "`force` is set, or the lease has settings or launches commands",
                |Body(it): &Body<Reset>| it.force,
            ),
            reset,
            Docs {
                id: "reset_lease",
                summary: "Delete a lease and its settings",
                more: "Refused while a pass is running. With `force`, the pass is stopped first, and the answer is sent when its processes have exited or the wait times out.",
                answer: "Whether the lease has been deleted.",
            },
            &[Absent, Running, Waits, Failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "SetLease")]
pub(crate) struct Set {
    /// The name of the lease. A lease that does not exist is created.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// The minimum time between the starts of two passes, in milliseconds.
    period_ms: Option<Span>,
    /// Whether a request whose pass cannot begin immediately is dropped instead of waiting for its turn.
    no_delay: Option<bool>,
    /// Whether new requests are refused. Disabling a lease also drops its waiting request; a running pass continues.
    disabled: Option<bool>,
    /// Milliseconds after which a pass is stopped; 0 for never.
    max_run_ms: Option<Number<u64, 0, { Settings::SPAN_MS_MAX }>>,
    /// The command to launch on schedule and for requests without a command.
    launch: Option<Launch>,
    /// The schedule: a cron expression of five fields; empty for none.
    schedule: Option<String>,
    /// The time zone of the schedule, such as `Europe/Berlin`; UTC if left out. Requires `schedule`.
    zone: Option<String>,
    /// Whether a single pass makes up for all scheduled dates that were missed while the coordinator was down. If false, it does so only if
    /// the latest of them was at most a minute ago.
    catch_up: Option<bool>,
    /// The file on the coordinator's machine that gets a line when a pass begins and another when it ends; empty for none.
    logfile: Option<String>,
    /// Whether to remove the command. Refused while the lease has a schedule; an empty `schedule` in the same request removes that first.
    #[serde(default)]
    no_launch: bool,
}

async fn set(call: &Call, Body(asked): Body<Set>) -> Result<Json<Lease>, Problem> {
    let name = asked.name.clone();
    let leases = call.node.leases();
    let mut lease = None;
    for setting in asked.settings()? {
        lease = Some(leases.set(&name, setting).await?);
    }
    let lease = lease.ok_or_else(|| Problem::field("period_ms", "or another setting is required"));
    Ok(Json(Lease::of(call, lease?).await?))
}

impl Set {
    /// Returns the settings in the order in which to apply them: command and schedule come first, because a schedule requires a command.
    /// Returns an error if a field is invalid, or if two fields contradict each other.
    fn settings(self) -> Result<Vec<Setting>, Problem> {
        let launch = self.launch.map(Launch::launching).transpose()?;
        if launch.is_some() && self.no_launch {
            return Err(Problem::field("no_launch", "cannot be combined with launch"));
        }
        let schedule = match (self.schedule.as_deref(), self.zone.as_deref()) {
            (None, Some(_)) => return Err(Problem::field("zone", "requires a schedule")),
            (None, None) => None,
            (Some(""), _) => Some(Setting::Schedule(None)),
            (Some(expression), zone) => {
                let schedule = Schedule::new(expression, zone);
                let schedule = schedule.map_err(|error| {
                    Problem::new(Reason::Field, error.to_string()).naming("schedule")
                })?;
                Some(Setting::Schedule(Some(schedule)))
            }
        };
        let all = [
            launch.map(|it| Setting::Command(Some(Arc::new(it)))),
            schedule,
            self.no_launch.then_some(Setting::Command(None)),
            self.period_ms.map(|it| Setting::Period(it.0)),
            self.no_delay.map(Setting::NoDelay),
            self.max_run_ms.map(|it| Setting::MaxRun(it.0)),
            self.catch_up.map(Setting::CatchesUp),
            self.logfile.map(|file| Setting::Log(Some(file).filter(|it| !it.is_empty()))),
            self.disabled.map(Setting::Disabled),
        ];
        Ok(all.into_iter().flatten().collect())
    }
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ImportLease")]
pub(crate) struct Import {
    /// The name of the lease. A lease that does not exist is created.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// Four numbers separated by spaces, in the format of Fossil's setting `backoffice`: the PID of the process that holds the current pass
    /// and the end of its period, in seconds since 1970, then the same two numbers for the next request. Parsing stops at the first
    /// character that is neither a digit nor a space, and missing numbers count as 0.
    text: String,
}

async fn import(call: &Call, Body(asked): Body<Import>) -> Result<Json<Lease>, Problem> {
    // Refuse a lease with a running pass before any process is registered.
    let found = call.node.leases().get(&asked.name).await;
    if found.is_ok_and(|it| it.lease.running().is_some()) {
        return Err(LeaseError::Refused(Refused::Running).into());
    }
    let FossilLease([current, until, next, until_next]) = FossilLease::read(&asked.text);
    let current = imported(call, current, until).await?;
    let next = imported(call, next, until_next).await?;
    let imported = call.node.leases().import(&asked.name, current, next).await?;
    Ok(Json(Lease::of(call, imported).await?))
}

/// Returns whether a process that started at this date may hold a pass whose period ends at `until`. Fossil stores the end of a period of 60
/// seconds when the holder, which is running, begins it; a process that started later only has its PID. Both dates may be off by a second.
fn may_hold(started: Date, until: Date) -> bool {
    const INEXACT_MS: u64 = 1000;
    started.0 + Settings::PERIOD_MS <= until.0 + INEXACT_MS
}

/// Converts a holder's PID and the end of its period, in seconds since 1970, and registers the process if it is alive.
async fn imported(call: &Call, pid: u64, until: u64) -> Result<Imported, Problem> {
    let until = Date(until.saturating_mul(1000));
    let mut found = Imported { pid, until, process: None };
    let processes = call.node.processes();
    let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0);
    let holds = |pid: &u32| processes.start_of(*pid).is_some_and(|at| may_hold(at, until));
    if let Some(pid) = pid.filter(holds) {
        match processes.register_pid(pid, Tags::default(), None).await {
            // By now, another process may have the PID.
            Ok((record, _)) => {
                let started = record.started.unwrap_or_default();
                let is_it = record.end.is_none() && may_hold(started, until);
                found.process = is_it.then_some(record.id);
            }
            // No process with this PID is alive.
            Err(ProcessError::Refused(sexton::actors::process::Refused::Unknown)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ResetLease")]
pub(crate) struct Reset {
    /// The name of the lease.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// Whether to stop a running pass.
    #[serde(default)]
    force: bool,
    /// The maximum time to wait for all processes of the pass to exit, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600, 60>,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LeaseReset")]
pub(crate) struct WasReset {
    /// Whether the lease has been deleted; false if its pass is still being stopped.
    gone: bool,
}

async fn reset(call: &Call, Body(asked): Body<Reset>) -> Result<Json<WasReset>, Problem> {
    let leases = call.node.leases();
    let lease = leases.get(&asked.name).await?;
    let running = lease.lease.running();
    let place = call.place_for(asked.wait.0)?;
    let mut gone = leases.reset(&asked.name, asked.force).await?;
    if let (false, Some(pass)) = (gone, running) {
        let wait = Duration::from_secs(asked.wait.0);
        let ended = timeout(wait, leases.ended(&asked.name, pass.token));
        gone = match call.wait_in(place, ended).await? {
            Ok(Ok(_) | Err(LeaseError::Absent)) => true,
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => false,
        };
    }
    Ok(Json(WasReset { gone }))
}
