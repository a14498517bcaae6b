//! Queues: their state, the state of their jobs, and their administration.

use crate::binding::Extent;
use crate::ids::Token;
pub use crate::job::Phase;
use crate::job::{Deleted, JobText};
use crate::list::{After, Limit};
pub use crate::queue_name::{NoQueueName, QueueName};
use crate::refusal::Reason;
use crate::refusal::Reason::{Absent, Claimed, DiskFull, Interrupted, Large};
use crate::request::{Docs, Input, Request, Route, Scope, is_default};
use crate::value::{Number, Span};
use serde::{Deserialize, Serialize};

/// Deletes an unclaimed job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "JobId"))]
pub struct Delete {
    /// The job's id.
    pub id: u64,
}

impl Request for Delete {
    type Answer = Deleted;

    const ROUTE: Route = Route::post(
        "/v1/queues/delete",
        Scope::Use,
        Docs {
            id: "delete_job",
            summary: "Delete an unclaimed job",
            more: "A claimed job can only be ended with the token of its claim: see `ack`.",
            answer: "The job has been deleted.",
        },
        &[Absent, Claimed, Reason::Failed],
    )
    .with(Input::Body)
    .once();
}

/// Makes buried or delayed jobs ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Kick {
    /// The queue of the jobs.
    pub queue: QueueName,
    /// The maximum number of jobs to kick.
    #[serde(default, skip_serializing_if = "is_default")]
    pub count: Number<u32, 1, 100_000, 1>,
}

impl Request for Kick {
    type Answer = Kicked;

    const ROUTE: Route = Route::post(
        "/v1/queues/kick",
        Scope::Use,
        Docs {
            id: "kick_jobs",
            summary: "Make buried or delayed jobs ready",
            more: "Kicks buried jobs, the oldest first, then abandoned and quarantined ones. If there are none of these, kicks delayed jobs, in the order in which they are due, then jobs that wait for a retry. Each job is treated as if it had never been tried.",
            answer: "The number of jobs made ready, which may be 0.",
        },
        &[DiskFull, Reason::Failed, Interrupted],
    )
    .with(Input::Body)
    .once();
}

/// Makes one job ready that is neither ready nor claimed.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "JobId"))]
pub struct KickJob {
    /// The job's id.
    pub id: u64,
}

impl Request for KickJob {
    type Answer = Kicked;

    const ROUTE: Route = Route::post(
        "/v1/queues/kick-job",
        Scope::Use,
        Docs {
            id: "kick_job",
            summary: "Make one job ready",
            more: "The job must be buried, abandoned, quarantined, delayed or waiting for a retry. It is treated as if it had never been tried.",
            answer: "1, or 0 if the job was already ready.",
        },
        &[Absent, Claimed, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once();
}

/// The answer to [`Kick`] and [`KickJob`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Kicked {
    /// The number of jobs made ready.
    pub kicked: u32,
}

/// Cancels a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Cancel {
    /// The job's id.
    pub id: u64,
    /// The reason, shown with the job; of more than 1,000 bytes, the beginning and the end are stored.
    pub error: Option<String>,
}

impl Request for Cancel {
    type Answer = Cancelled;

    const ROUTE: Route = Route::post(
        "/v1/queues/cancel",
        Scope::Use,
        Docs {
            id: "cancel_job",
            summary: "Cancel a job",
            more: "The job is abandoned, and its claim ends. A claim that is bound to a process, as those of `sexton work` are, ends only when the process has ended, or when the job is completed, failed or given back. Until then, `touch` and `report` are refused, and `sexton work` stops its command; if `sexton work` is gone, the coordinator stops it.",
            answer: "1, or 0 if the job was already abandoned or cancelled.",
        },
        &[Absent, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if("the job's claim is bound to a process");
}

/// The answer to [`Cancel`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Cancelled {
    /// The number of jobs cancelled. If the claim of a job is bound to a process, the job is abandoned only once the claim has ended.
    pub cancelled: u32,
    /// The process that still works on the job, whose end the claim waits for; null if there is none.
    pub process: Option<String>,
    /// Whether that process is being stopped: by the coordinator, or by the process that runs it, which is alive.
    pub stopping: bool,
}

/// Ends the requests of a process that wait for a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Withdraw {
    /// The process, given by the full id of its record.
    pub process: String,
}

impl Request for Withdraw {
    type Answer = Withdrawn;

    const ROUTE: Route = Route::post(
        "/v1/queues/withdraw",
        Scope::Run,
        Docs {
            id: "withdraw_pops",
            summary: "End the requests of a process that wait for a job",
            more: "Each request to `pop` whose claims would be bound to this process, and that waits, is answered with an empty list. A worker that is about to give jobs back does this first, so that it does not claim them again. A request that arrives later is not affected.",
            answer: "No request that arrived before is given a job any more.",
        },
        &[Reason::Failed],
    )
    .with(Input::Body);
}

/// The answer to [`Withdraw`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Withdrawn {
    /// Always true.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = true)))]
    pub withdrawn: bool,
}

/// Makes the abandoned jobs of a queue ready.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "QueueName"))]
pub struct Repush {
    /// The queue.
    pub queue: QueueName,
}

impl Request for Repush {
    type Answer = Repushed;

    const ROUTE: Route = Route::post(
        "/v1/queues/repush",
        Scope::Use,
        Docs {
            id: "repush_jobs",
            summary: "Make the abandoned jobs of a queue ready",
            more: "The jobs are treated as if they had never been tried.",
            answer: "The number of jobs made ready, which may be 0.",
        },
        &[DiskFull, Reason::Failed, Interrupted],
    )
    .with(Input::Body)
    .once();
}

/// The answer to [`Repush`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Repushed {
    /// The number of jobs made ready.
    pub repushed: u32,
}

/// Deletes every job of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "QueueName"))]
pub struct Flush {
    /// The queue.
    pub queue: QueueName,
}

impl Request for Flush {
    type Answer = Flushed;

    const ROUTE: Route = Route::post(
        "/v1/queues/flush",
        Scope::Use,
        Docs {
            id: "flush_queue",
            summary: "Delete every job of a queue",
            more: "Claimed jobs are deleted, too.",
            answer: "The number of jobs deleted, which may be 0.",
        },
        &[Reason::Failed, Interrupted],
    )
    .with(Input::Body)
    .once()
    .run_if("the claim of one of the jobs is bound to a process");
}

/// The answer to [`Flush`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Flushed {
    /// The number of jobs deleted.
    pub flushed: u32,
}

/// Prevents claims from a queue for a while.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Pause {
    /// The queue.
    pub queue: QueueName,
    /// The length of the pause in milliseconds; 0 ends a pause.
    pub ms: Span,
}

impl Request for Pause {
    type Answer = Paused;

    const ROUTE: Route = Route::post(
        "/v1/queues/pause",
        Scope::Use,
        Docs {
            id: "pause_queue",
            summary: "Pause a queue",
            more: "The queue must exist: it does while it has jobs, a client waits for its jobs, or it is paused or throttled. While a queue is paused, jobs can be added but not claimed. A length of 0 ends the pause.",
            answer: "The length of the pause.",
        },
        &[Absent, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once();
}

/// The answer to [`Pause`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Paused {
    /// The queue.
    pub queue: QueueName,
    /// The length of the pause, in milliseconds; 0 if the queue is not paused.
    pub paused_ms: u64,
}

/// The parameters of a bulk operation: the filter, the maximum number of jobs, and where to continue.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct BulkSelection {
    /// Only jobs of this queue.
    pub queue: Option<QueueName>,
    /// Only jobs of this type.
    pub r#type: Option<String>,
    /// Only jobs in this phase; abandoned, buried or quarantined ones if left out.
    pub phase: Option<Phase>,
    /// Only jobs whose last error contains this text.
    pub error: Option<String>,
    /// The maximum number of jobs to change.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit: Number<u32, 1, 1000, 1000>,
    /// The `next` of the previous answer, to continue after it.
    pub after: Option<Number<u32, 0, { u32::MAX as u64 }>>,
}

/// Makes jobs that match a filter ready, as if they had never been tried.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Retry(pub BulkSelection);

impl Request for Retry {
    type Answer = Retried;

    const ROUTE: Route = Route::post(
        "/v1/queues/retry",
        Scope::Use,
        Docs {
            id: "retry_jobs",
            summary: "Retry jobs that match a filter",
            more: "Makes the jobs ready, as if they had never been tried. A request handles up to `limit` jobs, and the answer shows where to continue.",
            answer: "The number of jobs made ready, and where to continue.",
        },
        &[DiskFull, Reason::Failed],
    )
    .with(Input::Body);
}

/// The answer to [`Retry`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Retried {
    /// The number of jobs made ready.
    pub retried: u32,
    /// The `after` for the next request, with the same filter; null once all jobs have been examined.
    pub next: Option<u32>,
}

/// Deletes jobs that match a filter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Discard(pub BulkSelection);

impl Request for Discard {
    type Answer = Discarded;

    const ROUTE: Route = Route::post(
        "/v1/queues/discard",
        Scope::Use,
        Docs {
            id: "discard_jobs",
            summary: "Delete jobs that match a filter",
            more: "Claimed jobs are not deleted. A request handles up to `limit` jobs, and the answer shows where to continue.",
            answer: "The number of jobs deleted, and where to continue.",
        },
        &[Reason::Failed],
    )
    .with(Input::Body);
}

/// The answer to [`Discard`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Discarded {
    /// The number of jobs deleted.
    pub discarded: u32,
    /// The `after` for the next request, with the same filter; null once all jobs have been examined.
    pub next: Option<u32>,
}

/// Lists queues.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct List {
    /// Only queues of this tenant. An empty string means the default tenant.
    pub tenant: Option<String>,
    /// Only queues of this type.
    pub r#type: Option<String>,
    /// The maximum number of queues to return.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit: Limit,
    /// The value of `next` in the previous answer, to get the page that follows.
    pub after: Option<After>,
}

impl Request for List {
    type Answer = Queues;

    const ROUTE: Route = Route::get(
        "/v1/queues",
        Scope::Read,
        Docs {
            id: "list_queues",
            summary: "List queues, with the number of jobs in each phase",
            more: "A queue exists while it has jobs, is paused or throttled, or has clients that use it. Long lists are returned in pages. Together, the pages are not a consistent snapshot, but a queue that exists throughout is listed exactly once. The queues of a page are sorted by name.",
            answer: "Queues.",
        },
        &[Reason::Failed, Large],
    )
    .with(Input::Query);
}

/// A page of a list of queues.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Queues"))]
pub struct Queues<Q = Queue> {
    /// The queues.
    pub queues: Vec<Q>,
    /// The value to pass as `after` in the next request, with the same filter; null on the last page.
    pub next: Option<After>,
}

/// The state of a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Queue {
    /// The name of the queue.
    pub queue: QueueName,
    /// The tenant; empty for the default one.
    pub tenant: String,
    /// The type of the jobs.
    pub r#type: String,
    /// The number of jobs that can be claimed.
    pub ready: u32,
    /// The number of ready jobs with a priority below 1024.
    pub urgent: u32,
    /// The number of jobs that become ready after a delay.
    pub delayed: u32,
    /// The number of jobs that are being worked on.
    pub claimed: u32,
    /// The number of jobs that failed or were deferred and will be retried.
    pub retrying: u32,
    /// The number of jobs set aside by clients.
    pub buried: u32,
    /// The number of jobs that used up their tries or were cancelled.
    pub abandoned: u32,
    /// The number of jobs set aside after too many crashes.
    pub quarantined: u32,
    /// The number of clients that wait for a job of the queue.
    pub waiting: u32,
    /// The number of beanstalkd clients that use the queue.
    pub using: u32,
    /// The number of beanstalkd clients that watch the queue.
    pub watching: u32,
    /// The number of jobs added since the queue was created or the coordinator started, whichever is later, including jobs
    /// that existed at startup.
    pub total: u64,
    /// The number of jobs deleted since the queue was created or the coordinator started, whichever is later.
    pub deletes: u64,
    /// The number of pauses since the queue was created or the coordinator started, whichever is later.
    pub pauses: u64,
    /// Milliseconds until the pause of the queue ends; null if the queue is not paused.
    pub paused_ms: Option<u64>,
    /// Milliseconds until the throttle allows a claim; null if one is allowed now.
    pub throttled_ms: Option<u64>,
}

/// Gets a queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Get {
    /// The name of the queue.
    pub queue: QueueName,
}

impl Request for Get {
    type Answer = Queue;

    const ROUTE: Route = Route::get(
        "/v1/queues/queue",
        Scope::Read,
        Docs { id: "queue", summary: "Get a queue", more: "", answer: "The queue." },
        &[Absent, Reason::Failed],
    )
    .with(Input::Query);
}

/// Lists jobs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct ListJobs {
    /// Only jobs of this queue.
    pub queue: Option<QueueName>,
    /// Only jobs of this type.
    pub r#type: Option<String>,
    /// Only jobs in this phase.
    pub phase: Option<Phase>,
    /// Only jobs whose last error contains this text.
    pub error: Option<String>,
    /// Only jobs whose claim is bound to the process with this id.
    pub process: Option<String>,
    /// The maximum number of jobs to return.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limit: Limit,
    /// The value of `next` in the previous answer, to get the page that follows.
    pub after: Option<After>,
}

impl Request for ListJobs {
    type Answer = Jobs;

    const ROUTE: Route = Route::get(
        "/v1/queues/jobs",
        Scope::Read,
        Docs {
            id: "list_jobs",
            summary: "List jobs",
            more: "Long lists are returned in pages. Together, the pages are not a consistent snapshot, but a job that does not change is listed exactly once. The jobs of a page are sorted by id. Bodies are not included: see `/v1/queues/job`.",
            answer: "Jobs.",
        },
        &[Reason::Failed, Large],
    )
    .with(Input::Query);
}

/// A page of a list of jobs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Jobs"))]
pub struct Jobs<J = Job> {
    /// The jobs.
    pub jobs: Vec<J>,
    /// The value to pass as `after` in the next request, with the same filter; null on the last page.
    pub next: Option<After>,
}

/// The state of a job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[expect(clippy::struct_excessive_bools, reason = "each is a separate JSON field")]
pub struct Job {
    /// The job's id.
    pub id: u64,
    /// The queue of the job.
    pub queue: QueueName,
    /// The phase of the job.
    pub phase: Phase,
    /// The priority: 0 is the most urgent, and anything below 1024 counts as urgent.
    pub priority: u32,
    /// Milliseconds since the job was added.
    pub age_ms: u64,
    /// Milliseconds since the job was claimed, however often the claim was renewed; null if it is not claimed.
    pub claimed_ms: Option<u64>,
    /// Milliseconds until the job's delay or claim ends, or until it is retried or pruned; null if none applies.
    pub remaining_ms: Option<u64>,
    /// The most recent delay, in milliseconds.
    pub delay_ms: u64,
    /// How long a claim of the job lasts, in milliseconds; 0 if the setting of its type applies.
    pub ttr_ms: u64,
    /// The number of claims since the job was added or kicked, not counting claims that ended with a deferral.
    pub attempts: u32,
    /// The total number of claims.
    pub claims: u32,
    /// The number of claims that expired.
    pub timeouts: u32,
    /// The number of times the job was released or deferred.
    pub releases: u32,
    /// The number of times the job was buried.
    pub buries: u32,
    /// The number of times the job was kicked.
    pub kicks: u32,
    /// The token of the job's claim; null if it is not claimed.
    pub token: Option<Token>,
    /// Whether the job is tried again after it fails or its claim expires. If not, it is removed.
    pub retries: bool,
    /// Whether the job survives a restart of the coordinator.
    pub durable: bool,
    /// The size of the body in bytes.
    pub bytes: u64,
    /// The error of the last failure or deferral, the reason for the cancellation, or how the process of the last claim
    /// ended; null if there is none.
    pub error: Option<String>,
    /// The number of crashes in a row that ended its last claims.
    pub crashes: u32,
    /// The process that works on the job, if its worker named one; null otherwise.
    pub command: Option<String>,
    /// The process that the claim is bound to; null if there is none.
    pub process: Option<String>,
    /// Whether the claim ends when the process itself exits or when its whole tree has exited; null if the claim is not
    /// bound to a process.
    pub release: Option<Extent>,
    /// Whether the process tree is killed when the claim expires, before the job becomes available again.
    pub kill_before_grant: bool,
    /// Whether the claim has expired and its process is being killed.
    pub fencing: bool,
    /// Whether the job has been cancelled but stays claimed until its process has ended.
    pub cancelled: bool,
    /// The progress in percent, as reported by the worker; null if it reported none.
    pub percent: Option<u8>,
    /// The last text reported by the worker; null if it reported none.
    pub report: Option<String>,
}

/// Gets a job with its body.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct GetJob {
    /// The job's id.
    pub id: u64,
}

impl Request for GetJob {
    type Answer = JobWithBody;

    const ROUTE: Route = Route::get(
        "/v1/queues/job",
        Scope::Read,
        Docs { id: "job", summary: "Get a job with its body", more: "", answer: "The job." },
        &[Absent, Reason::Failed, Large],
    )
    .with(Input::Query);
}

/// The answer to [`GetJob`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct JobWithBody {
    /// The state of the job.
    #[serde(flatten)]
    pub job: Job,
    /// The body.
    #[serde(flatten)]
    pub text: JobText,
}

/// Gets a random queue from which a job can be claimed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Next {
    /// A comma-separated list of at most 1,000 job types. Only queues of these types are considered; if left out or empty,
    /// all queues are.
    #[serde(default, skip_serializing_if = "is_default")]
    pub types: String,
}

impl Request for Next {
    type Answer = Chosen;

    const ROUTE: Route = Route::get(
        "/v1/queues/next",
        Scope::Read,
        Docs {
            id: "next_queue",
            summary: "Get a random queue from which a job can be claimed",
            more: "Each such queue is equally likely. Queues that are paused, throttled or read-only are excluded.",
            answer: "The queue.",
        },
        &[Absent, Reason::Failed],
    )
    .with(Input::Query);
}

/// The answer to [`Next`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Next"))]
pub struct Chosen {
    /// The queue.
    pub queue: QueueName,
    /// The tenant; empty for the default one.
    pub tenant: String,
    /// The type of the jobs.
    pub r#type: String,
}
