//! Leases over HTTP: converts requests to calls of [`Leases`](sexton::handle::Leases), and results to answers. The JSON fields are
//! documented in `docs/protocols/http.md`, "Leases".
//!
//! A pass is one run of a lease's command, by the coordinator or by a client. The lease actor decides whose turn it is to run one.
//! Whatever starts or stops a command, or stores one, requires the scope `run` (see `scope.rs`).

use crate::binding::{Bound, Extent};
use crate::call::{Call, Rollback};
use crate::lease_look::Lease;
use crate::lease_set::Span;
use crate::problem::Problem;
use crate::process::Launch;
use crate::process_shown::Process;
use crate::route::{Body, Docs, Json, Route};
use crate::schema::Number;
use crate::scope::{OrRun as _, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::lease::{Claim, LeaseView, PassRequest, Settings, Turn};
use sexton::actors::lock::Name;
use sexton::handle::Requested;
use sexton::ids::Token;
use sexton::refusal::Reason;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// The path for requesting a pass. Its request bodies may be larger than those of most paths, because they contain a command.
pub(crate) const RUN: &str = "/v1/leases/run";

#[expect(clippy::too_many_lines, reason = "a table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Disabled, DiskFull, Draining, Ended, Failed, Full, Stale, Waits};
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
        Route::post_once(
            "/v1/leases/claim",
            Scope::Use.or_run(
                "`process` is set, or the lease launches commands",
                |Body(it): &Body<Claiming>| it.process.is_some(),
            ),
            claim,
            Docs {
                id: "claim_lease",
                summary: "Request a pass that the client runs itself",
                more: "With `wait`, answers when the request's turn has come or the wait times out. A client that closes the connection loses its position in line. If `turn` is `not-needed`, another pass serves the request: its number is `pass`, and `/v1/leases/wait` waits for it.",
                answer: "The result of the request.",
            },
            &[Disabled, Draining, Full, Waits, DiskFull, Failed, Absent, Ended],
        ),
        Route::post_once(
            "/v1/leases/renew",
            Scope::Use.or_run(
                "`process` is set, the pass is bound to one, or the lease launches commands",
                |Body(it): &Body<Renew>| it.process.is_some(),
            ),
            renew,
            Docs {
                id: "renew_lease",
                summary: "Report that a pass is still running",
                more: "The pass ends if its client has not renewed it within `ttl_ms`. With `process`, the pass depends on that process from now on instead.",
                answer: "The lease.",
            },
            &[Absent, Stale, DiskFull, Failed, Ended],
        ),
        Route::post(
            "/v1/leases/finish",
            Scope::Use
                .or_run_by_state("the pass is bound to a process, or the lease launches commands"),
            finish,
            Docs {
                id: "finish_lease",
                summary: "Report that a pass has run to completion",
                more: "Not needed for commands that the coordinator launched.",
                answer: "The lease.",
            },
            &[Stale, Failed],
        ),
        Route::post(
            "/v1/leases/withdraw",
            Scope::Run,
            withdraw,
            Docs {
                id: "withdraw_from_lease",
                summary: "Withdraw a request that waits for its turn",
                more: "If other requests rely on this request's pass, the coordinator still launches the command when the turn comes. Otherwise, the pass is dropped. If the pass has already begun, it ends if the client was to run it itself; a launched command continues, and the answer is `absent`.",
                answer: "The request has been withdrawn.",
            },
            &[Absent, Failed],
        ),
        Route::post(
            "/v1/leases/wait",
            Scope::Read,
            wait,
            Docs {
                id: "wait_for_lease",
                summary: "Wait for a pass to begin or to end",
                more: "Answers immediately if the pass has already begun or ended, or if none is pending. Also answers when the wait times out: `begun`, `whole` and `current` of the lease show whether the pass has begun or ended.",
                answer: "The lease.",
            },
            &[Absent, Waits, Failed],
        ),
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
    max_run_ms: Option<Number<u64, 0, { Settings::SPAN_MS_MAX }>>,
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
    let launching = asked.launch.map(Launch::launching).transpose()?;
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
        lease: Lease::of(call, lease).await?,
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

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "ClaimLease")]
pub(crate) struct Claiming {
    /// The lease, which is created if it does not exist.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// The minimum time from the start of this pass to that of the next, in milliseconds; the lease's setting if left out.
    period_ms: Option<Span>,
    /// Whether the request is dropped unless its turn comes immediately.
    #[serde(default)]
    no_delay: bool,
    /// The maximum time to wait for the request's turn, in seconds. With 0, a claim bound to a process stays in line until the lease's
    /// `next.until_at`, and must be repeated by then to take its turn; any other claim gets its turn immediately or not at all.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
    /// The maximum time between two renewals of the pass, in milliseconds, if the pass is not bound to a process.
    #[serde(default)]
    ttl_ms: Span,
    /// The process that the pass depends on, given by its id or at least the first eight digits of its id.
    process: Option<String>,
    /// How much of the process must have ended before the pass ends.
    #[serde(default)]
    release: Extent,
}

/// The result of a claim.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Claimed {
    /// `current`: the request's pass has begun; `next`: the request is next, but its pass has not begun; `not-needed`: another request is
    /// next, and its pass serves this request too; `no-delay`: the pass cannot begin immediately, and the request does not wait.
    turn: &'static str,
    /// The fencing token of the pass, to present to the resource that the lease guards; null unless `turn` is `current`. Tokens only
    /// increase.
    token: Option<Token>,
    /// The number of the pass that serves the request, for `/v1/leases/wait`; for `no-delay`, that of the next pass.
    pass: u64,
    /// The lease.
    lease: Lease,
}

/// Claims a pass, waiting for its turn if requested.
async fn claim(call: &Call, Body(asked): Body<Claiming>) -> Result<Json<Claimed>, Problem> {
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
    Ok(Json(Claimed {
        turn: match token {
            Some(_) => "current",
            None => turn_of(&requested, &requested.lease),
        },
        token,
        pass: requested.pass,
        lease: Lease::of(call, lease).await?,
    }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "RenewLease")]
pub(crate) struct Renew {
    /// The name of the lease.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// The token of the pass.
    token: Token,
    /// The process that the pass depends on from now on; unchanged if left out.
    process: Option<String>,
    /// How much of the process must have ended before the pass ends.
    #[serde(default)]
    release: Extent,
}

async fn renew(call: &Call, Body(asked): Body<Renew>) -> Result<Json<Lease>, Problem> {
    let bound = Bound { process: asked.process, release: asked.release, kill_before_grant: false };
    let process = bound.binding(call).await?;
    let renewed = call.leases().renew(&asked.name, asked.token, process).await?;
    Ok(Json(Lease::of(call, renewed).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "FinishLease")]
pub(crate) struct Finish {
    /// The name of the lease.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// The token of the pass.
    token: Token,
    /// The exit code of the pass.
    #[serde(default)]
    code: Number<u8, 0, 255>,
}

async fn finish(call: &Call, Body(asked): Body<Finish>) -> Result<Json<Lease>, Problem> {
    let leases = call.leases();
    let finished = leases.finish(&asked.name, asked.token, asked.code.0);
    Ok(Json(Lease::of(call, finished.await?).await?))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WithdrawFromLease")]
pub(crate) struct Withdraw {
    /// The name of the lease.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// The token of the request: the `place` in its answer.
    place: Token,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "LeaseWithdrawal")]
pub(crate) struct Withdrawn {
    /// Whether other requests still rely on the pass, so that its command is launched when its turn comes.
    follows: bool,
    /// The lease.
    lease: Lease,
}

async fn withdraw(call: &Call, Body(asked): Body<Withdraw>) -> Result<Json<Withdrawn>, Problem> {
    let left = call.leases().give_back(&asked.name, asked.place).await?;
    Ok(Json(Withdrawn { follows: left.is_followed(), lease: Lease::of(call, left).await? }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "WaitForLease")]
pub(crate) struct Awaited {
    /// The name of the lease.
    #[schemars(extend("minLength" = 1))]
    name: Name,
    /// The number of a pass: wait until it or a later one has begun.
    begun: Option<u64>,
    /// The number of a pass: wait until it or a later one has run to completion.
    whole: Option<u64>,
    /// The token of a pass: wait until it has ended.
    ended: Option<Token>,
    /// The maximum time to wait, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600, 60>,
}

async fn wait(call: &Call, Body(asked): Body<Awaited>) -> Result<Json<Lease>, Problem> {
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
    Ok(Json(Lease::of(call, lease).await?))
}
