//! Queues over HTTP, what their operator does: requests into calls of [`Queues`](crate::handle::Queues), and what came of
//! them into answers. The members are those of `docs/protocols/http.md`, "Queues".

use crate::actors::queue::{Phase, QueueMachine, QueueName};
use crate::handle::QueueError;
use crate::protocols::http::call::Call;
use crate::protocols::http::job::Deleted;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Body, Json, Route, Routed, Words};
use crate::protocols::http::schema::{Number, Span};
use crate::protocols::http::{job, queue_bulk, queue_look, result};
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

impl Routed for QueueMachine {
    const ROUTES: &'static [fn() -> Vec<Route>] = &[
        queue_look::routes,
        job::routes,
        result::routes,
        routes,
        queue_bulk::routes,
    ];
}

#[expect(clippy::too_many_lines, reason = "a table, route after route")]
fn routes() -> Vec<Route> {
    use Reason::{Absent, Claimed, DiskFull, Failed};
    vec![
        Route::post_once(
            "/v1/queues/delete",
            delete,
            Words {
                id: "delete_job",
                summary: "End a job that nobody has claimed",
                more: "One that is claimed ends with its token: see ack.",
                answer: "It is gone.",
            },
            &[Absent, Claimed, Failed],
        ),
        Route::post_once(
            "/v1/queues/kick",
            kick,
            Words {
                id: "kick_jobs",
                summary: "Make buried or delayed jobs ready",
                more: "Those that are buried, the oldest first, and after them those that are abandoned; if there are none, those that are delayed, the soonest first, and after them those that failed. Each is as if it had never been tried.",
                answer: "How many, which may be none.",
            },
            &[DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/kick-job",
            kick_job,
            Words {
                id: "kick_job",
                summary: "Make one job ready",
                more: "One that is buried, abandoned, delayed, or waits to be tried again. It is as if it had never been tried.",
                answer: "It is; of one that was ready already, that none was kicked.",
            },
            &[Absent, Claimed, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/cancel",
            cancel,
            Words {
                id: "cancel_job",
                summary: "Cancel a job",
                more: "It is abandoned. If somebody works on it, its claim ends; one that is bound to a process, such as that of a command of `sexton work`, when the process has ended or has said what became of the job: until then it can be neither touched nor reported on, and `sexton work` stops its command.",
                answer: "How many: none if it was abandoned or cancelled already.",
            },
            &[Absent, Failed],
        ),
        Route::post_once(
            "/v1/queues/repush",
            repush,
            Words {
                id: "repush_jobs",
                summary: "Make the abandoned jobs of a queue ready",
                more: "As if they had never been tried.",
                answer: "How many, which may be none.",
            },
            &[DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/pause",
            pause,
            Words {
                id: "pause_queue",
                summary: "Let nothing be claimed from a queue for a while",
                more: "Of one that is there: with jobs, or with somebody who waits for them. Jobs are added meanwhile. 0 ends a pause.",
                answer: "For how long.",
            },
            &[Absent, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/flush",
            flush,
            Words {
                id: "flush_queue",
                summary: "End every job of a queue",
                more: "Claimed ones too.",
                answer: "How many there were, which may be none.",
            },
            &[Failed],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobId {
    /// The number of the job.
    id: u64,
}

/// Ends a job that nobody has claimed.
async fn delete(call: &Call, Body(JobId { id }): Body<JobId>) -> Result<Json<Deleted>, Problem> {
    let queues = call.queues();
    match queues.delete(id).await {
        Ok(()) => Ok(Json(Deleted { deleted: 1 })),
        Err(QueueError::Absent) if queues.job(id).await.is_ok() => Err(claimed()),
        Err(error) => Err(error.into()),
    }
}

fn claimed() -> Problem {
    let words = "the job is claimed: only the token of its claim ends it, or gives it back";
    Problem::new(Reason::Claimed, words)
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Kick {
    queue: QueueName,
    /// Jobs at most.
    #[serde(default)]
    count: Number<u32, 1, 100_000, 1>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Kicked {
    /// Jobs that are ready now.
    kicked: u32,
}

/// Makes buried or delayed jobs ready.
async fn kick(call: &Call, Body(of): Body<Kick>) -> Result<Json<Kicked>, Problem> {
    let kicked = call.queues().kick(&of.queue, of.count.0).await?;
    Ok(Json(Kicked { kicked }))
}

/// Makes one job ready that is neither ready nor claimed.
async fn kick_job(call: &Call, Body(JobId { id }): Body<JobId>) -> Result<Json<Kicked>, Problem> {
    let queues = call.queues();
    match (queues.kick_job(id).await, queues.job(id).await) {
        (Ok(()), _) => Ok(Json(Kicked { kicked: 1 })),
        (Err(QueueError::Absent), Ok(job)) if job.phase == Phase::Claimed => Err(claimed()),
        // It is as it should be.
        (Err(QueueError::Absent), Ok(_)) => Ok(Json(Kicked { kicked: 0 })),
        (Err(error), _) => Err(error.into()),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Cancel {
    /// The number of the job.
    id: u64,
    /// Why, to be shown with the job: the first 1,000 bytes are kept.
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Cancelled {
    /// Jobs that are not worked on any more, or soon.
    cancelled: u32,
}

/// Cancels a job.
async fn cancel(call: &Call, Body(of): Body<Cancel>) -> Result<Json<Cancelled>, Problem> {
    let error = of.error.unwrap_or_else(|| "cancelled".to_owned());
    let is_done = call.queues().cancel(of.id, Some(error.into())).await?;
    Ok(Json(Cancelled {
        cancelled: u32::from(is_done),
    }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "QueueName")]
pub(crate) struct OfQueue {
    queue: QueueName,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Repushed {
    /// Jobs that are ready now.
    repushed: u32,
}

/// Makes the abandoned jobs of a queue ready.
async fn repush(call: &Call, Body(of): Body<OfQueue>) -> Result<Json<Repushed>, Problem> {
    let repushed = call.queues().repush(&of.queue).await?;
    Ok(Json(Repushed { repushed }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Flushed {
    /// Jobs that ended.
    flushed: u32,
}

/// Ends every job of a queue.
async fn flush(call: &Call, Body(of): Body<OfQueue>) -> Result<Json<Flushed>, Problem> {
    let flushed = call.queues().flush(&of.queue).await?;
    Ok(Json(Flushed { flushed }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Pause {
    queue: QueueName,
    /// Milliseconds; 0 ends a pause.
    ms: Span,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Paused {
    queue: QueueName,
    paused_ms: u64,
}

/// Lets nothing be claimed from a queue for a while.
async fn pause(
    call: &Call,
    Body(Pause { queue, ms }): Body<Pause>,
) -> Result<Json<Paused>, Problem> {
    let queues = call.queues();
    // Paused by mistake, a queue that nobody has ever used would stay. The end of a pause may have been its end, too.
    if ms.0 > 0 || call.key.is_none() {
        queues.queue(&queue).await?;
    }
    queues.pause(&queue, ms.0).await?;
    let paused_ms = ms.0;
    Ok(Json(Paused { queue, paused_ms }))
}
