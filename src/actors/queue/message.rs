//! What the `QueueActor` can be asked, what can come of it, and what it answers.
//!
//! Change rule: `Message` and `Outcome` are stored in the journal. A change that an old reader or an old log would
//! not understand raises `FORMAT_VERSION`, with a golden directory and a CHANGELOG line under "Formats".

use crate::actors::machine::Refusal;
use crate::actors::queue::body::Body;
use crate::actors::queue::job::Phase;
use crate::actors::queue::name::QueueName;
use crate::clock::Timestamp;
use crate::ids::{Slot, Ticket, Token};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Who works on jobs over a connection, whose end gives them back. Unique as long as the process lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Worker(pub u64);

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
    /// Use up the number of a job that is not to be.
    Spoil,
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
    /// A claimed job was tried and failed: it belongs to nobody until it is tried again.
    Fail {
        /// Which.
        id: u64,
        /// Who has it.
        by: Right,
        /// Milliseconds until then; the rest of the claim's span if `None`.
        retry_after_ms: Option<u64>,
    },
    /// Make buried jobs ready, the oldest first; if there are none, delayed ones, the soonest first.
    Kick {
        /// Of which queue.
        queue: QueueName,
        /// So many at most.
        count: u32,
    },
    /// Make one buried or delayed job ready.
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
    /// Take no new jobs from now on, until the next start.
    Drain,
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
    /// If given, nothing is added while an unclaimed job of the queue has the same.
    #[serde(default)]
    pub dedup: Option<DedupKey>,
    /// What it says.
    pub body: Body,
}

impl Put {
    /// A job with nothing special about it: for this queue, as urgent as can be, ready at once.
    pub fn new(queue: QueueName, body: Body) -> Self {
        Self {
            queue,
            priority: 0,
            delay_ms: 0,
            ttr_ms: 0,
            dedup: None,
            body,
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
}

/// For whom a claim is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claimant {
    /// A connection: its end gives the job back.
    Worker(Worker),
    /// Whoever shows the token.
    Bearer,
}

/// By what right a job is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// The connection that claimed it. To delete, a job that nobody has claimed will do.
    Worker(Worker),
    /// The token of its claim.
    Token(Token),
    /// None: only for jobs that nobody has claimed.
    Unclaimed,
}

/// What was decided. Jobs are named by their slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A new job.
    Put {
        /// Its number.
        id: u64,
        /// Where it stands.
        slot: Slot,
        /// When it is ready; at once if zero.
        until: Timestamp,
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
        /// When the claim ends.
        until: Timestamp,
        /// If this is its last try: when it is pruned, given back. Else zero.
        prune: Timestamp,
        /// Whether a crash may forget it.
        passing: bool,
    },
    /// A claim's span begins again.
    Touched {
        /// Which.
        slot: Slot,
        /// When the claim ends.
        until: Timestamp,
        /// Whether a crash may forget it.
        passing: bool,
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
        until: Timestamp,
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
    /// Jobs are ready: so many buried, or so many delayed ones.
    Kicked {
        /// Whether they were buried.
        buried: bool,
        /// How many.
        count: u32,
    },
    /// A buried or delayed job is ready.
    KickedJob {
        /// Which.
        slot: Slot,
    },
    /// A queue is paused, or no longer.
    Paused {
        /// Until when; zero for no pause.
        until: Timestamp,
    },
    /// Every job of a queue is gone: so many.
    Flushed {
        /// How many.
        count: u32,
    },
    /// A worker is gone, and its claims with it.
    Departed {
        /// Jobs that are ready again.
        back: Vec<Slot>,
        /// Jobs whose last try it was.
        abandoned: Vec<Slot>,
    },
    /// A delay is over.
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
    /// There is nothing of the kind. Changes nothing.
    Absent,
    /// Not done, and why. Changes nothing.
    Refused(Refused),
}

/// Why something was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refused {
    /// No new jobs: the coordinator drains.
    Draining,
    /// The job is claimed under another token: the right has passed on.
    StaleToken,
    /// There are as many jobs, or as many bytes of them, as are allowed.
    Full,
    /// There are as many queues as are allowed.
    QueuesFull,
    /// The body is longer than is allowed.
    TooBig,
    /// The queue takes no jobs.
    ReadOnly,
    /// The disk is full.
    DiskFull,
}

impl DedupKey {
    /// The key of whatever these bytes stand for.
    pub fn of(bytes: &[u8]) -> Self {
        let mut key = [0; 20];
        if let Some(copied) = key.get_mut(..bytes.len()) {
            copied.copy_from_slice(bytes);
        } else {
            let hash = xxhash_rust::xxh3::xxh3_128(bytes).to_le_bytes();
            let len = hash.len();
            if let Some(copied) = key.get_mut(..len) {
                copied.copy_from_slice(&hash);
            }
            key[19] = 0xff;
        }
        Self(key)
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::DiskFull => Self::DiskFull,
        }
    }
}

/// A question about queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// A job with its body.
    Peek {
        /// Which.
        id: u64,
    },
    /// The next job of a queue in a phase: the most urgent ready, the soonest delayed, the oldest buried.
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
    /// What is known of a queue.
    Queue {
        /// Which.
        queue: QueueName,
    },
    /// What is known of all of them together.
    Totals,
    /// The names of queues, and up to so many of them.
    Queues {
        /// How many.
        most: u32,
    },
    /// A queue from which something can be claimed, by chance.
    Next {
        /// What the choice derives from.
        chance: u64,
    },
}

/// Something about queues that can be waited for, or held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch {
    /// A job of these queues. What was waited for is claimed.
    Job(Pop),
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
    /// What is known of a queue.
    Queue(Box<QueueView>),
    /// What is known of all of them together.
    Totals(Box<Totals>),
    /// Names of queues.
    Queues(Vec<QueueName>),
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
    /// When the claim ends.
    pub until: Timestamp,
    /// What it says.
    pub body: Body,
}

/// What is known of a job.
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
    /// Bytes of its body.
    pub bytes: u64,
}

/// Jobs by phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Ready, with a priority below 1024.
    pub urgent: u32,
    /// Ready.
    pub ready: u32,
    /// Delayed.
    pub delayed: u32,
    /// Claimed.
    pub claimed: u32,
    /// Buried by a client.
    pub buried: u32,
    /// Abandoned after the last try.
    pub abandoned: u32,
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
}

/// What is known of all queues together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Jobs.
    pub jobs: Counts,
    /// Bytes of their bodies.
    pub bytes: u64,
    /// Jobs added since the process started; those that were there then count.
    pub added: u64,
    /// Claims that ran out since then.
    pub timeouts: u64,
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
}
