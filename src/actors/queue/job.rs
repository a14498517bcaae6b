//! One job: what is kept of it, and what the digest is made of.
//!
//! Change rule: the fields but for the links are durable, see `message.rs`.

use crate::actors::queue::body::Body;
use crate::actors::queue::message::{DedupKey, Root, Worker};
use crate::actors::queue::reply::Counts;
use crate::clock::Timestamp;
use crate::ids::{Seq, Slot, Token};
use serde::{Deserialize, Serialize};

/// What is the matter with a job.
#[cfg_attr(feature = "http", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Phase {
    /// It can be claimed.
    Ready,
    /// It will be ready.
    Delayed,
    /// Somebody works on it, or did and failed.
    Claimed,
    /// A client has put it aside.
    Buried,
    /// Its last try is over.
    Abandoned,
}

/// One job. Sized for millions: 72 bytes, and its body; what most jobs never come to have stands apart.
#[derive(Debug)]
pub struct Job {
    pub(super) id: u64,
    pub(super) body: Body,
    pub(super) created: Timestamp,
    pub(super) ttr_ms: u64,
    /// Neighbours among what is ready, see `ready.rs`, or among what is not, see `held.rs`.
    pub(super) previous: Slot,
    pub(super) next: Slot,
    /// Where its queue stands in memory.
    pub(super) queue: Slot,
    pub(super) priority: u32,
    pub(super) phase: Phase,
    /// Whether it ends with the process.
    pub(super) passing: bool,
    /// Whether it is tried again when a claim ends without a word.
    pub(super) retries: bool,
    pub(super) story: Option<Box<Story>>,
}

/// What a job has lived through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Story {
    /// When its phase began, or its claim was touched.
    pub(super) since: Timestamp,
    /// When delay, claim or abandonment ends.
    pub(super) until: Timestamp,
    pub(super) delay_ms: u64,
    /// The entry of its newest claim.
    pub(super) token: Token,
    /// Whose the claim is, if a connection's.
    pub(super) worker: Option<Worker>,
    /// Given back, it is abandoned, and pruned then; zero if this is not its last try.
    pub(super) prune: Timestamp,
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
}

impl Job {
    /// What it has lived through; nothing yet, for most.
    pub(super) fn story(&self) -> Story {
        self.story.as_deref().copied().unwrap_or_default()
    }

    pub(super) fn story_mut(&mut self) -> &mut Story {
        self.story.get_or_insert_default()
    }

    /// Claims that count as tries. One that was put aside begins again when somebody takes it.
    pub(super) fn tries(&self) -> u32 {
        match self.phase {
            Phase::Buried | Phase::Abandoned => 0,
            Phase::Ready | Phase::Delayed | Phase::Claimed => {
                self.story.as_deref().map_or(0, |story| story.attempts)
            }
        }
    }

    /// When time acts on it, if spans began again at `epoch`.
    pub(super) fn deadline(&self, epoch: Timestamp) -> Option<Timestamp> {
        let story = self.story.as_deref()?;
        match self.phase {
            Phase::Ready | Phase::Buried => None,
            Phase::Delayed | Phase::Abandoned => Some(story.until),
            Phase::Claimed => Some(later(story, epoch)),
        }
    }

    /// Puts what the digest is made of into `bytes`, but for the body.
    pub(super) fn canonical(&self, queue: Slot, bytes: &mut Vec<u8>) {
        bytes.clear();
        for word in [self.id, self.created.0, self.ttr_ms] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(&queue.0.to_le_bytes());
        bytes.extend_from_slice(&self.priority.to_le_bytes());
        bytes.extend_from_slice(&[self.phase as u8, self.passing.into(), self.retries.into()]);
        if let Some(story) = &self.story {
            story.canonical(bytes);
        }
    }

    /// Puts what the digest is made of for the body into `bytes`.
    pub(super) fn canonical_body(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(self.body.as_bytes());
    }
}

/// The end of a span that begins again at `epoch`.
fn later(story: &Story, epoch: Timestamp) -> Timestamp {
    let begins = story.since.max(epoch);
    begins.plus_ms(story.until.0.saturating_sub(story.since.0))
}

impl Story {
    fn canonical(&self, bytes: &mut Vec<u8>) {
        let worker = self.worker.map_or(0, |worker| worker.0);
        for word in [
            self.since.0,
            self.until.0,
            self.delay_ms,
            self.token.0,
            worker,
            self.buried.0,
            self.prune.0,
        ] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        for count in [
            self.attempts,
            self.reserves,
            self.timeouts,
            self.releases,
            self.buries,
            self.kicks,
        ] {
            bytes.extend_from_slice(&count.to_le_bytes());
        }
        if let Some(DedupKey(key)) = &self.dedup {
            bytes.extend_from_slice(key);
        }
        if let Some(Root { key, at }) = &self.root {
            bytes.extend_from_slice(&key.0);
            bytes.extend_from_slice(&at.to_le_bytes());
        }
    }
}

/// Jobs with a lower number than this are urgent.
const URGENT_BELOW: u32 = 1024;

impl Counts {
    /// Counts a job in, or out.
    pub(super) fn note(&mut self, phase: Phase, priority: u32, present: bool) {
        let count = match phase {
            Phase::Ready => &mut self.ready,
            Phase::Delayed => &mut self.delayed,
            Phase::Claimed => &mut self.claimed,
            Phase::Buried => &mut self.buried,
            Phase::Abandoned => &mut self.abandoned,
        };
        step(count, present);
        if phase == Phase::Ready && priority < URGENT_BELOW {
            step(&mut self.urgent, present);
        }
    }

    /// Those in a phase.
    pub fn of(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Ready => self.ready,
            Phase::Delayed => self.delayed,
            Phase::Claimed => self.claimed,
            Phase::Buried => self.buried,
            Phase::Abandoned => self.abandoned,
        }
    }

    /// All of them.
    pub fn all(&self) -> u32 {
        self.ready + self.delayed + self.claimed + self.buried + self.abandoned
    }
}

fn step(count: &mut u32, up: bool) {
    if up {
        *count += 1;
    } else {
        *count -= 1;
    }
}

// Every job is one of perhaps millions: whoever makes it larger should mean to.
const _: () = assert!(size_of::<usize>() != 8 || size_of::<Option<Job>>() == 72);
