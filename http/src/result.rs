//! Results of jobs over HTTP: a worker stores the result of its job, and other clients read it afterwards. The JSON fields are
//! documented in `docs/protocols/http.md`, "Queues".

use crate::call::Call;
use crate::problem::Problem;
use crate::route::{Body, Docs, Json, Query, Route};
use crate::schema::{Number, OutputText};
use crate::scope::{OrRun as _, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::queue::{self, ErrorText, JobEnd, JobResult, JobView, Message, QueueName};
use sexton::clock::Date;
use sexton::handle::Ending;
use sexton::ids::Token;
use sexton::refusal::Reason;
use std::time::Duration;
use tokio::time::timeout;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, DiskFull, Failed, Fencing, Stale, Waits};
    vec![
        Route::post_once(
            "/v1/queues/keep-result",
            Scope::Use.or_run_by_state("the claim is bound to a process"),
            keep,
            Docs {
                id: "keep_job_result",
                summary: "Store the result of a claimed job",
                more: "Requires the token of the job's claim, and must be sent before the job is completed or failed. The result is kept for `keep_ms`, and can be read once the job is over; the result of a later try replaces it. At most 100,000 results and 64 MiB are kept; beyond that, the oldest are dropped.",
                answer: "The result has been stored.",
            },
            &[Absent, Stale, Fencing, DiskFull, Failed],
        ),
        Route::get(
            "/v1/queues/result",
            Scope::Read,
            result,
            Docs {
                id: "job_result",
                summary: "Get the result of a job",
                more: "Returns the result that the worker stored. For a job that was abandoned without a result, `status` is `failed` and `error` is the last error. For any other job that is over without a result, the request is refused as `absent`. With `wait`, the answer is sent when the job is over or the wait times out.",
                answer: "The result; if `status` is `open`, there is none yet.",
            },
            &[Absent, Waits, Failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobNote {
    /// The job's id.
    id: u64,
    /// The token of the job's claim.
    token: Token,
    /// How long the result is kept, in milliseconds; at most 30 days.
    keep_ms: Number<u64, 1, { Message::RESULT_MS_MAX }>,
    /// Whether the job succeeded; if not, it failed.
    done: bool,
    /// The exit status of the job's command, if there is one.
    exit: Option<Number<u64, 0, 255>>,
    /// What went wrong; of more than 1,000 bytes, the beginning and the end are stored.
    error: Option<String>,
    /// The output of the command, of which the last 16,384 bytes are stored.
    #[serde(default)]
    output: queue::Body,
    /// The duration of the try, in milliseconds.
    #[serde(default)]
    took_ms: u64,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Kept {
    #[schemars(extend("const" = 1))]
    kept: u32,
}

/// Stores the result of a claimed job.
async fn keep(call: &Call, Body(of): Body<JobNote>) -> Result<Json<Kept>, Problem> {
    let end = JobEnd {
        done: of.done,
        exit: of.exit.and_then(|it| u8::try_from(it.0).ok()),
        error: of.error.as_deref().map(ErrorText::excerpt),
        output: of.output.into(),
        took_ms: of.took_ms,
    };
    let terms = (of.keep_ms.0, end);
    call.queues().keep_result(of.id, of.token, terms).await?;
    Ok(Json(Kept { kept: 1 }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ResultQuery {
    /// The job's id.
    id: u64,
    /// The maximum time to wait until the job is over, in seconds.
    #[serde(default)]
    wait: Number<u64, 0, 3600>,
}

/// Whether and how a job has ended.
#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(rename = "JobEnding")]
pub(crate) enum Status {
    /// The job is not over.
    Open,
    /// The job has succeeded.
    Done,
    /// The job has failed, and will not be tried again.
    Failed,
}

#[derive(Serialize, JsonSchema)]
#[schemars(rename = "JobResult")]
pub(crate) struct ResultView {
    /// The job's id.
    id: u64,
    queue: QueueName,
    status: Status,
    /// The exit status of the job's command; null if there is none, or no result was stored.
    exit: Option<u8>,
    /// What went wrong; null if nothing was reported.
    error: Option<String>,
    /// The number of claims since the job was added or kicked, not counting claims that ended with a deferral.
    attempts: u32,
    /// The duration of the job's last try, in milliseconds; null if no result was stored.
    took_ms: Option<u64>,
    /// Milliseconds from when the job was added to when it ended; null if no result was stored.
    age_ms: Option<u64>,
    /// The time the job ended, in milliseconds since 1970; null if no result was stored.
    ended_at: Option<u64>,
    /// Milliseconds until the result is removed; null if no result was stored.
    remaining_ms: Option<u64>,
    /// The end of the command's output; empty if no result was stored.
    #[serde(flatten)]
    text: OutputText,
}

/// Returns whether and how a job has ended, waiting for its end if requested.
async fn result(call: &Call, Query(of): Query<ResultQuery>) -> Result<Json<ResultView>, Problem> {
    let queues = call.node.queues();
    if of.wait.0 > 0 {
        let over = timeout(Duration::from_secs(of.wait.0), queues.result_waiting(of.id));
        if let Ok(ending) = call.wait(over).await? {
            return Ok(Json(shown(call.node.date(), ending?)));
        }
    }
    let ending = queues.result(of.id).await?;
    Ok(Json(shown(call.node.date(), ending)))
}

fn shown(now: Date, ending: Ending) -> ResultView {
    match ending {
        Ending::Open(job) => unnoted(*job, Status::Open),
        Ending::Abandoned(job) => unnoted(*job, Status::Failed),
        Ending::Known(result) => noted(now, *result),
    }
}

fn noted(now: Date, result: JobResult) -> ResultView {
    let JobResult { id, queue, end, attempts, age_ms, ended, until } = result;
    ResultView {
        id,
        queue,
        status: if end.done { Status::Done } else { Status::Failed },
        exit: end.exit,
        error: end.error.map(Into::into),
        attempts,
        took_ms: Some(end.took_ms),
        age_ms: Some(age_ms),
        ended_at: Some(ended.0),
        remaining_ms: Some(until.0.saturating_sub(now.0)),
        text: OutputText { output: end.output.into() },
    }
}

fn unnoted(job: JobView, status: Status) -> ResultView {
    ResultView {
        id: job.id,
        queue: job.queue,
        status,
        exit: None,
        error: job.error.map(Into::into),
        attempts: job.attempts,
        took_ms: None,
        age_ms: None,
        ended_at: None,
        remaining_ms: None,
        text: OutputText { output: queue::Body::default() },
    }
}
