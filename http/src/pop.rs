//! Claims of jobs over HTTP: which jobs are claimed, how long a client waits for them, and what happens to claims that are
//! not delivered. The JSON fields are documented in `docs/protocols/http.md`, "Queues".

use crate::binding::Bound;
use crate::call::{Call, Rollback};
use crate::problem::Problem;
use crate::route::{Body, Json};
use crate::schema::{JobText, List, Number, Span};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::binding::Binding;
use sexton::actors::queue::{AnyType, Claim, QueueName};
use sexton::clock::Timestamp;
use sexton::handle::{Exchanged, JobWait, QueueError, Queues};
use sexton::ids::Token;
use sexton::refusal::Reason;
use sexton::spine::budget::Reservation;
use sexton_api::binding::Extent;
use std::time::Duration;
use tokio::time::timeout;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Pop {
    /// The names of the queues to claim from. Either this or `any` is required.
    queues: Option<List<QueueName, 1000>>,
    /// Claims from any queue that has a job; tenants take turns in proportion to their weights. Either this or `queues` is required.
    any: Option<AnyQueue>,
    /// The weight of each queue, in the order of `queues`: of the queues that have a job, one is chosen at random, in
    /// proportion to the weights. If left out, the queue with the most urgent job is used.
    weights: Option<List<Number<u32, 1, { u32::MAX as u64 }>, 1000>>,
    /// The maximum number of jobs to claim. A request that has to wait gets at most one.
    #[serde(default)]
    count: Number<u32, 1, 100, 1>,
    /// The maximum time to wait for a job, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
    /// How long each claim lasts, in milliseconds. If 0, the time set by the job or its type applies or, with `process`, the
    /// claim has no time limit.
    #[serde(default)]
    claim_ms: Span,
    /// The process that the claims are bound to, given as the id of its record or a prefix of that id.
    pub(crate) process: Option<String>,
    /// How much of the process must have ended before the claims end.
    #[serde(default)]
    release: Extent,
    /// Whether, once the claim has expired, the process tree is killed and its end confirmed before the job is available again.
    #[serde(default)]
    kill_before_grant: bool,
    /// Jobs to complete first, as with `ack`. Cannot be combined with `wait`.
    done: Option<List<JobClaim, 100>>,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobClaim {
    /// The job's id.
    pub(super) id: u64,
    /// The token of the job's claim.
    pub(super) token: Token,
}

/// A selection of queues by tenant and type.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct AnyQueue {
    /// The tenant whose queues are selected; empty for the default tenant. If left out, the queues of all tenants are.
    tenant: Option<String>,
    /// At most 100 types to exclude. Cannot be combined with `types`.
    #[serde(default)]
    except: Vec<String>,
    /// The types to select. If left out, all types are, except those in `except` and those configured to be claimed only
    /// by name.
    types: Option<List<QueueName, 1000>>,
}

/// The maximum number of types in `except`.
const EXCEPT_MAX: usize = 100;

impl AnyQueue {
    /// Converts the selection, or refuses it. `is_plain` is whether the request has neither `queues` nor `weights`.
    fn of(self, is_plain: bool) -> Result<AnyType, Problem> {
        let Self { tenant, except, types } = self;
        if !is_plain {
            let words = "cannot be combined with queues or weights";
            return Err(Problem::field("any", words));
        }
        if except.len() > EXCEPT_MAX {
            let words = format!("may have at most {EXCEPT_MAX} types");
            return Err(Problem::field("any.except", words));
        }
        let types = types.map_or(Vec::new(), |types| types.0);
        if !types.is_empty() && !except.is_empty() {
            return Err(Problem::field("any.except", "cannot be combined with types"));
        }
        if types.iter().any(|kind| !kind.tenant().is_empty()) {
            return Err(Problem::field("any.types", "must be names without a tenant"));
        }
        let types = types.iter().map(|kind| kind.as_str().to_owned());
        Ok(AnyType { tenant, except, types: types.collect() })
    }
}

/// A claimed job.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Claim")]
pub(crate) struct Popped {
    /// The job's id.
    id: u64,
    /// The token of the claim, which every request that uses the claim must present. Tokens only increase.
    token: Token,
    queue: QueueName,
    /// The number of claims since the job was added or kicked, including this one.
    attempts: u32,
    /// Milliseconds until the claim ends; null if it ends only with its process.
    remaining_ms: Option<u64>,
    /// Whether the job is retried if it fails or its claim expires. If not, everything that ends the claim, except a release,
    /// also ends the job.
    retries: bool,
    /// Whether a newer root job has made this job superfluous. If so, complete it without processing it.
    duplicate: bool,
    #[serde(flatten)]
    text: JobText,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Claims {
    jobs: Vec<Popped>,
    /// Only with `done`: the jobs that could not be completed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_done: Option<Vec<NotDone>>,
    /// Only with `done`, if the claim was refused: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<Refusal>,
}

/// A job that could not be completed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct NotDone {
    /// The job's id.
    id: u64,
    #[serde(flatten)]
    refused: Refusal,
}

/// Why part of a request was not carried out.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Refusal {
    /// The machine-readable reason.
    reason: Reason,
    /// A description for users.
    detail: String,
}

impl From<&QueueError> for Refusal {
    fn from(error: &QueueError) -> Self {
        Self { reason: error.reason(), detail: error.to_string() }
    }
}

/// The queues that a claim selects from.
enum Source<'a> {
    Named(&'a [QueueName]),
    Any(&'a AnyType),
}

impl Source<'_> {
    async fn pop(&self, queues: &Queues, count: usize) -> Result<Vec<Claim>, QueueError> {
        match self {
            Self::Named(names) => queues.pop_some(names, count).await,
            Self::Any(any) => queues.pop_any((*any).clone(), count).await,
        }
    }

    fn wait(&self, queues: &Queues) -> JobWait {
        match self {
            Self::Named(names) => queues.wait_for_job(names),
            Self::Any(any) => queues.wait_for_any((*any).clone()),
        }
    }

    /// Reserves memory for the names of the queues or types that a request waits for. If there is not enough, the request is
    /// refused.
    fn held(&self, call: &Call) -> Result<Reservation, Problem> {
        match self {
            Self::Named(names) => call.room().name(names),
            Self::Any(any) => {
                let types = any.types.iter();
                let types: Vec<QueueName> =
                    types.filter_map(|kind| QueueName::new(kind.as_bytes())).collect();
                call.room().name(&types)
            }
        }
    }
}

/// Claims jobs, waiting for one if requested.
pub(crate) async fn pop(call: &Call, Body(wanted): Body<Pop>) -> Result<Json<Claims>, Problem> {
    let count = wanted.count.0 as usize;
    if wanted.done.is_some() && wanted.wait.0 > 0 {
        return Err(Problem::field("done", "cannot be combined with wait"));
    }
    let bound = Bound {
        process: wanted.process,
        release: wanted.release,
        kill_before_grant: wanted.kill_before_grant,
    };
    let binding = match &wanted.done {
        Some(_) => bound.binding_again(call).await?,
        None => bound.binding(call).await?,
    };
    let queues = bound_to(call, binding);
    let queues = queues.claiming_for(wanted.claim_ms.0);
    if let Some(any) = wanted.any {
        let is_plain = wanted.queues.is_none() && wanted.weights.is_none();
        let any = any.of(is_plain)?;
        if let Some(done) = wanted.done {
            let acks = acks(&done.0);
            let ends = queues.exchange_any(&acks, any, count).await?;
            return Ok(exchanged(call, queues, (done.0, ends)));
        }
        let claims = claims(call, &queues, (Source::Any(&any), count, wanted.wait.0)).await?;
        return Ok(answered(call, queues, claims));
    }
    let names = wanted.queues.map(|names| names.0);
    let names = names.ok_or_else(|| Problem::field("queues", "is required unless any is given"))?;
    let weights = wanted.weights.map_or(Vec::new(), |weights| weights.0);
    if !weights.is_empty() && weights.len() != names.len() {
        let words = format!("must be a list of {} numbers, one for each queue", names.len());
        return Err(Problem::field("weights", words));
    }
    let weights: Vec<u32> = weights.into_iter().map(|weight| weight.0).collect();
    let queues = queues.weighted(&weights);
    if let Some(done) = wanted.done {
        let acks = acks(&done.0);
        let ends = queues.exchange(&acks, &names, count).await?;
        return Ok(exchanged(call, queues, (done.0, ends)));
    }
    let claims = claims(call, &queues, (Source::Named(&names), count, wanted.wait.0)).await?;
    Ok(answered(call, queues, claims))
}

/// Claims up to `count` jobs. If no job is ready, waits up to `wait` seconds for one.
async fn claims(
    call: &Call,
    queues: &Queues,
    (source, count, wait): (Source<'_>, usize, u64),
) -> Result<Vec<Claim>, Problem> {
    if wait == 0 {
        return Ok(source.pop(queues, count).await?);
    }
    let wait = Duration::from_secs(wait);
    let held = source.held(call)?;
    let claims = pop_within(queues, (&source, count), (wait, call.key.get().is_some()));
    let claims = call.wait(claims).await??;
    drop(held);
    Ok(claims)
}

/// Returns a [`Queues`] handle whose claims are bound to the requested process, if there is one.
pub(super) async fn bound(call: &Call, bound: &Bound) -> Result<Queues, Problem> {
    Ok(bound_to(call, bound.binding(call).await?))
}

fn bound_to(call: &Call, binding: Option<Binding>) -> Queues {
    let queues = call.queues();
    binding.map_or_else(|| queues.clone(), |binding| queues.bound(binding))
}

fn acks(done: &[JobClaim]) -> Vec<(u64, Token)> {
    done.iter().map(|of| (of.id, of.token)).collect()
}

/// Builds the answer to a request that completed jobs and claimed others.
fn exchanged(
    call: &Call,
    queues: Queues,
    (done, exchanged): (Vec<JobClaim>, Exchanged),
) -> Json<Claims> {
    let Exchanged { done: ends, claims } = exchanged;
    let refused = claims.as_ref().err().map(Refusal::from);
    let Json(mut answer) = answered(call, queues, claims.unwrap_or_default());
    let ends = done.iter().zip(ends);
    let not_done = ends.filter_map(|(JobClaim { id, .. }, end)| {
        let refused = Refusal::from(&end.err()?);
        Some(NotDone { id: *id, refused })
    });
    (answer.not_done, answer.refused) = (Some(not_done.collect()), refused);
    Json(answer)
}

/// Builds the answer. If it cannot be delivered, the claims are given back, unless the request has an idempotency key.
fn answered(call: &Call, queues: Queues, claims: Vec<Claim>) -> Json<Claims> {
    let now = call.node.now();
    let jobs = claims.iter().map(|claim| popped(claim, now)).collect();
    // A client with an idempotency key can repeat the request and get the same claims. Without a key, nobody would work on the jobs
    // until their claims end, so they are given back.
    if call.key.get().is_none() {
        call.rollback.set(Some(give_back(queues, claims)));
    }
    Json(Claims { jobs, not_done: None, refused: None })
}

/// Claims up to `count` jobs that are ready or, if none is, the first to become ready within `wait`. `once` is whether the request has an
/// idempotency key.
async fn pop_within(
    queues: &Queues,
    (source, count): (&Source<'_>, usize),
    (wait, once): (Duration, bool),
) -> Result<Vec<Claim>, QueueError> {
    let claims = source.pop(queues, count).await?;
    if !claims.is_empty() {
        return Ok(claims);
    }
    let mut waiting = source.wait(queues);
    match timeout(wait, waiting.claim()).await {
        // Without a claim, the wait was withdrawn.
        Ok(claim) => claim.map(|claim| claim.into_iter().collect()),
        Err(_) => match waiting.withdraw().await? {
            Some(claim) => Ok(vec![claim]),
            // The client may have repeated the request on another connection and claimed a job there. Claiming again under the same key
            // returns that job.
            None if once => source.pop(queues, 1).await,
            None => Ok(Vec::new()),
        },
    }
}

/// Returns the action to take if claims are not delivered.
fn give_back(queues: Queues, claims: Vec<Claim>) -> Rollback {
    Rollback::new(move || {
        // The client may have read part of the answer and begun to work, so jobs that run at most once stay claimed.
        for claim in claims.into_iter().filter(|claim| claim.retries) {
            queues.give_back(claim.id, claim.token);
        }
    })
}

fn popped(claim: &Claim, now: Timestamp) -> Popped {
    let Claim { id, token, queue, attempts, until, retries, duplicate, body } = claim.clone();
    let ends = Some(until).filter(|_| claim.ends().is_some());
    Popped {
        id,
        token,
        queue,
        attempts,
        remaining_ms: ends.map(|until| until.0.saturating_sub(now.0)),
        retries,
        duplicate,
        text: JobText { body },
    }
}
