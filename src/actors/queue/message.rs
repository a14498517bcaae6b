//! What may change a queue, and what can come of it.
//!
//! Change rule: `Message` and `Outcome` are stored in the journal. A change that an old reader or an old log would
//! not understand raises `FORMAT_VERSION`, with a golden directory and a CHANGELOG line under "Formats". Fields are stored
//! by their place: what may be left out stands last.

use crate::actors::binding::{self, Binding};
use crate::actors::queue::name::QueueName;
use crate::actors::queue::phase::Phase;
use crate::actors::queue::refused::Refused;
use crate::actors::queue::right::{Claimant, Right, Worker};
use crate::actors::queue::said::{ErrorText, KeepResult, Progress};
use crate::bytes::Bytes as Body;
use crate::clock::{Date, Timestamp};
use crate::ids::{Slot, Ticket};
use serde::{Deserialize, Serialize};
use sha1::{Digest as _, Sha1};
use std::sync::Arc;

/// The key by which a job is one with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DedupKey(pub [u8; 20]);

/// What may change a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Message {
    /// Add a job.
    Put(Put),
    /// Add jobs: all of them, or none. Of those that are one with each other the last counts.
    Batch(Vec<Put>),
    /// Use up the number of a job that is not to be.
    Spoil,
    /// There is a newer root job: jobs that come from an older one of the same key are duplicates.
    Register(Root),
    /// Claim the best job of some queues.
    Pop(Pop),
    /// Claim one job, unless it is claimed already.
    PopJob {
        /// Which.
        id: u64,
        /// For whom.
        by: Claimant,
    },
    /// End a job: it is done, or not wanted any more.
    Delete {
        /// Which.
        id: u64,
        /// Who says so.
        by: Right,
    },
    /// Give a claimed job back.
    Release {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
        /// Its priority from now on; as it was if `None`.
        priority: Option<u32>,
        /// Milliseconds until it is ready.
        delay_ms: u64,
    },
    /// Put a claimed job aside until it is kicked.
    Bury {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
        /// Its priority from now on; as it was if `None`.
        priority: Option<u32>,
    },
    /// Begin the span of a claim again.
    Touch {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
    },
    /// Bind a claim to a process, whatever it was bound to before, and begin its span again.
    Bind {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
        /// The process.
        to: Binding,
    },
    /// A claimed job was tried and failed: it belongs to nobody until it is tried again. After its last try it is abandoned.
    Fail {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
        /// Milliseconds until then; if `None`, as its type says, or the rest of the claim's span.
        retry_after_ms: Option<u64>,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorText>,
    },
    /// A claimed job cannot be tried now: it belongs to nobody until then, and the claim counts as no try. Once the job is
    /// [`Message::DEFERRED_MS_MAX`] old this is a failure like any other.
    Defer {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
        /// Why.
        #[serde(default)]
        error: Option<ErrorText>,
        /// Milliseconds until then; if `None`, the longer, the oftener it was given back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// The worker of a claimed job reports how far it has come. A new claim begins without a report.
    Report {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
        /// How far.
        progress: Progress,
    },
    /// Make buried jobs ready, the oldest first, and after them abandoned ones; if there are none, delayed ones, the
    /// soonest first, and after them those that failed.
    Kick {
        /// Of which queue.
        queue: QueueName,
        /// So many at most.
        count: u32,
    },
    /// Make abandoned jobs ready, as if they had never been tried; the oldest first.
    Repush {
        /// Of which queue.
        queue: QueueName,
        /// So many at most.
        count: u32,
    },
    /// Make one job ready that is neither ready nor claimed.
    KickJob {
        /// Which.
        id: u64,
    },
    /// Let nothing be claimed from a queue for so long; 0 ends a pause.
    Pause {
        /// Which queue.
        queue: QueueName,
        /// Milliseconds.
        ms: u64,
    },
    /// End every job of a queue, claimed ones too.
    Flush {
        /// Which queue.
        queue: QueueName,
    },
    /// A worker's connection has ended.
    Depart {
        /// Whose.
        worker: Worker,
    },
    /// A process is gone, or its tree: what is bound to it ends.
    Gone(binding::Gone),
    /// Let time act on the job in this slot.
    Expire {
        /// The slot.
        slot: Slot,
    },
    /// A pause is over.
    Unpause {
        /// Of which queue.
        queue: QueueName,
    },
    /// A root job has been remembered for long enough.
    Forget {
        /// Where it stands.
        slot: Slot,
    },
    /// Take no new jobs from now on, until the next start.
    Drain,
    /// A job is not wanted any more: it is abandoned. One whose claim is bound to a process is so when that has ended, or has
    /// said what became of the job.
    Cancel {
        /// Which.
        id: u64,
        /// Why, to be shown with it.
        #[serde(default)]
        error: Option<ErrorText>,
    },
    /// Note how the work on a claimed job ended. What ends the job comes after it.
    KeepResult(Box<KeepResult>),
    /// A result has been kept for long enough.
    DropResult {
        /// Where it stands.
        slot: Slot,
    },
    /// A deduplication key has been remembered for long enough.
    ForgetKey {
        /// Where it stands.
        slot: Slot,
    },
}

impl Message {
    /// How long the result of a job may be kept, in milliseconds: 30 days.
    pub const RESULT_MS_MAX: u64 = 30 * 86_400_000;

    /// How old a job may become that is deferred again and again, in milliseconds: a day.
    pub const DEFERRED_MS_MAX: u64 = 86_400_000;
}

/// A job to be added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Put {
    /// Where.
    pub queue: QueueName,
    /// 0 is the most urgent.
    pub priority: u32,
    /// Milliseconds until it is ready.
    pub delay_ms: u64,
    /// Milliseconds that whoever claims it has; the queue's own time if 0.
    pub ttr_ms: u64,
    /// What it says.
    pub body: Body,
    /// If given, nothing is added while an unclaimed job of the queue has the same.
    #[serde(default)]
    pub dedup: Option<DedupKey>,
    /// Whether it is tried again when its claim ends without a word.
    #[serde(default = "yes")]
    pub retries: bool,
    /// The root job it comes from, if that is to be known.
    #[serde(default)]
    pub root: Option<Root>,
    /// Whether it is that root job itself, which is registered along with it.
    #[serde(default)]
    pub is_root: bool,
    /// Whether a tube command adds it: it is tried as often as beanstalkd would, unless its type says otherwise.
    #[serde(default)]
    pub tube: bool,
    /// How many items of work it is, for the throttle of its queue; 0 counts as 1.
    #[serde(default)]
    pub items: u32,
    /// Milliseconds from now for which nothing else is added under its key, whatever becomes of it; none if 0. Its key is that of
    /// its body unless it has one. Longer than [`Put::UNIQUE_MS_MAX`] counts as that.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub unique_for_ms: u64,
}

impl Put {
    /// The longest time for which a key is remembered, in milliseconds: 366 days.
    pub const UNIQUE_MS_MAX: u64 = 366 * 86_400_000;

    /// A job with nothing special about it: for this queue, as urgent as can be, ready at once.
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

    /// The root job that is registered along with it: itself, if it is one.
    pub fn registers(&self) -> Option<Root> {
        self.root.filter(|_| self.is_root)
    }
}

const fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
pub(super) const fn is_not(it: &bool) -> bool {
    !*it
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
const fn is_nothing(ms: &u64) -> bool {
    *ms == 0
}

/// What a root job is known by: `MediaWiki`'s way to give up a cascade of jobs that a newer one has made superfluous.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Root {
    /// The key of its signature, in its queue.
    pub key: DedupKey,
    /// Its time, in whatever unit: the larger is the newer.
    pub at: u64,
}

impl Root {
    /// The root job of this signature in a queue.
    pub fn of(queue: &QueueName, signature: &str, at: u64) -> Self {
        let key = [queue.as_bytes(), b"\0", signature.as_bytes()].concat();
        Self {
            key: DedupKey::of(&key),
            at,
        }
    }
}

/// A claim to be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pop {
    /// From which queues: the most urgent job of all of them, among equals the oldest.
    pub queues: Arc<[QueueName]>,
    /// For whom.
    pub by: Claimant,
    /// Whether whoever asks waits if there is none. What is asked behind it is not done before it is answered.
    #[serde(default)]
    pub waits: bool,
    /// Who is answered, of those that wait.
    #[serde(default)]
    pub ticket: Option<Ticket>,
    /// How often a queue comes first, in proportion and at least 1 each, if that is left to chance; else empty.
    #[serde(default)]
    pub weights: Arc<[u32]>,
    /// Milliseconds that the claim lasts; if 0, as the job or its type says.
    #[serde(default)]
    pub ttr_ms: u64,
    /// If given, no queues are named: the job is of whichever tenant's turn it is of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub any: Option<Arc<AnyType>>,
}

/// Queues from which tenants give jobs in turn.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnyType {
    /// Those of this tenant; empty for the default one. Of any, if `None`.
    pub tenant: Option<String>,
    /// None with jobs of these types. Counts only if `types` is empty.
    pub except: Vec<String>,
    /// Those with jobs of these types; if empty, of any but the ones that are set to be asked for by name.
    pub types: Vec<String>,
}

impl AnyType {
    /// Whether jobs of this type are left out.
    pub(super) fn excepts(&self, kind: &[u8]) -> bool {
        self.except.iter().any(|it| it.as_bytes() == kind)
    }
}

/// What was decided. Jobs are named by their slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A new job.
    Put {
        /// Where it stands.
        slot: Slot,
        /// What it is.
        job: NewJob,
    },
    /// New jobs, each in the lowest free slot.
    Batch {
        /// What became of each, in order.
        placed: Vec<Placed>,
    },
    /// A root job is remembered.
    Registered {
        /// Where it stands.
        slot: Slot,
    },
    /// A root job is forgotten.
    Forgotten {
        /// Where it stood.
        slot: Slot,
    },
    /// The number is used up.
    Spoiled {
        /// The number.
        id: u64,
    },
    /// A job is claimed.
    Claimed {
        /// Which.
        slot: Slot,
        /// When the claim ends; the end of time, if with its process alone.
        until: Timestamp,
        /// If this is its last try: when it is pruned, given back. Else zero.
        prune: Date,
        /// If it was claimed in a turn of its tenant: where that ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
    /// A claim's span begins again.
    Touched {
        /// Which.
        slot: Slot,
        /// When the claim ends.
        until: Timestamp,
    },
    /// It is noted how far the work on a job has come.
    Reported {
        /// Which.
        slot: Slot,
    },
    /// A job is gone.
    Deleted {
        /// Which.
        slot: Slot,
    },
    /// A claimed job is given back.
    Released {
        /// Which.
        slot: Slot,
        /// When it is ready; at once if zero.
        until: Date,
    },
    /// A claimed job is put aside.
    Buried {
        /// Which.
        slot: Slot,
    },
    /// A claimed job failed.
    Failed {
        /// Which.
        slot: Slot,
        /// When it is tried again.
        until: Timestamp,
    },
    /// A claimed job is not tried now.
    Deferred {
        /// Which.
        slot: Slot,
        /// When it is tried.
        until: Timestamp,
    },
    /// Jobs are ready that were not.
    Kicked {
        /// What they were: buried, and beyond all of those abandoned; delayed, and beyond all of those failed; or only
        /// abandoned.
        phase: Phase,
        /// How many.
        count: u32,
    },
    /// A job is ready that was neither ready nor claimed.
    KickedJob {
        /// Which.
        slot: Slot,
    },
    /// A queue is paused, or no longer.
    Paused {
        /// Until when; zero for no pause.
        until: Date,
    },
    /// Every job of a queue is gone: so many.
    Flushed {
        /// How many.
        count: u32,
    },
    /// The time of a claim has run out, and the tree of its process is killed before the job is given on.
    Fenced {
        /// Which job.
        slot: Slot,
    },
    /// A worker is gone, or a process, and its claims with it.
    Departed {
        /// Jobs that are ready again.
        back: Vec<Slot>,
        /// Jobs whose last try it was.
        abandoned: Vec<Slot>,
    },
    /// A delay is over, or the time of a job that failed.
    Ready {
        /// Which job.
        slot: Slot,
    },
    /// A claim is over, and the job is ready again.
    TimedOut {
        /// Which job.
        slot: Slot,
    },
    /// A claim is over, or was given back, and it was the last.
    Abandoned {
        /// Which job.
        slot: Slot,
    },
    /// A job has been abandoned for long enough.
    Pruned {
        /// Which job.
        slot: Slot,
    },
    /// No new jobs from now on.
    Draining,
    /// An unclaimed job with that key is there. Changes nothing.
    Duplicate {
        /// Which.
        slot: Slot,
    },
    /// A job is not wanted any more.
    Cancelled {
        /// Which.
        slot: Slot,
        /// When it is pruned.
        prune: Date,
    },
    /// The result of a job is kept.
    ResultKept {
        /// Which job.
        slot: Slot,
        /// What the wall clock showed.
        ended: Date,
        /// Until when.
        until: Date,
        /// Results that gave way, by where they stood.
        dropped: Vec<Slot>,
    },
    /// A result is forgotten.
    ResultDropped {
        /// Where it stood.
        slot: Slot,
    },
    /// The key of the job is remembered. Changes nothing.
    Remembered {
        /// The number of the job that was added under it.
        id: u64,
    },
    /// A deduplication key is forgotten.
    KeyForgotten {
        /// Where it stood.
        slot: Slot,
    },
    /// There is nothing of the kind. Changes nothing.
    Absent,
    /// Not done, and why. Changes nothing.
    Refused(Refused),
}

/// What the rules make of a job that is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// Its number.
    pub id: u64,
    /// When it is ready; at once if zero.
    pub until: Date,
    /// Whether it ends with the process.
    pub passing: bool,
    /// Whether it is tried again.
    pub retries: bool,
    /// The key by which it is one with another.
    pub dedup: Option<DedupKey>,
    /// Until when its key is remembered, if that is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_until: Option<Date>,
}

/// What became of one job of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placed {
    /// It is added.
    New(NewJob),
    /// It is one with the job of this number.
    Twin(u64),
}

impl DedupKey {
    /// The key of whatever these bytes stand for: their SHA-1.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha1::digest(bytes).into())
    }
}
