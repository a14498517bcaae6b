//! One job: what is kept of it.
//!
//! Change rule: the fields but for the links are durable, see `message.rs`.

use crate::actors::binding::Binding;
use crate::actors::queue::message::{DedupKey, Root, is_not};
use crate::actors::queue::phase::Phase;
use crate::actors::queue::right::Worker;
use crate::actors::queue::said::{ErrorText, Progress};
use crate::bytes::Bytes as Body;
use crate::clock::{Date, Deadline, Timestamp};
use crate::ids::{Seq, Slot, Token};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// Of a job that has lived through nothing.
static NOTHING: LazyLock<Story> = LazyLock::new(Story::default);

/// One job. Sized for millions: 72 bytes, and its body; what most jobs never come to have stands apart.
#[derive(Debug)]
pub struct Job {
    pub(super) id: u64,
    /// None as long as it is still to be read from a page of its own.
    pub(super) body: Option<Body>,
    pub(super) created: Timestamp,
    pub(super) ttr_ms: u64,
    /// Neighbours among what is ready, see `ready.rs`, or among what is not, see `held.rs`.
    pub(super) previous: Slot,
    pub(super) next: Slot,
    /// The number of its queue.
    pub(super) queue: Slot,
    pub(super) priority: u32,
    pub(super) phase: Phase,
    /// Whether it ends with the process.
    pub(super) passing: bool,
    /// Whether it is tried again when a claim ends without a word.
    pub(super) retries: bool,
    /// Whether a tube command added it.
    pub(super) tube: bool,
    pub(super) story: Option<Box<Story>>,
}

/// What a job has lived through.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Story {
    /// When its phase began, or its claim was touched.
    pub(super) since: Timestamp,
    /// When its claim ends, or it is tried again; of a delay or an abandonment the date, see [`Job::ends`].
    pub(super) until: Timestamp,
    pub(super) delay_ms: u64,
    /// The entry of its newest claim.
    pub(super) token: Token,
    /// Whose the claim is, if a connection's.
    pub(super) worker: Option<Worker>,
    /// Given back, it is abandoned, and pruned then; zero if this is not its last try.
    pub(super) prune: Date,
    /// The entry that buried it.
    pub(super) buried: Seq,
    pub(super) attempts: u32,
    pub(super) reserves: u32,
    pub(super) timeouts: u32,
    pub(super) releases: u32,
    pub(super) buries: u32,
    pub(super) kicks: u32,
    pub(super) dedup: Option<DedupKey>,
    pub(super) root: Option<Root>,
    /// What was said when it failed last.
    #[serde(default)]
    pub(super) error: Option<ErrorText>,
    /// Only of a claim that is bound to a process.
    #[serde(default)]
    pub(super) bound: Option<Box<Bound>>,
    /// How many items of work it is; 0 counts as 1.
    #[serde(default)]
    pub(super) items: u32,
    /// How far the newest try came, if its worker said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) progress: Option<Box<Progress>>,
}

/// What a claim has that is bound to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Bound {
    /// To which, and until when.
    pub(super) binding: Binding,
    /// Whether its time has run out, and its tree is being killed.
    pub(super) fencing: bool,
    /// Whether the job is not wanted any more, and only the process has to end.
    #[serde(default, skip_serializing_if = "is_not")]
    pub(super) cancelled: bool,
}

impl Bound {
    /// Of a new claim.
    pub(super) const fn to(binding: Binding) -> Self {
        Self {
            binding,
            fencing: false,
            cancelled: false,
        }
    }
}

impl Story {
    /// The process that its claim is bound to.
    pub(super) fn binding(&self) -> Option<Binding> {
        self.bound.as_ref().map(|bound| bound.binding)
    }

    /// Whether the time of its claim has run out, and its tree is being killed.
    pub(super) fn is_fencing(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.fencing)
    }

    /// Whether it is not wanted any more, and only the process of its claim has to end.
    pub(super) fn is_cancelled(&self) -> bool {
        self.bound.as_ref().is_some_and(|bound| bound.cancelled)
    }

    /// Whether its claim ends with its process alone.
    pub(super) fn is_endless(&self) -> bool {
        self.is_fencing() || self.bound.is_some() && self.until == Timestamp(u64::MAX)
    }
}

impl Job {
    pub(super) fn body(&self) -> &Body {
        self.body.as_ref().expect("bodies are read with their jobs")
    }

    /// What it has lived through; nothing yet, for most.
    pub(super) fn story(&self) -> &Story {
        self.story.as_deref().unwrap_or_else(|| &NOTHING)
    }

    /// Bytes of its body, of its newest error, and of what its worker reported.
    pub(super) fn bytes(&self) -> u64 {
        let story = self.story();
        let error = story.error.as_ref().map_or(0, |error| error.as_str().len());
        let report = story.progress.as_ref().map_or(0, |it| it.bytes());
        (self.body().as_bytes().len() + error + report) as u64
    }

    pub(super) fn story_mut(&mut self) -> &mut Story {
        self.story.get_or_insert_default()
    }

    /// Claims that count as tries. One that was put aside begins again when somebody takes it.
    pub(super) fn tries(&self) -> u32 {
        match self.phase {
            Phase::Buried | Phase::Abandoned => 0,
            Phase::Ready | Phase::Delayed | Phase::Claimed | Phase::Retrying => {
                self.story.as_deref().map_or(0, |story| story.attempts)
            }
        }
    }

    /// Whether it is abandoned if its claim ends without a word.
    pub(super) fn is_last_try(&self) -> bool {
        self.story().prune != Date(0)
    }

    /// When time acts on it, if spans began again at `epoch`.
    pub(super) fn ends(&self, epoch: Timestamp) -> Option<Deadline> {
        let story = self.story.as_deref()?;
        match self.phase {
            Phase::Ready | Phase::Buried => None,
            Phase::Delayed => Some(Deadline::Date(Date(story.until.0))),
            Phase::Abandoned => Some(Deadline::Removal(Date(story.until.0))),
            Phase::Claimed if story.is_endless() => None,
            Phase::Claimed | Phase::Retrying => Some(Deadline::Time(later(story, epoch))),
        }
    }

    /// When its claim ends, if it is claimed and spans began again at `epoch`.
    pub(super) fn claimed_until(&self, epoch: Timestamp) -> Option<Timestamp> {
        match self.ends(epoch)? {
            Deadline::Time(at) => Some(at),
            Deadline::Date(_) | Deadline::Removal(_) => None,
        }
    }

    /// Puts what the digest is made of for the body into `bytes`.
    pub(super) fn canonical_body(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(self.body().as_bytes());
    }
}

/// The end of a span that begins again at `epoch`.
fn later(story: &Story, epoch: Timestamp) -> Timestamp {
    let begins = story.since.max(epoch);
    begins.plus_ms(story.until.0.saturating_sub(story.since.0))
}

// Every job is one of perhaps millions: whoever makes it larger should mean to.
const _: () = assert!(size_of::<usize>() != 8 || size_of::<Option<Job>>() == 72);

/// The token of a claim that there is none of.
pub(super) fn shown(token: Token) -> Option<Token> {
    Some(token).filter(|token| *token != Token(0))
}
