//! Leases over HTTP: converts requests to calls of [`Leases`](sexton::handle::Leases), and results to answers. The JSON fields are
//! documented in `docs/protocols/http.md`, "Leases".
//!
//! A pass is one run of a lease's command, by the coordinator or by a client. The lease actor decides whose turn it is to run one.
//! Whatever starts or stops a command, or stores one, requires the scope `run` (see `scope.rs`).

use crate::binding::Bound;
use crate::call::{Call, Rollback};
use crate::lease_look::shown;
use crate::problem::Problem;
use crate::process::launching;
use crate::process_shown::Process;
use crate::route::{Body, Docs, Json, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::lease::{Claim, LeaseView, PassRequest, Turn};
use sexton::actors::lock::Name;
use sexton::handle::Requested;
use sexton::ids::Token;
use sexton::refusal::Reason;
use sexton_api::lease::{
    self as api, Claimed, Finish, Lease, Renew, RunLimit, Span, Wait, Withdraw, Withdrawn,
};
use sexton_api::process::Launch;
use sexton_api::value::Number;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The path for requesting a pass. Its request bodies may be larger than those of most paths, because they contain a command.
pub(crate) const RUN: &str = "/v1/leases/run";

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Disabled, DiskFull, Draining, Failed, Full, Waits};
    vec![
        Route::post_once(
            RUN,
            Scope::Run,
            run,
            Docs {
                id: "run_lease",
                summary: "Request a pass that the coordinator runs",
                more: "The coordinator launches the command: immediately if the lease is free, otherwise when the request's turn comes. If another request is already next, the command is not launched, since the pass of that request serves this one too. In any case, unless `no_delay` is set, a pass that begins after this request runs to completion, even if the client disconnects.",
                answer: "The result of the request.",
            },
            &[Disabled, Draining, Full, Waits, DiskFull, Failed],
        ),
        Route::of(claim),
        Route::of(renew),
        Route::of(finish),
        Route::of(withdraw),
        Route::of(wait),
    ]
}

/// What a request for a pass waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "RunUntil")]
enum Until {
    /// Its pass has begun.
    #[default]
    Begun,
    /// Its pass has ended.
    Ended,
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RunLease")]
pub(crate) struct Run {
    /// The lease, which is created if it does not exist.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// The command to launch; the lease's command if left out. Its process has a parent only if `parent` in it names one.
    launch: Option<Launch>,
    /// The minimum time from the start of this pass to that of the next, in milliseconds; the lease's setting if left out.
    period_ms: Option<Span>,
    /// Whether the pass must begin immediately or not at all.
    #[serde(default)]
    no_delay: bool,
    /// The absolute path of a file on the coordinator's machine, to which a line is appended when this pass begins and another when it
    /// ends; the lease's setting if left out.
    logfile: Option<String>,
    /// Milliseconds after which this pass is stopped, 0 for never; the lease's setting if left out.
    max_run_ms: Option<RunLimit>,
    /// The maximum time to wait, in seconds. If the wait times out, the request stays in line.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
    /// What to wait for: `begun` or `ended`.
    #[serde(default)]
    until: Until,
}

/// The result of a request for a pass.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Ran {
    /// `current`: the request's pass has begun; `next`: the request waits for its turn; `not-needed`: another request is next, and
    /// its pass serves this request too; `no-delay`: the pass cannot begin immediately, and the request does not wait.
    turn: &'static str,
    /// The token of the request, which is also the `place` of its pass; 0 if the request neither began a pass nor became next.
    place: Token,
    /// The number of the pass that serves the request; for `no-delay`, which none serves, that of the next pass.
    pass: u64,
    /// The record of the process launched for this request; null if none has been launched.
    process: Option<Process>,
    /// The lease.
    lease: Lease,
}

/// Requests a pass, and waits as long as requested.
async fn run(call: &Call, Body(asked): Body<Run>) -> Result<Json<Ran>, Problem> {
    let launching = asked.launch.map(launching).transpose()?;
    let requesting = PassRequest {
        name: asked.name.clone(),
        command: launching.map(Arc::new),
        claim: None,
        period_ms: asked.period_ms.map(|it| it.0),
        no_delay: asked.no_delay,
        log: asked.logfile,
        max_run_ms: asked.max_run_ms.map(|it| it.0),
    };
    let leases = call.node.leases();
    // What is refused for the lack of a slot has not been requested.
    let slot = call.place()?;
    let requested = call.leases().request(requesting).await?;
    let place = requested.place;
    let mut lease = requested.lease.clone();
    if matches!(requested.turn, Turn::Current | Turn::Next) {
        let has_begun = async {
            let begun = leases.begun_from(&asked.name, (place, &lease)).await?;
            started(call, &begun).await;
            let current = begun.lease.running().filter(|it| it.place == place);
            match (current.map(|it| it.token), asked.until) {
                (Some(token), Until::Ended) => leases.ended(&asked.name, token).await,
                (_, Until::Begun) | (None, Until::Ended) => Ok(begun),
            }
        };
        // Always wait for a pass that can begin immediately: this takes no longer than making the launch durable.
        let seconds = match requested.turn {
            Turn::Current => asked.wait.0.max(1),
            Turn::Next | Turn::NotNeeded | Turn::Kept | Turn::NoDelay => asked.wait.0,
        };
        let has_begun = timeout(Duration::from_secs(seconds), has_begun);
        lease = match call.wait_in(Some(slot), has_begun).await? {
            Ok(begun) => begun?,
            Err(_) => leases.get(&asked.name).await?,
        };
    }
    let turn = turn_of(&requested, &lease);
    let pass = requested.pass;
    let its = lease.lease.current.as_ref().filter(|it| it.place == place);
    let id = its.and_then(|it| it.holder.process());
    let process = match id {
        Some(id) if place.0 > 0 => call.node.processes().get(id).await.ok(),
        _ => None,
    };
    Ok(Json(Ran {
        turn,
        place,
        pass,
        process: process.map(|it| Process::of(call, it)),
        lease: shown(call, lease).await?,
    }))
}

/// Waits until the command of the running pass has started or failed to start. Returns immediately if no pass is running, or if a client
/// runs it.
async fn started(call: &Call, lease: &LeaseView) {
    let launched = lease.lease.running().filter(|it| !it.is_run_by_client());
    if let Some(id) = launched.and_then(|it| it.holder.process()) {
        // If the record no longer exists, the process has ended.
        drop(call.node.processes().started(id).await);
    }
}

/// Returns the state of a request, as shown in the field `turn` of an API response.
pub(super) fn turn_of(requested: &Requested, lease: &LeaseView) -> &'static str {
    let current = lease.lease.current.as_ref();
    let has_begun = current.is_some_and(|it| it.place == requested.place);
    match requested.turn {
        Turn::Current => "current",
        Turn::Next if has_begun => "current",
        Turn::Next => "next",
        Turn::NotNeeded | Turn::Kept => "not-needed",
        Turn::NoDelay => "no-delay",
    }
}

/// Claims a pass, waiting for its turn if requested.
async fn claim(call: &Call, asked: api::Claim) -> Result<Claimed, Problem> {
    let bound = Bound { process: asked.process, release: asked.release, kill_before_grant: false };
    let process = bound.binding(call).await?;
    let waits = asked.wait.0 > 0;
    let requesting = PassRequest {
        name: asked.name.clone(),
        command: None,
        claim: Some(Claim {
            process,
            pid: call.requester().map_or(0, |it| it.pid).into(),
            ttl_ms: asked.ttl_ms.0,
            waits,
        }),
        period_ms: asked.period_ms.map(|it| it.0),
        // Without a process, a later request could not be matched to this one.
        no_delay: asked.no_delay || !waits && process.is_none(),
        log: None,
        max_run_ms: None,
    };
    let leases = call.leases();
    let slot = call.place_for(asked.wait.0)?;
    let requested = leases.request(requesting).await?;
    let token = match (requested.turn, slot) {
        (Turn::Current, _) => Some(leases.turn(&asked.name, &requested).await?),
        (Turn::Next, Some(slot)) => {
            let wait = Duration::from_secs(asked.wait.0);
            let turn = timeout(wait, leases.turn(&asked.name, &requested));
            call.wait_in(Some(slot), turn).await?.ok().transpose()?
        }
        (Turn::Next | Turn::NotNeeded | Turn::Kept | Turn::NoDelay, _) => None,
    };
    if token.is_some() && call.key.get().is_none() {
        let (leases, name) = (call.node.leases(), asked.name.clone());
        let place = requested.place;
        call.rollback.set(Some(Rollback::new(move || leases.withdraw(&name, place))));
    }
    let lease = call.node.leases().get(&asked.name).await?;
    let turn = match token {
        Some(_) => "current",
        None => turn_of(&requested, &requested.lease),
    };
    let lease = shown(call, lease).await?;
    Ok(Claimed { turn: turn.into(), token, pass: requested.pass, lease })
}

async fn renew(call: &Call, asked: Renew) -> Result<Lease, Problem> {
    let bound = Bound { process: asked.process, release: asked.release, kill_before_grant: false };
    let process = bound.binding(call).await?;
    let renewed = call.leases().renew(&asked.name, asked.token, process).await?;
    shown(call, renewed).await
}

async fn finish(call: &Call, asked: Finish) -> Result<Lease, Problem> {
    let leases = call.leases();
    let finished = leases.finish(&asked.name, asked.token, asked.code.0);
    shown(call, finished.await?).await
}

async fn withdraw(call: &Call, asked: Withdraw) -> Result<Withdrawn, Problem> {
    let left = call.leases().give_back(&asked.name, asked.place).await?;
    Ok(Withdrawn { follows: left.is_followed(), lease: shown(call, left).await? })
}

async fn wait(call: &Call, asked: Wait) -> Result<Lease, Problem> {
    let (leases, name) = (call.node.leases(), &asked.name);
    let over = async {
        match (asked.begun, asked.whole, asked.ended) {
            (Some(number), None, None) => {
                let lease = leases.begun(name, number).await?;
                started(call, &lease).await;
                Ok(lease)
            }
            (None, Some(number), None) => Ok(leases.whole(name, number).await?),
            (None, None, Some(token)) => Ok(leases.ended(name, token).await?),
            _ => {
                let words = "(or whole, or ended) is required, but only one of them";
                Err(Problem::field("begun", words))
            }
        }
    };
    let wait = Duration::from_secs(asked.wait.0);
    let slot = call.place_for(asked.wait.0)?;
    let lease = match call.wait_in(slot, timeout(wait, over)).await? {
        Ok(lease) => lease?,
        Err(_) => leases.get(name).await?,
    };
    shown(call, lease).await
}
