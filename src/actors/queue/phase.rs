//! The phases of a job, and the number of jobs in each.

use serde::Serialize;
use sexton_api::queue::Phase;

/// Returns a phase as stored in pages and digests. `Retrying` is stored as `Claimed`: older versions had no phase `Retrying`, and represented a
/// job that waits for a retry as a claimed job without a token.
pub(super) fn stored(phase: Phase) -> Phase {
    if phase == Phase::Retrying { Phase::Claimed } else { phase }
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
