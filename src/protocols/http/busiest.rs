//! What has the most to do, for those who look at the whole: `sexton top` asks it once a second.
//!
//! Never here: a walk over all there is. Of very many queues each answer looks at a share, and says where to go on.

use crate::actors::lock::{Contended, Ranking};
use crate::actors::queue::QueueView;
use crate::clock::Timestamp;
use crate::ids::Slot;
use crate::protocols::http::call::Call;
use crate::protocols::http::lease_look::Lease;
use crate::protocols::http::listing::After;
use crate::protocols::http::problem::Problem;
use crate::protocols::http::queue_look::{Queue, queue_shown};
use crate::protocols::http::route::{Large, Query, Route, Words};
use crate::protocols::http::schema::{EntryNames, Number};
use crate::protocols::http::task_look::Task;
use crate::refusal::Reason;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) fn routes() -> Vec<Route> {
    vec![Route::get(
        "/v1/busiest",
        busiest,
        Words {
            id: "busiest",
            summary: "Which queues have the most jobs, which locks are waited for most, which leases and tasks run",
            more: "For those who look at the whole again and again. Of more than 8192 queues a share is looked at, and `next` goes on with the next; of more than 8192 locks that are waited for, and of leases and tasks, some.",
            answer: "Queues and locks, those with the most first; leases and tasks, those that run first.",
        },
        &[Reason::Failed, Reason::Large],
    )]
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Share {
    /// The most queues, locks, leases and tasks to answer.
    #[serde(default)]
    limit: Number<u32, 1, 100, 20>,
    /// Where to go on with queues: `next` of the answer before.
    #[schemars(with = "Option<String>", regex(pattern = "^[0-9]{1,10}$"))]
    after: Option<After>,
}

/// What is known of a queue, and how long its jobs have waited.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Busy {
    #[serde(flatten)]
    queue: Queue,
    /// Milliseconds since the oldest ready job was added, of those that come first in the 64 most urgent priorities; null if none is ready.
    oldest_ms: Option<u64>,
}

/// A lock that is waited for, and who holds it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Wanted {
    #[serde(flatten)]
    names: EntryNames,
    /// Who waits for it.
    waiting: u32,
    /// Milliseconds until it passes on, if nobody renews it.
    remaining_ms: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Busiest {
    queues: Vec<Busy>,
    /// What `after` of the next request is; null after the last share.
    next: Option<String>,
    locks: Vec<Wanted>,
    /// Locks that are waited for.
    locks_all: u32,
    /// Leases with a pass that runs, the longest first; then those with somebody next; then by the date on which they ask.
    leases: Vec<Lease>,
    /// Whether there are more of these.
    leases_more: bool,
    /// Tasks that run, the longest first; then those that wait for their next burst; then those that have not begun, and why.
    tasks: Vec<Task>,
    /// Whether there are more of these.
    tasks_more: bool,
}

async fn busiest(call: &Call, Query(share): Query<Share>) -> Result<Large<Busiest>, Problem> {
    let place = call.room().large().await?;
    let from = Slot(share.after.map_or(0, |after| after.0));
    let (queues, next) = call.node.queues().busiest(from, share.limit.0).await?;
    let (locks, locks_all) = call
        .locks()
        .contended(share.limit.0, Ranking::Waiting)
        .await?;
    let stirring = call.node.leases().stirring(share.limit.0).await?;
    let leases_more = stirring.more;
    let leases = Lease::of_all(call, stirring.leases).await?;
    let (tasks, tasks_more) = call.node.tasks().stirring(share.limit.0).await?;
    let now = call.node.now();
    let busiest = Busiest {
        queues: queues.iter().map(|queue| busy(queue, now)).collect(),
        next: next.map(|slot| slot.0.to_string()),
        locks: locks.into_iter().map(|lock| wanted(lock, now)).collect(),
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

fn wanted(lock: Contended, now: Timestamp) -> Wanted {
    let Contended {
        key,
        index,
        owner,
        waiting,
        since: _,
        deadline,
    } = lock;
    Wanted {
        names: EntryNames { key, index, owner },
        waiting,
        remaining_ms: deadline.map(|it| it.0.saturating_sub(now.0)),
    }
}
