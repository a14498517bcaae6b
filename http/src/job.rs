//! Changes to jobs over HTTP: converts requests to calls of [`Queues`](sexton::handle::Queues), and results to answers.
//! The JSON fields are documented in `docs/protocols/http.md`, "Queues".
//!
//! The queue actor decides which client may do what with a job.

use crate::binding::Bound;
use crate::call::Call;
use crate::pop::{self, JobClaim};
use crate::problem::Problem;
use crate::route::{Body, Docs, Json, Route};
use crate::schema::{List, Number, Span};
use crate::scope::{OrRun as _, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::queue::{
    self, Command, DedupKey, ErrorText, JobView, Phase, Progress, Put, QueueName, Root,
};
use sexton::handle::Added;
use sexton::ids::Token;
use sexton::refusal::Reason;
use sexton_api::binding::Extent;

/// The path for adding a job. Its request bodies may be larger than those of most paths.
pub(crate) const PUSH: &str = "/v1/queues/push";
/// The path for adding several jobs. Its request bodies may be larger than those of most paths.
pub(crate) const PUSH_ALL: &str = "/v1/queues/push-all";

#[expect(clippy::too_many_lines, reason = "a table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{
        Absent, DiskFull, Draining, Ended, Failed, Fencing, Full, ReadOnly, Stale, TooBig, Waits,
    };
    vec![
        Route::post_once(
            PUSH,
            Scope::Use,
            push,
            Docs {
                id: "push_job",
                summary: "Add a job",
                more: "With `dedup`, the job is added only if no unclaimed job of the queue has the same key. With `unique_for_ms`, the key also stays reserved for that time, whatever happens to the job.",
                answer: "The id of the job, or of the existing job with the same key.",
            },
            &[ReadOnly, TooBig, Draining, Full, DiskFull, Failed],
        ),
        Route::post_once(
            PUSH_ALL,
            Scope::Use,
            push_all,
            Docs {
                id: "push_jobs",
                summary: "Add several jobs atomically",
                more: "Either all jobs are added or none, even if the coordinator crashes; only duplicates are left out. If several jobs of a queue have the same deduplication key, the last one is added.",
                answer: "The id of each job, or of the existing job with the same key.",
            },
            &[ReadOnly, TooBig, Draining, Full, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/register",
            Scope::Use,
            register,
            Docs {
                id: "register_root_job",
                summary: "Register a root job, which makes the jobs of older root jobs with its signature superfluous",
                more: "If a worker claims a superfluous job, `duplicate` is true in the answer. The root job is remembered for 28 days.",
                answer: "Whether the root job is newer than every known one with its signature.",
            },
            &[Full, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/pop",
            Scope::Use.or_run(
                "`process` is set, or a claim in `done` is bound to a process",
                |Body(it): &Body<pop::Pop>| it.process.is_some(),
            ),
            pop::pop,
            Docs {
                id: "pop_jobs",
                summary: "Claim jobs",
                more: "Claims the most urgent jobs of the named queues, at most `count`; among equally urgent jobs, the oldest first, unless a queue is configured for another order. With `weights`, the queue is drawn at random by weight. With `any`, tenants take turns. With `wait`, a request that finds no job is answered when there is one or the wait times out. A job claimed for a client that has closed the connection is given back, unless the request has an idempotency key. With `process`, a claim ends as soon as that process, or its tree, has exited, and not before unless `claim_ms` is set. With `done`, a worker completes its last job and claims its next one in a single request.",
                answer: "The claimed jobs; an empty list if none is ready.",
            },
            &[Stale, Waits, Draining, Absent, Ended, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/ack",
            Scope::Use.or_run_by_state("the claim is bound to a process"),
            ack,
            Docs {
                id: "ack_job",
                summary: "Complete a claimed job",
                more: "Requires the token of the job's claim.",
                answer: "The job has been completed and removed.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/fail",
            Scope::Use.or_run_by_state("the claim is bound to a process"),
            fail,
            Docs {
                id: "fail_job",
                summary: "Report that a claimed job failed",
                more: "The job is `retrying` and unclaimed until it is tried again: after `retry_after_ms` if given; otherwise after the back-off of its type; or, if its type has none, when its claim would have ended. If this was its last try, the job is abandoned; if it runs at most once, it is removed.",
                answer: "The state of the job.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/defer",
            Scope::Use.or_run_by_state("the claim is bound to a process"),
            defer,
            Docs {
                id: "defer_job",
                summary: "Report that a claimed job cannot be tried now",
                more: "The job is `retrying` and unclaimed, as after a failure, but the claim does not count as a try. It waits for `retry_after_ms` if given, otherwise for a delay that grows each time the job is given back. If the job is more than a day old or was cancelled, this counts as a failure instead.",
                answer: "The state of the job.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/report",
            Scope::Use.or_run_by_state("the claim is bound to a process"),
            report,
            Docs {
                id: "report_job",
                summary: "Report progress on a claimed job",
                more: "The progress is shown with the job until the job is claimed again. Answers without waiting for the disk.",
                answer: "The state of the job.",
            },
            &[Absent, Stale, Fencing, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/touch",
            Scope::Use.or_run(
                "`process` or `command` is set, or the claim is bound to a process",
                |Body(it): &Body<TouchJob>| it.process.is_some() || it.command.is_some(),
            ),
            touch,
            Docs {
                id: "touch_job",
                summary: "Extend a claim",
                more: "Restarts the time limit of the claim. Requires the token of the claim. With `process`, the claim is bound to that process from now on. With `command`, a claim that is bound to a process is handed over to another one when that process is gone.",
                answer: "The state of the job.",
            },
            &[Absent, Stale, Fencing, Ended, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/release",
            Scope::Use.or_run_by_state("the claim is bound to a process"),
            release,
            Docs {
                id: "release_job",
                summary: "Give a claimed job back",
                more: "Requires the token of the job's claim. If the claim was the job's last try, the job is abandoned.",
                answer: "The state of the job.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
        Route::post_once(
            "/v1/queues/bury",
            Scope::Use.or_run_by_state("the claim is bound to a process"),
            bury,
            Docs {
                id: "bury_job",
                summary: "Bury a claimed job until it is kicked",
                more: "Requires the token of the job's claim.",
                answer: "The state of the job.",
            },
            &[Absent, Stale, Fencing, Failed],
        ),
    ]
}

/// A job to add.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Push {
    queue: QueueName,
    /// The job's body.
    body: queue::Body,
    /// The priority: 0 is the most urgent, and anything below 1024 counts as urgent.
    #[serde(default)]
    priority: Number<u32, 0, { u32::MAX as u64 }, 1024>,
    /// Milliseconds until the job is ready.
    #[serde(default)]
    delay_ms: Span,
    /// Milliseconds that a claim of the job lasts; 0 for the time set for the job's type.
    #[serde(default)]
    ttr_ms: Span,
    /// The deduplication key: the job is not added while the queue has an unclaimed job with the same key.
    dedup: Option<String>,
    /// Milliseconds for which no other job with the same deduplication key is added to the queue, whatever happens to this job; 0 for no
    /// such time. Without `dedup`, the key is derived from the body.
    #[serde(default)]
    unique_for_ms: Number<u64, 0, { Put::UNIQUE_MS_MAX }>,
    /// Whether the job is retried after it failed, or after a claim ended without a report. If false, it runs at most once.
    #[serde(default = "yes")]
    retries: bool,
    /// The root job that the job comes from.
    root: Option<RootJob>,
    /// Whether the job is itself the root job in `root`. If so, adding it also registers the root job.
    #[serde(default)]
    is_root: bool,
    /// The number of work items that the job counts as for a throttle on its queue.
    #[serde(default)]
    items: Number<u32, 1, { u32::MAX as u64 }, 1>,
}

const fn yes() -> bool {
    true
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct RootJob {
    /// The signature of the root job. Within a queue, a root job replaces older ones with the same signature.
    signature: String,
    /// The time of the root job, in any unit; larger is newer.
    at: u64,
}

impl Push {
    /// Converts the job, or refuses it. In errors, `place` precedes the name of the field: it is the path of the job within the request,
    /// such as `jobs[3].`, or empty.
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
            let words = "is required if is_root is true";
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
            // 0 counts as 1. The default is stored as 0, so that the message equals that of a client that does not set `items`.
            items: if items.0 == 1 { 0 } else { items.0 },
            unique_for_ms: unique_for_ms.0,
            body,
            queue,
        })
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Pushed {
    /// The job's id.
    id: u64,
    /// Whether the job was added; if not, `id` is that of the existing job with the same deduplication key.
    new: bool,
    /// The phase of the existing job, if this one was not added; left out if that job is done or was removed, and in answers about batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<Phase>,
}

impl From<Added> for Pushed {
    fn from(Added { id, new, phase }: Added) -> Self {
        Self { id, new, phase }
    }
}

/// Adds a job.
async fn push(call: &Call, Body(job): Body<Push>) -> Result<Json<Pushed>, Problem> {
    let added = call.queues().put(job.put("")?).await?;
    Ok(Json(added.into()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct PushAll {
    /// The jobs, of which all or none are added.
    jobs: List<Push, 1000>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct PushedAll {
    /// The results, in the order of the request.
    jobs: Vec<Pushed>,
}

/// Adds several jobs atomically.
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
    /// The signature of the root job. Within a queue, a root job replaces older ones with the same signature.
    signature: String,
    /// The time of the root job, in any unit; larger is newer.
    at: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct RootRegistered {
    /// Whether neither this root job nor a newer one was known before.
    registered: bool,
}

/// Registers a root job, which makes the jobs of older root jobs superfluous.
async fn register(
    call: &Call,
    Body(root): Body<RegisterRoot>,
) -> Result<Json<RootRegistered>, Problem> {
    let RegisterRoot { queue, signature, at } = root;
    let root = Root::of(&queue, &signature, at);
    let registered = call.queues().register(root).await?;
    Ok(Json(RootRegistered { registered }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Deleted {
    #[schemars(extend("const" = 1))]
    pub(super) deleted: u32,
}

/// Completes a claimed job.
async fn ack(call: &Call, Body(of): Body<JobClaim>) -> Result<Json<Deleted>, Problem> {
    call.queues().ack(of.id, of.token).await?;
    Ok(Json(Deleted { deleted: 1 }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Fail {
    /// The job's id.
    id: u64,
    /// The token of the job's claim.
    token: Token,
    /// Milliseconds until the job is retried. If left out, the back-off of the job's type applies or, if the type has none, the time left
    /// on the claim.
    retry_after_ms: Option<Span>,
    /// What went wrong, shown with the job; of more than 1,000 bytes, the beginning and the end are stored.
    error: Option<String>,
    /// Whether the work ended with a crash. After `crash_tries` crashes in a row, the job is quarantined.
    #[serde(default)]
    crashed: bool,
}

/// The state of a changed job.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Changed {
    /// The job's id.
    id: u64,
    /// The job's phase; null if the job no longer exists, either because it failed and runs at most once, or because this is a repeated
    /// request and the job was removed after the first request.
    phase: Option<Phase>,
    /// The number of claims since the job was added or kicked, without those that were deferred; null if the job no longer exists.
    attempts: Option<u32>,
    /// Milliseconds until the job's delay or claim ends, it is retried, or it is removed as abandoned; null if none of these applies.
    remaining_ms: Option<u64>,
}

/// Reports that a claimed job failed.
async fn fail(call: &Call, Body(of): Body<Fail>) -> Result<Json<Changed>, Problem> {
    let retry_after_ms = of.retry_after_ms.map(|span| span.0);
    let said = (retry_after_ms, of.error.as_deref().map(ErrorText::excerpt));
    let view = if of.crashed {
        call.queues().crash(of.id, of.token, said).await?
    } else {
        call.queues().fail(of.id, of.token, said).await?
    };
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Defer {
    /// The job's id.
    id: u64,
    /// The token of the job's claim.
    token: Token,
    /// The reason, shown with the job; of more than 1,000 bytes, the beginning and the end are stored.
    error: Option<String>,
    /// Milliseconds until the job is retried. If left out, the delay grows each time the job is given back.
    retry_after_ms: Option<Span>,
    /// Whether the worker was interrupted, which says nothing about the job: it is ready again immediately, even if it is more than a day
    /// old. Cannot be combined with `retry_after_ms`.
    #[serde(default)]
    interrupted: bool,
}

/// Reports that a claimed job cannot be tried now.
async fn defer(call: &Call, Body(of): Body<Defer>) -> Result<Json<Changed>, Problem> {
    let retry_after_ms = of.retry_after_ms.map(|span| span.0);
    let error = of.error.as_deref().map(ErrorText::excerpt);
    if of.interrupted {
        if retry_after_ms.is_some() {
            let words = "cannot be combined with interrupted";
            return Err(Problem::field("retry_after_ms", words));
        }
        let view = call.queues().interrupt(of.id, of.token, error).await?;
        return Ok(changed(call, of.id, view.as_ref()));
    }
    let said = (retry_after_ms, error);
    let view = call.queues().defer(of.id, of.token, said).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Report {
    /// The job's id.
    id: u64,
    /// The token of the job's claim.
    token: Token,
    /// The progress in percent; unchanged if left out.
    percent: Option<Number<u64, 0, 100>>,
    /// A description of the current step; of more than 1,000 bytes, the beginning and the end are stored. Unchanged if left out.
    text: Option<String>,
}

/// Records the progress of a claimed job.
async fn report(call: &Call, Body(of): Body<Report>) -> Result<Json<Changed>, Problem> {
    let progress = Progress {
        percent: of.percent.and_then(|it| u8::try_from(it.0).ok()),
        text: of.text.as_deref().map(ErrorText::excerpt),
    };
    let view = call.queues().report(of.id, of.token, progress).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct TouchJob {
    /// The job's id.
    id: u64,
    /// The token of the job's claim.
    token: Token,
    /// The process that the claim is bound to from now on, given by the id of its record or a prefix of that id; unchanged if left out.
    process: Option<String>,
    /// How much of the process must have ended before the claim ends.
    #[serde(default)]
    release: Extent,
    /// Whether, once the claim has expired, the process tree is killed and its end confirmed before the job is available again.
    #[serde(default)]
    kill_before_grant: bool,
    /// The process that works on the job on behalf of the process that the claim is bound to, given by the id of its record or a prefix of
    /// that id. When the latter is gone, the claim lasts as long as the tree of this one. Cannot be combined with `process`.
    command: Option<String>,
    /// With `command`: how long the claim lasts without being extended, in milliseconds; 0 for no limit. After that time, the tree of the
    /// command is stopped, and the job has failed.
    #[serde(default)]
    claim_ms: Span,
    /// With `command`: whether its exit status is the result of the job if the process that the claim is bound to is gone: 0 completes
    /// the job, any other fails it. Otherwise the job is tried again in both cases.
    #[serde(default)]
    completes: bool,
}

/// Extends a claim.
async fn touch(call: &Call, Body(of): Body<TouchJob>) -> Result<Json<Changed>, Problem> {
    if let Some(command) = of.command {
        if of.process.is_some() {
            return Err(Problem::field("command", "cannot be combined with process"));
        }
        let bound =
            Bound { process: Some(command), release: Extent::default(), kill_before_grant: false };
        // The command may have ended already. Its record then says how.
        let binding = bound.binding_again(call).await?;
        let process = binding.expect("a process should be given").process;
        let command = Command { process, completes: of.completes };
        let terms = (command, of.claim_ms.0);
        let view = call.queues().attach(of.id, of.token, terms).await?;
        return Ok(changed(call, of.id, view.as_ref()));
    }
    let bound =
        Bound { process: of.process, release: of.release, kill_before_grant: of.kill_before_grant };
    let queues = pop::bound(call, &bound).await?;
    let view = queues.touch(of.id, of.token).await?;
    Ok(changed(call, of.id, view.as_ref()))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Release {
    /// The job's id.
    id: u64,
    /// The token of the job's claim.
    token: Token,
    /// Milliseconds until the job is ready.
    #[serde(default)]
    delay_ms: Span,
    /// The job's new priority; unchanged if left out.
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
    /// The job's id.
    id: u64,
    /// The token of the job's claim.
    token: Token,
    /// The job's new priority; unchanged if left out.
    priority: Option<u32>,
}

/// Buries a claimed job.
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
