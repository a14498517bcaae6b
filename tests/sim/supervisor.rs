//! A second implementation of the Supervisor's rules. It counts panics. In a run, its verdict is always to restart.

use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{Nobody, Origin, Reference};
use sexton::actors::supervisor::{Cause, Outcome, Query, Record, Reply, Rules, SupervisorMachine};
use sexton::clock::Timestamp;
use sexton::ids::Slot;
use sexton::spine::delivery::Answer;
use sexton::spine::machine::{Never, Observable as _, Stamp, Start};
use sexton::spine::supervision::{Intensity, Panicked, Verdict};
use std::collections::BTreeMap;

/// The panics that were reported.
#[derive(Clone, Default)]
pub(crate) struct Supervisor {
    records: BTreeMap<Slot, Record>,
}

impl Judged for SupervisorMachine {
    type Reference = Supervisor;
}

impl Reference for Supervisor {
    const CALLS: u64 = 0;
    const TURNS: u64 = 30;

    type Clients = Nobody;
    type Machine = SupervisorMachine;

    fn rules() -> Rules {
        let without_end = Intensity { restarts_max: u32::MAX, period_ms: 0 };
        Rules { restarts: without_end, rebuilds: without_end }
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        panicked: &Panicked,
        (outcome, _): (&Outcome, &Reply),
    ) -> Result<(), String> {
        let record = self.records.entry(Slot(panicked.actor.0.into())).or_default();
        if panicked.spent {
            record.rebuilds += 1;
        } else {
            record.restarts += 1;
        }
        record.causes.push_back(Cause {
            stage: panicked.stage,
            seq: panicked.seq,
            at: stamp.at,
            cause: panicked.cause.clone(),
            item: panicked.item,
        });
        let old = record.causes.len().saturating_sub(8);
        record.causes.drain(..old);
        match outcome {
            Outcome::Judged(Verdict::Restart) => Ok(()),
            Outcome::Judged(Verdict::Halt) => Err("it gave up".to_owned()),
        }
    }

    fn start(&mut self, _start: Start) {}

    fn poisoned(&mut self, _panicked: &Panicked) {}

    fn due(&self, _at: Timestamp) -> Option<String> {
        None
    }

    fn without_change(&self, _panicked: &Panicked) -> Option<Reply> {
        None
    }

    fn answer(&self, Query::Of(actor): &Query) -> Answer<Reply> {
        let record = self.records.get(&Slot(actor.0.into())).cloned();
        Ok(Reply::Record(record.unwrap_or_default()))
    }

    fn agrees(&self, machine: &SupervisorMachine) -> Result<(), String> {
        let view = machine.view();
        (view == self.records)
            .then_some(())
            .ok_or_else(|| format!("panics are {view:?}, expected {:?}", self.records))
    }

    fn origin(_panicked: &Panicked) -> Origin {
        Origin::Tell
    }

    fn changes(reply: &Reply) -> bool {
        matches!(reply, Reply::Judged(_))
    }

    fn wakes(&self, watch: &Never) -> Option<Reply> {
        match *watch {}
    }

    fn count(_panicked: &Panicked, _outcome: &Outcome, counted: &mut Coverage) {
        counted.panics_judged += 1;
    }

    fn may_be_refused(_panicked: &Panicked) -> bool {
        false
    }

    fn is_disk_full(reply: &Reply) -> bool {
        matches!(reply, Reply::Refused(_))
    }
}
