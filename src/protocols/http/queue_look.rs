//! Queues over HTTP, what only looks: which queues and jobs there are, what is known of them, and what holds. The members are
//! those of `docs/protocols/http.md`, "Queues".
//!
//! Never here: a walk over all there is in one turn of the actor. Long answers are put together of shares.

use crate::actors::queue::{
    Counts, JobSelection, JobView, Phase, Progress, QueueName, QueueSelection, QueueView, Rules,
    TypeRules,
};
use crate::clock::Timestamp;
use crate::ids::Token;
use crate::protocols::http::binding::Extent;
use crate::protocols::http::call::Call;
use crate::protocols::http::listing::{self, After, Limit, Listing, Written};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::process_look;
use crate::protocols::http::route::{Json, Large, Query, Route, Words};
use crate::protocols::http::schema::JobText;
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Phases by the words that stand for them in metrics.
pub(crate) const PHASES: [(&str, Phase); 6] = [
    ("ready", Phase::Ready),
    ("delayed", Phase::Delayed),
    ("claimed", Phase::Claimed),
    ("retrying", Phase::Retrying),
    ("buried", Phase::Buried),
    ("abandoned", Phase::Abandoned),
];

/// The most types that are asked for at a time.
const TYPES_MAX: usize = 1000;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Failed, Large};
    vec![
        Route::get(
            "/v1/queues",
            list,
            Words {
                id: "list_queues",
                summary: "Which queues there are, and their jobs by phase",
                more: "A queue is there while it has jobs, is paused or closed by its throttle, or somebody has to do with it. Many are walked page by page, and are no picture of one moment: a queue that stays is listed once. Those of an answer are sorted by name.",
                answer: "Queues.",
            },
            &[Failed, Large],
        ),
        Route::get(
            "/v1/queues/queue",
            queue,
            Words {
                id: "queue",
                summary: "One queue",
                more: "Looks, and changes nothing.",
                answer: "The queue.",
            },
            &[Absent, Failed],
        ),
        Route::get(
            "/v1/queues/jobs",
            jobs,
            Words {
                id: "list_jobs",
                summary: "Which jobs there are",
                more: "Many are walked page by page, and are no picture of one moment: a job that stays as it is is listed once. Those of an answer are sorted by id. Bodies are not told: see `/v1/queues/job`.",
                answer: "Jobs.",
            },
            &[Failed, Large],
        ),
        Route::get(
            "/v1/queues/job",
            job,
            Words {
                id: "job",
                summary: "One job, with its body",
                more: "Looks, and changes nothing.",
                answer: "The job.",
            },
            &[Absent, Failed, Large],
        ),
        Route::get(
            "/v1/queues/next",
            next,
            Words {
                id: "next_queue",
                summary: "A queue from which something can be claimed, by chance",
                more: "Each such queue has the same chance. Those that are paused, throttled or read-only are none of them.",
                answer: "The queue.",
            },
            &[Absent, Failed],
        ),
        Route::get(
            "/v1/queues/config",
            config,
            Words {
                id: "queue_config",
                summary: "What holds for queues: their limits, and what is set for types of jobs",
                more: "Every type that has an entry of its own, behind that of all others, `default`; or one type, and which entry holds for it. It holds until the coordinator starts anew.",
                answer: "What holds.",
            },
            &[],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct QueueFilter {
    /// Only queues of this tenant; empty for the default one.
    tenant: Option<String>,
    /// Only queues with jobs of this type.
    r#type: Option<String>,
    /// The most queues to answer.
    #[serde(default)]
    limit: Limit,
    /// Where to go on: `next` of the answer before.
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9]{1,10}$"))]
    after: Option<After>,
}

/// What is known of a queue.
#[expect(
    clippy::struct_field_names,
    reason = "as it has always been on the wire"
)]
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queue {
    queue: QueueName,
    /// Empty for the default one.
    tenant: String,
    r#type: String,
    /// Jobs that can be claimed.
    ready: u32,
    /// Those of them with a priority below 1024.
    urgent: u32,
    /// Jobs that will be ready.
    delayed: u32,
    /// Jobs that somebody works on.
    claimed: u32,
    /// Jobs that failed, and will be tried again.
    retrying: u32,
    /// Jobs that a client has put aside.
    buried: u32,
    /// Jobs whose last try is over.
    abandoned: u32,
    /// Who waits for a job of it.
    waiting: u32,
    /// beanstalkd clients that add to it.
    using: u32,
    /// beanstalkd clients that claim from it.
    watching: u32,
    /// Jobs added since it came into being, or since the start.
    total: u64,
    /// Jobs deleted since then.
    deletes: u64,
    /// Pauses since then.
    pauses: u64,
    /// Milliseconds until its pause ends; null if it has none.
    paused_ms: Option<u64>,
    /// Milliseconds until its throttle lets something be claimed; null if it does now.
    throttled_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Queues {
    queues: Vec<Written<Queue>>,
    /// What `after` of the next request is, with the same filter; null after the last.
    next: Option<String>,
}

/// Queues, as many as are asked for, and where to go on.
async fn list(call: &Call, Query(filter): Query<QueueFilter>) -> Result<Large<Queues>, Problem> {
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
    let listing = Listing::gather(
        call,
        (listing::slot(filter.after), filter.limit.0),
        page,
        show,
    )
    .await?;
    let (queues, next, place) = listing.sorted_by_key(|view| view.name.clone());
    let next = listing::shown(next);
    Ok(Large(Queues { queues, next }, place))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct OneQueue {
    queue: QueueName,
}

/// One queue.
async fn queue(call: &Call, Query(of): Query<OneQueue>) -> Result<Json<Queue>, Problem> {
    let view = call.node.queues().queue(&of.queue).await?;
    Ok(Json(queue_shown(&view, call.node.now())))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobFilter {
    /// Only jobs of this queue.
    queue: Option<QueueName>,
    /// Only jobs of this type.
    r#type: Option<String>,
    /// Only jobs in this phase.
    phase: Option<Phase>,
    /// Only jobs whose newest error has this in it.
    error: Option<String>,
    /// Only jobs whose claims end with this process, by the id of its record.
    process: Option<String>,
    /// The most jobs to answer.
    #[serde(default)]
    limit: Limit,
    /// Where to go on: `next` of the answer before.
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9]{1,10}$"))]
    after: Option<After>,
}

/// What is known of a job.
#[expect(clippy::struct_excessive_bools, reason = "each is a member of its own")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct Job {
    /// Its number.
    id: u64,
    queue: QueueName,
    phase: Phase,
    /// 0 is the most urgent; below 1024 counts as urgent.
    priority: u32,
    /// Milliseconds since it was added.
    age_ms: u64,
    /// Milliseconds until its delay or claim ends, or until it is tried again or pruned; null if nothing ends.
    remaining_ms: Option<u64>,
    /// Its newest delay, in milliseconds.
    delay_ms: u64,
    /// Milliseconds that whoever claims it has; the queue's own time if 0.
    ttr_ms: u64,
    /// Claims since it was added or kicked.
    attempts: u32,
    /// Claims in all.
    claims: u32,
    /// Claims that ran out.
    timeouts: u32,
    /// How often it was given back.
    releases: u32,
    /// How often it was buried.
    buries: u32,
    /// How often it was kicked.
    kicks: u32,
    /// The token of its claim.
    token: Option<Token>,
    /// Whether it is tried again when a claim ends without a word.
    retries: bool,
    /// Whether it outlives the coordinator.
    durable: bool,
    /// Bytes of its body.
    bytes: u64,
    /// What was said when it failed last.
    error: Option<String>,
    /// The process that its claim ends with; null if with none.
    process: Option<String>,
    /// How much of the process has to end.
    release: Option<Extent>,
    /// Whether the tree is killed before the job is given on.
    kill_before_grant: bool,
    /// Whether the time of its claim has run out and its process is being killed.
    fencing: bool,
    /// Whether it is not wanted any more, and its process has to end.
    cancelled: bool,
    /// How much of it is done, in percent, as its worker reported.
    percent: Option<u8>,
    /// What its worker reported last.
    report: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Jobs {
    jobs: Vec<Written<Job>>,
    /// What `after` of the next request is, with the same filter; null after the last.
    next: Option<String>,
}

/// Jobs, as many as are asked for, and where to go on.
async fn jobs(call: &Call, Query(filter): Query<JobFilter>) -> Result<Large<Jobs>, Problem> {
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
    let listing = Listing::gather(
        call,
        (listing::slot(filter.after), filter.limit.0),
        page,
        show,
    )
    .await?;
    let (jobs, next, place) = listing.sorted_by_key(|view| view.id);
    let next = listing::shown(next);
    Ok(Large(Jobs { jobs, next }, place))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct OneJob {
    /// The number of a job.
    id: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct JobWithBody {
    #[serde(flatten)]
    job: Job,
    #[serde(flatten)]
    text: JobText,
}

/// One job, with its body.
async fn job(
    call: &Call,
    Query(OneJob { id }): Query<OneJob>,
) -> Result<Large<JobWithBody>, Problem> {
    // Any number of clients may ask for one body, and not read it.
    let place = call.room().large().await?;
    let (view, body) = call.node.queues().job_with_body(id).await?;
    let job = job_shown(&view, call.node.now());
    let text = JobText { body };
    Ok(Large(JobWithBody { job, text }, place))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfTypes {
    /// Only queues with jobs of these types, at most 1,000, with commas between them.
    #[serde(default)]
    types: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Next {
    queue: QueueName,
    /// Empty for the default one.
    tenant: String,
    r#type: String,
}

/// A queue from which something can be claimed, by chance.
async fn next(call: &Call, Query(of): Query<OfTypes>) -> Result<Json<Next>, Problem> {
    let kinds = of.types.split(',').filter(|kind| !kind.is_empty());
    let kinds: Vec<String> = kinds.map(str::to_owned).collect();
    if kinds.len() > TYPES_MAX {
        return Err(Problem::field("types", "must be at most 1000"));
    }
    let chosen = call.node.queues().next(&kinds).await?;
    let words = "nothing can be claimed from any such queue";
    let queue = chosen.ok_or_else(|| Problem::new(Reason::Absent, words))?;
    Ok(Json(Next {
        tenant: text(queue.tenant()),
        r#type: text(queue.kind()),
        queue,
    }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct OfType {
    /// Only this type.
    r#type: Option<QueueName>,
}

/// What there may be at most, in all queues together; but `body_bytes_max` is of one job.
#[expect(clippy::struct_field_names, reason = "as in the configuration")]
#[derive(Serialize, JsonSchema)]
pub(crate) struct Limits {
    jobs_max: u32,
    /// Of the bodies.
    bytes_max: u64,
    queues_max: u32,
    /// The longest body.
    body_bytes_max: u32,
    /// Root jobs that are remembered.
    roots_max: u32,
}

/// What holds for a type, and the entry that says so.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TypeConfig {
    r#type: String,
    /// The entry that holds: the type's own, or `default`.
    from: String,
    #[serde(flatten)]
    rules: TypeRules,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueConfig {
    limits: Limits,
    types: Vec<TypeConfig>,
    /// Tenants that have an entry; all others weigh 1.
    tenants: Vec<TenantConfig>,
}

/// What holds for a tenant.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TenantConfig {
    /// Empty for the default one.
    tenant: String,
    /// How often it has its turn, in proportion to others.
    weight: u32,
}

/// What holds for every type that has an entry, and for the others; or for one type.
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
    let limits = Limits {
        jobs_max,
        bytes_max,
        queues_max,
        body_bytes_max,
        roots_max,
    };
    let tenants = rules
        .across
        .tenants
        .iter()
        .map(|(tenant, of)| TenantConfig {
            tenant: tenant.clone(),
            weight: of.weight,
        });
    Ok(Json(QueueConfig {
        limits,
        types,
        tenants: tenants.collect(),
    }))
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
    let Counts {
        urgent,
        ready,
        delayed,
        claimed,
        buried,
        abandoned,
        retrying,
    } = jobs;
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

fn job_shown(view: &JobView, now: Timestamp) -> Job {
    let JobView {
        id,
        queue,
        phase,
        priority,
        created,
        until,
        delay_ms,
        ttr_ms,
        attempts,
        reserves,
        timeouts,
        releases,
        buries,
        kicks,
        token,
        retries,
        passing,
        bytes,
        error,
        bound,
        fencing,
        cancelled,
        progress,
    } = view.clone();
    let Progress {
        percent,
        text: report,
    } = progress.unwrap_or_default();
    Job {
        id,
        queue,
        phase,
        priority,
        age_ms: now.0.saturating_sub(created.0),
        remaining_ms: until.map(|until| until.0.saturating_sub(now.0)),
        delay_ms,
        ttr_ms,
        attempts,
        claims: reserves,
        timeouts,
        releases,
        buries,
        kicks,
        token,
        retries,
        durable: !passing,
        bytes,
        error: error.map(Into::into),
        process: bound.map(|it| it.process.to_string()),
        release: bound.map(|it| it.until.into()),
        kill_before_grant: bound.is_some_and(|it| it.fence),
        fencing,
        cancelled,
        percent,
        report: report.map(Into::into),
    }
}
