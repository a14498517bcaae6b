//! Messages that change queues. Their outcomes are in `outcome.rs`.
//!
//! Change rule: `Message` and `Outcome` are stored in the journal. A change that an older reader would not understand,
//! or that makes an older log unreadable, raises `FORMAT_VERSION` and adds a golden directory and a CHANGELOG line under
//! "Formats". Fields are stored by position, so optional ones come last.

use crate::actors::binding::{self, Binding};
use crate::actors::queue::part::{FlushMore, KickMore};
use crate::actors::queue::report::{ErrorText, KeepResult, Progress};
use crate::actors::queue::right::{Claimant, Command, Right, Worker};
use crate::bytes::Bytes as Body;
use crate::ids::{Slot, Ticket};
use serde::{Deserialize, Serialize};
use sexton_api::queue::QueueName;
use sha1::{Digest as _, Sha1};
use std::sync::Arc;

/// The key by which duplicate jobs of a queue are recognized: 20 bytes, the size of a SHA-1 digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DedupKey(pub [u8; 20]);

/// A request to change queues.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Add a job.
    Put(Put),
    /// Add several jobs. If one of them is refused, none is added. A job that duplicates an existing job is left out. Of
    /// several jobs of a queue with the same deduplication key, only the last is added.
    Batch(Vec<Put>),
    /// Skip one job id, as beanstalkd does for a `put` whose body is not terminated correctly.
    Spoil,
    /// Register a root job. Jobs that come from an older root job with the same key become duplicates.
    Register(Root),
    /// Claim a job from a selection of queues. [`Pop`] describes which job is claimed.
    Pop(Pop),
    /// Claim one job, unless it is already claimed.
    PopJob {
        /// The job id.
        id: u64,
        by: Claimant,
    },
    /// Delete a job, because it is done or no longer needed.
    Delete {
        /// The job id.
        id: u64,
        /// The right by which it is deleted.
        by: Right,
    },
    /// Release a claimed job, so that it can be claimed again. If this was its last try, it is abandoned instead.
    Release {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
        /// The new priority; `None` to keep the current one.
        priority: Option<u32>,
        /// Milliseconds until the job is ready.
        delay_ms: u64,
    },
    /// Bury a claimed job: until it is kicked, only [`Message::PopJob`] can claim it.
    Bury {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
        /// The new priority; `None` to keep the current one.
        priority: Option<u32>,
    },
    /// Restart the time limit of a claim.
    Touch {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
    },
    /// Bind a claim to a process instead of its connection or its previous process, and restart its time limit.
    Bind {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
        /// The process to bind it to.
        to: Binding,
    },
    /// Name the process that works on a claimed job on behalf of the process that the claim is bound to. When that one is gone, the claim
    /// lasts as long as the tree of this one.
    Attach {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
        /// The process.
        command: Command,
        /// The time limit of the claim in milliseconds, from now and from each touch; 0 for none. When it has passed, the tree of the
        /// process is stopped, and the job has failed.
        ttr_ms: u64,
    },
    /// Report that a claimed job failed. The claim ends. The job is retried later or, if this was its last try, abandoned.
    /// A job that runs at most once is deleted.
    Fail {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
        /// Milliseconds until the retry. If `None`, the backoff of the job's type applies. Without a backoff, the job waits
        /// for the time left on the claim or, if the claim cannot time out, for the time limit of the job or its type.
        retry_after_ms: Option<u64>,
        /// The error message.
        #[serde(default)]
        error: Option<ErrorText>,
        /// Whether the work on the job ended with a crash, which counts towards [`super::TypeRules::crash_tries`].
        #[serde(default, skip_serializing_if = "is_not")]
        crashed: bool,
    },
    /// Defer a claimed job without counting the claim as a try. Once the job is older than
    /// [`Message::DEFERRED_MS_MAX`] or has been cancelled, a deferral is treated as a failure.
    Defer {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
        /// The reason.
        #[serde(default)]
        error: Option<ErrorText>,
        /// Milliseconds until it is tried again; `None` for a delay that grows with each release and deferral of the job.
        #[serde(default)]
        retry_after_ms: Option<u64>,
        /// Whether the worker was interrupted, which says nothing about the job: it is deferred however old it is.
        #[serde(default, skip_serializing_if = "is_not")]
        interrupted: bool,
    },
    /// Report the progress of a claimed job. A new claim starts without a report.
    Report {
        /// The job id.
        id: u64,
        /// The right to the claim.
        by: Right,
        progress: Progress,
    },
    /// Make jobs ready: buried jobs in the order of their burial, then abandoned jobs, oldest first. If there are
    /// neither, delayed jobs in the order in which they become ready, then jobs that wait for a retry, oldest first.
    Kick {
        queue: QueueName,
        /// The maximum number of jobs to kick.
        count: u32,
    },
    /// Make abandoned jobs ready, oldest first, and reset their tries.
    Repush {
        queue: QueueName,
        /// The maximum number of jobs to repush.
        count: u32,
    },
    /// Make one job ready, unless it is already ready or claimed.
    KickJob {
        /// The job id.
        id: u64,
    },
    /// Pause a queue: nothing can be claimed from it for `ms` milliseconds. 0 ends a pause.
    Pause {
        queue: QueueName,
        /// Length of the pause in milliseconds.
        ms: u64,
    },
    /// Delete every job of a queue, including claimed ones.
    Flush { queue: QueueName },
    /// A worker's connection has closed: give back the worker's claims.
    Depart { worker: Worker },
    /// From the `ProcessActor`: a process, or its whole tree, has ended, which ends the claims bound to it.
    Gone(binding::EndNotice),
    /// Tick: a deadline of the job in this slot has passed.
    Expire { slot: Slot },
    /// Tick: the pause of a queue has ended.
    Unpause { queue: QueueName },
    /// Tick: the time for which a root job is remembered has expired.
    Forget {
        /// The slot of the root job.
        slot: Slot,
    },
    /// Refuse new jobs until the server restarts.
    Drain,
    /// Cancel a job. It is abandoned immediately, unless its claim is bound to a process. In that case, it is abandoned
    /// when the process ends or the worker reports a failure, unless the worker reports first that the job is done.
    Cancel {
        /// The job id.
        id: u64,
        /// The reason, which is shown with the job.
        #[serde(default)]
        error: Option<ErrorText>,
    },
    /// Store how the work on a claimed job ended. The worker ends the claim with a separate message afterwards.
    KeepResult(Box<KeepResult>),
    /// Tick: the retention time of a result has expired.
    DropResult {
        /// The slot of the result.
        slot: Slot,
    },
    /// Tick: the time for which a deduplication key is remembered has expired.
    ForgetKey {
        /// The slot of the key.
        slot: Slot,
    },
    /// The rest of a `Flush` that is carried out in parts.
    FlushMore(FlushMore),
    /// The rest of a `Kick` or `Repush` that is carried out in parts.
    KickMore(KickMore),
}

impl Message {
    /// The maximum time for which the result of a job may be kept, in milliseconds: 30 days.
    pub const RESULT_MS_MAX: u64 = 30 * 86_400_000;

    /// The maximum age at which a job may still be deferred, in milliseconds: one day.
    pub const DEFERRED_MS_MAX: u64 = 86_400_000;
}

/// A job to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// The queue to add it to.
    pub queue: QueueName,
    /// The priority; 0 is the most urgent.
    pub priority: u32,
    /// Milliseconds until it is ready.
    pub delay_ms: u64,
    /// Length of a claim in milliseconds; 0 for the default of the job's type.
    pub ttr_ms: u64,
    /// The payload.
    pub body: Body,
    /// The deduplication key: the job is not added while the queue has a ready, delayed or retrying job with the same key.
    /// If `None`, the key is derived from the body, provided that the job's type or `unique_for_ms` requires a key.
    #[serde(default)]
    pub dedup: Option<DedupKey>,
    /// Whether it is tried again if a claim ends without success. If not, or if its type forbids it, it runs at most once.
    #[serde(default = "yes")]
    pub retries: bool,
    /// The root job that it comes from, if that is tracked.
    #[serde(default)]
    pub root: Option<Root>,
    /// Whether this job is the root job itself. If so, adding it also registers the root job.
    #[serde(default)]
    pub is_root: bool,
    /// Whether it was added by a command of the beanstalk protocol. If so, [`super::TypeRules::tube_max_tries`] limits
    /// its tries, which by default are unlimited.
    #[serde(default)]
    pub tube: bool,
    /// Its number of work items, for the throttle of its queue; 0 counts as 1.
    #[serde(default)]
    pub items: u32,
    /// Milliseconds after its addition during which no other job is added under its key, whatever happens to this job; 0
    /// for no such time. Without a `dedup` key, the key is derived from the body. Values above [`Put::UNIQUE_MS_MAX`] are
    /// reduced to it.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub unique_for_ms: u64,
}

impl Put {
    /// The maximum time for which a key is remembered, in milliseconds: 366 days.
    pub const UNIQUE_MS_MAX: u64 = 366 * 86_400_000;

    /// Creates a job for this queue with default settings: it has the most urgent priority and no delay, and may be retried.
    pub fn new(queue: QueueName, body: Body) -> Self {
        Self {
            queue,
            priority: 0,
            delay_ms: 0,
            ttr_ms: 0,
            dedup: None,
            retries: true,
            root: None,
            is_root: false,
            tube: false,
            items: 0,
            unique_for_ms: 0,
            body,
        }
    }

    /// Returns the root job that adding this job registers; `None` if this job is not a root job.
    pub fn registers(&self) -> Option<Root> {
        self.root.filter(|_| self.is_root)
    }
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(super) const fn is_not(it: &bool) -> bool {
    !*it
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_nothing(ms: &u64) -> bool {
    *ms == 0
}

/// The identity of a root job. Root jobs are `MediaWiki`'s mechanism to drop a cascade of jobs that a newer root job has made obsolete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// The key derived from its signature and its queue.
    pub key: DedupKey,
    /// Its time in any unit; a larger value is newer.
    pub at: u64,
}

impl Root {
    /// Returns the identity of a root job, given its queue, its signature and its time.
    pub fn of(queue: &QueueName, signature: &str, at: u64) -> Self {
        let key = [queue.as_bytes(), b"\0", signature.as_bytes()].concat();
        Self { key: DedupKey::of(&key), at }
    }
}

/// A request to claim a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pop {
    /// The queues to claim from. Unless `weights` or `any` is set, the first of their jobs in claiming order is claimed;
    /// among equals, the oldest.
    pub queues: Arc<[QueueName]>,
    /// The claimant.
    pub by: Claimant,
    /// Whether the client waits if no job can be claimed. While it waits, its later requests are delayed.
    #[serde(default)]
    pub waits: bool,
    /// The waiting request that this claim answers, if any.
    #[serde(default)]
    pub ticket: Option<Ticket>,
    /// The weights of the queues, in the same order, if a queue is to be chosen at random. Weights below 1 and missing
    /// weights count as 1. Empty to claim the first job in claiming order instead.
    #[serde(default)]
    pub weights: Arc<[u32]>,
    /// Length of the claim in milliseconds. If 0, a claim bound to a process has no time limit, and any other claim has the
    /// length that the job or its type specifies.
    #[serde(default)]
    pub ttr_ms: u64,
    /// A selection of queues. If given, `queues` is empty, and the job comes from the selected tenant whose turn it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any: Option<Arc<AnyType>>,
}

/// A selection of queues whose tenants provide jobs in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnyType {
    /// The tenant; empty for the default tenant. `None` for all tenants.
    pub tenant: Option<String>,
    /// Types that are left out. Ignored unless `types` is empty.
    pub except: Vec<String>,
    /// The types of jobs to claim. If empty, all types except those in `except` and those that must be requested by name.
    pub types: Vec<String>,
}

impl AnyType {
    /// Returns whether `except` contains this type.
    pub(super) fn excepts(&self, kind: &[u8]) -> bool {
        self.except.iter().any(|it| it.as_bytes() == kind)
    }
}

impl DedupKey {
    /// Returns the key for these bytes: their SHA-1 digest.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha1::digest(bytes).into())
    }
}
