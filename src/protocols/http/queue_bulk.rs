//! Queues over HTTP, what is done with many jobs that a filter lets through: tried again, or ended. Jobs are looked for share by
//! share, and others get their turn in between. The members are those of `docs/protocols/http.md`, "Queues".

use crate::actors::queue::{JobSelection, Phase, QueueName};
use crate::protocols::http::access::Scope;
use crate::protocols::http::call::Call;
use crate::protocols::http::listing::{self, After};
use crate::protocols::http::problem::Problem;
use crate::protocols::http::route::{Body, Json, Route, Words};
use crate::protocols::http::schema::Number;
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How many jobs are changed in one turn.
const SHARE: u32 = 100;

/// How many shares are looked at for one answer: with those of a selection, some hundred thousand jobs.
const SHARES_MAX: u32 = 16;

pub(crate) fn routes() -> Vec<Route> {
    use Reason::{DiskFull, Failed};
    vec![
        Route::post(
            "/v1/queues/retry",
            Scope::Use,
            retry,
            Words {
                id: "retry_jobs",
                summary: "Make jobs ready that a filter lets through",
                more: "As if they had never been tried. An answer is about up to `limit` jobs, and says where to go on.",
                answer: "How many.",
            },
            &[DiskFull, Failed],
        ),
        Route::post(
            "/v1/queues/discard",
            Scope::Use,
            discard,
            Words {
                id: "discard_jobs",
                summary: "End jobs that a filter lets through",
                more: "None that is claimed. An answer is about up to `limit` jobs, and says where to go on.",
                answer: "How many.",
            },
            &[Failed],
        ),
    ]
}

/// Which jobs.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct Which {
    /// Only jobs of this queue.
    pub(crate) queue: Option<QueueName>,
    /// Only jobs of this type.
    pub(crate) r#type: Option<String>,
    /// Only jobs in this phase; if left out, those that are abandoned or buried.
    pub(crate) phase: Option<Phase>,
    /// Only jobs whose newest error has this in it.
    pub(crate) error: Option<String>,
    /// Jobs at most.
    #[serde(default)]
    pub(crate) limit: Number<u32, 1, 1000, 1000>,
    /// Where to go on: `next` of the answer before.
    pub(crate) after: Option<After>,
}

/// What is done with jobs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    Retry,
    Discard,
}

impl What {
    /// The phases in which jobs can be for that.
    const fn phases(self) -> &'static [Phase] {
        use Phase::{Abandoned, Buried, Delayed, Ready, Retrying};
        match self {
            Self::Retry => &[Delayed, Retrying, Buried, Abandoned],
            Self::Discard => &[Ready, Delayed, Retrying, Buried, Abandoned],
        }
    }

    const fn must_be(self) -> &'static str {
        match self {
            Self::Retry => "must be delayed, retrying, buried or abandoned",
            Self::Discard => "must be ready, delayed, retrying, buried or abandoned",
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Retried {
    /// Jobs that are ready now.
    retried: u32,
    /// What `after` of the next request is, with the same filter; null after the last.
    next: Option<u32>,
}

/// Makes jobs ready.
async fn retry(call: &Call, Body(which): Body<Which>) -> Result<Json<Retried>, Problem> {
    let (retried, next) = each(call, which, What::Retry).await?;
    Ok(Json(Retried { retried, next }))
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Discarded {
    /// Jobs that ended.
    discarded: u32,
    /// What `after` of the next request is, with the same filter; null after the last.
    next: Option<u32>,
}

/// Ends jobs.
async fn discard(call: &Call, Body(which): Body<Which>) -> Result<Json<Discarded>, Problem> {
    let (discarded, next) = each(call, which, What::Discard).await?;
    Ok(Json(Discarded { discarded, next }))
}

/// Does it to jobs; to how many, and where to go on.
pub(crate) async fn each(
    call: &Call,
    which: Which,
    what: What,
) -> Result<(u32, Option<u32>), Problem> {
    let phases = match which.phase {
        None => vec![Phase::Buried, Phase::Abandoned],
        Some(phase) if what.phases().contains(&phase) => vec![phase],
        Some(_) => {
            return Err(Problem::field("phase", what.must_be()));
        }
    };
    let queues = call.queues();
    let mut next = Some(listing::slot(which.after));
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
            What::Retry => queues.kick_jobs(&ids).await?,
            What::Discard => queues.delete_jobs(&ids).await?,
        };
        next = after;
    }
    Ok((done, next.map(|slot| slot.0)))
}
