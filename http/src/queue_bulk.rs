//! Bulk operations on queues over HTTP: retries or deletes all jobs that match a filter. Jobs are selected in shares, so
//! that other requests are served in between. The JSON fields are documented in `docs/protocols/http.md`, "Queues".

use crate::call::Call;
use crate::problem::Problem;
use crate::route::Route;
use sexton::actors::queue::{JobSelection, Phase};
use sexton::ids::Slot;
use sexton_api::queue::{BulkSelection, Discard, Discarded, Retried, Retry};

/// The maximum number of jobs changed in one turn of the actor.
const SHARE: u32 = 100;

/// The maximum number of shares examined for one answer. For each share, the actor examines at most 8,192 jobs.
const SHARES_MAX: u32 = 16;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::of(retry), Route::of(discard)]
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

/// Retries the jobs that match a filter, by making them ready.
async fn retry(call: &Call, Retry(which): Retry) -> Result<Retried, Problem> {
    let (retried, next) = each(call, which, BulkOperation::Retry).await?;
    Ok(Retried { retried, next })
}

/// Deletes the jobs that match a filter.
async fn discard(call: &Call, Discard(which): Discard) -> Result<Discarded, Problem> {
    let (discarded, next) = each(call, which, BulkOperation::Discard).await?;
    Ok(Discarded { discarded, next })
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
