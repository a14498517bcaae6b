//! What the spine and the Supervisor say to each other, and the policy of restarts that all supervision goes by.
//!
//! Follows the restart intensity and period of OTP's supervisors.

use crate::clock::Timestamp;
use crate::ids::{ActorId, Seq};
use crate::spine::delivery::Stage;
use crate::spine::effect::To;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Who judges panics.
pub const SUPERVISOR: To<Panicked> = To::new(ActorId::SUPERVISOR);

/// An actor panicked. Stored in the journal: see the change rule in `persist/format.rs`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panicked {
    /// Which actor.
    pub actor: ActorId,
    /// Where.
    pub stage: Stage,
    /// The entry that is marked as poisoned; if none is, the newest of all.
    pub seq: Seq,
    /// The panic's words, at most [`CAUSE_BYTES_MAX`].
    pub cause: String,
    /// The item on which time acted, now quarantined.
    pub item: Option<u64>,
    /// Whether the state is spent, and must be rebuilt.
    pub spent: bool,
}

/// The most bytes that are kept of a panic's words.
pub const CAUSE_BYTES_MAX: usize = 256;

/// What happens after a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The actor goes on, rebuilt if its state is spent.
    Restart,
    /// The node stops: it panics too often.
    Halt,
}

/// How often something may be restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intensity {
    /// Restarts within the period; one more is too many.
    pub restarts_max: u32,
    /// The period, in milliseconds.
    pub period_ms: u64,
}

/// The restarts of late, as far as an intensity looks back.
#[derive(Clone, Debug, Default)]
pub struct Recent {
    restarts: VecDeque<Timestamp>,
}

impl Recent {
    /// Whether one more restart at `at` would be too many.
    pub fn is_too_many(&self, at: Timestamp, intensity: Intensity) -> bool {
        let within = |before: &&Timestamp| before.plus_ms(intensity.period_ms) >= at;
        let recent = self.restarts.iter().rev().take_while(within).count();
        recent >= intensity.restarts_max as usize
    }

    /// Notes a restart, and forgets what the intensity no longer looks at.
    pub fn note(&mut self, at: Timestamp, intensity: Intensity) {
        self.restarts.push_back(at);
        let is_old = |before: &mut Timestamp| before.plus_ms(intensity.period_ms) < at;
        while self.restarts.pop_front_if(is_old).is_some() {}
    }
}

/// How long the next restart waits: doubled each time, from the first to the longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Backoff {
    /// The wait before the second restart in a row, in milliseconds. The first waits for nothing.
    pub first_ms: u64,
    /// The longest wait, in milliseconds.
    pub max_ms: u64,
}

impl Backoff {
    /// The wait before a restart that follows `restarts` others in a row.
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
        let intensity = Intensity {
            restarts_max: 2,
            period_ms: 100,
        };
        let mut recent = Recent::default();
        let mut restart = |ms| {
            let too_many = recent.is_too_many(Timestamp(ms), intensity);
            recent.note(Timestamp(ms), intensity);
            too_many
        };
        assert!(!restart(0));
        assert!(!restart(50));
        assert!(restart(100), "the first is still within the period");
        assert!(!restart(160), "of the others, one is");
    }

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = Backoff {
            first_ms: 100,
            max_ms: 350,
        };
        let waits = [0, 1, 2, 3, 4, 200].map(|restarts| backoff.wait_ms(restarts));
        assert_eq!(waits, [0, 100, 200, 350, 350, 350]);
    }
}
