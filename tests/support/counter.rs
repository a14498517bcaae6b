//! A machine for tests that differs from locks: named counters to which clients add, and which fall back to zero after a
//! span.
//!
//! It has two instances, actors 200 and 201. Whenever a counter passes a multiple of [`STRIDE`], its actor sends a tell
//! to the other instance and requests an action, the ringing of a bell. The action is performed once per attempt. A new
//! attempt begins when the world refuses, and the same one is requested again when a span passes without an answer.

use serde::{Deserialize, Serialize};
use sexton::clock::{Date, Deadline, Timestamp};
use sexton::ids::{ActorId, Seq, Slot};
use sexton::lookup::durable::Plain;
use sexton::spine::effect::{Action, To};
use sexton::spine::items::{Itemized, Items};
use sexton::spine::machine::{
    Durability, Effects, Machine, Moment, Never, Now, Observable, Refusal, SpaceEffect, Stamp,
    Start,
};
use std::collections::BTreeMap;

pub(crate) const LEFT: u8 = 200;
pub(crate) const RIGHT: u8 = 201;
pub(crate) const STRIDE: u64 = 10;
pub(crate) const SILENCE_MS: u32 = 60_000;
pub(crate) const PLANTED: &str = "planted panic";
pub(crate) const PANICS: Slot = Slot(u32::MAX);

/// The slot of a counter, and a message about that counter.
pub(crate) type Message = (Slot, CounterMessage);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum CounterMessage {
    /// Adds this number, and begins the span again; the span is in milliseconds. This also ends a quarantine, even of a
    /// rebuilt machine, which can see that only from the changed deadline. The label may have any length.
    Add(u32, u32, String),
    Lapse,
    /// The total number of strides that the other actor's counter of this name has passed.
    Heard(u64),
    /// The world has rung the bell for this attempt, or has refused to if the flag is true.
    Rung(Seq, bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    pub(crate) value: u64,
    pub(crate) label: String,
    /// The time when its span began. At the end of the span its value becomes zero, and an unanswered request to ring its
    /// bell is repeated.
    pub(crate) since: Timestamp,
    pub(crate) span_ms: u32,
    /// The total number of multiples of the stride that were passed here. `heard` is that of the other actor's counter of
    /// this name.
    pub(crate) strides: u64,
    pub(crate) heard: u64,
    /// The last attempt to ring its bell. `silent` is whether the world still has to report it.
    pub(crate) attempt: Seq,
    pub(crate) silent: bool,
    /// The random number and the date of the last addition, which a replay must reproduce.
    pub(crate) luck: u128,
    pub(crate) on: Date,
}

impl Plain for Counter {
    const KIND: u8 = 0;

    fn deadline(&self, _: Timestamp) -> Option<Deadline> {
        let ends = self.since.plus_ms(self.span_ms.into());
        (self.value > 0 || self.silent).then_some(Deadline::Time(ends))
    }
}

/// The counters of one instance. The name of a counter is its slot.
#[derive(Debug, Default)]
pub(crate) struct CounterMachine<const ID: u8>(Items<Counter>);

impl<const ID: u8> Machine for CounterMachine<ID> {
    const NAME: &'static str = if ID == LEFT { "left" } else { "right" };
    const ID: ActorId = ActorId(ID);

    type Rules = ();
    type Message = Message;
    /// The new value of the counter, or `None` if it does not change.
    type Outcome = Option<Counter>;
    type Query = Slot;
    type Reply = Result<Option<u64>, Refusal>;
    type Watch = Never;
    type Action = u64;

    fn new((): ()) -> Self {
        Self::default()
    }

    fn set_rules(&mut self, (): ()) {}

    fn decide(&self, moment: &Moment, (name, what): &Message) -> Option<Counter> {
        let before = self.0.get_or_default(*name);
        let mut counter = before.clone();
        match what {
            CounterMessage::Add(by, span_ms, label) => {
                (counter.since, counter.span_ms) = (moment.now.at, *span_ms);
                counter.value += u64::from(*by);
                counter.strides += counter.value / STRIDE - before.value / STRIDE;
                if counter.strides > before.strides {
                    (counter.attempt, counter.silent) = (moment.seq, true);
                }
                counter.label.clone_from(label);
                (counter.luck, counter.on) = (moment.random(0), moment.now.date());
            }
            CounterMessage::Lapse => {
                counter.value = 0;
                (counter.since, counter.span_ms) = (moment.now.at, SILENCE_MS);
            }
            CounterMessage::Heard(strides) => counter.heard = before.heard.max(*strides),
            CounterMessage::Rung(attempt, refused)
                if counter.silent && counter.attempt == *attempt =>
            {
                counter.silent = *refused;
                counter.attempt = if *refused { moment.seq } else { *attempt };
            }
            CounterMessage::Rung(..) => {}
        }
        Some(counter).filter(|counter| *counter != before)
    }

    fn durability(&self, _: &Message, new: &Option<Counter>) -> Durability {
        new.as_ref().map_or(Durability::Nothing, |_| Durability::Durable)
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        new: &Option<Counter>,
        effects: &mut Effects<Self>,
    ) {
        let make = |counter: &mut Counter| *counter = new.clone().unwrap_or_default();
        let counter = self.0.change(entry.seq, message.0, make);
        if counter.attempt == entry.seq || message.1 == CounterMessage::Lapse {
            Self::state(message.0, counter, effects);
        }
    }

    fn reply(&self, _: Seq, _: &Message, new: &Option<Counter>) -> Self::Reply {
        Ok(new.as_ref().map(|counter| counter.value))
    }

    fn query(&self, _: Now, name: &Slot) -> Self::Reply {
        assert!(*name != PANICS, "{PLANTED} in a query");
        Ok(Some(self.0.get_or_default(*name).value))
    }

    fn space_effect(&self, (_, what): &Message) -> SpaceEffect {
        match what {
            CounterMessage::Add(..) => SpaceEffect::Adds,
            CounterMessage::Lapse | CounterMessage::Heard(_) | CounterMessage::Rung(..) => {
                SpaceEffect::Keeps
            }
        }
    }

    fn start(&mut self, Start { stamp, .. }: Start) {
        let restart = |counter: &mut Counter| counter.since = stamp.at;
        self.0.change_all(stamp.seq, restart);
    }

    fn resume(&mut self, effects: &mut Effects<Self>) {
        let state = |(slot, counter)| Self::state(slot, counter, effects);
        self.0.iter().for_each(state);
    }
}

impl<const ID: u8> CounterMachine<ID> {
    /// Returns what a counter requests of the other actor and of the world.
    fn state(slot: Slot, counter: &Counter, effects: &mut Effects<Self>) {
        let (id, attempt, what) = (slot.0.into(), counter.attempt, counter.strides);
        if what > 0 {
            let other = ActorId(if ID == LEFT { RIGHT } else { LEFT });
            effects.tell(To::new(other), &(slot, CounterMessage::Heard(what)));
        }
        if counter.silent {
            effects.act(Action { id, attempt, what });
        }
    }
}

impl<const ID: u8> Itemized for CounterMachine<ID> {
    type Item = Counter;

    fn items(&self) -> &Items<Counter> {
        &self.0
    }

    fn items_mut(&mut self) -> &mut Items<Counter> {
        &mut self.0
    }

    fn lapse(&self, slot: Slot) -> Message {
        (slot, CounterMessage::Lapse)
    }
}

impl<const ID: u8> Observable for CounterMachine<ID> {
    type View = BTreeMap<Slot, Counter>;

    fn sample(&self, _most: usize) -> Self::View {
        self.0.view()
    }
}
