//! Results of jobs over HTTP: a worker stores the result of its job, and other clients read it afterwards. The JSON fields are
//! documented in `docs/protocols/http.md`, "Queues".

use crate::call::Call;
use crate::problem::Problem;
use crate::route::Route;
use sexton::actors::queue::{self, ErrorText, JobEnd, JobView};
use sexton::clock::Date;
use sexton::handle::Ending;
use sexton_api::job::OutputText;
use sexton_api::job::{Ending as Status, GetResult, JobResult, KeepResult, Kept};
use std::time::Duration;
use tokio::time::timeout;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::of(keep), Route::of(result)]
}

/// Stores the result of a claimed job.
async fn keep(call: &Call, of: KeepResult) -> Result<Kept, Problem> {
    let end = JobEnd {
        done: of.done,
        exit: of.exit.and_then(|it| u8::try_from(it.0).ok()),
        error: of.error.as_deref().map(ErrorText::excerpt),
        output: of.output.into(),
        took_ms: of.took_ms,
    };
    let terms = (of.keep_ms.0, end);
    call.queues().keep_result(of.id, of.token, terms).await?;
    Ok(Kept { kept: 1 })
}

/// Returns whether and how a job has ended, waiting for its end if requested.
async fn result(call: &Call, of: GetResult) -> Result<JobResult, Problem> {
    let queues = call.node.queues();
    if of.wait.0 > 0 {
        let over = timeout(Duration::from_secs(of.wait.0), queues.result_waiting(of.id));
        if let Ok(ending) = call.wait(over).await? {
            return Ok(shown(call.node.date(), ending?));
        }
    }
    let ending = queues.result(of.id).await?;
    Ok(shown(call.node.date(), ending))
}

fn shown(now: Date, ending: Ending) -> JobResult {
    match ending {
        Ending::Open(job) => unnoted(*job, Status::Open),
        Ending::Abandoned(job) => unnoted(*job, Status::Failed),
        Ending::Known(result) => noted(now, *result),
    }
}

fn noted(now: Date, result: queue::JobResult) -> JobResult {
    let queue::JobResult { id, queue, end, attempts, age_ms, ended, until } = result;
    JobResult {
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

fn unnoted(job: JobView, status: Status) -> JobResult {
    JobResult {
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
