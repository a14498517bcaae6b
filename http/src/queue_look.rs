//! Queues over HTTP, read-only: which queues and jobs exist, their state, and the configuration. The JSON fields are
//! documented in `docs/protocols/http.md`, "Queues".
//! A long answer is assembled from several queries to the actor, so that other requests are served in between.

use crate::call::Call;
use crate::job_shown::job_shown;
use crate::listing::{self, Listing, Written};
use crate::problem::Problem;
use crate::process_look;
use crate::route::{Docs, InPlaceOf, Json, Large, Query, Route};
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::queue::{
    Counts, JobSelection, JobView, Phase, QueueName, QueueSelection, QueueView, Rules, TypeRules,
};
use sexton::clock::Timestamp;
use sexton::refusal::Reason;
use sexton_api::job::JobText;
use sexton_api::queue::{
    Chosen, Get, GetJob, Job, JobWithBody, Jobs, List, ListJobs, Next, Queue, Queues,
};

/// The phases, with their names in metrics and on pages.
pub(crate) const PHASES: [(&str, Phase); 7] = [
    ("ready", Phase::Ready),
    ("delayed", Phase::Delayed),
    ("claimed", Phase::Claimed),
    ("retrying", Phase::Retrying),
    ("buried", Phase::Buried),
    ("abandoned", Phase::Abandoned),
    ("quarantined", Phase::Quarantined),
];

/// The maximum number of types in a request for the next queue.
const TYPES_MAX: usize = 1000;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::of_large::<List, _>(list),
        Route::of(queue),
        Route::of_large::<ListJobs, _>(jobs),
        Route::of_large::<GetJob, _>(job),
        Route::of(next),
        Route::get(
            "/v1/queues/config",
            Scope::Read,
            config,
            Docs {
                id: "queue_config",
                summary: "Get the queue configuration: limits, rules for job types, and weights of tenants",
                more: "Without `type`, `types` contains the rules of `default`, followed by those of each type that has an entry of its own; `default` applies to all other types. With `type`, `types` contains only the rules that apply to that type. The configuration does not change until the coordinator restarts.",
                answer: "The configuration in effect.",
            },
            &[],
        ),
    ]
}

/// Returns up to `limit` queues, and where to continue.
impl InPlaceOf<Queues> for Queues<Written<Queue>> {}

async fn list(call: &Call, filter: List) -> Result<Large<Queues<Written<Queue>>>, Problem> {
    let queues = call.node.queues();
    let page = async |from, most| {
        let selection = QueueSelection {
            tenant: filter.tenant.clone(),
            kind: filter.r#type.clone(),
            from,
            most,
        };
        Ok(queues.select_queues(selection).await?)
    };
    let now = call.node.now();
    let show = |view: &QueueView| queue_shown(view, now);
    let listing =
        Listing::gather(call, (listing::slot(filter.after), filter.limit.0), page, show).await?;
    let (queues, next, place) = listing.sorted_by_key(|view| view.name.clone());
    let next = listing::shown(next);
    Ok(Large(Queues { queues, next }, place))
}

/// Returns a queue.
async fn queue(call: &Call, of: Get) -> Result<Queue, Problem> {
    let view = call.node.queues().queue(&of.queue).await;
    let view = view.map_err(|error| Problem::from(error).naming("queue"))?;
    Ok(queue_shown(&view, call.node.now()))
}

/// Returns up to `limit` jobs, and where to continue.
impl InPlaceOf<Jobs> for Jobs<Written<Job>> {}

async fn jobs(call: &Call, filter: ListJobs) -> Result<Large<Jobs<Written<Job>>>, Problem> {
    let queues = call.node.queues();
    let process = process_look::id(filter.process.as_deref(), "process")?;
    let page = async |from, most| {
        let selection = JobSelection {
            queue: filter.queue.clone(),
            kind: filter.r#type.clone(),
            phases: filter.phase.into_iter().collect(),
            error: filter.error.clone(),
            process,
            from,
            most,
        };
        Ok(queues.select_jobs(selection).await?)
    };
    let now = call.node.now();
    let show = |view: &JobView| job_shown(view, now);
    let listing =
        Listing::gather(call, (listing::slot(filter.after), filter.limit.0), page, show).await?;
    let (jobs, next, place) = listing.sorted_by_key(|view| view.id);
    let next = listing::shown(next);
    Ok(Large(Jobs { jobs, next }, place))
}

/// Returns a job with its body.
impl InPlaceOf<JobWithBody> for JobWithBody {}

async fn job(call: &Call, GetJob { id }: GetJob) -> Result<Large<JobWithBody>, Problem> {
    // The permit bounds memory if many clients request bodies without reading the answers.
    let place = call.room().large().await?;
    let (view, body) = call.node.queues().job_with_body(id).await?;
    let job = job_shown(&view, call.node.now());
    let text = JobText { body };
    Ok(Large(JobWithBody { job, text }, place))
}

/// Returns a random queue from which a job can be claimed.
async fn next(call: &Call, of: Next) -> Result<Chosen, Problem> {
    let kinds = of.types.split(',').filter(|kind| !kind.is_empty());
    let kinds: Vec<String> = kinds.map(str::to_owned).collect();
    if kinds.len() > TYPES_MAX {
        return Err(Problem::field("types", "may have at most 1000 types"));
    }
    let chosen = call.node.queues().next(&kinds).await?;
    let words = "no matching queue has a job that can be claimed";
    let queue = chosen.ok_or_else(|| Problem::new(Reason::Absent, words))?;
    Ok(Chosen { tenant: text(queue.tenant()), r#type: text(queue.kind()), queue })
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfType {
    /// Only this type.
    r#type: Option<QueueName>,
}

/// The limits on all queues together, except `body_bytes_max`, which applies to each job.
#[expect(clippy::struct_field_names, reason = "named as in the configuration")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct Limits {
    jobs_max: u32,
    /// The maximum total size of bodies, errors and progress reports, in bytes.
    bytes_max: u64,
    queues_max: u32,
    /// The maximum size of a body, in bytes.
    body_bytes_max: u32,
    /// The maximum number of root jobs that are remembered.
    roots_max: u32,
}

/// The rules for a job type, and the name of the configuration entry that they come from.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TypeConfig {
    r#type: String,
    /// The entry of the configuration that applies: the type's own, or `default`.
    from: String,
    #[serde(flatten)]
    rules: TypeRules,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueConfig {
    limits: Limits,
    types: Vec<TypeConfig>,
    /// The tenants with an entry in the configuration; all others have weight 1.
    tenants: Vec<TenantConfig>,
}

/// The configuration of a tenant.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TenantConfig {
    /// The tenant; empty for the default one.
    tenant: String,
    /// The tenant's share of turns, relative to the weights of other tenants.
    weight: u32,
}

/// Returns the limits, the weights of tenants, and the rules of the requested type, or of all types if none is requested.
async fn config(call: &Call, Query(of): Query<OfType>) -> Result<Json<QueueConfig>, Problem> {
    let rules = call.node.queue_rules();
    let Rules {
        jobs_max,
        bytes_max,
        queues_max,
        body_bytes_max,
        roots_max,
        default: _,
        types: _,
        across: _,
    } = *rules;
    let types = match &of.r#type {
        Some(kind) => vec![TypeConfig {
            r#type: text(kind.kind()),
            from: rules.entry(kind).to_owned(),
            rules: rules.of(kind).clone(),
        }],
        None => {
            let own = |(kind, rules): (&str, &TypeRules)| TypeConfig {
                r#type: kind.to_owned(),
                from: kind.to_owned(),
                rules: rules.clone(),
            };
            rules.entries().map(own).collect()
        }
    };
    let limits = Limits { jobs_max, bytes_max, queues_max, body_bytes_max, roots_max };
    let tenants = rules
        .across
        .tenants
        .iter()
        .map(|(tenant, of)| TenantConfig { tenant: tenant.clone(), weight: of.weight });
    Ok(Json(QueueConfig { limits, types, tenants: tenants.collect() }))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn queue_shown(view: &QueueView, now: Timestamp) -> Queue {
    let QueueView {
        name,
        jobs,
        total,
        using,
        watching,
        waiting,
        deletes,
        pauses,
        pause_ms: _,
        paused_until,
        throttled_until,
        oldest: _,
    } = view.clone();
    let Counts { urgent, ready, delayed, claimed, buried, abandoned, retrying, quarantined } = jobs;
    Queue {
        tenant: text(name.tenant()),
        r#type: text(name.kind()),
        queue: name,
        ready,
        urgent,
        delayed,
        claimed,
        retrying,
        buried,
        abandoned,
        quarantined,
        waiting,
        using,
        watching,
        total,
        deletes,
        pauses,
        paused_ms: paused_until.map(|until| until.0.saturating_sub(now.0)),
        throttled_ms: throttled_until.map(|until| until.0.saturating_sub(now.0)),
    }
}
