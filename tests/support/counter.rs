//! A machine that is nothing like a lock, for tests alone: named counters that are added to and lapse to zero.
//!
//! Two instances stand side by side, 200 and 201. Whenever a counter passes a multiple of [`STRIDE`], its actor tells the
//! other one, and has a bell rung in the world: once for each attempt, with a new attempt when the world refuses. It
//! exists to show that the spine knows no lock.

use serde::{Deserialize, Serialize};
use sexton::clock::{Date, Offset, Timestamp};
use sexton::ids::{ActorId, Digest, PageId, Seq, Ticket};
use sexton::lookup::pages::Pages;
use sexton::spine::effect::{Action, To};
use sexton::spine::machine::{
    Effects, Keeping, Machine, Moment, Now, Paged, Refusal, Shown, Stamp, Start, Timed, Weight,
};
use std::collections::{BTreeMap, BTreeSet};

/// A counter that passes a multiple of this is told to the other actor, and rings its bell.
pub(crate) const STRIDE: u64 = 10;
/// How long a bell may be silent before it is asked for again, in milliseconds.
pub(crate) const SILENCE_MS: u64 = 60_000;
/// How planted panics begin.
pub(crate) const PLANTED: &str = "planted panic";
/// The first instance.
pub(crate) const LEFT: u8 = 200;
/// The second instance.
pub(crate) const RIGHT: u8 = 201;

/// What may change a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// Adds; the span begins when the counter leaves zero.
    Add { name: u16, by: u32, span_ms: u32 },
    /// Puts a text beside the counter, of any length.
    Label { name: u16, text: String },
    /// Back to zero.
    Clear { name: u16 },
    /// The span of a counter has passed.
    Lapse { name: u16 },
    /// The other actor's counter has passed so many strides in all.
    Heard { name: u16, strides: u64 },
    /// The world has rung a bell, or refuses to.
    Rung {
        name: u16,
        attempt: Seq,
        refused: bool,
    },
    /// A bell was silent for too long.
    Remind { name: u16 },
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// With the chance and the date of the decision, which a replay must find again.
    Added {
        value: u64,
        strides: u64,
        luck: u64,
        on: Date,
    },
    Labelled,
    Cleared {
        was: u64,
    },
    Heard,
    Rung,
    Reminded,
    Nothing,
}

/// A question about counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// The value of one.
    Value(u16),
    /// The sum of all.
    Sum,
    /// A panic.
    Panic,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Value(u64),
    Reached { name: u16, value: u64 },
    Labelled,
    Cleared(u64),
    Done,
    Nothing,
    DiskFull,
}

impl From<Refusal> for Reply {
    fn from(Refusal::DiskFull: Refusal) -> Self {
        Self::DiskFull
    }
}

/// Waits until a counter has at least this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) name: u16,
    pub(crate) at_least: u64,
}

/// What is to be done in the world: a bell is to be rung for so many strides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring(pub(crate) u64);

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counter {
    pub(crate) value: u64,
    pub(crate) span_ms: u32,
    /// Only while the value is not zero.
    pub(crate) deadline: Timestamp,
    /// How many multiples of the stride were passed in all.
    pub(crate) strides: u64,
    pub(crate) label: String,
    /// The most that the other actor has told of its counter of this name.
    pub(crate) heard: u64,
    /// The newest attempt to ring its bell, and until when it may be silent; zero once it was rung.
    pub(crate) attempt: Seq,
    pub(crate) silent_until: Timestamp,
}

/// The counters of one instance.
#[derive(Debug, Default)]
pub(crate) struct CounterMachine<const ID: u8> {
    counters: BTreeMap<u16, Counter>,
    /// When a span passes, and when a bell was silent for too long.
    deadlines: BTreeSet<(Timestamp, u16, bool)>,
    watches: BTreeMap<Ticket, Watch>,
    digest: Digest,
    pages: Pages,
}

impl<const ID: u8> CounterMachine<ID> {
    fn get(&self, name: u16) -> Counter {
        self.counters.get(&name).cloned().unwrap_or_default()
    }

    /// Changes one counter, and with it every index over it.
    fn change(&mut self, name: u16, seq: Seq, change: impl FnOnce(&mut Counter)) {
        let (page, counters) = (page_of(name), &self.counters);
        self.pages
            .touch(page, seq, |content| encode(page, counters, content));
        if let Some(before) = self.counters.get(&name) {
            self.digest.remove(&canonical(name, before));
            self.deadlines.retain(|(_, of, _)| *of != name);
        }
        let counter = self.counters.entry(name).or_default();
        change(counter);
        self.digest.add(&canonical(name, counter));
        self.deadlines.extend(deadlines(name, counter));
    }

    /// What the other actor and the world are to know of a counter.
    fn state(&self, name: u16, effects: &mut Effects<Self>) {
        let Counter {
            strides,
            attempt,
            silent_until,
            ..
        } = self.get(name);
        if strides > 0 {
            let other = if ID == LEFT { RIGHT } else { LEFT };
            effects.tell(To::new(ActorId(other)), &Message::Heard { name, strides });
        }
        if silent_until > Timestamp(0) {
            let (id, what) = (name.into(), Ring(strides));
            effects.act(Action { id, attempt, what });
        }
    }

    fn wake(&mut self, name: u16, effects: &mut Effects<Self>) {
        let value = self.get(name).value;
        self.watches.retain(|ticket, watch| {
            let due = watch.name == name && watch.at_least <= value;
            if due {
                effects.wake(*ticket, Reply::Reached { name, value });
            }
            !due
        });
    }
}

impl<const ID: u8> Machine for CounterMachine<ID> {
    const NAME: &'static str = if ID == LEFT { "left" } else { "right" };
    const ID: ActorId = ActorId(ID);

    type Rules = ();
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Watch;
    type Action = Ring;

    fn new((): ()) -> Self {
        Self::default()
    }

    fn set_rules(&mut self, (): ()) {}

    fn decide(&self, moment: &Moment, message: &Message) -> Outcome {
        match message {
            Message::Add { by: 0, .. } => Outcome::Nothing,
            Message::Add { name, by, .. } => {
                let before = self.get(*name).value;
                let value = before + u64::from(*by);
                let luck = u64::try_from(moment.draw(0) >> 96).expect("32 bits are left");
                let (strides, on) = (value / STRIDE - before / STRIDE, moment.now.date());
                Outcome::Added {
                    value,
                    strides,
                    luck,
                    on,
                }
            }
            Message::Label { .. } => Outcome::Labelled,
            Message::Clear { name } | Message::Lapse { name } => match self.get(*name).value {
                0 => Outcome::Nothing,
                was => Outcome::Cleared { was },
            },
            Message::Heard { name, strides } if *strides > self.get(*name).heard => Outcome::Heard,
            Message::Rung { name, attempt, .. } if self.get(*name).is_silent(*attempt) => {
                Outcome::Rung
            }
            Message::Remind { name } if self.get(*name).silent_until > Timestamp(0) => {
                Outcome::Reminded
            }
            Message::Heard { .. } | Message::Rung { .. } | Message::Remind { .. } => {
                Outcome::Nothing
            }
        }
    }

    fn keeping(&self, _: &Message, outcome: &Outcome) -> Keeping {
        match outcome {
            Outcome::Nothing => Keeping::Nothing,
            _ => Keeping::Durable,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        let soon = entry.at.plus_ms(SILENCE_MS);
        let name = message.name();
        self.change(name, entry.seq, |counter| match (message, outcome) {
            (Message::Add { span_ms, .. }, Outcome::Added { value, strides, .. }) => {
                if counter.value == 0 {
                    counter.span_ms = *span_ms;
                    counter.deadline = entry.at.plus_ms(u64::from(*span_ms));
                }
                counter.value = *value;
                counter.strides += strides;
                if *strides > 0 {
                    (counter.attempt, counter.silent_until) = (entry.seq, soon);
                }
            }
            (Message::Label { text, .. }, Outcome::Labelled) => counter.label.clone_from(text),
            (Message::Clear { .. } | Message::Lapse { .. }, Outcome::Cleared { .. }) => {
                counter.value = 0;
            }
            (Message::Heard { strides, .. }, Outcome::Heard) => counter.heard = *strides,
            (Message::Rung { refused: true, .. }, Outcome::Rung) => {
                (counter.attempt, counter.silent_until) = (entry.seq, soon);
            }
            (Message::Rung { .. }, Outcome::Rung) => counter.silent_until = Timestamp(0),
            (Message::Remind { .. }, Outcome::Reminded) => counter.silent_until = soon,
            (message, outcome) => unreachable!("{outcome:?} does not follow from {message:?}"),
        });
        match outcome {
            Outcome::Added { strides: 1.., .. } | Outcome::Rung | Outcome::Reminded => {
                self.state(name, effects);
            }
            _ => {}
        }
        self.wake(name, effects);
    }

    fn reply(&self, _seq: Seq, _message: &Message, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Added { value, .. } => Reply::Value(*value),
            Outcome::Labelled => Reply::Labelled,
            Outcome::Cleared { was } => Reply::Cleared(*was),
            Outcome::Heard | Outcome::Rung | Outcome::Reminded => Reply::Done,
            Outcome::Nothing => Reply::Nothing,
        }
    }

    fn query(&self, _now: Now, query: &Query) -> Reply {
        Reply::Value(match query {
            Query::Value(name) => self.get(*name).value,
            Query::Sum => self.counters.values().map(|counter| counter.value).sum(),
            Query::Panic => panic!("{PLANTED} in a query"),
        })
    }

    fn weight(&self, message: &Message) -> Weight {
        match message {
            Message::Clear { .. } => Weight::Frees,
            Message::Heard { .. } | Message::Rung { .. } => Weight::Keeps,
            _ => Weight::Adds,
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, effects: &mut Effects<Self>) {
        self.watches.insert(ticket, watch.clone());
        self.wake(watch.name, effects);
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.watches.remove(&ticket);
    }

    fn start(&mut self, Start { stamp, .. }: Start) {
        for name in self.counters.keys().copied().collect::<Vec<_>>() {
            self.change(name, stamp.seq, |counter| {
                counter.deadline = stamp.at.plus_ms(u64::from(counter.span_ms));
                if counter.silent_until > Timestamp(0) {
                    counter.silent_until = stamp.at.plus_ms(SILENCE_MS);
                }
            });
        }
    }

    fn resume(&mut self, effects: &mut Effects<Self>) {
        for name in self.counters.keys() {
            self.state(*name, effects);
        }
    }
}

impl<const ID: u8> Timed for CounterMachine<ID> {
    fn deadline(&self, _offset: Offset) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, ..)| *deadline)
    }

    fn due(&mut self, now: Now) -> Option<u64> {
        let (deadline, name, bell) = *self.deadlines.first()?;
        (deadline <= now.at).then_some(u64::from(name) | u64::from(bell) << 16)
    }

    fn tick(&self, item: u64) -> Message {
        let name = u16::try_from(item & 0xffff).expect("items are names");
        if item >> 16 == 0 {
            Message::Lapse { name }
        } else {
            Message::Remind { name }
        }
    }

    fn quarantine(&mut self, item: u64, now: Now) {
        self.deadlines.retain(|(deadline, name, bell)| {
            *deadline > now.at || u64::from(*name) | u64::from(*bell) << 16 != item
        });
    }
}

impl<const ID: u8> Paged for CounterMachine<ID> {
    type Page = Vec<(u16, Counter)>;

    fn pages(&mut self) -> &mut Pages {
        &mut self.pages
    }

    fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        encode(page, &self.counters, content);
    }

    fn decode_page(_page: PageId, content: &[u8]) -> Result<Self::Page, String> {
        rmp_serde::from_slice(content).map_err(|error| error.to_string())
    }

    fn from_pages((): (), pages: &mut dyn Iterator<Item = Self::Page>) -> Self {
        let mut machine = Self::default();
        for (name, counter) in pages.flatten() {
            machine.digest.add(&canonical(name, &counter));
            machine.deadlines.extend(deadlines(name, &counter));
            machine.counters.insert(name, counter);
        }
        machine
    }

    fn digest(&self) -> Digest {
        self.digest
    }
}

impl<const ID: u8> Shown for CounterMachine<ID> {
    type View = BTreeMap<u16, Counter>;

    fn view(&self) -> Self::View {
        self.counters.clone()
    }
}

impl Counter {
    /// Whether its bell waits to be rung by this attempt.
    pub(crate) fn is_silent(&self, attempt: Seq) -> bool {
        self.silent_until > Timestamp(0) && self.attempt == attempt
    }
}

impl Message {
    /// The counter that it is about.
    pub(crate) fn name(&self) -> u16 {
        match self {
            Self::Add { name, .. }
            | Self::Label { name, .. }
            | Self::Clear { name }
            | Self::Lapse { name }
            | Self::Heard { name, .. }
            | Self::Rung { name, .. }
            | Self::Remind { name } => *name,
        }
    }
}

/// When time acts on a counter, and on its bell.
fn deadlines(name: u16, counter: &Counter) -> impl Iterator<Item = (Timestamp, u16, bool)> {
    let lapse = (counter.value > 0).then_some((counter.deadline, name, false));
    let bell = (counter.silent_until > Timestamp(0)).then_some((counter.silent_until, name, true));
    lapse.into_iter().chain(bell)
}

/// Counters to a page.
const PAGE: u16 = 4;

/// The page of a counter: there is nothing that this machine has but once.
fn page_of(name: u16) -> PageId {
    PageId(u32::from(name / PAGE) + 1)
}

fn encode(page: PageId, counters: &BTreeMap<u16, Counter>, content: &mut Vec<u8>) {
    let of_page = |name: &u16| page_of(*name) == page;
    let kept: Vec<_> = counters.iter().filter(|(name, _)| of_page(name)).collect();
    if !kept.is_empty() {
        rmp_serde::encode::write(content, &kept).expect("writing to memory does not fail");
    }
}

/// What the digest is made of.
fn canonical(name: u16, counter: &Counter) -> Vec<u8> {
    rmp_serde::to_vec(&(name, counter)).expect("counters encode")
}
