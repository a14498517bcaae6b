//! The counters, the rules of adding and forgetting, and what is shown of them.

use crate::actors::tally::{Counter, Message, Name, Outcome, Query, Refused, Reply, Rules};
use crate::ids::{ActorId, Seq, Slot};
use crate::spine::event::Happening;
use crate::spine::items::{Itemized, Items};
use crate::spine::machine::{
    Effects, Gauge, Keeping, Machine, Moment, Never, Now, Shown, Stamp, Start, Weight,
};
use std::collections::BTreeMap;

/// Every counter that is not at zero.
pub type View = BTreeMap<Slot, Counter>;

/// The rules over counters.
#[derive(Debug)]
pub struct TallyMachine {
    rules: Rules,
    counters: Items<Counter>,
}

impl TallyMachine {
    fn counted(&self) -> impl Iterator<Item = (Slot, &Counter)> {
        let counters = self.counters.iter();
        counters.filter(|(_, counter)| counter.value > 0)
    }

    fn find(&self, name: &Name) -> Option<(Slot, &Counter)> {
        self.counted().find(|(_, counter)| counter.name == *name)
    }

    /// The lowest slot that no counter needs, if there may be one more.
    fn free(&self) -> Option<Slot> {
        let mut slots = (0..self.rules.counters_max).map(Slot);
        slots.find(|slot| self.counters.get(*slot).is_none_or(|it| it.value == 0))
    }
}

impl Machine for TallyMachine {
    const NAME: &'static str = "tally";
    const ID: ActorId = ActorId(4);

    type Rules = Rules;
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Never;
    type Action = Never;

    fn new(rules: Rules) -> Self {
        Self {
            rules,
            counters: Items::default(),
        }
    }

    fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    fn decide(&self, _moment: &Moment, message: &Message) -> Outcome {
        let Message::Add { name, by, .. } = message else {
            return Outcome::Lapsed;
        };
        if *by == 0 {
            return Outcome::Refused(Refused::Nothing);
        }
        let found = self.find(name).map(|(slot, it)| (slot, it.value));
        match found.or_else(|| Some((self.free()?, 0))) {
            Some((slot, before)) => Outcome::Counted {
                slot,
                value: before.saturating_add(u64::from(*by)),
            },
            None => Outcome::Refused(Refused::Full),
        }
    }

    fn keeping(&self, _message: &Message, outcome: &Outcome) -> Keeping {
        match outcome {
            Outcome::Counted { .. } | Outcome::Lapsed => Keeping::Durable,
            Outcome::Refused(_) => Keeping::Nothing,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        _effects: &mut Effects<Self>,
    ) {
        match (message, outcome) {
            (Message::Add { name, ttl_ms, .. }, Outcome::Counted { slot, value }) => {
                let counter = Counter {
                    name: name.clone(),
                    value: *value,
                    since: entry.at,
                    ttl_ms: *ttl_ms,
                };
                self.counters.change(entry.seq, *slot, |it| *it = counter);
            }
            (Message::Lapse { slot }, Outcome::Lapsed) => {
                self.counters.change(entry.seq, *slot, |it| it.value = 0);
            }
            (message, outcome) => unreachable!("{outcome:?} never comes of {message:?}"),
        }
    }

    fn reply(&self, _seq: Seq, _message: &Message, outcome: &Outcome) -> Reply {
        match *outcome {
            Outcome::Counted { value, .. } => Reply::Counted(value),
            Outcome::Lapsed => Reply::Lapsed,
            Outcome::Refused(refused) => Reply::Refused(refused),
        }
    }

    fn query(&self, _now: Now, Query::Read(name): &Query) -> Reply {
        Reply::Value(self.find(name).map_or(0, |(_, counter)| counter.value))
    }

    /// Spans begin again: nobody could add while the server was down.
    fn start(&mut self, Start { stamp, .. }: Start) {
        let begin = |counter: &mut Counter| counter.since = stamp.at;
        self.counters.change_all(stamp.seq, begin);
    }

    fn weight(&self, message: &Message) -> Weight {
        match message {
            Message::Add { .. } => Weight::Adds,
            Message::Lapse { .. } => Weight::Frees,
        }
    }
}

impl Itemized for TallyMachine {
    type Item = Counter;

    fn items(&self) -> &Items<Counter> {
        &self.counters
    }

    fn items_mut(&mut self) -> &mut Items<Counter> {
        &mut self.counters
    }

    fn lapse(&self, slot: Slot) -> Message {
        Message::Lapse { slot }
    }
}

impl Shown for TallyMachine {
    const KINDS: &'static [&'static str] = &["counted", "lapsed"];

    type View = View;

    fn view(&self) -> View {
        let counted = self.counted();
        counted.map(|(slot, it)| (slot, it.clone())).collect()
    }

    fn gauges(&self) -> Vec<Gauge> {
        let counters = self.counted().count();
        vec![Gauge {
            name: "counters",
            help: "counters that are not at zero",
            value: counters.try_into().expect("counters are few"),
        }]
    }

    fn events(
        &self,
        _entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(Happening),
    ) {
        match (message, outcome) {
            (Message::Add { name, .. }, Outcome::Counted { value, .. }) => {
                let counted = Happening::new("counted").name("name", name.as_str().as_bytes());
                publish(counted.number("value", *value));
            }
            (Message::Lapse { slot }, Outcome::Lapsed) => {
                let name = self.counters.get_or_default(*slot).name;
                publish(Happening::new("lapsed").name("name", name.as_str().as_bytes()));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Counter, Message, Name, Outcome, Refused, Rules, TallyMachine};
    use crate::clock::Timestamp;
    use crate::ids::{Seq, Slot};
    use crate::spine::machine::{Effects, Machine as _, Moment, Shown as _, Stamp};

    fn add(name: &str) -> Message {
        let name = Name::try_from(name.to_owned()).expect("a short name");
        let (by, ttl_ms) = (2, 50);
        Message::Add { name, by, ttl_ms }
    }

    #[test]
    fn a_counter_that_was_forgotten_leaves_its_slot_to_another() {
        let mut tally = TallyMachine::new(Rules { counters_max: 1 });
        let mut seq = Seq(0);
        let mut made = |message: &Message| {
            let outcome = tally.decide(&Moment::default(), message);
            seq.0 += 1;
            let (entry, mut effects) = (
                Stamp {
                    seq,
                    at: Timestamp(7),
                },
                Effects::<TallyMachine>::default(),
            );
            if !matches!(outcome, Outcome::Refused(_)) {
                tally.commit(entry, message, &outcome, &mut effects);
            }
            outcome
        };
        let slot = Slot(0);
        assert_eq!(made(&add("a")), Outcome::Counted { slot, value: 2 });
        assert_eq!(made(&add("a")), Outcome::Counted { slot, value: 4 });
        assert_eq!(made(&add("b")), Outcome::Refused(Refused::Full));
        assert_eq!(made(&Message::Lapse { slot }), Outcome::Lapsed);
        assert_eq!(made(&add("b")), Outcome::Counted { slot, value: 2 });
        let Message::Add { name, ttl_ms, .. } = add("b") else {
            unreachable!("it adds");
        };
        let since = Timestamp(7);
        let counter = Counter {
            name,
            value: 2,
            since,
            ttl_ms,
        };
        assert_eq!(tally.view(), [(slot, counter)].into());
    }
}
