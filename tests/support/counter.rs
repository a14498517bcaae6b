//! A machine that is nothing like a lock, for tests alone: named counters that are added to and lapse to zero.
//!
//! Two instances stand side by side, 200 and 201, and tell each other how often a counter has passed a multiple of
//! [`STRIDE`]. A tell is an upsert of a total, and `resume` states it again, so that one which a crash swallowed is
//! made good. Promises nothing to anyone: it exists to show that host, journal and replay know no lock.

use serde::{Deserialize, Serialize};
use sexton::clock::Timestamp;
use sexton::ids::{ActorId, Digest, PageId, Seq, Ticket};
use sexton::lookup::pages::Pages;
use sexton::spine::machine::{Effects, Keeping, Machine, Refusal, Stamp, Start, Weight};
use std::collections::{BTreeMap, BTreeSet};

/// A counter that passes a multiple of this is told to the other actor.
pub(crate) const STRIDE: u64 = 10;
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
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Added { value: u64, strides: u64 },
    Labelled,
    Cleared { was: u64 },
    Heard,
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
    Heard,
    Nothing,
    DiskFull,
}

/// Waits until a counter has at least this value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) name: u16,
    pub(crate) at_least: u64,
}

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
}

/// The counters of one instance.
#[derive(Debug, Default)]
pub(crate) struct CounterMachine<const ID: u8> {
    counters: BTreeMap<u16, Counter>,
    deadlines: BTreeSet<(Timestamp, u16)>,
    watches: BTreeMap<Ticket, Watch>,
    digest: Digest,
    pages: Pages,
}

impl<const ID: u8> CounterMachine<ID> {
    fn value(&self, name: u16) -> u64 {
        self.counters.get(&name).map_or(0, |counter| counter.value)
    }

    /// Changes one counter, and with it every index over it.
    fn change(&mut self, name: u16, seq: Seq, change: impl FnOnce(&mut Counter)) {
        let (page, counters) = (page_of(name), &self.counters);
        self.pages
            .touch(page, seq, |content| encode(page, counters, content));
        let is_new = !self.counters.contains_key(&name);
        let counter = self.counters.entry(name).or_default();
        if counter.value > 0 {
            self.deadlines.remove(&(counter.deadline, name));
        }
        if !is_new {
            self.digest.remove(&canonical(name, counter));
        }
        change(counter);
        self.digest.add(&canonical(name, counter));
        if counter.value > 0 {
            self.deadlines.insert((counter.deadline, name));
        }
    }

    fn wake(&mut self, name: u16, effects: &mut Effects<Reply>) {
        let value = self.value(name);
        self.watches.retain(|ticket, watch| {
            let due = watch.name == name && watch.at_least <= value;
            if due {
                effects.wake(*ticket, Reply::Reached { name, value });
            }
            !due
        });
    }

    fn tell(name: u16, strides: u64, effects: &mut Effects<Reply>) {
        let message = Message::Heard { name, strides };
        match ID {
            LEFT => effects.tell::<CounterMachine<RIGHT>>(&message),
            _ => effects.tell::<CounterMachine<LEFT>>(&message),
        }
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
    type View = BTreeMap<u16, Counter>;
    type Page = Vec<(u16, Counter)>;

    fn new((): ()) -> Self {
        Self::default()
    }

    fn decide(&self, _at: Timestamp, message: &Message) -> Outcome {
        match message {
            Message::Add { by: 0, .. } => Outcome::Nothing,
            Message::Add { name, by, .. } => {
                let before = self.value(*name);
                let value = before + u64::from(*by);
                let strides = value / STRIDE - before / STRIDE;
                Outcome::Added { value, strides }
            }
            Message::Label { .. } => Outcome::Labelled,
            Message::Clear { name } | Message::Lapse { name } => match self.value(*name) {
                0 => Outcome::Nothing,
                was => Outcome::Cleared { was },
            },
            Message::Heard { name, strides } => {
                let heard = self.counters.get(name).map_or(0, |counter| counter.heard);
                if *strides > heard {
                    Outcome::Heard
                } else {
                    Outcome::Nothing
                }
            }
        }
    }

    fn keeping(&self, _: &Message, outcome: &Outcome) -> Keeping {
        match outcome {
            Outcome::Nothing => Keeping::Nothing,
            Outcome::Added { .. }
            | Outcome::Labelled
            | Outcome::Cleared { .. }
            | Outcome::Heard => Keeping::Durable,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Reply>,
    ) {
        match (message, outcome) {
            (Message::Add { name, span_ms, .. }, Outcome::Added { value, strides }) => {
                self.change(*name, entry.seq, |counter| {
                    if counter.value == 0 {
                        counter.span_ms = *span_ms;
                        counter.deadline = entry.at.plus_ms(u64::from(*span_ms));
                    }
                    counter.value = *value;
                    counter.strides += strides;
                });
                if *strides > 0 {
                    let total = self.counters.get(name).map_or(0, |counter| counter.strides);
                    Self::tell(*name, total, effects);
                }
                self.wake(*name, effects);
            }
            (Message::Label { name, text }, Outcome::Labelled) => {
                self.change(*name, entry.seq, |counter| counter.label.clone_from(text));
            }
            (Message::Clear { name } | Message::Lapse { name }, Outcome::Cleared { .. }) => {
                self.change(*name, entry.seq, |counter| counter.value = 0);
            }
            (Message::Heard { name, strides }, Outcome::Heard) => {
                self.change(*name, entry.seq, |counter| counter.heard = *strides);
            }
            (message, outcome) => unreachable!("{outcome:?} does not follow from {message:?}"),
        }
    }

    fn reply(&self, _seq: Seq, _message: &Message, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Added { value, .. } => Reply::Value(*value),
            Outcome::Labelled => Reply::Labelled,
            Outcome::Cleared { was } => Reply::Cleared(*was),
            Outcome::Heard => Reply::Heard,
            Outcome::Nothing => Reply::Nothing,
        }
    }

    fn query(&self, _at: Timestamp, query: &Query) -> Reply {
        Reply::Value(match query {
            Query::Value(name) => self.value(*name),
            Query::Sum => self.counters.values().map(|counter| counter.value).sum(),
            Query::Panic => panic!("{PLANTED} in a query"),
        })
    }

    fn weight(&self, message: &Message) -> Weight {
        match message {
            Message::Add { .. } | Message::Label { .. } => Weight::Adds,
            Message::Clear { .. } | Message::Lapse { .. } | Message::Heard { .. } => Weight::Frees,
        }
    }

    fn refuse(_message: &Message, refusal: Refusal) -> Reply {
        match refusal {
            Refusal::DiskFull => Reply::DiskFull,
        }
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    fn due(&mut self, at: Timestamp) -> Option<u64> {
        let (deadline, name) = self.deadlines.first()?;
        (*deadline <= at).then_some(u64::from(*name))
    }

    fn tick(&self, item: u64) -> Message {
        let name = u16::try_from(item).expect("items are names");
        Message::Lapse { name }
    }

    fn quarantine(&mut self, item: u64, at: Timestamp) {
        let is = |deadline: Timestamp, name: u16| deadline <= at && u64::from(name) == item;
        self.deadlines
            .retain(|(deadline, name)| !is(*deadline, *name));
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, effects: &mut Effects<Reply>) {
        self.watches.insert(ticket, watch.clone());
        self.wake(watch.name, effects);
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.watches.remove(&ticket);
    }

    fn start(&mut self, Start { stamp: entry, .. }: Start) {
        let names: Vec<u16> = self.counters.keys().copied().collect();
        for name in names {
            self.change(name, entry.seq, |counter| {
                counter.deadline = entry.at.plus_ms(u64::from(counter.span_ms));
            });
        }
    }

    fn resume(&mut self, effects: &mut Effects<Reply>) {
        for (name, counter) in &self.counters {
            if counter.strides > 0 {
                Self::tell(*name, counter.strides, effects);
            }
        }
    }

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
            if counter.value > 0 {
                machine.deadlines.insert((counter.deadline, name));
            }
            machine.counters.insert(name, counter);
        }
        machine
    }

    fn digest(&self) -> Digest {
        self.digest
    }

    fn view(&self) -> Self::View {
        self.counters.clone()
    }
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
    let mut bytes = Vec::with_capacity(48 + counter.label.len());
    bytes.extend_from_slice(&name.to_le_bytes());
    let words = [
        counter.value,
        u64::from(counter.span_ms),
        counter.deadline.0,
        counter.strides,
        counter.heard,
    ];
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    bytes.extend_from_slice(counter.label.as_bytes());
    bytes
}
