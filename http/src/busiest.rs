//! The busiest queues, locks, leases and tasks, for overviews such as `sexton top`, which requests them once a second.
//!
//! The work for an answer is bounded: if there are more than 8192 queues, each answer covers a share of them, and includes the position
//! at which the next answer continues.

use crate::call::Call;
use crate::lease_look;
use crate::listing;
use crate::problem::Problem;
use crate::queue_look::queue_shown;
use crate::route::{Docs, Large, Query, Route};
use crate::scope::Scope;
use crate::task_look::Task;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sexton::actors::lock::{Contended, Ranking};
use sexton::actors::queue::QueueView;
use sexton::clock::Timestamp;
use sexton::ids::Slot;
use sexton::refusal::Reason;
use sexton_api::lease::Lease;
use sexton_api::list::After;
use sexton_api::name::EntryNames;
use sexton_api::queue::Queue;
use sexton_api::value::Number;

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get(
        "/v1/busiest",
        Scope::Read,
        busiest,
        Docs {
            id: "busiest",
            summary: "List the busiest queues, the most contended locks, and active leases and tasks",
            more: "Meant for monitoring by repeated polling. If there are more than 8192 queues, each answer covers a share of them, and `next` is to be passed as `after` to get the following share. At most 8192 locks with waiters, 8192 active leases and 8192 tasks in progress are examined.",
            answer: "Queues and locks, the busiest first; leases and tasks, the running ones first.",
        },
        &[Reason::Failed, Reason::Large],
    )]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Share {
    /// The maximum length of each of the lists `queues`, `locks`, `leases` and `tasks`.
    #[serde(default)]
    limit: Number<u32, 1, 100, 20>,
    /// The `next` of the previous answer, to continue with the next queues.
    after: Option<After>,
}

/// The state of a queue, and how long its oldest ready job has waited.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Busy {
    #[serde(flatten)]
    queue: Queue,
    /// Milliseconds since the oldest ready job was added; null if none is ready. Only the first job in line of each of the
    /// 64 most urgent priorities is considered.
    oldest_ms: Option<u64>,
}

/// A lock with waiters, and its owner.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ContendedLock {
    #[serde(flatten)]
    names: EntryNames,
    /// The number of waiters.
    waiting: u32,
    /// Milliseconds until the lock expires unless it is renewed; null if it ends only with the process that it is bound to.
    remaining_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Busiest {
    queues: Vec<Busy>,
    /// The `after` for the next request; null after the last share.
    next: Option<After>,
    locks: Vec<ContendedLock>,
    /// The number of locks with waiters.
    locks_all: u32,
    /// Leases with a running pass, the longest-running first; then leases whose next pass is requested or owed; then leases with
    /// a schedule, by their next date.
    leases: Vec<Lease>,
    /// Whether there are active leases besides those in `leases`.
    leases_more: bool,
    /// Running tasks, the longest-running first; then tasks that wait for their next burst (one run of the command), the soonest first;
    /// then tasks that are ready for their first burst.
    tasks: Vec<Task>,
    /// Whether there are active tasks besides those in `tasks`.
    tasks_more: bool,
}

async fn busiest(call: &Call, Query(share): Query<Share>) -> Result<Large<Busiest>, Problem> {
    let place = call.room().large().await?;
    let from = Slot(share.after.map_or(0, |after| after.0));
    let (queues, next) = call.node.queues().busiest(from, share.limit.0).await?;
    let (locks, locks_all) = call.locks().contended(share.limit.0, Ranking::Waiting).await?;
    let active = call.node.leases().active(share.limit.0).await?;
    let leases_more = active.more;
    let leases = lease_look::shown_all(call, active.leases).await?;
    let (tasks, tasks_more) = call.node.tasks().active(share.limit.0).await?;
    let now = call.node.now();
    let busiest = Busiest {
        queues: queues.iter().map(|queue| busy(queue, now)).collect(),
        next: listing::shown(next),
        locks: locks.into_iter().map(|lock| contended_lock(lock, now)).collect(),
        locks_all,
        leases,
        leases_more,
        tasks: tasks.iter().map(|task| Task::of(call, task)).collect(),
        tasks_more,
    };
    Ok(Large(busiest, place))
}

fn busy(view: &QueueView, now: Timestamp) -> Busy {
    Busy {
        queue: queue_shown(view, now),
        oldest_ms: view.oldest.map(|added| now.0.saturating_sub(added.0)),
    }
}

fn contended_lock(lock: Contended, now: Timestamp) -> ContendedLock {
    let Contended { key, index, owner, waiting, since: _, deadline } = lock;
    ContendedLock {
        names: EntryNames { key, index, owner },
        waiting,
        remaining_ms: deadline.map(|it| it.0.saturating_sub(now.0)),
    }
}
