//! The restart rules: an actor that panics is restarted, unless it panics too often; then the node halts.

use crate::actors::supervisor::record::{Cause, Record};
use crate::ids::{ActorId, Seq, Slot};
use crate::spine::effect::Action;
use crate::spine::event::EventBody;
use crate::spine::items::{Itemized, Items};
use crate::spine::machine::{
    Durability, Effects, Gauge, Machine, Moment, Never, Now, Observable, Refusal, SpaceEffect,
    Stamp, Start,
};
use crate::spine::supervision::{Intensity, Panicked, Recent, Verdict};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The limits on panics. The node halts when one is exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rules {
    /// The limit on panics of one actor that leave its state intact.
    pub restarts: Intensity,
    /// The limit on panics of one actor that force a rebuild of its state.
    pub rebuilds: Intensity,
}

impl Default for Rules {
    fn default() -> Self {
        let within = |restarts_max| Intensity { restarts_max, period_ms: 10_000 };
        Self { restarts: within(1000), rebuilds: within(10) }
    }
}

/// The decision about a panic. Stored in the journal: see the change rule in `persist/format.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The panic was judged, with this verdict.
    Judged(Verdict),
}

/// A query about panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Query {
    /// Asks for the record of one actor's panics; answered with [`Reply::Record`], which is empty if the actor has not panicked.
    Of(ActorId),
}

/// A reply of the Supervisor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A panic was judged.
    Judged(Verdict),
    /// The record of an actor's panics.
    Record(Record),
    /// The message was refused before it reached the machine.
    Refused(Refusal),
}

impl From<Refusal> for Reply {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// The panic records of all actors that have panicked; the slot number is the actor id.
pub type View = BTreeMap<Slot, Record>;

/// The restart rules, applied to the recorded panics.
#[derive(Debug)]
pub struct SupervisorMachine {
    rules: Rules,
    /// The panic records, each in the slot whose number is the actor id.
    records: Items<Record>,
    /// The recent panics of each actor. The flag in the key is true for panics that forced a rebuild of the actor's state, and false for
    /// those that left it intact. Volatile: empty at startup.
    recent: BTreeMap<(ActorId, bool), Recent>,
}

impl SupervisorMachine {
    const fn intensity(&self, spent: bool) -> Intensity {
        if spent { self.rules.rebuilds } else { self.rules.restarts }
    }
}

impl Machine for SupervisorMachine {
    const NAME: &'static str = "supervisor";
    const ID: ActorId = ActorId::SUPERVISOR;

    type Rules = Rules;
    type Message = Panicked;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Never;
    type Action = Verdict;

    fn new(rules: Rules) -> Self {
        Self { rules, records: Items::default(), recent: BTreeMap::new() }
    }

    fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    fn decide(&self, moment: &Moment, panicked: &Panicked) -> Outcome {
        let recent = self.recent.get(&(panicked.actor, panicked.spent));
        let intensity = self.intensity(panicked.spent);
        let too_many = match recent {
            Some(recent) => recent.is_too_many(moment.now.at, intensity),
            None => intensity.restarts_max == 0,
        };
        Outcome::Judged(if too_many { Verdict::Halt } else { Verdict::Restart })
    }

    fn durability(&self, _panicked: &Panicked, _outcome: &Outcome) -> Durability {
        Durability::Durable
    }

    fn commit(
        &mut self,
        entry: Stamp,
        panicked: &Panicked,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        let Outcome::Judged(verdict) = *outcome;
        let Panicked { actor, spent, .. } = *panicked;
        let intensity = self.intensity(spent);
        let recent = self.recent.entry((actor, spent)).or_default();
        recent.note(entry.at, intensity);
        let cause = Cause {
            stage: panicked.stage,
            seq: panicked.seq,
            at: entry.at,
            cause: panicked.cause.clone(),
            item: panicked.item,
        };
        self.records.change(entry.seq, slot_of(actor), |record| {
            record.note(cause, spent);
        });
        effects.act(Action { id: actor.0.into(), attempt: entry.seq, what: verdict });
    }

    fn reply(&self, _seq: Seq, _panicked: &Panicked, outcome: &Outcome) -> Reply {
        let Outcome::Judged(verdict) = *outcome;
        Reply::Judged(verdict)
    }

    fn query(&self, _now: Now, query: &Query) -> Reply {
        let Query::Of(actor) = query;
        Reply::Record(self.records.get(slot_of(*actor)).cloned().unwrap_or_default())
    }

    /// Panics replayed by recovery happened before this startup, and do not count towards the limits.
    fn start(&mut self, _start: Start) {
        self.recent.clear();
    }

    /// An actor is waiting for the verdict, so the message must not be refused.
    fn space_effect(&self, _panicked: &Panicked) -> SpaceEffect {
        SpaceEffect::Frees
    }
}

impl Itemized for SupervisorMachine {
    type Item = Record;

    fn items(&self) -> &Items<Record> {
        &self.records
    }

    fn items_mut(&mut self) -> &mut Items<Record> {
        &mut self.records
    }
}

impl Observable for SupervisorMachine {
    const KINDS: &'static [&'static str] = &["gave-up"];

    type View = View;

    // There is at most one record per actor, so the view is always complete.
    fn sample(&self, _most: usize) -> View {
        self.records.view()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let sum =
            |count: fn(&Record) -> u64| self.records.iter().map(|(_, record)| count(record)).sum();
        vec![
            Gauge {
                name: "restarts",
                help: "panics that left the state of an actor intact",
                value: sum(|record| record.restarts),
            },
            Gauge {
                name: "rebuilds",
                help: "panics after which the state of an actor had to be rebuilt",
                value: sum(|record| record.rebuilds),
            },
        ]
    }

    fn events(
        &self,
        _entry: Stamp,
        panicked: &Panicked,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        let Outcome::Judged(verdict) = outcome;
        if *verdict == Verdict::Halt {
            publish(EventBody::new("gave-up").number("panicked", u64::from(panicked.actor.0)));
        }
    }
}

fn slot_of(actor: ActorId) -> Slot {
    Slot(actor.0.into())
}

#[cfg(test)]
mod tests {
    use super::{Intensity, Machine as _, Outcome, Query, Reply, Rules, SupervisorMachine};
    use crate::clock::Timestamp;
    use crate::ids::{ActorId, Seq};
    use crate::spine::delivery::Stage;
    use crate::spine::effect::Effect;
    use crate::spine::machine::{Effects, Moment, Now, Stamp};
    use crate::spine::supervision::{Panicked, Verdict};

    fn panicked(actor: ActorId, spent: bool) -> Panicked {
        Panicked {
            actor,
            stage: if spent { Stage::Commit } else { Stage::Decide },
            seq: Seq(1),
            cause: "x".to_owned(),
            item: None,
            spent,
        }
    }

    #[test]
    fn halts_when_panics_come_faster_than_the_rules_allow() {
        let within = |restarts_max| Intensity { restarts_max, period_ms: 100 };
        let mut machine =
            SupervisorMachine::new(Rules { restarts: within(2), rebuilds: within(1) });
        let mut verdict = |ms, actor, spent| {
            let at = Timestamp(ms);
            let now = Now { at, ..Now::default() };
            let moment = Moment { now, ..Moment::default() };
            let message = panicked(actor, spent);
            let outcome = machine.decide(&moment, &message);
            let mut effects = Effects::<SupervisorMachine>::default();
            machine.commit(Stamp { seq: Seq(ms + 1), at }, &message, &outcome, &mut effects);
            let acts = effects.take();
            let [Effect::Act(action)] = acts.as_slice() else {
                panic!("a verdict is one action, not {acts:?}");
            };
            let Outcome::Judged(verdict) = outcome;
            assert_eq!(
                (action.id, action.attempt, action.what),
                (actor.0.into(), Seq(ms + 1), verdict)
            );
            verdict
        };
        let (lock, queue) = (ActorId::LOCK, ActorId::QUEUE);
        assert_eq!(verdict(0, lock, false), Verdict::Restart);
        assert_eq!(verdict(50, lock, false), Verdict::Restart);
        assert_eq!(verdict(60, lock, true), Verdict::Restart);
        assert_eq!(verdict(70, queue, false), Verdict::Restart);
        assert_eq!(
            verdict(101, lock, false),
            Verdict::Restart,
            "the first panic is older than the period"
        );
        assert_eq!(verdict(102, lock, false), Verdict::Halt);
        assert_eq!(verdict(160, lock, true), Verdict::Halt);
        let Reply::Record(record) = machine.query(Now::default(), &Query::Of(lock)) else {
            panic!("the reply to a query for a record is not a record");
        };
        assert_eq!((record.restarts, record.rebuilds, record.causes.len()), (4, 2, 6));
    }
}
