//! A job, as stored in memory.
//!
//! Change rule: all fields except the links are durable, see `pages.rs`.

use crate::actors::binding::{Binding, Until};
use crate::actors::queue::message::{DedupKey, Root};
use crate::actors::queue::report::{ErrorText, Progress};
use crate::actors::queue::right::{Command, Worker};
use crate::bytes::Bytes as Body;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{Seq, Slot, Token};
use serde::{Deserialize, Serialize};
use sexton_api::queue::Phase;
use std::sync::LazyLock;

/// The details that are returned for jobs without one.
static NO_DETAILS: LazyLock<Details> = LazyLock::new(Details::default);

/// A job. Kept small, since there may be millions: 72 bytes plus its body. Fields that most jobs never need are in `Details`.
#[derive(Debug)]
pub struct Job {
    pub(super) id: u64,
    /// The payload. `None` only while a snapshot is being loaded, for a long body whose page has not been read yet.
    pub(super) body: Option<Body>,
    pub(super) created: Timestamp,
    pub(super) ttr_ms: u64,
    /// `previous` and `next` link the job to its neighbours in a list of ready jobs (`ready.rs`) or of claimed jobs
    /// (`claimed.rs`).
    pub(super) previous: Slot,
    pub(super) next: Slot,
    /// The number of its queue.
    pub(super) queue: Slot,
    pub(super) priority: u32,
    pub(super) phase: Phase,
    /// Whether it is kept in memory only, and is lost when the server process ends.
    pub(super) passing: bool,
    /// Whether it is tried again if a claim ends without success. If not, it runs at most once.
    pub(super) retries: bool,
    /// Whether it was added by a command of the beanstalk protocol.
    pub(super) tube: bool,
    pub(super) details: Option<Box<Details>>,
}

/// The history of a job, and the state of its claim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Details {
    /// When the job's phase began or, if that is later, when its claim was last touched.
    pub(super) since: Timestamp,
    /// When the claim ends, or when the job is retried. For a delayed or abandoned job, the date on which it becomes ready
    /// or is removed; see [`Job::ends`].
    pub(super) until: Timestamp,
    pub(super) delay_ms: u64,
    /// The sequence number of the journal entry that claimed it; zero if it is not claimed.
    pub(super) token: Token,
    /// The worker that claimed it, if the claim belongs to a connection.
    pub(super) worker: Option<Worker>,
    /// If this is its last try, the date on which it will be removed if it is abandoned; otherwise zero.
    pub(super) prune: Date,
    /// The sequence number of the journal entry that last buried it; zero if none has.
    pub(super) buried: Seq,
    pub(super) attempts: u32,
    pub(super) reserves: u32,
    pub(super) timeouts: u32,
    pub(super) releases: u32,
    pub(super) buries: u32,
    pub(super) kicks: u32,
    pub(super) dedup: Option<DedupKey>,
    pub(super) root: Option<Root>,
    /// The error of its last failure or deferral, the reason for its cancellation, or how the process of its last claim ended.
    #[serde(default)]
    pub(super) error: Option<ErrorText>,
    /// The binding of its claim; set only if the claim is bound to a process.
    #[serde(default)]
    pub(super) bound: Option<Box<Bound>>,
    /// Its number of work items; 0 counts as 1.
    #[serde(default)]
    pub(super) items: u32,
    /// The progress reported during its current or most recent claim; `None` if nothing was reported.
    #[serde(default)]
    pub(super) progress: Option<Box<Progress>>,
    /// When the job was claimed; zero if it is not claimed, or was claimed before this field existed. This field is not part
    /// of the digest, since older versions do not record it.
    #[serde(default)]
    pub(super) claimed: Timestamp,
    /// The number of its last claims that ended with a crash, without a report of a worker in between.
    #[serde(default, skip_serializing_if = "is_none")]
    pub(super) crashes: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The binding of a claim to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    /// The process, how much of its tree must end before the claim does, and whether a timeout kills the tree.
    pub(super) binding: Binding,
    /// Whether the claim has timed out and its process tree is being killed.
    pub(super) fencing: bool,
    /// Whether the job was cancelled and is only waiting for the process to end.
    #[serde(default)]
    pub(super) cancelled: bool,
    /// The process that works on the job, if the claimant has named one. When the claimant is gone, the claim is bound to this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<Command>,
}

impl Bound {
    /// Creates the binding of a new claim.
    pub(super) const fn to(binding: Binding) -> Self {
        Self { binding, fencing: false, cancelled: false, command: None }
    }

    /// Returns whether the claimant is gone, so that the claim lasts as long as the process that works on the job.
    pub(super) fn is_orphaned(&self) -> bool {
        let command = self.command;
        command.is_some_and(|it| it.process == self.binding.process)
    }

    /// Binds the claim to the process that works on the job, if there is one: the claimant is gone, or the claim has timed out.
    pub(super) fn hand_over(&mut self) {
        if let Some(command) = self.command {
            self.binding = Binding { process: command.process, until: Until::Tree, fence: true };
        }
    }
}

impl Details {
    /// Returns the process that its claim is bound to, and how; `None` if it is not bound.
    pub(super) fn binding(&self) -> Option<Binding> {
        self.bound.as_ref().map(|bound| bound.binding)
    }

    /// Returns whether its claim has timed out and its process tree is being killed.
    pub(super) fn is_fencing(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.fencing)
    }

    /// Returns whether it was cancelled and is only waiting for the process of its claim to end.
    pub(super) fn is_cancelled(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.cancelled)
    }

    /// Returns whether its claim ends only with its process.
    pub(super) fn is_endless(&self) -> bool {
        self.is_fencing() || self.bound.is_some() && self.until == Timestamp(u64::MAX)
    }
}

impl Job {
    pub(super) fn body(&self) -> &Body {
        self.body.as_ref().expect("every body should have been loaded")
    }

    /// Returns its details, or empty ones if it has none, as is the case for most jobs.
    pub(super) fn details(&self) -> &Details {
        self.details.as_deref().unwrap_or_else(|| &NO_DETAILS)
    }

    /// Returns the total size of its body, its error and its progress report, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let details = self.details();
        let error = details.error.as_ref().map_or(0, |error| error.as_str().len());
        let report = details.progress.as_ref().map_or(0, |it| it.bytes());
        (self.body().as_bytes().len() + error + report) as u64
    }

    pub(super) fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    /// Returns the number of claims that count as tries: zero for a buried, abandoned or quarantined job, whose tries start again when it is claimed.
    pub(super) fn tries(&self) -> u32 {
        match self.phase {
            Phase::Buried | Phase::Abandoned | Phase::Quarantined => 0,
            Phase::Ready | Phase::Delayed | Phase::Claimed | Phase::Retrying => {
                self.details.as_deref().map_or(0, |details| details.attempts)
            }
        }
    }

    /// Returns whether it is abandoned if its claim ends without success: it is on its last try, or was cancelled.
    pub(super) fn is_last_try(&self) -> bool {
        self.details().prune != Date(0)
    }

    /// Returns the job's deadline, or `None` if it has none. `epoch` is the time at which the server last started: the time
    /// limits of claims and the waits for a retry restarted then.
    pub(super) fn ends(&self, epoch: Timestamp) -> Option<Deadline> {
        let details = self.details.as_deref()?;
        match self.phase {
            Phase::Ready | Phase::Buried | Phase::Quarantined => None,
            Phase::Delayed => Some(Deadline::Date(Date(details.until.0))),
            Phase::Abandoned => Some(Deadline::Removal(Date(details.until.0))),
            Phase::Claimed if details.is_endless() => None,
            Phase::Claimed | Phase::Retrying => Some(Deadline::Time(span_end(details, epoch))),
        }
    }

    /// Returns when its claim, or its wait for a retry, ends; `None` in other phases, and for a claim that ends only
    /// with its process. For `epoch`, see [`Job::ends`].
    pub(super) fn claimed_until(&self, epoch: Timestamp) -> Option<Timestamp> {
        match self.ends(epoch)? {
            Deadline::Time(at) => Some(at),
            Deadline::Date(_) | Deadline::Removal(_) => None,
        }
    }

    /// Replaces the contents of `bytes` with the bytes over which the digest of the body is computed.
    pub(super) fn canonical_body(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(self.body().as_bytes());
    }
}

/// Returns when a claim, or a wait for a retry, ends. Its span began at `since`, or at `epoch` if that is later.
fn span_end(details: &Details, epoch: Timestamp) -> Timestamp {
    let begins = details.since.max(epoch);
    begins.plus_ms(details.until.0.saturating_sub(details.since.0))
}

// There may be millions of jobs, so a change that makes them larger should be deliberate.
const _: () = assert!(size_of::<usize>() != 8 || size_of::<Option<Job>>() == 72);

/// Returns the token; `None` if it is zero, which means that there is no claim.
pub(super) fn nonzero(token: Token) -> Option<Token> {
    Some(token).filter(|token| *token != Token(0))
}
