//! The SupervisorActor: counts panics and says whether an actor is restarted or the node halts.
//!
//! It is asked in place, on the core, because its verdict is needed before the next message; it owns no other actor's
//! state and keeps nothing in the journal, where every panic stands as a poisoned entry already. Follows the restart
//! intensity and period of OTP's supervisors.

use crate::clock::Timestamp;
use crate::spine::host::Report;
use crate::spine::ledger::Stage;
use std::collections::{BTreeMap, VecDeque};

/// How many causes are kept for each actor.
const CAUSES_MAX: usize = 16;

/// When enough is enough.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Panics of one actor within the period that leave its state whole.
    pub restarts_max: u32,
    /// Panics of one actor within the period that spend its state.
    pub rebuilds_max: u32,
    /// The period, in milliseconds.
    pub period_ms: u64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            restarts_max: 1000,
            rebuilds_max: 10,
            period_ms: 10_000,
        }
    }
}

/// What happens after a panic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The actor goes on, rebuilt if its state is spent.
    Restart,
    /// The node stops: it panics too often.
    Halt,
}

/// The restart policy and its memory.
#[derive(Debug, Default)]
pub struct SupervisorActor {
    rules: Rules,
    actors: BTreeMap<&'static str, Record>,
}

/// What is known of one actor's panics.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Record {
    /// Panics that left the state whole.
    pub restarts: u64,
    /// Panics that spent it.
    pub rebuilds: u64,
    /// The newest panics.
    pub causes: VecDeque<Report>,
    #[serde(skip)]
    recent_restarts: VecDeque<Timestamp>,
    #[serde(skip)]
    recent_rebuilds: VecDeque<Timestamp>,
}

impl SupervisorActor {
    /// A supervisor with these rules.
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            actors: BTreeMap::new(),
        }
    }

    /// An actor panicked.
    pub fn panicked(&mut self, report: &Report) -> Verdict {
        tracing::error!(
            actor = report.actor,
            stage = ?report.stage,
            seq = report.seq.0,
            cause = report.cause,
            item = report.item,
            "a request panicked and was not applied"
        );
        let rules = self.rules;
        let record = self.actors.entry(report.actor).or_default();
        record.causes.push_back(report.clone());
        if record.causes.len() > CAUSES_MAX {
            record.causes.pop_front();
        }
        let (recent, max) = if report.stage == Stage::Commit {
            record.rebuilds += 1;
            (&mut record.recent_rebuilds, rules.rebuilds_max)
        } else {
            record.restarts += 1;
            (&mut record.recent_restarts, rules.restarts_max)
        };
        recent.push_back(report.at);
        let begin = report.at.0.saturating_sub(rules.period_ms);
        while recent.front().is_some_and(|at| at.0 < begin) {
            recent.pop_front();
        }
        if recent.len() > max as usize {
            Verdict::Halt
        } else {
            Verdict::Restart
        }
    }

    /// What is known of an actor's panics.
    pub fn record(&self, actor: &str) -> Record {
        self.actors.get(actor).cloned().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Rules, SupervisorActor, Verdict};
    use crate::clock::Timestamp;
    use crate::ids::Seq;
    use crate::spine::host::Report;
    use crate::spine::ledger::Stage;

    fn panic_at(ms: u64, stage: Stage) -> Report {
        let at = Timestamp(ms);
        Report {
            actor: "lock",
            stage,
            seq: Seq(ms),
            at,
            cause: "x".to_owned(),
            item: None,
        }
    }

    #[test]
    fn halts_when_panics_come_faster_than_the_rules_allow() {
        let rules = Rules {
            restarts_max: 2,
            rebuilds_max: 1,
            period_ms: 100,
        };
        let mut supervisor = SupervisorActor::new(rules);
        let mut verdict = |ms, stage| supervisor.panicked(&panic_at(ms, stage));
        assert_eq!(verdict(0, Stage::Decide), Verdict::Restart);
        assert_eq!(verdict(50, Stage::Query), Verdict::Restart);
        assert_eq!(verdict(60, Stage::Commit), Verdict::Restart);
        assert_eq!(
            verdict(101, Stage::Tick),
            Verdict::Restart,
            "the first is out of the period"
        );
        assert_eq!(verdict(102, Stage::Decide), Verdict::Halt);
        assert_eq!(verdict(160, Stage::Commit), Verdict::Halt);
        let record = supervisor.record("lock");
        assert_eq!(
            (record.restarts, record.rebuilds, record.causes.len()),
            (4, 2, 6)
        );
    }
}
