//! The messages between the spine and the Supervisor, and the restart policy that all supervision follows.
//!
//! The policy is modeled on the restart intensity and period of OTP's supervisors.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};
use crate::spine::delivery::Stage;
use crate::spine::effect::To;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// The address of the Supervisor, which judges panics.
pub const SUPERVISOR: To<Panicked> = To::new(ActorId::SUPERVISOR);

/// The report that an actor panicked. Stored in the journal: see the change rule in `persist/format.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panicked {
    /// The actor.
    pub actor: ActorId,
    /// Where it panicked.
    pub stage: Stage,
    /// The entry that records the message as poisoned (its handling panicked); if there is none, the newest entry of all.
    pub seq: Seq,
    /// The panic message, at most [`CAUSE_BYTES_MAX`] bytes.
    pub cause: String,
    /// The item whose tick panicked. It is now quarantined: its deadline is ignored until the item changes.
    pub item: Option<u64>,
    /// Whether the state is spent, and must be rebuilt.
    pub spent: bool,
}

/// The number of bytes to which a panic message is truncated.
pub const CAUSE_BYTES_MAX: usize = 256;

/// What happens after a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The actor continues, after a rebuild if its state is spent.
    Restart,
    /// The node halts, because the actor panics too often.
    Halt,
}

/// How often something may be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intensity {
    /// The maximum number of restarts within the period.
    pub restarts_max: u32,
    /// The period, in milliseconds.
    pub period_ms: u64,
}

/// Recent restarts, as far back as an intensity considers.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    restarts: VecDeque<Timestamp>,
}

impl Recent {
    /// Returns whether one more restart, at `at`, would exceed `intensity`.
    pub fn is_too_many(&self, at: Timestamp, intensity: Intensity) -> bool {
        let within = |before: &&Timestamp| before.plus_ms(intensity.period_ms) >= at;
        let recent = self.restarts.iter().rev().take_while(within).count();
        recent >= intensity.restarts_max as usize
    }

    /// Records a restart, and forgets those that the intensity no longer considers.
    pub fn note(&mut self, at: Timestamp, intensity: Intensity) {
        self.restarts.push_back(at);
        let is_old = |before: &mut Timestamp| before.plus_ms(intensity.period_ms) < at;
        while self.restarts.pop_front_if(is_old).is_some() {}
    }
}

/// The delays before restarts in a row. From the second restart on, each delay is twice the previous one, up to a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The delay before the second restart in a row, in milliseconds. The first restart is not delayed.
    pub first_ms: u64,
    /// The maximum delay, in milliseconds.
    pub max_ms: u64,
}

impl Backoff {
    /// Returns the delay, in milliseconds, before a restart that follows `restarts` others in a row.
    pub fn wait_ms(self, restarts: u32) -> u64 {
        let Some(doublings) = restarts.checked_sub(1) else {
            return 0;
        };
        let factor = 1_u64.checked_shl(doublings).unwrap_or(u64::MAX);
        self.first_ms.saturating_mul(factor).min(self.max_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::{Backoff, Intensity, Recent};
    use crate::clock::Timestamp;

    #[test]
    fn restarts_are_too_many_within_the_period_alone() {
        let intensity = Intensity { restarts_max: 2, period_ms: 100 };
        let mut recent = Recent::default();
        let mut restart = |ms| {
            let too_many = recent.is_too_many(Timestamp(ms), intensity);
            recent.note(Timestamp(ms), intensity);
            too_many
        };
        assert!(!restart(0));
        assert!(!restart(50));
        assert!(restart(100), "both earlier restarts are within the period");
        assert!(!restart(160), "of the earlier restarts, only the last is within the period");
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff { first_ms: 100, max_ms: 350 };
        let waits = [0, 1, 2, 3, 4, 200].map(|restarts| backoff.wait_ms(restarts));
        assert_eq!(waits, [0, 100, 200, 350, 350, 350]);
    }
}
