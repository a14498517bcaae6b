//! The phases of a job, and the number of jobs in each.

use serde::{Deserialize, Serialize};

/// The phase of a job.
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(u8)]
pub enum Phase {
    /// It can be claimed.
    Ready,
    /// It becomes ready after a delay.
    Delayed,
    /// A worker has claimed it.
    Claimed,
    /// It was buried by a client, and waits to be kicked.
    Buried,
    /// It will not be tried again unless it is kicked: its last try did not succeed, or it was cancelled.
    Abandoned,
    /// It failed or was deferred, and waits to be tried again.
    Retrying,
    /// It was set aside: too many of its claims ended with a crash. It is not tried again unless it is kicked, and is not removed by time.
    Quarantined,
}

impl Phase {
    /// Returns whether a job in this phase is over unless it is kicked: it is neither waiting nor being worked on.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Abandoned | Self::Quarantined)
    }

    /// Returns whether a job in this phase can be claimed, now or later, without being kicked. No duplicate of such a job is added.
    pub(super) fn is_waiting(self) -> bool {
        matches!(self, Self::Ready | Self::Delayed | Self::Retrying)
    }

    /// Returns the phase as stored in pages and digests. `Retrying` is stored as `Claimed`: older versions had no phase
    /// `Retrying`, and represented a job that waits for a retry as a claimed job without a token.
    pub(super) fn stored(self) -> Self {
        if self == Self::Retrying { Self::Claimed } else { self }
    }
}

/// The number of jobs in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Ready jobs with a priority number below 1024.
    pub urgent: u32,
    /// Ready jobs.
    pub ready: u32,
    /// Delayed jobs.
    pub delayed: u32,
    /// Claimed jobs.
    pub claimed: u32,
    /// Jobs buried by a client.
    pub buried: u32,
    /// Jobs that are abandoned, because their last try did not succeed or because they were cancelled.
    pub abandoned: u32,
    /// Jobs that failed or were deferred, and wait to be tried again.
    pub retrying: u32,
    /// Jobs that were set aside because too many of their claims ended with a crash.
    pub quarantined: u32,
}

/// Jobs with a priority number below this are urgent.
const URGENT_BELOW: u32 = 1024;

impl Counts {
    /// Adds a job to the counts if `present` is true, and otherwise subtracts it.
    pub(super) fn note(&mut self, phase: Phase, priority: u32, present: bool) {
        let count = match phase {
            Phase::Ready => &mut self.ready,
            Phase::Delayed => &mut self.delayed,
            Phase::Claimed => &mut self.claimed,
            Phase::Buried => &mut self.buried,
            Phase::Abandoned => &mut self.abandoned,
            Phase::Retrying => &mut self.retrying,
            Phase::Quarantined => &mut self.quarantined,
        };
        step(count, present);
        if phase == Phase::Ready && priority < URGENT_BELOW {
            step(&mut self.urgent, present);
        }
    }

    /// Returns the number of jobs in a phase.
    pub fn of(&self, phase: Phase) -> u32 {
        match phase {
            Phase::Ready => self.ready,
            Phase::Delayed => self.delayed,
            Phase::Claimed => self.claimed,
            Phase::Buried => self.buried,
            Phase::Abandoned => self.abandoned,
            Phase::Retrying => self.retrying,
            Phase::Quarantined => self.quarantined,
        }
    }

    /// Returns the total number of jobs, in all phases.
    pub fn all(&self) -> u32 {
        let waiting = self.ready + self.delayed + self.retrying;
        waiting + self.claimed + self.buried + self.abandoned + self.quarantined
    }
}

fn step(count: &mut u32, up: bool) {
    if up {
        *count += 1;
    } else {
        *count -= 1;
    }
}
