//! What can be the matter with a job, and how many of a queue it is the matter with.

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
    /// Somebody works on it.
    Claimed,
    /// A client has put it aside.
    Buried,
    /// Its last try is over.
    Abandoned,
    /// It failed, and belongs to nobody until it is tried again.
    Retrying,
}

impl Phase {
    /// Whether nobody works on it and somebody will: another that is one with it is not added.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::Ready | Self::Delayed | Self::Retrying)
    }

    /// As pages and digests have it: before `retrying` was a phase, a failed job was claimed under no token.
    pub(super) fn stored(self) -> Self {
        if self == Self::Retrying {
            Self::Claimed
        } else {
            self
        }
    }
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
    /// Failed, and to be tried again.
    pub retrying: u32,
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
            Phase::Retrying => &mut self.retrying,
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
            Phase::Retrying => self.retrying,
        }
    }

    /// All of them.
    pub fn all(&self) -> u32 {
        self.ready + self.delayed + self.claimed + self.buried + self.abandoned + self.retrying
    }
}

fn step(count: &mut u32, up: bool) {
    if up {
        *count += 1;
    } else {
        *count -= 1;
    }
}
