//! Claims of jobs over HTTP: which jobs are claimed, how long a client waits for them, and what happens to claims that are
//! not delivered. The JSON fields are documented in `docs/protocols/http.md`, "Queues".

use crate::binding::Bound;
use crate::call::{Call, Rollback};
use crate::problem::Problem;
use sexton::actors::binding::Binding;
use sexton::actors::queue::{self, AnyType, QueueName};
use sexton::clock::Timestamp;
use sexton::handle::{Exchanged, JobWait, QueueError, Queues};
use sexton::ids::Token;
use sexton::spine::budget::Reservation;
use sexton_api::job::JobText;
use sexton_api::job::{AnyQueue, Claim, Claims, JobClaim, NotDone, Pop, Refusal};
use std::time::Duration;
use tokio::time::timeout;

/// The maximum number of types in `except`.
const EXCEPT_MAX: usize = 100;

/// Converts the selection, or refuses it. `is_plain` is whether the request has neither `queues` nor `weights`.
fn any_of(any: AnyQueue, is_plain: bool) -> Result<AnyType, Problem> {
    let AnyQueue { tenant, except, types } = any;
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

fn refusal(error: &QueueError) -> Refusal {
    Refusal { reason: error.reason().word().into(), detail: error.to_string() }
}

/// The queues that a claim selects from.
enum Source<'a> {
    Named(&'a [QueueName]),
    Any(&'a AnyType),
}

impl Source<'_> {
    async fn pop(&self, queues: &Queues, count: usize) -> Result<Vec<queue::Claim>, QueueError> {
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
pub(crate) async fn pop(call: &Call, wanted: Pop) -> Result<Claims, Problem> {
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
        let any = any_of(any, is_plain)?;
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
) -> Result<Vec<queue::Claim>, Problem> {
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
fn exchanged(call: &Call, queues: Queues, (done, exchanged): (Vec<JobClaim>, Exchanged)) -> Claims {
    let Exchanged { done: ends, claims } = exchanged;
    let refused = claims.as_ref().err().map(refusal);
    let mut answer = answered(call, queues, claims.unwrap_or_default());
    let ends = done.iter().zip(ends);
    let not_done = ends.filter_map(|(JobClaim { id, .. }, end)| {
        let refused = refusal(&end.err()?);
        Some(NotDone { id: *id, refused })
    });
    (answer.not_done, answer.refused) = (Some(not_done.collect()), refused);
    answer
}

/// Builds the answer. If it cannot be delivered, the claims are given back, unless the request has an idempotency key.
fn answered(call: &Call, queues: Queues, claims: Vec<queue::Claim>) -> Claims {
    let now = call.node.now();
    let jobs = claims.iter().map(|claim| popped(claim, now)).collect();
    // A client with an idempotency key can repeat the request and get the same claims. Without a key, nobody would work on the jobs
    // until their claims end, so they are given back.
    if call.key.get().is_none() {
        call.rollback.set(Some(give_back(queues, claims)));
    }
    Claims { jobs, not_done: None, refused: None }
}

/// Claims up to `count` jobs that are ready or, if none is, the first to become ready within `wait`. `once` is whether the request has an
/// idempotency key.
async fn pop_within(
    queues: &Queues,
    (source, count): (&Source<'_>, usize),
    (wait, once): (Duration, bool),
) -> Result<Vec<queue::Claim>, QueueError> {
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
fn give_back(queues: Queues, claims: Vec<queue::Claim>) -> Rollback {
    Rollback::new(move || {
        // The client may have read part of the answer and begun to work, so jobs that run at most once stay claimed.
        for claim in claims.into_iter().filter(|claim| claim.retries) {
            queues.give_back(claim.id, claim.token);
        }
    })
}

fn popped(claim: &queue::Claim, now: Timestamp) -> Claim {
    let queue::Claim { id, token, queue, attempts, until, retries, duplicate, body } =
        claim.clone();
    let ends = Some(until).filter(|_| claim.ends().is_some());
    Claim {
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
