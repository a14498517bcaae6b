//! A second implementation of the rules of counters, the actors that exist only in tests.

use crate::actor::Ask;
use crate::chance::Chance;
use crate::counter::{
    Counter, CounterMachine, CounterMessage, Message, PANICS, SILENCE_MS, STRIDE,
};
use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{Clients, Origin, Reference};
use crate::setting::Setting;
use sexton::clock::Timestamp;
use sexton::ids::Slot;
use sexton::spine::delivery::{Answer, Failed};
use sexton::spine::machine::{Never, Observable as _, Refusal, Stamp, Start};
use std::collections::{BTreeMap, BTreeSet};

/// Counters, according to the description in their own module.
#[derive(Clone, Default)]
pub(crate) struct Counters<const ID: u8> {
    counters: BTreeMap<Slot, Counter>,
    /// Names of counters on which time no longer acts, because their tick panicked.
    quarantined: BTreeSet<Slot>,
}

type Reply = Result<Option<u64>, Refusal>;

impl<const ID: u8> Judged for CounterMachine<ID> {
    type Reference = Counters<ID>;
}

impl<const ID: u8> Counters<ID> {
    fn value(&self, name: Slot) -> u64 {
        self.counters.get(&name).map_or(0, |counter| counter.value)
    }

    /// Returns this count for each counter whose count is not zero.
    pub(crate) fn counted(&self, count: fn(&Counter) -> u64) -> BTreeMap<Slot, u64> {
        let counters = self.counters.iter();
        let counts = counters.map(|(name, counter)| (*name, count(counter)));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    fn first_due(&self, at: Timestamp) -> Option<Slot> {
        let counters = self.counters.iter();
        let timed = counters.filter(|(_, counter)| counter.value > 0 || counter.silent);
        let ends = timed.map(|(name, counter)| {
            let ends = counter.since.plus_ms(counter.span_ms.into());
            (ends, *name)
        });
        let due = ends.filter(|(ends, name)| *ends <= at && !self.quarantined.contains(name));
        due.min().map(|(_, name)| name)
    }
}

/// Clients of the counters.
pub(crate) struct Counting;

impl<const ID: u8> Clients<Counters<ID>> for Counting {
    fn new(_: &Setting) -> Self {
        Self
    }

    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<Counters<ID>>> {
        let ask = |chance: &mut Chance| {
            let name = name(chance);
            match chance.below(40) {
                39 => Ask::Query(PANICS),
                0..12 => Ask::Query(name),
                _ => Ask::Message((name, addition(chance))),
            }
        };
        (0..*chance.pick(&[1, 1, 2, 3])).map(|_| ask(chance)).collect()
    }
}

/// Returns a message whose record needs more than one part.
pub(crate) fn long_call<const ID: u8>(chance: &mut Chance) -> Vec<Ask<Counters<ID>>> {
    let bytes = 600_000 + chance.index(700_000);
    let label = "y".repeat(bytes);
    vec![Ask::Message((name(chance), CounterMessage::Add(1, 500, label)))]
}

fn addition(chance: &mut Chance) -> CounterMessage {
    let by = u32::try_from(chance.below(8)).expect("a small number");
    let span_ms = u32::try_from(chance.within(1, 6000)).expect("a short span");
    CounterMessage::Add(by, span_ms, "x".repeat(chance.index(40)))
}

fn name(chance: &mut Chance) -> Slot {
    Slot(u32::try_from(chance.below(3)).expect("a small number"))
}

impl<const ID: u8> Reference for Counters<ID> {
    type Clients = Counting;
    type Machine = CounterMachine<ID>;

    fn rules() {}

    fn apply(
        &mut self,
        stamp: Stamp,
        (name, what): &Message,
        (outcome, _): (&Option<Counter>, &Reply),
    ) -> Result<(), String> {
        let due = self.first_due(stamp.at);
        let lapses = (*what == CounterMessage::Lapse).then_some(*name);
        if lapses.is_some() && due != lapses {
            return Err(format!("time acted on {lapses:?}, but {due:?} is due"));
        }
        if let (None, Some(due)) = (lapses, due) {
            return Err(format!("it was ordered before {due:?}, which was due"));
        }
        let counter = self.counters.entry(*name).or_default();
        let before = counter.clone();
        match what {
            CounterMessage::Add(by, span_ms, label) => {
                (counter.since, counter.span_ms) = (stamp.at, *span_ms);
                for _ in 0..*by {
                    counter.value += 1;
                    if counter.value.is_multiple_of(STRIDE) {
                        counter.strides += 1;
                        (counter.attempt, counter.silent) = (stamp.seq, true);
                    }
                }
                counter.label.clone_from(label);
                // The random number and the date cannot be computed here. Witnesses check them by deciding again.
                if let Some(outcome) = outcome {
                    (counter.luck, counter.on) = (outcome.luck, outcome.on);
                }
            }
            CounterMessage::Lapse => {
                counter.value = 0;
                (counter.since, counter.span_ms) = (stamp.at, SILENCE_MS);
            }
            CounterMessage::Heard(strides) => counter.heard = *strides,
            CounterMessage::Rung(attempt, refused) => {
                if !before.silent || before.attempt != *attempt {
                    return Err(format!("attempt {attempt} was not expected"));
                }
                counter.silent = *refused;
                if *refused {
                    counter.attempt = stamp.seq;
                }
            }
        }
        self.quarantined.remove(name);
        let right = Some(&*counter).filter(|counter| **counter != before);
        if right.is_none() || right != outcome.as_ref() || counter.heard < before.heard {
            return Err(format!("{outcome:?}, expected {right:?}"));
        }
        Ok(())
    }

    fn start(&mut self, Start { stamp: Stamp { at, .. }, .. }: Start) {
        self.quarantined.clear();
        for counter in self.counters.values_mut() {
            counter.since = at;
        }
    }

    fn poisoned(&mut self, (name, what): &Message) {
        if *what == CounterMessage::Lapse {
            self.quarantined.insert(*name);
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.first_due(at).map(|due| format!("counter {due:?}"))
    }

    fn without_change(&self, (name, what): &Message) -> Option<Reply> {
        (*what == CounterMessage::Lapse && self.value(*name) == 0).then_some(Ok(None))
    }

    fn answer(&self, name: &Slot) -> Answer<Reply> {
        if *name == PANICS {
            return Err(Failed::Unapplied);
        }
        Ok(Ok(Some(self.value(*name))))
    }

    fn agrees(&self, machine: &CounterMachine<ID>) -> Result<(), String> {
        let view = machine.view();
        (view == self.counters)
            .then_some(())
            .ok_or_else(|| format!("counters are {view:?}, expected {:?}", self.counters))
    }

    fn origin((_, what): &Message) -> Origin {
        match what {
            CounterMessage::Lapse => Origin::Tick,
            CounterMessage::Heard(_) | CounterMessage::Rung(..) => Origin::Tell,
            CounterMessage::Add(..) => Origin::Client,
        }
    }

    /// Additions and queries have the same reply, a value. The caller knows from the request which of the two it is.
    fn changes(reply: &Reply) -> bool {
        matches!(reply, Ok(Some(_)))
    }

    fn wakes(&self, watch: &Never) -> Option<Reply> {
        match *watch {}
    }

    fn count((_, what): &Message, outcome: &Option<Counter>, counted: &mut Coverage) {
        let restated = outcome.as_ref().is_some_and(|counter| counter.silent);
        match what {
            CounterMessage::Lapse => {
                counted.counter_lapses += 1;
                counted.actions_restated += u64::from(restated);
            }
            CounterMessage::Heard(_) => counted.tells += 1,
            CounterMessage::Rung(_, true) => counted.actions_refused += 1,
            CounterMessage::Rung(_, false) => counted.actions_done += 1,
            CounterMessage::Add(..) => counted.counter_changes += 1,
        }
    }

    fn may_be_refused((_, what): &Message) -> bool {
        matches!(what, CounterMessage::Add(..))
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Err(Refusal::DiskFull)
    }
}
