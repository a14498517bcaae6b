//! Bulk operations on queues over HTTP: retries or deletes all jobs that match a filter. Jobs are selected in shares, so
//! that other requests are served in between. The JSON fields are documented in `docs/protocols/http.md`, "Queues".

use crate::call::Call;
use crate::problem::Problem;
use crate::route::{Body, Docs, Json, Route};
use crate::schema::Number;
use crate::scope::Scope;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::queue::{JobSelection, Phase, QueueName};
use sexton::ids::Slot;
use sexton::refusal::Reason;

/// The maximum number of jobs changed in one turn of the actor.
const SHARE: u32 = 100;

/// The maximum number of shares examined for one answer. For each share, the actor examines at most 8,192 jobs.
const SHARES_MAX: u32 = 16;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{DiskFull, Failed};
    vec![
        Route::post(
            "/v1/queues/retry",
            Scope::Use,
            retry,
            Docs {
                id: "retry_jobs",
                summary: "Retry jobs that match a filter",
                more: "Makes the jobs ready, as if they had never been tried. A request handles up to `limit` jobs, and the answer shows where to continue.",
                answer: "The number of jobs made ready, and where to continue.",
            },
            &[DiskFull, Failed],
        ),
        Route::post(
            "/v1/queues/discard",
            Scope::Use,
            discard,
            Docs {
                id: "discard_jobs",
                summary: "Delete jobs that match a filter",
                more: "Claimed jobs are not deleted. A request handles up to `limit` jobs, and the answer shows where to continue.",
                answer: "The number of jobs deleted, and where to continue.",
            },
            &[Failed],
        ),
    ]
}

/// The parameters of a bulk operation: the filter, the maximum number of jobs, and where to continue.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct BulkSelection {
    /// Only jobs of this queue.
    pub(crate) queue: Option<QueueName>,
    /// Only jobs of this type.
    pub(crate) r#type: Option<String>,
    /// Only jobs in this phase; abandoned, buried or quarantined ones if left out.
    pub(crate) phase: Option<Phase>,
    /// Only jobs whose last error contains this text.
    pub(crate) error: Option<String>,
    /// The maximum number of jobs to change.
    #[serde(default)]
    pub(crate) limit: Number<u32, 1, 1000, 1000>,
    /// The `next` of the previous answer, to continue after it.
    pub(crate) after: Option<Number<u32, 0, { u32::MAX as u64 }>>,
}

/// The operation on each job that matches the filter.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BulkOperation {
    Retry,
    Discard,
}

impl BulkOperation {
    /// Returns the phases of jobs that the operation applies to.
    const fn phases(self) -> &'static [Phase] {
        use Phase::{Abandoned, Buried, Delayed, Quarantined, Ready, Retrying};
        match self {
            Self::Retry => &[Delayed, Retrying, Buried, Abandoned, Quarantined],
            Self::Discard => &[Ready, Delayed, Retrying, Buried, Abandoned, Quarantined],
        }
    }

    const fn must_be(self) -> &'static str {
        match self {
            Self::Retry => "must be delayed, retrying, buried, abandoned or quarantined",
            Self::Discard => "must be ready, delayed, retrying, buried, abandoned or quarantined",
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Retried {
    /// The number of jobs made ready.
    retried: u32,
    /// The `after` for the next request, with the same filter; null once all jobs have been examined.
    next: Option<u32>,
}

/// Retries the jobs that match a filter, by making them ready.
async fn retry(call: &Call, Body(which): Body<BulkSelection>) -> Result<Json<Retried>, Problem> {
    let (retried, next) = each(call, which, BulkOperation::Retry).await?;
    Ok(Json(Retried { retried, next }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Discarded {
    /// The number of jobs deleted.
    discarded: u32,
    /// The `after` for the next request, with the same filter; null once all jobs have been examined.
    next: Option<u32>,
}

/// Deletes the jobs that match a filter.
async fn discard(
    call: &Call,
    Body(which): Body<BulkSelection>,
) -> Result<Json<Discarded>, Problem> {
    let (discarded, next) = each(call, which, BulkOperation::Discard).await?;
    Ok(Json(Discarded { discarded, next }))
}

/// Applies the operation to the selected jobs. Returns how many were changed, and where to continue if jobs are left to examine. Refuses a
/// phase that the operation does not apply to.
pub(crate) async fn each(
    call: &Call,
    which: BulkSelection,
    what: BulkOperation,
) -> Result<(u32, Option<u32>), Problem> {
    let phases = match which.phase {
        None => vec![Phase::Buried, Phase::Abandoned, Phase::Quarantined],
        Some(phase) if what.phases().contains(&phase) => vec![phase],
        Some(_) => {
            return Err(Problem::field("phase", what.must_be()));
        }
    };
    let queues = call.queues();
    let mut next = Some(Slot(which.after.map_or(0, |after| after.0)));
    let mut done = 0;
    for _ in 0..SHARES_MAX {
        let Some(from) = next.filter(|_| done < which.limit.0) else {
            break;
        };
        let selection = JobSelection {
            queue: which.queue.clone(),
            kind: which.r#type.clone(),
            phases: phases.clone(),
            error: which.error.clone(),
            process: None,
            from,
            most: (which.limit.0 - done).min(SHARE),
        };
        let (jobs, after) = queues.select_jobs(selection).await?;
        let ids: Vec<u64> = jobs.iter().map(|view| view.id).collect();
        done += match what {
            _ if ids.is_empty() => 0,
            BulkOperation::Retry => queues.kick_jobs(&ids).await?,
            BulkOperation::Discard => queues.delete_jobs(&ids).await?,
        };
        next = after;
    }
    Ok((done, next.map(|slot| slot.0)))
}
