//! What the `QueueActor` can be asked that changes nothing, what can be waited for, and what it answers. Nothing of it is
//! stored.

use crate::actors::binding::Binding;
use crate::actors::queue::message::Pop;
use crate::actors::queue::name::QueueName;
use crate::actors::queue::phase::{Counts, Phase};
use crate::actors::queue::refused::Refused;
use crate::actors::queue::results::JobResult;
use crate::actors::queue::said::{ErrorText, Progress};
use crate::actors::queue::uniques::KnownKey;
use crate::bytes::Bytes as Body;
use crate::clock::Timestamp;
use crate::ids::{ProcessId, Slot, Token};
use crate::spine::machine::Refusal;
use serde::Serialize;
use std::collections::HashSet;
use std::sync::Arc;

/// A question about queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// A job with its body.
    Peek {
        /// Which.
        id: u64,
    },
    /// The next job of a queue in a phase: the most urgent ready, the soonest delayed, else the oldest that failed, the
    /// oldest buried, else the oldest abandoned.
    PeekNext {
        /// Which queue.
        queue: QueueName,
        /// In which phase.
        phase: Phase,
    },
    /// What is known of a job.
    Job {
        /// Which.
        id: u64,
    },
    /// The result that is kept of a job, over or not.
    Result {
        /// Which.
        id: u64,
    },
    /// What is known of a queue.
    Queue {
        /// Which.
        queue: QueueName,
    },
    /// What is known of all of them together.
    Totals,
    /// The names of a share of the queues.
    Queues {
        /// Those that stand here and after it.
        from: Slot,
    },
    /// Some of the jobs that a filter lets through.
    SelectJobs(JobSelection),
    /// Some of the queues that a filter lets through.
    SelectQueues(QueueSelection),
    /// The queues of a share that have the most to do.
    Busiest {
        /// Where the share begins.
        from: Slot,
        /// The most queues to tell.
        most: u32,
    },
    /// A queue from which something can be claimed, by chance.
    Next(Choice),
}

/// Which jobs are asked for, and how many of them. What is left out lets all through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSelection {
    /// Those of this queue.
    pub queue: Option<QueueName>,
    /// Those of this type, in whichever tenant.
    pub kind: Option<String>,
    /// Those in one of these phases; in any, if there is none.
    pub phases: Vec<Phase>,
    /// Those whose newest error has this in it.
    pub error: Option<String>,
    /// Those whose claims are bound to this process.
    pub process: Option<ProcessId>,
    /// Those in this slot and behind it.
    pub from: Slot,
    /// The most jobs to tell.
    pub most: u32,
}

/// Which queues are asked for, and how many of them. What is left out lets all through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSelection {
    /// Those of this tenant; empty for the default one.
    pub tenant: Option<String>,
    /// Those with jobs of this type.
    pub kind: Option<String>,
    /// Those that stand here and behind it.
    pub from: Slot,
    /// The most queues to tell.
    pub most: u32,
}

/// Which of the queues is chosen, of those from which something can be claimed and that take jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// What the choice derives from.
    pub chance: u64,
    /// Those with jobs of these types; of any, if there are none here.
    pub kinds: Arc<HashSet<Vec<u8>>>,
    /// How many have been looked at before.
    pub from: u32,
    /// How many of those might have been chosen.
    pub among: u32,
}

/// Something about queues that can be waited for, or held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// A job of these queues. What was waited for is claimed.
    Job(Pop),
    /// That no job is claimed.
    Unclaimed,
    /// That a job is over: done, gone, or abandoned.
    Over {
        /// Which.
        id: u64,
    },
    /// Nothing: this queue is there as long as somebody says so, whoever has to do with it.
    Standing(QueueName),
    /// Nothing: these queues are there as long as somebody says so.
    Presence {
        /// The queue that new jobs go to.
        using: QueueName,
        /// The queues that jobs are claimed from.
        watching: Arc<[QueueName]>,
    },
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The job has this number.
    Put {
        /// Its number.
        id: u64,
        /// The phase of the one that was there already, if it was not added.
        duplicate: Option<Phase>,
    },
    /// Not added: its key is remembered, and the job that was added under it may be over.
    Remembered {
        /// The number of that job.
        id: u64,
    },
    /// Each job of a batch: its number, or that of the one it is one with, and whether it was added.
    Batch(Vec<(u64, bool)>),
    /// A job is claimed.
    Claim(Box<Claim>),
    /// There is nothing to claim.
    Nothing {
        /// Whether whoever asked waits.
        waits: bool,
        /// When the first of its claims ends.
        soonest: Option<Timestamp>,
    },
    /// It is done.
    Done,
    /// The job was given back, and its last try is over.
    Abandoned,
    /// So many.
    Count(u32),
    /// No such job, or not the asker's.
    Absent,
    /// Not done, and why.
    Refused(Refused),
    /// A job with its body.
    Found(u64, Body),
    /// What is known of a job.
    Job(Box<JobView>),
    /// How the newest try of a job ended that somebody noted the result of.
    Result(Box<JobResult>),
    /// What is known of a queue.
    Queue(Box<QueueView>),
    /// What is known of all of them together.
    Totals(Box<Totals>),
    /// Names of queues.
    Queues {
        /// In no order that means anything.
        names: Vec<QueueName>,
        /// Where to go on, unless that was the last.
        next: Option<Slot>,
    },
    /// Some of the jobs that were asked for.
    JobPage {
        /// By slot.
        jobs: Vec<JobView>,
        /// Where to go on, unless that was the last.
        next: Option<Slot>,
    },
    /// Some of the queues that were asked for.
    QueuePage {
        /// In no order that means anything.
        queues: Vec<QueueView>,
        /// Where to go on, unless that was the last.
        next: Option<Slot>,
    },
    /// The queues of a share that have the most to do, the busiest first.
    Busiest {
        /// Them.
        queues: Vec<QueueView>,
        /// Where the next share begins, unless that was the last.
        next: Option<Slot>,
    },
    /// A queue by chance.
    Chosen {
        /// Which; the one chosen before, or none, if it is none of these.
        queue: Option<QueueName>,
        /// Of how many it was chosen, with those before.
        among: u32,
        /// How many have been looked at, unless there is no need to look further.
        next: Option<u32>,
    },
}

/// A job that was claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Its number.
    pub id: u64,
    /// The token of the claim.
    pub token: Token,
    /// Its queue.
    pub queue: QueueName,
    /// How often it was claimed, this time included.
    pub attempts: u32,
    /// When the claim ends; the end of time, if with its process alone.
    pub until: Timestamp,
    /// Whether it is tried again if the claim ends without a word.
    pub retries: bool,
    /// Whether a newer root job has made it superfluous.
    pub duplicate: bool,
    /// What it says.
    pub body: Body,
}

impl Claim {
    /// When the claim ends, unless with its process alone.
    pub fn ends(&self) -> Option<Timestamp> {
        Some(self.until).filter(|until| *until != Timestamp(u64::MAX))
    }
}

/// What is known of a job.
#[expect(clippy::struct_excessive_bools, reason = "each is a member of its own")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JobView {
    /// Its number.
    pub id: u64,
    /// Its queue.
    pub queue: QueueName,
    /// What is the matter with it.
    pub phase: Phase,
    /// 0 is the most urgent.
    pub priority: u32,
    /// When it was added.
    pub created: Timestamp,
    /// When its delay or its claim ends.
    pub until: Option<Timestamp>,
    /// Its newest delay, in milliseconds.
    pub delay_ms: u64,
    /// Milliseconds that whoever claims it has; the queue's own time if 0.
    pub ttr_ms: u64,
    /// Claims since it was added or kicked.
    pub attempts: u32,
    /// Claims.
    pub reserves: u32,
    /// Claims that ran out.
    pub timeouts: u32,
    /// How often it was given back.
    pub releases: u32,
    /// How often it was buried.
    pub buries: u32,
    /// How often it was kicked.
    pub kicks: u32,
    /// The token of its claim.
    pub token: Option<Token>,
    /// Whether it is tried again when a claim ends without a word.
    pub retries: bool,
    /// Whether it ends with the process.
    pub passing: bool,
    /// Bytes of its body.
    pub bytes: u64,
    /// What was said when it failed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorText>,
    /// The process that its claim is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<Binding>,
    /// Whether the time of its claim has run out, and its tree is being killed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub fencing: bool,
    /// Whether it is not wanted any more, and only its process has to end.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// How far the newest try came, as its worker reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
}

/// What is known of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueView {
    /// Its name.
    pub name: QueueName,
    /// Its jobs.
    pub jobs: Counts,
    /// Jobs since it came into being, or since the process started: those that were there then count.
    pub total: u64,
    /// Who adds to it.
    pub using: u32,
    /// Who claims from it.
    pub watching: u32,
    /// Who waits for a job of it.
    pub waiting: u32,
    /// Jobs deleted since then.
    pub deletes: u64,
    /// Pauses since then.
    pub pauses: u64,
    /// How long it was paused for, in milliseconds; 0 if it is not.
    pub pause_ms: u64,
    /// When the pause ends.
    pub paused_until: Option<Timestamp>,
    /// When its throttle lets something be claimed again, if it does not now.
    #[serde(skip)]
    pub throttled_until: Option<Timestamp>,
    /// When the oldest of its ready jobs was added, of those that come first in the 64 most urgent priorities.
    #[serde(skip)]
    pub oldest: Option<Timestamp>,
}

/// What is known of all queues together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Jobs.
    pub jobs: Counts,
    /// Bytes of their bodies, and of the texts of their errors.
    pub bytes: u64,
    /// Jobs added since the process started; those that were there then count.
    pub added: u64,
    /// Jobs that ended since then, however they did.
    pub deletes: u64,
    /// Claims that ran out since then.
    pub timeouts: u64,
    /// Jobs that were ready again after that.
    pub recycled: u64,
    /// Jobs that were abandoned since then.
    pub abandoned: u64,
    /// Jobs that had been abandoned, or claimed for ever, for long enough.
    pub pruned: u64,
    /// Jobs that were not added, since one was there already.
    pub duplicates: u64,
    /// Queues.
    pub queues: u32,
    /// Those that wait for a job.
    pub waiting: u32,
    /// Whether new jobs are refused.
    pub draining: bool,
}

/// The state of queues, to look at.
#[derive(Debug, Serialize)]
pub struct View {
    /// All of them together.
    pub totals: Totals,
    /// The number of the next job.
    pub next_id: u64,
    /// The queues that have jobs or are paused, by name.
    pub queues: Vec<QueueView>,
    /// Their jobs, by number.
    pub jobs: Vec<JobView>,
    /// The results of jobs that are over, by number.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub results: Vec<JobResult>,
    /// Deduplication keys that are remembered, by the numbers of their jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KnownKey>,
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal.into())
    }
}
