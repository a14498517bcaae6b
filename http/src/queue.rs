//! Administration of queues over HTTP: converts requests to calls of [`Queues`](sexton::handle::Queues), and results to answers.
//! The JSON fields are documented in `docs/protocols/http.md`, "Queues".

use crate::call::Call;
use crate::job::Deleted;
use crate::problem::Problem;
use crate::process_look;
use crate::route::{Body, Docs, Json, Route};
use crate::schema::{Number, Span};
use crate::scope::{OrRun as _, Scope};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::queue::{ErrorText, Phase, QueueName};
use sexton::handle::QueueError;
use sexton::refusal::Reason;

#[expect(clippy::too_many_lines, reason = "a table of routes")]
pub(crate) fn routes() -> Vec<Route> {
    use Reason::{Absent, Claimed, DiskFull, Failed, Interrupted};
    vec![
        Route::post(
            "/v1/queues/withdraw",
            Scope::Run,
            withdraw,
            Docs {
                id: "withdraw_pops",
                summary: "End the requests of a process that wait for a job",
                more: "Each request to `pop` whose claims would be bound to this process, and that waits, is answered with an empty list. A worker that is about to give jobs back does this first, so that it does not claim them again. A request that arrives later is not affected.",
                answer: "No request that arrived before is given a job any more.",
            },
            &[Failed],
        ),
        Route::post_once(
            "/v1/queues/delete",
            Scope::Use,
            delete,
            Docs {
                id: "delete_job",
                summary: "Delete an unclaimed job",
                more: "A claimed job can only be ended with the token of its claim: see `ack`.",
                answer: "The job has been deleted.",
            },
            &[Absent, Claimed, Failed],
        ),
        Route::post_once(
            "/v1/queues/kick",
            Scope::Use,
            kick,
            Docs {
                id: "kick_jobs",
                summary: "Make buried or delayed jobs ready",
                more: "Kicks buried jobs, the oldest first, then abandoned and quarantined ones. If there are none of these, kicks delayed jobs, in the order in which they are due, then jobs that wait for a retry. Each job is treated as if it had never been tried.",
                answer: "The number of jobs made ready, which may be 0.",
            },
            &[DiskFull, Failed, Interrupted],
        ),
        Route::post_once(
            "/v1/queues/kick-job",
            Scope::Use,
            kick_job,
            Docs {
                id: "kick_job",
                summary: "Make one job ready",
                more: "The job must be buried, abandoned, quarantined, delayed or waiting for a retry. It is treated as if it had never been tried.",
                answer: "1, or 0 if the job was already ready.",
            },
            &[Absent, Claimed, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/cancel",
            Scope::Use.or_run_by_state("the job's claim is bound to a process"),
            cancel,
            Docs {
                id: "cancel_job",
                summary: "Cancel a job",
                more: "The job is abandoned, and its claim ends. A claim that is bound to a process, as those of `sexton work` are, ends only when the process has ended, or when the job is completed, failed or given back. Until then, `touch` and `report` are refused, and `sexton work` stops its command; if `sexton work` is gone, the coordinator stops it.",
                answer: "1, or 0 if the job was already abandoned or cancelled.",
            },
            &[Absent, Failed],
        ),
        Route::post_once(
            "/v1/queues/repush",
            Scope::Use,
            repush,
            Docs {
                id: "repush_jobs",
                summary: "Make the abandoned jobs of a queue ready",
                more: "The jobs are treated as if they had never been tried.",
                answer: "The number of jobs made ready, which may be 0.",
            },
            &[DiskFull, Failed, Interrupted],
        ),
        Route::post_once(
            "/v1/queues/pause",
            Scope::Use,
            pause,
            Docs {
                id: "pause_queue",
                summary: "Pause a queue",
                more: "The queue must exist: it does while it has jobs, a client waits for its jobs, or it is paused or throttled. While a queue is paused, jobs can be added but not claimed. A length of 0 ends the pause.",
                answer: "The length of the pause.",
            },
            &[Absent, DiskFull, Failed],
        ),
        Route::post_once(
            "/v1/queues/flush",
            Scope::Use.or_run_by_state("the claim of one of the jobs is bound to a process"),
            flush,
            Docs {
                id: "flush_queue",
                summary: "Delete every job of a queue",
                more: "Claimed jobs are deleted, too.",
                answer: "The number of jobs deleted, which may be 0.",
            },
            &[Failed, Interrupted],
        ),
    ]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct JobId {
    /// The job's id.
    id: u64,
}

/// Deletes an unclaimed job.
async fn delete(call: &Call, Body(JobId { id }): Body<JobId>) -> Result<Json<Deleted>, Problem> {
    let queues = call.queues();
    match queues.delete(id).await {
        Ok(()) => Ok(Json(Deleted { deleted: 1 })),
        Err(QueueError::Absent) if queues.job(id).await.is_ok() => Err(claimed()),
        Err(error) => Err(error.into()),
    }
}

fn claimed() -> Problem {
    let words = "the job is claimed: ending it or giving it back requires the token of its claim";
    Problem::new(Reason::Claimed, words)
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Kick {
    queue: QueueName,
    /// The maximum number of jobs to kick.
    #[serde(default)]
    count: Number<u32, 1, 100_000, 1>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Kicked {
    /// The number of jobs made ready.
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
        // The job is already in the desired state.
        (Err(QueueError::Absent), Ok(_)) => Ok(Json(Kicked { kicked: 0 })),
        (Err(error), _) => Err(error.into()),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Cancel {
    /// The job's id.
    id: u64,
    /// The reason, shown with the job; of more than 1,000 bytes, the beginning and the end are stored.
    error: Option<String>,
}

#[derive(Serialize, JsonSchema)]
#[expect(clippy::struct_field_names, reason = "the names of the JSON fields")]
pub(crate) struct Cancelled {
    /// The number of jobs cancelled. If the claim of a job is bound to a process, the job is abandoned only once the claim has ended.
    cancelled: u32,
    /// The process that still works on the job, whose end the claim waits for; null if there is none.
    process: Option<String>,
    /// Whether that process is being stopped: by the coordinator, or by the process that runs it, which is alive.
    stopping: bool,
}

/// Cancels a job.
async fn cancel(call: &Call, Body(of): Body<Cancel>) -> Result<Json<Cancelled>, Problem> {
    let error = of.error.unwrap_or_else(|| "cancelled".to_owned());
    let is_done = call.queues().cancel(of.id, Some(ErrorText::excerpt(&error))).await?;
    let cancelled = u32::from(is_done);
    let (process, stopping) = works_on(call, of.id).await?;
    Ok(Json(Cancelled { cancelled, process, stopping }))
}

/// Returns the process that still works on a cancelled job, if there is one, and whether it is being stopped.
async fn works_on(call: &Call, id: u64) -> Result<(Option<String>, bool), Problem> {
    let view = match call.queues().job(id).await {
        Ok(view) if view.cancelled => view,
        Ok(_) | Err(QueueError::Absent) => return Ok((None, false)),
        Err(error) => return Err(error.into()),
    };
    let Some(bound) = view.bound else {
        return Ok((None, false));
    };
    let record = call.node.processes().get(bound.process).await;
    let is_alive = record.is_ok_and(|record| record.end.is_none());
    let works = view.command.map_or(bound.process, |it| it.process);
    Ok((Some(works.to_string()), view.fencing || is_alive))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Withdraw {
    /// The process, given by the full id of its record.
    process: String,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Withdrawn {
    #[schemars(extend("const" = true))]
    withdrawn: bool,
}

/// Ends the requests that wait for a job on behalf of a process.
async fn withdraw(call: &Call, Body(of): Body<Withdraw>) -> Result<Json<Withdrawn>, Problem> {
    let process = process_look::id(Some(&of.process), "process")?;
    let process = process.ok_or_else(|| Problem::field("process", "is not an id: it is empty"))?;
    call.queues().withdraw(process).await?;
    Ok(Json(Withdrawn { withdrawn: true }))
}

#[derive(Deserialize, JsonSchema)]
#[schemars(rename = "QueueName")]
pub(crate) struct OfQueue {
    queue: QueueName,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Repushed {
    /// The number of jobs made ready.
    repushed: u32,
}

/// Makes the abandoned jobs of a queue ready.
async fn repush(call: &Call, Body(of): Body<OfQueue>) -> Result<Json<Repushed>, Problem> {
    let repushed = call.queues().repush(&of.queue).await?;
    Ok(Json(Repushed { repushed }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Flushed {
    /// The number of jobs deleted.
    flushed: u32,
}

/// Deletes every job of a queue.
async fn flush(call: &Call, Body(of): Body<OfQueue>) -> Result<Json<Flushed>, Problem> {
    let flushed = call.queues().flush(&of.queue).await?;
    Ok(Json(Flushed { flushed }))
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Pause {
    queue: QueueName,
    /// The length of the pause in milliseconds; 0 ends a pause.
    ms: Span,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Paused {
    queue: QueueName,
    paused_ms: u64,
}

/// Prevents claims from a queue for `ms` milliseconds.
async fn pause(
    call: &Call,
    Body(Pause { queue, ms }): Body<Pause>,
) -> Result<Json<Paused>, Problem> {
    let queues = call.queues();
    // The queue must exist, since pausing a mistyped name would create a queue. A request that ends a pause and has an idempotency key
    // is not checked: it may be a repetition, and the queue may have been removed since the original request.
    if ms.0 > 0 || call.key.get().is_none() {
        let known = queues.queue(&queue).await;
        known.map_err(|error| Problem::from(error).naming("queue"))?;
    }
    queues.pause(&queue, ms.0).await?;
    let paused_ms = ms.0;
    Ok(Json(Paused { queue, paused_ms }))
}
