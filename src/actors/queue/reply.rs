//! Queries and watches of the `QueueActor`, and its replies. None of these are stored.

use crate::actors::binding::Binding;
use crate::actors::queue::message::Pop;
use crate::actors::queue::phase::Counts;
use crate::actors::queue::refused::Refused;
use crate::actors::queue::report::{ErrorText, Progress};
use crate::actors::queue::results::JobResult;
use crate::actors::queue::right::Command;
use crate::actors::queue::uniques::KnownKey;
use crate::bytes::Bytes as Body;
use crate::clock::Timestamp;
use crate::ids::{ProcessId, Slot, Token};
use crate::spine::machine::Refusal;
use serde::Serialize;
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;
use std::collections::HashSet;
use std::sync::Arc;

/// A query about queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// A job's body.
    Peek {
        /// The job id.
        id: u64,
    },
    /// The next job of a queue in a phase. For `Ready`, the first in claiming order. For `Delayed`, the job that becomes
    /// ready first or, if no job is delayed, the oldest that waits for a retry. For `Buried`, the job that was buried first
    /// or, if no job is buried, the oldest abandoned job, then the oldest quarantined job. For other phases, none.
    PeekNext { queue: QueueName, phase: Phase },
    /// A view of a job.
    Job {
        /// The job id.
        id: u64,
    },
    /// The stored result of a job, whether or not the job is over.
    Result {
        /// The job id.
        id: u64,
    },
    /// A view of a queue.
    Queue { queue: QueueName },
    /// The totals over all queues.
    Totals,
    /// The names of the queues in the next 8192 slots.
    Queues {
        /// The slot to begin at, inclusive.
        from: Slot,
    },
    /// One page of the jobs that match a filter.
    SelectJobs(JobSelection),
    /// One page of the queues that match a filter.
    SelectQueues(QueueSelection),
    /// The busiest of the queues in the next 8192 slots.
    Busiest {
        /// The slot to begin at, inclusive.
        from: Slot,
        /// The maximum number of queues to return.
        most: u32,
    },
    /// A random queue from which a job can be claimed.
    Next(Choice),
}

/// Which jobs to return: a filter, and the start and size of the page. A filter field that is `None` matches every job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSelection {
    /// Match jobs of this queue.
    pub queue: Option<QueueName>,
    /// Match jobs of this type, of any tenant.
    pub kind: Option<String>,
    /// Match jobs in one of these phases; in any phase if empty.
    pub phases: Vec<Phase>,
    /// Match jobs whose error contains this text.
    pub error: Option<String>,
    /// Match jobs whose claim is bound to this process.
    pub process: Option<ProcessId>,
    /// The slot to begin at, inclusive.
    pub from: Slot,
    /// The maximum number of jobs to return.
    pub most: u32,
}

/// Which queues to return: a filter, and the start and size of the page. A filter field that is `None` matches every queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSelection {
    /// Match queues of this tenant; the name of the default tenant is empty.
    pub tenant: Option<String>,
    /// Match queues of this type.
    pub kind: Option<String>,
    /// The slot to begin at, inclusive.
    pub from: Slot,
    /// The maximum number of queues to return.
    pub most: u32,
}

/// A random choice among the queues that have claimable jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The random number that determines the choice.
    pub chance: u64,
    /// Choose among queues of these types; of any type if empty.
    pub kinds: Arc<HashSet<Vec<u8>>>,
    /// The number of queues that earlier queries of the same choice have examined.
    pub from: u32,
    /// The number of those queues that could have been chosen.
    pub among: u32,
}

/// A condition that a request can wait for, or an interest in a queue that lasts as long as the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Wait until a job can be claimed from one of these queues, or from the tenant whose turn it is, and claim it.
    Job(Pop),
    /// Wait until no job of any queue is claimed.
    Unclaimed,
    /// End the requests that wait for a job with a claim bound to this process: each is answered that there is none. Answered at once.
    Withdraw(ProcessId),
    /// Wait until a job is over: done, deleted, abandoned or quarantined.
    Over {
        /// The job id.
        id: u64,
    },
    /// Keep this queue in existence, even if no client uses it and it has no jobs. Never answered.
    KeepQueue(QueueName),
    /// Keep these queues in existence and count the client among their users. Never answered.
    Presence {
        /// The queue that the client adds jobs to.
        using: QueueName,
        /// The queues that the client claims jobs from.
        watching: Arc<[QueueName]>,
    },
}

/// A reply of the `QueueActor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The job was added, or is a duplicate of an existing one.
    Put {
        /// The id of the added job, or of the existing one.
        id: u64,
        /// The phase of the existing job; `None` if the job was added.
        duplicate: Option<Phase>,
    },
    /// The job was not added, because its key is remembered. The job that was added under the key may already be over.
    Remembered {
        /// The id of the job that was added under the key.
        id: u64,
        /// The phase of that job; `None` if it is done, or was removed.
        phase: Option<Phase>,
    },
    /// For each job of a batch, in order: the id of the job or, if it was not added, of the job that it duplicates; and whether it was
    /// added.
    Batch(Vec<(u64, bool)>),
    /// A job was claimed.
    Claim(Box<Claim>),
    /// There is no job to claim.
    Nothing {
        /// Whether the client asked to wait for a job.
        waits: bool,
        /// When the first of the worker's own claims ends; `None` if it has none, or if the claimant is not a connection.
        soonest: Option<Timestamp>,
    },
    /// The request was carried out.
    Done,
    /// The job is abandoned: it failed or was released on its last try, or after it was cancelled.
    Abandoned,
    /// The number of jobs affected.
    Count(u32),
    /// The job or queue does not exist, the caller has no right to the job, or there is nothing to do.
    Absent,
    /// The message was refused.
    Refused(Refused),
    /// Jobs were refused because the rules of their type make the queue read-only, for this reason.
    ReadOnly(String),
    /// A job id and the job's body.
    Found(u64, Body),
    Job(Box<JobView>),
    /// The stored result of a job, from the last try for which a result was stored.
    Result(Box<JobResult>),
    Queue(Box<QueueView>),
    /// The totals over all queues.
    Totals(Box<Totals>),
    /// The names of queues.
    Queues {
        /// The names, in no particular order.
        names: Vec<QueueName>,
        /// The slot to continue at; `None` if no slots are left.
        next: Option<Slot>,
    },
    /// One page of matching jobs.
    JobPage {
        /// The jobs, in ascending order of their slots.
        jobs: Vec<JobView>,
        /// The slot to continue at; `None` if no slots are left.
        next: Option<Slot>,
    },
    /// One page of matching queues.
    QueuePage {
        /// The queues, in no particular order.
        queues: Vec<QueueView>,
        /// The slot to continue at; `None` if no slots are left.
        next: Option<Slot>,
    },
    /// The busiest of the queues in the examined slots.
    Busiest {
        /// The queues, busiest first.
        queues: Vec<QueueView>,
        /// The slot to continue at; `None` if no slots are left.
        next: Option<Slot>,
    },
    /// The result of one step of a [`Choice`].
    Chosen {
        /// The queue; `None` to keep the choice of earlier queries, if any.
        queue: Option<QueueName>,
        /// The number of candidates so far, including those of earlier queries; the [`Choice::among`] of the next query.
        among: u32,
        /// The number of queues examined so far, the [`Choice::from`] of the next query; `None` if the choice is complete.
        next: Option<u32>,
    },
}

/// A job that was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The job id.
    pub id: u64,
    /// The token of the claim.
    pub token: Token,
    /// The queue of the job.
    pub queue: QueueName,
    /// Number of tries since it was added or kicked, including this claim. Claims that ended with a deferral do not count.
    pub attempts: u32,
    /// When the claim ends; the maximum timestamp if it ends only with its process.
    pub until: Timestamp,
    /// Whether it is tried again if the claim ends without a result.
    pub retries: bool,
    /// Whether a newer root job has made it obsolete.
    pub duplicate: bool,
    /// The payload.
    pub body: Body,
}

impl Claim {
    /// Returns when the claim ends; `None` if it ends only with its process.
    pub fn ends(&self) -> Option<Timestamp> {
        Some(self.until).filter(|until| *until != Timestamp(u64::MAX))
    }
}

/// A view of a job.
#[expect(clippy::struct_excessive_bools, reason = "each is a separate field of the JSON")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// The job id.
    pub id: u64,
    /// The queue of the job.
    pub queue: QueueName,
    /// The phase of the job.
    pub phase: Phase,
    /// The priority; 0 is the most urgent.
    pub priority: u32,
    /// When it was added.
    pub created: Timestamp,
    /// When it was claimed, if it is claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Timestamp>,
    /// The job's next deadline: when its delay, claim, wait for a retry or retention time ends; `None` if it has none.
    pub until: Option<Timestamp>,
    /// Its last delay, in milliseconds.
    pub delay_ms: u64,
    /// Length of a claim in milliseconds; 0 for the default of its type.
    pub ttr_ms: u64,
    /// Number of tries since it was added or kicked. Claims that ended with a deferral do not count.
    pub attempts: u32,
    /// Total number of claims.
    pub reserves: u32,
    /// Number of claims that timed out.
    pub timeouts: u32,
    /// Number of times that it was released or deferred.
    pub releases: u32,
    /// Number of times that it was buried.
    pub buries: u32,
    /// Number of times that it was kicked.
    pub kicks: u32,
    /// The token of its claim; `None` if it is not claimed.
    pub token: Option<Token>,
    /// Whether it is tried again when a claim ends without a result.
    pub retries: bool,
    /// Whether it is kept in memory only, and is lost when the server process ends.
    pub passing: bool,
    /// Length of its body in bytes.
    pub bytes: u64,
    /// The error of its last failure, the reason for its cancellation, or how the process of its last claim ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
    /// The process that its claim is bound to, and how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Binding>,
    /// Whether its claim has timed out and its process tree is being killed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fencing: bool,
    /// Whether it was cancelled and is only waiting for its process to end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// The process that works on it, if its claimant has named one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Command>,
    /// The number of its last claims that ended with a crash.
    #[serde(skip_serializing_if = "is_none")]
    pub crashes: u32,
    /// The progress that the worker of the last try has reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

/// A view of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueView {
    /// The name of the queue.
    pub name: QueueName,
    /// The number of jobs in each phase.
    pub jobs: Counts,
    /// Number of jobs added since the queue was created or the server started, including jobs that existed at startup.
    pub total: u64,
    /// Number of clients that add jobs to it.
    pub using: u32,
    /// Number of clients that claim jobs from it.
    pub watching: u32,
    /// Number of requests that wait for a job.
    pub waiting: u32,
    /// Number of jobs deleted since the queue was created or the server started.
    pub deletes: u64,
    /// Number of pauses since the queue was created or the server started.
    pub pauses: u64,
    /// Length of the current pause in milliseconds; 0 if it is not paused.
    pub pause_ms: u64,
    /// When the pause ends; `None` if it is not paused.
    pub paused_until: Option<Timestamp>,
    /// When its throttle opens; `None` if it is open.
    #[serde(skip)]
    pub throttled_until: Option<Timestamp>,
    /// When the oldest of its ready jobs was added; `None` if no job is ready. At most 128 ready jobs are examined, so if
    /// there are more, an older one may be missed.
    #[serde(skip)]
    pub oldest: Option<Timestamp>,
}

/// Totals over all queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// The number of jobs in each phase.
    pub jobs: Counts,
    /// The total size of their bodies, errors and progress reports, in bytes.
    pub bytes: u64,
    /// Number of jobs added since the server started, including jobs that existed at startup.
    pub added: u64,
    /// Number of jobs deleted since the server started, for any reason.
    pub deletes: u64,
    /// Number of claims that timed out since the server started.
    pub timeouts: u64,
    /// Number of jobs that became ready again since the server started because their claims timed out.
    pub recycled: u64,
    /// Number of jobs abandoned since the server started.
    pub abandoned: u64,
    /// Number of jobs that were removed since the server started because they had been abandoned, or had been claimed
    /// without a time limit, and their retention time had ended.
    pub pruned: u64,
    /// Number of jobs recognized as duplicates, and therefore not added, since the server started.
    pub duplicates: u64,
    /// Number of queues.
    pub queues: u32,
    /// Number of requests that wait for a job.
    pub waiting: u32,
    /// Whether new jobs are refused.
    pub draining: bool,
}

/// The durable queue state, for `inspect` and `replay`. If the number of items is limited, each list contains only its
/// first items, up to the limit.
#[derive(Debug, Serialize)]
pub struct View {
    /// Totals over all queues.
    pub totals: Totals,
    /// The id of the next job.
    pub next_id: u64,
    /// The queues that have jobs or are paused, sorted by name.
    pub queues: Vec<QueueView>,
    /// The jobs, sorted by id.
    pub jobs: Vec<JobView>,
    /// The stored results, sorted by job id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<JobResult>,
    /// The remembered deduplication keys, sorted by job id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KnownKey>,
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
