//! The outcomes of messages: what was decided.
//!
//! Change rule: outcomes are stored in the journal, see `message.rs`. Fields are stored by position, so optional ones come last.

use crate::actors::queue::message::DedupKey;
use crate::actors::queue::part::{FlushPart, KickPart};
use crate::actors::queue::refused::Refused;
use crate::actors::queue::report::ErrorText;
use crate::clock::{Date, Timestamp};
use crate::ids::Slot;
use serde::{Deserialize, Serialize};
use sexton_api::queue::Phase;

/// The decision about a message. Jobs are identified by their slots.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A job is added.
    Put {
        /// The slot of the job.
        slot: Slot,
        /// The properties that the rules give it.
        job: NewJob,
    },
    /// Jobs are added, each in the lowest free slot.
    Batch {
        /// The result for each job, in order.
        placed: Vec<Placed>,
    },
    /// A root job is remembered.
    Registered {
        /// The slot of the root job.
        slot: Slot,
    },
    /// A root job is forgotten.
    Forgotten {
        /// The slot of the root job.
        slot: Slot,
    },
    /// A job id is skipped.
    Spoiled {
        /// The job id.
        id: u64,
    },
    /// A job is claimed.
    Claimed {
        /// The slot of the job.
        slot: Slot,
        /// When the claim ends; the maximum timestamp if it ends only with its process.
        until: Timestamp,
        /// If this is the last try, the date on which the job will be removed if it is abandoned; otherwise zero.
        prune: Date,
        /// If the job was claimed in its tenant's turn, the virtual time at which that turn ends, see `turns.rs`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        turn: Option<u64>,
    },
    /// The time limit of a claim is restarted.
    Touched {
        /// The slot of the job.
        slot: Slot,
        /// When the claim ends.
        until: Timestamp,
    },
    /// The progress of a job is recorded.
    Reported {
        /// The slot of the job.
        slot: Slot,
    },
    /// A job is deleted.
    Deleted {
        /// The slot of the job.
        slot: Slot,
        /// The slot of its remembered key, which is forgotten because nobody has worked on the job.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<Slot>,
    },
    /// A claimed job is released.
    Released {
        /// The slot of the job.
        slot: Slot,
        /// When it is ready; zero means immediately.
        until: Date,
    },
    /// A claimed job is buried.
    Buried {
        /// The slot of the job.
        slot: Slot,
    },
    /// A claimed job has failed.
    Failed {
        /// The slot of the job.
        slot: Slot,
        /// When it is retried.
        until: Timestamp,
    },
    /// A claimed job is deferred.
    Deferred {
        /// The slot of the job.
        slot: Slot,
        /// When it is tried again.
        until: Timestamp,
    },
    /// Jobs are made ready.
    Kicked {
        /// The phase that they are taken from. If it is `Buried`, abandoned jobs follow the buried ones; if it is `Delayed`,
        /// retrying jobs follow the delayed ones. If it is `Abandoned`, only abandoned jobs are taken.
        phase: Phase,
        /// The number of jobs.
        count: u32,
    },
    /// A job that was neither ready nor claimed is made ready.
    KickedJob {
        /// The slot of the job.
        slot: Slot,
    },
    /// A queue is paused, or its pause ends.
    Paused {
        /// The end of the pause; zero if it ends now.
        until: Date,
    },
    /// Every job of a queue is deleted.
    Flushed {
        /// The number of jobs.
        count: u32,
        /// The slots of their remembered keys, which are forgotten.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        keys: Vec<Slot>,
    },
    /// Some of the jobs of a queue are deleted. The fields of `part` but `next` are as before.
    FlushedPart {
        /// The slots of the jobs.
        slots: Vec<Slot>,
        /// The slots of their remembered keys, which are forgotten.
        keys: Vec<Slot>,
        /// How far the flush has come.
        part: FlushPart,
    },
    /// Some of the jobs that a request kicks are made ready, as by `Kicked`.
    KickedPart {
        /// The phase that they are taken from.
        phase: Phase,
        /// The number of jobs.
        count: u32,
        /// How far the request has come: what was kicked before, and what is left now.
        part: KickPart,
    },
    /// A claim has timed out. Its process tree will be killed before another client can claim the job.
    Fenced {
        /// The slot of the job.
        slot: Slot,
    },
    /// A worker's connection has closed, or a process has ended, which ends the claims of that worker or process.
    Departed {
        /// Jobs that become ready again, or are deleted because they run at most once.
        back: Vec<Slot>,
        /// Jobs that are abandoned, because they were on their last try or had been cancelled.
        abandoned: Vec<Slot>,
        /// Why the claims ended; this becomes the error of those jobs that had not been cancelled. `None` if a connection
        /// has closed, and in older logs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error: Option<ErrorText>,
    },
    /// The delay of a job, or its wait for a retry, has ended.
    Ready {
        /// The slot of the job.
        slot: Slot,
    },
    /// A claim has timed out, and the job is ready again.
    TimedOut {
        /// The slot of the job.
        slot: Slot,
    },
    /// A job is abandoned: its last try, or the claim during which it was cancelled, has failed, timed out or been released.
    Abandoned {
        /// The slot of the job.
        slot: Slot,
    },
    /// A job is removed: the retention time of an abandoned job, or of a job claimed without a time limit, has ended,
    /// or the claim of a job that runs at most once has timed out.
    Pruned {
        /// The slot of the job.
        slot: Slot,
        /// The slot of its remembered key, which is forgotten because the job was abandoned.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<Slot>,
    },
    /// New jobs are refused from now on.
    Draining,
    /// The queue has a ready, delayed or retrying job with the same key. Changes nothing.
    Duplicate {
        /// The slot of that job.
        slot: Slot,
    },
    /// A job is cancelled, see [`Message::Cancel`](super::Message::Cancel).
    Cancelled {
        /// The slot of the job.
        slot: Slot,
        /// The date on which the abandoned job will be removed.
        prune: Date,
    },
    /// The result of a job is stored.
    ResultKept {
        /// The slot of the job.
        slot: Slot,
        /// The date on which the job ended.
        ended: Date,
        /// The date until which the result is kept.
        until: Date,
        /// The slots of older results that are dropped to make room.
        dropped: Vec<Slot>,
    },
    /// A result is dropped.
    ResultDropped {
        /// The slot of the result.
        slot: Slot,
    },
    /// The key of the job is still remembered. Changes nothing.
    Remembered {
        /// The id of the job that was added under the key.
        id: u64,
    },
    /// A deduplication key is forgotten.
    KeyForgotten {
        /// The slot of the key.
        slot: Slot,
    },
    /// A claimed job has a process that works on it.
    Attached {
        /// The slot of the job.
        slot: Slot,
        /// When the claim ends; the maximum timestamp if it ends only with its process.
        until: Timestamp,
    },
    /// A claimed job is set aside, because too many of its claims have ended with a crash.
    Quarantined {
        /// The slot of the job.
        slot: Slot,
    },
    /// Claims end, or are handed over, because their workers or processes are gone.
    ClaimsEnded {
        /// The slots of the jobs, and what becomes of each.
        ends: Vec<(Slot, ClaimEnd)>,
        /// How the worker or process ended; this becomes the error of those jobs that had not been cancelled and are not done.
        error: Option<ErrorText>,
    },
    /// The job or queue does not exist, or there is nothing to do. Changes nothing.
    Absent,
    /// The message was refused. Changes nothing.
    Refused(Refused),
}

#[expect(clippy::wildcard_enum_match_arm, reason = "few outcomes change many jobs")]
impl Outcome {
    /// Returns the number of jobs that a flush or a kick has changed so far, and whether it is done.
    pub(super) fn total(&self) -> (u32, bool) {
        match self {
            Self::Kicked { count, .. } | Self::Flushed { count, .. } => (*count, true),
            Self::KickedPart { count, part, .. } => {
                (part.kicked.saturating_add(*count), part.left == 0)
            }
            Self::FlushedPart { slots, part, .. } => {
                (part.deleted_with(slots), part.next.is_none())
            }
            _ => (0, true),
        }
    }

    /// Returns whether a part of a flush changes nothing. The last part has the answer, which a repeated request gets again.
    pub(super) fn is_without_change(&self) -> bool {
        match self {
            Self::FlushedPart { slots, part, .. } => {
                slots.is_empty() && (part.next.is_some() || part.deleted == 0)
            }
            _ => false,
        }
    }

    /// Returns the number of jobs that it changes if it may change many; otherwise 0.
    pub(super) fn weight(&self) -> usize {
        match self {
            Self::Kicked { count, .. }
            | Self::KickedPart { count, .. }
            | Self::Flushed { count, .. } => *count as usize,
            Self::FlushedPart { slots, .. } => slots.len() + 1,
            Self::Departed { back, abandoned, .. } => back.len() + abandoned.len(),
            Self::ClaimsEnded { ends, .. } => ends.len(),
            _ => 0,
        }
    }
}

/// What becomes of a claimed job whose worker or process is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClaimEnd {
    /// It is ready again, is abandoned if it was on its last try or cancelled, or is removed if it runs at most once.
    Returned,
    /// The process that works on it is still there: the claim lasts as long as that one.
    HandedOver,
    /// It is done.
    Done,
    /// It is tried again later.
    Retried {
        /// When.
        until: Timestamp,
        /// Whether this was a crash.
        crashed: bool,
    },
    /// It is set aside, because too many of its claims have ended with a crash.
    Quarantined,
}

/// The properties that the rules give to a job when it is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewJob {
    /// The job id.
    pub id: u64,
    /// When it is ready; zero means immediately.
    pub until: Date,
    /// Whether the job is kept in memory only, and is lost when the server process ends.
    pub passing: bool,
    /// Whether it is tried again if a claim ends without success. If not, it runs at most once.
    pub retries: bool,
    /// The deduplication key.
    pub dedup: Option<DedupKey>,
    /// The date until which its key is remembered, if the job must be unique for a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique_until: Option<Date>,
}

/// The result for one job of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Placed {
    /// The job is added.
    New(NewJob),
    /// The job is not added: it is a duplicate of the job with this id, or its key is still remembered for that job.
    Twin(u64),
}
