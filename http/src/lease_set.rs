//! Administration of leases over HTTP: settings, imports from Fossil, and deletion. The JSON fields are documented in
//! `docs/protocols/http.md`, "Leases".
//!
//! A request that cannot be parsed is refused before any part of it is applied. Settings are then applied one after another: if one of them
//! is refused, those before it remain in effect.

use crate::call::Call;
use crate::lease_look::shown;
use crate::problem::Problem;
use crate::process::launching;
use crate::route::Route;
use sexton::actors::lease::{FossilLease, Imported, Refused, Setting, Settings};
use sexton::actors::process::Tags;
use sexton::clock::Date;
use sexton::handle::{LeaseError, ProcessError};
use sexton::refusal::Reason;
use sexton::schedule::Schedule;
use sexton_api::lease::{Import, Lease, Reset, Set, WasReset};
use sexton_api::request::Request as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The path of the route that changes the settings of a lease. Its requests may contain a command with its arguments, so they may be longer
/// than those of most routes.
pub(crate) const SET: &str = Set::ROUTE.path;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::of(set), Route::of(import), Route::of(reset)]
}

async fn set(call: &Call, asked: Set) -> Result<Lease, Problem> {
    let name = asked.name.clone();
    let leases = call.node.leases();
    let mut lease = None;
    for setting in settings(asked)? {
        lease = Some(leases.set(&name, setting).await?);
    }
    let lease = lease.ok_or_else(|| Problem::field("period_ms", "or another setting is required"));
    shown(call, lease?).await
}

/// Returns the settings in the order in which to apply them: command and schedule come first, because a schedule requires a command.
/// Returns an error if a field is invalid, or if two fields contradict each other.
fn settings(asked: Set) -> Result<Vec<Setting>, Problem> {
    let launch = asked.launch.map(launching).transpose()?;
    if launch.is_some() && asked.no_launch {
        return Err(Problem::field("no_launch", "cannot be combined with launch"));
    }
    let schedule = match (asked.schedule.as_deref(), asked.zone.as_deref()) {
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
        asked.no_launch.then_some(Setting::Command(None)),
        asked.period_ms.map(|it| Setting::Period(it.0)),
        asked.no_delay.map(Setting::NoDelay),
        asked.max_run_ms.map(|it| Setting::MaxRun(it.0)),
        asked.catch_up.map(Setting::CatchesUp),
        asked.logfile.map(|file| Setting::Log(Some(file).filter(|it| !it.is_empty()))),
        asked.disabled.map(Setting::Disabled),
    ];
    Ok(all.into_iter().flatten().collect())
}

async fn import(call: &Call, asked: Import) -> Result<Lease, Problem> {
    // Refuse a lease with a running pass before any process is registered.
    let found = call.node.leases().get(&asked.name).await;
    if found.is_ok_and(|it| it.lease.running().is_some()) {
        return Err(LeaseError::Refused(Refused::Running).into());
    }
    let FossilLease([current, until, next, until_next]) = FossilLease::read(&asked.text);
    let current = imported(call, current, until).await?;
    let next = imported(call, next, until_next).await?;
    let imported = call.node.leases().import(&asked.name, current, next).await?;
    shown(call, imported).await
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

async fn reset(call: &Call, asked: Reset) -> Result<WasReset, Problem> {
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
    Ok(WasReset { gone })
}
