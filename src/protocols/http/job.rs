//! Queues over HTTP, what is done with jobs: requests into calls of [`Queues`](crate::handle::Queues), and what came of
//! them into answers. The members are those of `docs/protocols/http.md`, "Queues".
//!
//! Never here: who may do what with a job. That is the machine's.

use crate::actors::queue::{self, DedupKey, JobView, Phase, Progress, Put, QueueName, Root};
use crate::handle::Added;
use crate::ids::Token;
use crate::protocols::http::binding::{Bound, Extent};
use crate::protocols::http::call::Call;
use crate::protocols::http::pop::{self, JobClaim};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Body, Json, Route, Words};
use crate::protocols::http::schema::{List, Number, Span};
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where jobs are added: what is sent there may be longer than other requests.
pub(crate) const PUSH: &str = "/v1/queues/push";
pub(crate) const PUSH_ALL: &str = "/v1/queues/push-all";

#[expect(clippy::too_many_lines, reason = "a table, route after route")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{
        Absent, DiskFull, Draining, Ended, Failed, Fencing, Full, ReadOnly, Stale, TooBig, Waits,
    };
    vec![
        Route::post_once(
            PUSH,
            push,
            Words {
                id: "push_job",
                summary: "Add a job",
                more: "With `dedup`, only if no unclaimed job of the queue has the same; with `unique_for_ms`, for that time whatever becomes of the job.",
                answer: "Its id, or that of the one that is there.",
            },
            &[ReadOnly, TooBig, Draining, Full, DiskFull, Failed],
        ),
        Route::post_once(
            PUSH_ALL,
            push_all,
            Words {
                id: "push_jobs",
                summary: "Add several jobs as one",
                more: "All of them or none, also through a crash. Of several that are one with each other the last counts.",
                answer: "The id of each, or that of the one that is there.",
            },
            &[ReadOnly, TooBig, Draining, Full, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/register",
            register,
            Words {
                id: "register_root_job",
                summary: "Make the jobs of an older root job superfluous",
                more: "Whoever claims one is told that it is a duplicate. It is remembered for 28 days.",
                answer: "Whether it was news.",
            },
            &[Full, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/pop",
            pop::pop,
            Words {
                id: "pop_jobs",
                summary: "Claim jobs",
                more: "The most urgent of these queues, among equals the oldest, or as the queue's order has it; with `weights`, of a queue by chance. With `wait`, and if there is none, answers when one is there or the wait ends. A job that is claimed for a client which has closed the connection is given back. With `process`, a claim ends when that process, or its tree, is gone, and at once; it has no other end, unless `claim_ms` says how long it lasts. With `done`, a worker ends its last job and claims its next in one request.",
                answer: "What was claimed; nothing, if there is nothing.",
            },
            &[Stale, Waits, Draining, Absent, Ended, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/ack",
            ack,
            Words {
                id: "ack_job",
                summary: "End a claimed job: it is done",
                more: "Only with the token of its claim.",
                answer: "It is gone.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/fail",
            fail,
            Words {
                id: "fail_job",
                summary: "Say that a claimed job failed",
                more: "It is `retrying`, and nobody's, until it is tried again: in `retry_after_ms`, or as the back-off of its type says, or when its claim would have ended. If that was its last try, it is abandoned.",
                answer: "What is known of it.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/defer",
            defer,
            Words {
                id: "defer_job",
                summary: "Say that a claimed job cannot be tried now",
                more: "It is `retrying`, and nobody's, as after a failure, but the claim counts as no try. It waits for `retry_after_ms`, or the longer, the oftener it was given back. A job that is a day old has failed instead.",
                answer: "What is known of it.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/report",
            report,
            Words {
                id: "report_job",
                summary: "Report how far the work on a claimed job has come",
                more: "Shown with the job until it is claimed again. It is not waited for until that is durable.",
                answer: "What is known of it.",
            },
            &[Absent, Stale, Fencing, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/touch",
            touch,
            Words {
                id: "touch_job",
                summary: "Begin the span of a claim again",
                more: "Only with its token. With `process`, it is bound to that from then on.",
                answer: "What is known of the job.",
            },
            &[Absent, Stale, Fencing, Ended, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/release",
            release,
            Words {
                id: "release_job",
                summary: "Give a claimed job back",
                more: "Only with the token of its claim. If that was its last try, it is abandoned.",
                answer: "What is known of it.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/bury",
            bury,
            Words {
                id: "bury_job",
                summary: "Put a claimed job aside until it is kicked",
                more: "Only with the token of its claim.",
                answer: "What is known of it.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
    ]
}

/// A job to be added.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Push {
    queue: QueueName,
    /// What the job says.
    body: queue::Body,
    /// 0 is the most urgent; below 1024 counts as urgent.
    #[serde(default)]
    priority: Number<u32, 0, { u32::MAX as u64 }, 1024>,
    /// Milliseconds until it is ready.
    #[serde(default)]
    delay_ms: Span,
    /// Milliseconds that a claim of it lasts; the queue's own time if 0.
    #[serde(default)]
    ttr_ms: Span,
    /// The deduplication key: nothing is added while an unclaimed job of the queue has the same.
    dedup: Option<String>,
    /// Milliseconds from now for which nothing else is added under its deduplication key, whatever becomes of the job; none if 0.
    /// Without `dedup` the key is that of its body.
    #[serde(default)]
    unique_for_ms: Number<u64, 0, { Put::UNIQUE_MS_MAX }>,
    /// Whether it is tried again when a claim ends without a word; if not, it is run at most once.
    #[serde(default = "yes")]
    retries: bool,
    root: Option<RootJob>,
    /// Whether it is that root job itself, which is registered along with it.
    #[serde(default)]
    is_root: bool,
    /// How many items of work it is: a throttle closes its queue for the time of so many.
    #[serde(default)]
    items: Number<u32, 1, { u32::MAX as u64 }, 1>,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct RootJob {
    /// What its jobs have in common, within the queue.
    signature: String,
    /// Its time, in whatever unit: the larger is the newer.
    at: u64,
}

impl Push {
    /// The job, which stands at this place of the request.
    fn put(self, place: &str) -> Result<Put, Problem> {
        let Self {
            queue,
            body,
            priority,
            delay_ms,
            ttr_ms,
            dedup,
            unique_for_ms,
            retries,
            root,
            is_root,
            items,
        } = self;
        if is_root && root.is_none() {
            let words = "is missing, and is_root is true";
            return Err(Problem::field(&format!("{place}root"), words));
        }
        Ok(Put {
            priority: priority.0,
            delay_ms: delay_ms.0,
            ttr_ms: ttr_ms.0,
            dedup: dedup.map(|key| DedupKey::of(key.as_bytes())),
            retries,
            root: root.map(|root| Root::of(&queue, &root.signature, root.at)),
            is_root,
            tube: false,
            // One is what most jobs are, and takes no room.
            items: if items.0 == 1 { 0 } else { items.0 },
            unique_for_ms: unique_for_ms.0,
            body,
            queue,
        })
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Pushed {
    /// Its number.
    id: u64,
    /// Whether it was added.
    new: bool,
}

impl From<Added> for Pushed {
    fn from(Added { id, new }: Added) -> Self {
        Self { id, new }
    }
}

/// Adds a job.
async fn push(call: &Call, Body(job): Body<Push>) -> Result<Json<Pushed>, Problem> {
    let added = call.queues().put(job.put("")?).await?;
    Ok(Json(added.into()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct PushAll {
    /// All of them are added, or none.
    jobs: List<Push, 1000>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PushedAll {
    /// In the order of the request.
    jobs: Vec<Pushed>,
}

/// Adds several jobs as one.
async fn push_all(call: &Call, Body(all): Body<PushAll>) -> Result<Json<PushedAll>, Problem> {
    let jobs = all.jobs.0.into_iter().enumerate();
    let jobs = jobs.map(|(place, job)| job.put(&format!("jobs[{place}].")));
    let jobs = jobs.collect::<Result<_, _>>()?;
    let added = call.queues().put_all(jobs).await?;
    let jobs = added.into_iter().map(Pushed::from).collect();
    Ok(Json(PushedAll { jobs }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct RegisterRoot {
    queue: QueueName,
    /// What its jobs have in common, within the queue.
    signature: String,
    /// Its time, in whatever unit: the larger is the newer.
    at: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RootRegistered {
    /// Whether neither this nor a newer one was known.
    registered: bool,
}

/// Makes jobs that come from an older root job superfluous.
async fn register(
    call: &Call,
    Body(root): Body<RegisterRoot>,
) -> Result<Json<RootRegistered>, Problem> {
    let RegisterRoot {
        queue,
        signature,
        at,
    } = root;
    let root = Root::of(&queue, &signature, at);
    let registered = call.queues().register(root).await?;
    Ok(Json(RootRegistered { registered }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Deleted {
    #[schemars(extend("const" = 1))]
    pub(super) deleted: u32,
}

/// Ends a claimed job: it is done.
async fn ack(call: &Call, Body(of): Body<JobClaim>) -> Result<Json<Deleted>, Problem> {
    call.queues().ack(of.id, of.token).await?;
    Ok(Json(Deleted { deleted: 1 }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Fail {
    /// The number of the job.
    id: u64,
    /// The token of its claim.
    token: Token,
    /// Milliseconds until it is tried again; if left out, as the back-off of its type says, or the rest of its claim.
    retry_after_ms: Option<Span>,
    /// What went wrong, to be shown with the job: the first 1,000 bytes are kept.
    error: Option<String>,
}

/// What is known of a job that was changed.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changed {
    /// The number of the job.
    id: u64,
    /// Null if it has ended: it failed, and was to be run at most once; or since, if this is a repetition.
    phase: Option<Phase>,
    /// Claims since it was added or kicked.
    attempts: Option<u32>,
    /// Milliseconds until its delay or claim ends, or until it is tried again or pruned; null if nothing ends.
    remaining_ms: Option<u64>,
}

/// Says that a claimed job failed.
async fn fail(call: &Call, Body(of): Body<Fail>) -> Result<Json<Changed>, Problem> {
    let retry_after_ms = of.retry_after_ms.map(|span| span.0);
    let said = (retry_after_ms, of.error.map(Into::into));
    let view = call.queues().fail(of.id, of.token, said).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Defer {
    /// The number of the job.
    id: u64,
    /// The token of its claim.
    token: Token,
    /// Why, to be shown with the job: the first 1,000 bytes are kept.
    error: Option<String>,
    /// Milliseconds until it is tried; if left out, the longer, the oftener it was given back.
    retry_after_ms: Option<Span>,
}

/// Says that a claimed job cannot be tried now.
async fn defer(call: &Call, Body(of): Body<Defer>) -> Result<Json<Changed>, Problem> {
    let retry_after_ms = of.retry_after_ms.map(|span| span.0);
    let said = (retry_after_ms, of.error.map(Into::into));
    let view = call.queues().defer(of.id, of.token, said).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Report {
    /// The number of the job.
    id: u64,
    /// The token of its claim.
    token: Token,
    /// How much is done, in percent; if left out, as before.
    percent: Option<Number<u64, 0, 100>>,
    /// What is being done: the first 1,000 bytes are kept. If left out, as before.
    text: Option<String>,
}

/// Notes how far the work on a claimed job has come.
async fn report(call: &Call, Body(of): Body<Report>) -> Result<Json<Changed>, Problem> {
    let progress = Progress {
        percent: of.percent.and_then(|it| u8::try_from(it.0).ok()),
        text: of.text.map(Into::into),
    };
    let view = call.queues().report(of.id, of.token, progress).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct TouchJob {
    /// The number of the job.
    id: u64,
    /// The token of its claim.
    token: Token,
    /// The process that the claim ends with from now on, by its record: an id, or a prefix of one.
    process: Option<String>,
    /// How much of it has to end.
    #[serde(default)]
    release: Extent,
    /// Whether its tree is killed, and proved gone, before a job whose claim has run out is given on.
    #[serde(default)]
    kill_before_grant: bool,
}

/// Begins the span of a claim again.
async fn touch(call: &Call, Body(of): Body<TouchJob>) -> Result<Json<Changed>, Problem> {
    let bound = Bound {
        process: of.process,
        release: of.release,
        kill_before_grant: of.kill_before_grant,
    };
    let queues = pop::bound(call, &bound).await?;
    let view = queues.touch(of.id, of.token).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Release {
    /// The number of the job.
    id: u64,
    /// The token of its claim.
    token: Token,
    /// Milliseconds until it is ready.
    #[serde(default)]
    delay_ms: Span,
    /// Its priority from now on; as it was if left out.
    priority: Option<u32>,
}

/// Gives a claimed job back.
async fn release(call: &Call, Body(of): Body<Release>) -> Result<Json<Changed>, Problem> {
    let terms = (of.delay_ms.0, of.priority);
    let view = call.queues().release(of.id, of.token, terms).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Bury {
    /// The number of the job.
    id: u64,
    /// The token of its claim.
    token: Token,
    /// Its priority from now on; as it was if left out.
    priority: Option<u32>,
}

/// Puts a claimed job aside.
async fn bury(call: &Call, Body(of): Body<Bury>) -> Result<Json<Changed>, Problem> {
    let view = call.queues().bury(of.id, of.token, of.priority).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

fn changed(call: &Call, id: u64, view: Option<&JobView>) -> Json<Changed> {
    let now = call.node.now();
    let until = view.and_then(|view| view.until);
    Json(Changed {
        id,
        phase: view.map(|view| view.phase),
        attempts: view.map(|view| view.attempts),
        remaining_ms: until.map(|until| until.0.saturating_sub(now.0)),
    })
}
