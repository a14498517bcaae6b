//! Jobs: adding, claiming and completing them, and their results.

use crate::binding::Extent;
use crate::bytes::Bytes;
use crate::ids::Token;
use crate::member::byte_members;
use crate::queue_name::QueueName;
use crate::refusal::Reason;
use crate::refusal::Reason::{
    Absent, DiskFull, Draining, Ended, Fencing, Full, ReadOnly, Stale, TooBig, Waits,
};
use crate::request::{Docs, Input, Request, Route, Scope, is_default};
use crate::value::{List, Number, Span};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The phase of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Phase {
    /// It can be claimed.
    Ready,
    /// It becomes ready after a delay.
    Delayed,
    /// A worker has claimed it.
    Claimed,
    /// It was buried by a client, and waits to be kicked.
    Buried,
    /// It will not be tried again unless it is kicked: its last try did not succeed, or it was cancelled.
    Abandoned,
    /// It failed or was deferred, and waits to be tried again.
    Retrying,
    /// It was set aside: too many of its claims ended with a crash. It is not tried again unless it is kicked, and is not removed by time.
    Quarantined,
}

impl Phase {
    /// Returns the phase in one word, as it is written in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Claimed => "claimed",
            Self::Buried => "buried",
            Self::Abandoned => "abandoned",
            Self::Retrying => "retrying",
            Self::Quarantined => "quarantined",
        }
    }

    /// Returns whether a job in this phase is over unless it is kicked: it is neither waiting nor being worked on.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Abandoned | Self::Quarantined)
    }

    /// Returns whether a job in this phase can be claimed, now or later, without being kicked. No duplicate of such a job is added.
    pub const fn is_waiting(self) -> bool {
        matches!(self, Self::Ready | Self::Delayed | Self::Retrying)
    }
}

byte_members! {
    /// The body of a job.
    JobText {
        /// The job's body.
        body: Bytes,
    }

    /// The output of a command.
    OutputText {
        /// The end of the output.
        output: Bytes,
    }
}

/// The condition under which a change of a claimed job requires [`Scope::Run`].
const IF_BOUND: &str = "the claim is bound to a process";

/// The maximum time for which a deduplication key is remembered, in milliseconds: 366 days.
pub const UNIQUE_MS_MAX: u64 = 366 * 86_400_000;

/// The maximum time for which a result is kept, in milliseconds: 30 days.
pub const RESULT_MS_MAX: u64 = 30 * 86_400_000;

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes fields by reference")]
const fn is_yes(value: &bool) -> bool {
    *value
}

/// A job to add.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Push {
    /// The queue that the job is added to.
    pub queue: QueueName,
    /// The job's body.
    pub body: Bytes,
    /// The priority: 0 is the most urgent, and anything below 1024 counts as urgent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: Number<u32, 0, { u32::MAX as u64 }, 1024>,
    /// Milliseconds until the job is ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_ms: Span,
    /// Milliseconds that a claim of the job lasts; 0 for the time set for the job's type.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ttr_ms: Span,
    /// The deduplication key: the job is not added while the queue has an unclaimed job with the same key.
    pub dedup: Option<String>,
    /// Milliseconds for which no other job with the same deduplication key is added to the queue, whatever happens to this job; 0 for no
    /// such time. Without `dedup`, the key is derived from the body.
    #[serde(default, skip_serializing_if = "is_default")]
    pub unique_for_ms: Number<u64, 0, UNIQUE_MS_MAX>,
    /// Whether the job is retried after it failed, or after a claim ended without a report. If false, it runs at most once.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub retries: bool,
    /// The root job that the job comes from.
    pub root: Option<RootJob>,
    /// Whether the job is itself the root job in `root`. If so, adding it also registers the root job.
    #[serde(default, skip_serializing_if = "is_default")]
    pub is_root: bool,
    /// The number of work items that the job counts as for a throttle on its queue.
    #[serde(default, skip_serializing_if = "is_default")]
    pub items: Number<u32, 1, { u32::MAX as u64 }, 1>,
}

/// The root job that a job comes from.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RootJob {
    /// The signature of the root job. Within a queue, a root job replaces older ones with the same signature.
    pub signature: String,
    /// The time of the root job, in any unit; larger is newer.
    pub at: u64,
}

impl Request for Push {
    type Answer = Pushed;

    const ROUTE: Route = Route::post(
        "/v1/queues/push",
        Scope::Use,
        Docs {
            id: "push_job",
            summary: "Add a job",
            more: "With `dedup`, the job is added only if no unclaimed job of the queue has the same key. With `unique_for_ms`, the key also stays reserved for that time, whatever happens to the job.",
            answer: "The id of the job, or of the existing job with the same key.",
        },
        &[ReadOnly, TooBig, Draining, Full, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once();
}

/// The answer to [`Push`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Pushed {
    /// The job's id.
    pub id: u64,
    /// Whether the job was added; if not, `id` is that of the existing job with the same deduplication key.
    pub new: bool,
    /// The phase of the existing job, if this one was not added; left out if that job is done or was removed, and in answers about batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
}

/// Adds several jobs atomically.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PushAll {
    /// The jobs, of which all or none are added.
    pub jobs: List<Push, 1000>,
}

impl Request for PushAll {
    type Answer = PushedAll;

    const ROUTE: Route = Route::post(
        "/v1/queues/push-all",
        Scope::Use,
        Docs {
            id: "push_jobs",
            summary: "Add several jobs atomically",
            more: "Either all jobs are added or none, even if the coordinator crashes; only duplicates are left out. If several jobs of a queue have the same deduplication key, the last one is added.",
            answer: "The id of each job, or of the existing job with the same key.",
        },
        &[ReadOnly, TooBig, Draining, Full, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once();
}

/// The answer to [`PushAll`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct PushedAll {
    /// The results, in the order of the request.
    pub jobs: Vec<Pushed>,
}

/// Registers a root job, which makes the jobs of older root jobs superfluous.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RegisterRoot {
    /// The queue of the jobs.
    pub queue: QueueName,
    /// The signature of the root job. Within a queue, a root job replaces older ones with the same signature.
    pub signature: String,
    /// The time of the root job, in any unit; larger is newer.
    pub at: u64,
}

impl Request for RegisterRoot {
    type Answer = RootRegistered;

    const ROUTE: Route = Route::post(
        "/v1/queues/register",
        Scope::Use,
        Docs {
            id: "register_root_job",
            summary: "Register a root job, which makes the jobs of older root jobs with its signature superfluous",
            more: "If a worker claims a superfluous job, `duplicate` is true in the answer. The root job is remembered for 28 days.",
            answer: "Whether the root job is newer than every known one with its signature.",
        },
        &[Full, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once();
}

/// The answer to [`RegisterRoot`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct RootRegistered {
    /// Whether neither this root job nor a newer one was known before.
    pub registered: bool,
}

/// Claims jobs, waiting for one if requested.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Pop {
    /// The names of the queues to claim from. Either this or `any` is required.
    pub queues: Option<List<QueueName, 1000>>,
    /// Claims from any queue that has a job; tenants take turns in proportion to their weights. Either this or `queues` is required.
    pub any: Option<AnyQueue>,
    /// The weight of each queue, in the order of `queues`: of the queues that have a job, one is chosen at random, in
    /// proportion to the weights. If left out, the queue with the most urgent job is used.
    pub weights: Option<List<Number<u32, 1, { u32::MAX as u64 }>, 1000>>,
    /// The maximum number of jobs to claim. A request that has to wait gets at most one.
    #[serde(default, skip_serializing_if = "is_default")]
    pub count: Number<u32, 1, 100, 1>,
    /// The maximum time to wait for a job, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u64, 0, 3600>,
    /// How long each claim lasts, in milliseconds. If 0, the time set by the job or its type applies or, with `process`, the
    /// claim has no time limit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claim_ms: Span,
    /// The process that the claims are bound to, given as the id of its record or a prefix of that id.
    pub process: Option<String>,
    /// How much of the process must have ended before the claims end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub release: Extent,
    /// Whether, once the claim has expired, the process tree is killed and its end confirmed before the job is available again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kill_before_grant: bool,
    /// Jobs to complete first, as with `ack`. Cannot be combined with `wait`.
    pub done: Option<List<JobClaim, 100>>,
}

impl Request for Pop {
    type Answer = Claims;

    const ROUTE: Route = Route::post(
        "/v1/queues/pop",
        Scope::Use,
        Docs {
            id: "pop_jobs",
            summary: "Claim jobs",
            more: "Claims the most urgent jobs of the named queues, at most `count`; among equally urgent jobs, the oldest first, unless a queue is configured for another order. With `weights`, the queue is drawn at random by weight. With `any`, tenants take turns. With `wait`, a request that finds no job is answered when there is one or the wait times out. A job claimed for a client that has closed the connection is given back, unless the request has an idempotency key. With `process`, a claim ends as soon as that process, or its tree, has exited, and not before unless `claim_ms` is set. With `done`, a worker completes its last job and claims its next one in a single request.",
            answer: "The claimed jobs; an empty list if none is ready.",
        },
        &[Stale, Waits, Draining, Absent, Ended, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if("`process` is set, or a claim in `done` is bound to a process");

    fn needs_run(&self) -> bool {
        self.process.is_some()
    }
}

/// A selection of queues by tenant and type.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct AnyQueue {
    /// The tenant whose queues are selected; empty for the default tenant. If left out, the queues of all tenants are.
    pub tenant: Option<String>,
    /// At most 100 types to exclude. Cannot be combined with `types`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub except: Vec<String>,
    /// The types to select. If left out, all types are, except those in `except` and those configured to be claimed only
    /// by name.
    pub types: Option<List<QueueName, 1000>>,
}

/// A claim, by the job and its token.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct JobClaim {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
}

/// The answer to [`Pop`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Claims {
    /// The claimed jobs; empty if none was ready.
    pub jobs: Vec<Claim>,
    /// Only with `done`: the jobs that could not be completed, and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_done: Option<Vec<NotDone>>,
    /// Only with `done`, if the claim was refused: the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Refusal>,
}

/// A claimed job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "Claim"))]
pub struct Claim {
    /// The job's id.
    pub id: u64,
    /// The token of the claim, which every request that uses the claim must present. Tokens only increase.
    pub token: Token,
    /// The queue of the job.
    pub queue: QueueName,
    /// The number of claims since the job was added or kicked, including this one.
    pub attempts: u32,
    /// Milliseconds until the claim ends; null if it ends only with its process.
    pub remaining_ms: Option<u64>,
    /// Whether the job is retried if it fails or its claim expires. If not, everything that ends the claim, except a release,
    /// also ends the job.
    pub retries: bool,
    /// Whether a newer root job has made this job superfluous. If so, complete it without processing it.
    pub duplicate: bool,
    /// The body.
    #[serde(flatten)]
    pub text: JobText,
}

/// A job that could not be completed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct NotDone {
    /// The job's id.
    pub id: u64,
    /// Why.
    #[serde(flatten)]
    pub refused: Refusal,
}

/// Why part of a request was not carried out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The machine-readable reason.
    #[cfg_attr(feature = "schemas", schemars(with = "Reason"))]
    pub reason: Cow<'static, str>,
    /// A description for users.
    pub detail: String,
}

/// Completes a claimed job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "JobClaim"))]
pub struct Ack {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
}

impl Request for Ack {
    type Answer = Deleted;

    const ROUTE: Route = Route::post(
        "/v1/queues/ack",
        Scope::Use,
        Docs {
            id: "ack_job",
            summary: "Complete a claimed job",
            more: "Requires the token of the job's claim.",
            answer: "The job has been completed and removed.",
        },
        &[Absent, Stale, Fencing, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// The answer to a request that removes a job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Deleted {
    /// Always 1.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = 1)))]
    pub deleted: u32,
}

/// Reports that a claimed job failed.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Fail {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
    /// Milliseconds until the job is retried. If left out, the back-off of the job's type applies or, if the type has none, the time left
    /// on the claim.
    pub retry_after_ms: Option<Span>,
    /// What went wrong, shown with the job; of more than 1,000 bytes, the beginning and the end are stored.
    pub error: Option<String>,
    /// Whether the work ended with a crash. After `crash_tries` crashes in a row, the job is quarantined.
    #[serde(default, skip_serializing_if = "is_default")]
    pub crashed: bool,
}

impl Request for Fail {
    type Answer = Changed;

    const ROUTE: Route = Route::post(
        "/v1/queues/fail",
        Scope::Use,
        Docs {
            id: "fail_job",
            summary: "Report that a claimed job failed",
            more: "The job is `retrying` and unclaimed until it is tried again: after `retry_after_ms` if given; otherwise after the back-off of its type; or, if its type has none, when its claim would have ended. If this was its last try, the job is abandoned; if it runs at most once, it is removed.",
            answer: "The state of the job.",
        },
        &[Absent, Stale, Fencing, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// Reports that a claimed job cannot be tried now.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Defer {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
    /// The reason, shown with the job; of more than 1,000 bytes, the beginning and the end are stored.
    pub error: Option<String>,
    /// Milliseconds until the job is retried. If left out, the delay grows each time the job is given back.
    pub retry_after_ms: Option<Span>,
    /// Whether the worker was interrupted, which says nothing about the job: it is ready again immediately, even if it is more than a day
    /// old. Cannot be combined with `retry_after_ms`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub interrupted: bool,
}

impl Request for Defer {
    type Answer = Changed;

    const ROUTE: Route = Route::post(
        "/v1/queues/defer",
        Scope::Use,
        Docs {
            id: "defer_job",
            summary: "Report that a claimed job cannot be tried now",
            more: "The job is `retrying` and unclaimed, as after a failure, but the claim does not count as a try. It waits for `retry_after_ms` if given, otherwise for a delay that grows each time the job is given back. If the job is more than a day old or was cancelled, this counts as a failure instead.",
            answer: "The state of the job.",
        },
        &[Absent, Stale, Fencing, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// Records the progress of a claimed job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Report {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
    /// The progress in percent; unchanged if left out.
    pub percent: Option<Number<u64, 0, 100>>,
    /// A description of the current step; of more than 1,000 bytes, the beginning and the end are stored. Unchanged if left out.
    pub text: Option<String>,
}

impl Request for Report {
    type Answer = Changed;

    const ROUTE: Route = Route::post(
        "/v1/queues/report",
        Scope::Use,
        Docs {
            id: "report_job",
            summary: "Report progress on a claimed job",
            more: "The progress is shown with the job until the job is claimed again. Answers without waiting for the disk.",
            answer: "The state of the job.",
        },
        &[Absent, Stale, Fencing, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// The state of a changed job.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Changed {
    /// The job's id.
    pub id: u64,
    /// The job's phase; null if the job no longer exists, either because it failed and runs at most once, or because this is a repeated
    /// request and the job was removed after the first request.
    pub phase: Option<Phase>,
    /// The number of claims since the job was added or kicked, without those that were deferred; null if the job no longer exists.
    pub attempts: Option<u32>,
    /// Milliseconds until the job's delay or claim ends, it is retried, or it is removed as abandoned; null if none of these applies.
    pub remaining_ms: Option<u64>,
}

/// Extends a claim.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "TouchJob"))]
pub struct Touch {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
    /// The process that the claim is bound to from now on, given by the id of its record or a prefix of that id; unchanged if left out.
    pub process: Option<String>,
    /// How much of the process must have ended before the claim ends.
    #[serde(default, skip_serializing_if = "is_default")]
    pub release: Extent,
    /// Whether, once the claim has expired, the process tree is killed and its end confirmed before the job is available again.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kill_before_grant: bool,
    /// The process that works on the job on behalf of the process that the claim is bound to, given by the id of its record or a prefix of
    /// that id. When the latter is gone, the claim lasts as long as the tree of this one. Cannot be combined with `process`.
    pub command: Option<String>,
    /// With `command`: how long the claim lasts without being extended, in milliseconds; 0 for no limit. After that time, the tree of the
    /// command is stopped, and the job has failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub claim_ms: Span,
    /// With `command`: whether its exit status is the result of the job if the process that the claim is bound to is gone: 0 completes
    /// the job, any other fails it. Otherwise the job is tried again in both cases.
    #[serde(default, skip_serializing_if = "is_default")]
    pub completes: bool,
}

impl Request for Touch {
    type Answer = Changed;

    const ROUTE: Route = Route::post(
        "/v1/queues/touch",
        Scope::Use,
        Docs {
            id: "touch_job",
            summary: "Extend a claim",
            more: "Restarts the time limit of the claim. Requires the token of the claim. With `process`, the claim is bound to that process from now on. With `command`, a claim that is bound to a process is handed over to another one when that process is gone.",
            answer: "The state of the job.",
        },
        &[Absent, Stale, Fencing, Ended, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if("`process` or `command` is set, or the claim is bound to a process");

    fn needs_run(&self) -> bool {
        self.process.is_some() || self.command.is_some()
    }
}

/// Gives a claimed job back.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Release {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
    /// Milliseconds until the job is ready.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_ms: Span,
    /// The job's new priority; unchanged if left out.
    pub priority: Option<u32>,
}

impl Request for Release {
    type Answer = Changed;

    const ROUTE: Route = Route::post(
        "/v1/queues/release",
        Scope::Use,
        Docs {
            id: "release_job",
            summary: "Give a claimed job back",
            more: "Requires the token of the job's claim. If the claim was the job's last try, the job is abandoned.",
            answer: "The state of the job.",
        },
        &[Absent, Stale, Fencing, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// Buries a claimed job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Bury {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
    /// The job's new priority; unchanged if left out.
    pub priority: Option<u32>,
}

impl Request for Bury {
    type Answer = Changed;

    const ROUTE: Route = Route::post(
        "/v1/queues/bury",
        Scope::Use,
        Docs {
            id: "bury_job",
            summary: "Bury a claimed job until it is kicked",
            more: "Requires the token of the job's claim.",
            answer: "The state of the job.",
        },
        &[Absent, Stale, Fencing, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// Stores the result of a claimed job.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "JobNote"))]
pub struct KeepResult {
    /// The job's id.
    pub id: u64,
    /// The token of the job's claim.
    pub token: Token,
    /// How long the result is kept, in milliseconds; at most 30 days.
    pub keep_ms: Number<u64, 1, RESULT_MS_MAX>,
    /// Whether the job succeeded; if not, it failed.
    pub done: bool,
    /// The exit status of the job's command, if there is one.
    pub exit: Option<Number<u64, 0, 255>>,
    /// What went wrong; of more than 1,000 bytes, the beginning and the end are stored.
    pub error: Option<String>,
    /// The output of the command, of which the last 16,384 bytes are stored.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output: Bytes,
    /// The duration of the try, in milliseconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub took_ms: u64,
}

impl Request for KeepResult {
    type Answer = Kept;

    const ROUTE: Route = Route::post(
        "/v1/queues/keep-result",
        Scope::Use,
        Docs {
            id: "keep_job_result",
            summary: "Store the result of a claimed job",
            more: "Requires the token of the job's claim, and must be sent before the job is completed or failed. The result is kept for `keep_ms`, and can be read once the job is over; the result of a later try replaces it. At most 100,000 results and 64 MiB are kept; beyond that, the oldest are dropped.",
            answer: "The result has been stored.",
        },
        &[Absent, Stale, Fencing, DiskFull, Reason::Failed],
    )
    .with(Input::Body)
    .once()
    .run_if(IF_BOUND);
}

/// The answer to [`KeepResult`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct Kept {
    /// Always 1.
    #[cfg_attr(feature = "schemas", schemars(extend("const" = 1)))]
    pub kept: u32,
}

/// Gets the result of a job, waiting for its end if requested.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct GetResult {
    /// The job's id.
    pub id: u64,
    /// The maximum time to wait until the job is over, in seconds.
    #[serde(default, skip_serializing_if = "is_default")]
    pub wait: Number<u64, 0, 3600>,
}

impl Request for GetResult {
    type Answer = JobResult;

    const ROUTE: Route = Route::get(
        "/v1/queues/result",
        Scope::Read,
        Docs {
            id: "job_result",
            summary: "Get the result of a job",
            more: "Returns the result that the worker stored. For a job that was abandoned without a result, `status` is `failed` and `error` is the last error. For any other job that is over without a result, the request is refused as `absent`. With `wait`, the answer is sent when the job is over or the wait times out.",
            answer: "The result; if `status` is `open`, there is none yet.",
        },
        &[Absent, Waits, Reason::Failed],
    )
    .with(Input::Query);
}

/// Whether and how a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema), schemars(rename = "JobEnding"))]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// The job is not over.
    Open,
    /// The job has succeeded.
    Done,
    /// The job has failed, and will not be tried again.
    Failed,
}

/// The answer to [`GetResult`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
pub struct JobResult {
    /// The job's id.
    pub id: u64,
    /// The queue of the job.
    pub queue: QueueName,
    /// Whether and how the job has ended.
    pub status: Ending,
    /// The exit status of the job's command; null if there is none, or no result was stored.
    pub exit: Option<u8>,
    /// What went wrong; null if nothing was reported.
    pub error: Option<String>,
    /// The number of claims since the job was added or kicked, not counting claims that ended with a deferral.
    pub attempts: u32,
    /// The duration of the job's last try, in milliseconds; null if no result was stored.
    pub took_ms: Option<u64>,
    /// Milliseconds from when the job was added to when it ended; null if no result was stored.
    pub age_ms: Option<u64>,
    /// The time the job ended, in milliseconds since 1970; null if no result was stored.
    pub ended_at: Option<u64>,
    /// Milliseconds until the result is removed; null if no result was stored.
    pub remaining_ms: Option<u64>,
    /// The end of the command's output; empty if no result was stored.
    #[serde(flatten)]
    pub text: OutputText,
}
