//! Administration of queues over HTTP: converts requests to calls of [`Queues`](sexton::handle::Queues), and results to answers.
//! The JSON fields are documented in `docs/protocols/http.md`, "Queues".

use crate::call::Call;
use crate::problem::Problem;
use crate::process_look;
use crate::route::Route;
use sexton::actors::queue::{ErrorText, Phase};
use sexton::handle::QueueError;
use sexton::refusal::Reason;

pub(crate) fn routes() -> Vec<Route> {
    vec![
        Route::of(withdraw),
        Route::of(delete),
        Route::of(kick),
        Route::of(kick_job),
        Route::of(cancel),
        Route::of(repush),
        Route::of(pause),
        Route::of(flush),
    ]
}

/// Deletes an unclaimed job.
async fn delete(call: &Call, Delete { id }: Delete) -> Result<Deleted, Problem> {
    let queues = call.queues();
    match queues.delete(id).await {
        Ok(()) => Ok(Deleted { deleted: 1 }),
        Err(QueueError::Absent) if queues.job(id).await.is_ok() => Err(claimed()),
        Err(error) => Err(error.into()),
    }
}

fn claimed() -> Problem {
    let words = "the job is claimed: ending it or giving it back requires the token of its claim";
    Problem::new(Reason::Claimed, words)
}

/// Makes buried or delayed jobs ready.
async fn kick(call: &Call, of: Kick) -> Result<Kicked, Problem> {
    let kicked = call.queues().kick(&of.queue, of.count.0).await?;
    Ok(Kicked { kicked })
}

/// Makes one job ready that is neither ready nor claimed.
async fn kick_job(call: &Call, KickJob { id }: KickJob) -> Result<Kicked, Problem> {
    let queues = call.queues();
    match (queues.kick_job(id).await, queues.job(id).await) {
        (Ok(()), _) => Ok(Kicked { kicked: 1 }),
        (Err(QueueError::Absent), Ok(job)) if job.phase == Phase::Claimed => Err(claimed()),
        // The job is already in the desired state.
        (Err(QueueError::Absent), Ok(_)) => Ok(Kicked { kicked: 0 }),
        (Err(error), _) => Err(error.into()),
    }
}

/// Cancels a job.
async fn cancel(call: &Call, of: Cancel) -> Result<Cancelled, Problem> {
    let error = of.error.unwrap_or_else(|| "cancelled".to_owned());
    let is_done = call.queues().cancel(of.id, Some(ErrorText::excerpt(&error))).await?;
    let cancelled = u32::from(is_done);
    let (process, stopping) = works_on(call, of.id).await?;
    Ok(Cancelled { cancelled, process, stopping })
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

/// Ends the requests that wait for a job on behalf of a process.
async fn withdraw(call: &Call, of: Withdraw) -> Result<Withdrawn, Problem> {
    let process = process_look::id(Some(&of.process), "process")?;
    let process = process.ok_or_else(|| Problem::field("process", "is not an id: it is empty"))?;
    call.queues().withdraw(process).await?;
    Ok(Withdrawn { withdrawn: true })
}

/// Makes the abandoned jobs of a queue ready.
async fn repush(call: &Call, of: Repush) -> Result<Repushed, Problem> {
    let repushed = call.queues().repush(&of.queue).await?;
    Ok(Repushed { repushed })
}

/// Deletes every job of a queue.
async fn flush(call: &Call, of: Flush) -> Result<Flushed, Problem> {
    let flushed = call.queues().flush(&of.queue).await?;
    Ok(Flushed { flushed })
}

/// Prevents claims from a queue for `ms` milliseconds.
async fn pause(call: &Call, Pause { queue, ms }: Pause) -> Result<Paused, Problem> {
    let queues = call.queues();
    // The queue must exist, since pausing a mistyped name would create a queue. A request that ends a pause and has an idempotency key
    // is not checked: it may be a repetition, and the queue may have been removed since the original request.
    if ms.0 > 0 || call.key.get().is_none() {
        let known = queues.queue(&queue).await;
        known.map_err(|error| Problem::from(error).naming("queue"))?;
    }
    queues.pause(&queue, ms.0).await?;
    let paused_ms = ms.0;
    Ok(Paused { queue, paused_ms })
}
use sexton_api::job::Deleted;
use sexton_api::queue::{
    Cancel, Cancelled, Delete, Flush, Flushed, Kick, KickJob, Kicked, Pause, Paused, Repush,
    Repushed, Withdraw, Withdrawn,
};
