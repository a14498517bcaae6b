//! The rules of the counters a second time.

use crate::counter::{Counter, CounterMachine, Message, Outcome, Query, Reply, STRIDE, Watch};
use crate::coverage::Coverage;
use crate::reference::{Origin, Reference};
use sexton::clock::Timestamp;
use sexton::spine::Machine as _;
use sexton::spine::host::{Answer, Failed};
use sexton::spine::machine::{Stamp, Start};
use std::collections::{BTreeMap, BTreeSet};

/// Counters, as their module's text has them.
#[derive(Clone, Default)]
pub(crate) struct Counters<const ID: u8> {
    counters: BTreeMap<u16, Counter>,
    quarantined: BTreeSet<u16>,
}

impl<const ID: u8> Counters<ID> {
    fn value(&self, name: u16) -> u64 {
        self.counters.get(&name).map_or(0, |counter| counter.value)
    }

    /// What this instance knows of the other's counters.
    pub(crate) fn heard(&self) -> BTreeMap<u16, u64> {
        let heard = self
            .counters
            .iter()
            .map(|(name, counter)| (*name, counter.heard));
        heard.filter(|(_, heard)| *heard > 0).collect()
    }

    /// What the other instance is to know of these.
    pub(crate) fn strides(&self) -> BTreeMap<u16, u64> {
        let strides = self
            .counters
            .iter()
            .map(|(name, counter)| (*name, counter.strides));
        strides.filter(|(_, strides)| *strides > 0).collect()
    }

    fn first_due(&self, at: Timestamp) -> Option<u16> {
        self.counters
            .iter()
            .filter(|(name, counter)| {
                counter.value > 0 && counter.deadline <= at && !self.quarantined.contains(name)
            })
            .map(|(name, counter)| (counter.deadline, *name))
            .min()
            .map(|(_, name)| name)
    }
}

impl<const ID: u8> Reference for Counters<ID> {
    type Machine = CounterMachine<ID>;

    fn rules() {}

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, _): (&Outcome, &Reply),
    ) -> Result<(), String> {
        let due = self.first_due(stamp.at);
        if let Message::Lapse { name } = message {
            if due != Some(*name) {
                return Err(format!("time acted on {name}, where {due:?} is due"));
            }
        } else if let Some(due) = due {
            return Err(format!("it was ordered before {due}, which was due"));
        }
        let name = name_of(message);
        let counter = self.counters.entry(name).or_default();
        let (was, heard) = (counter.value, counter.heard);
        let right = match message {
            Message::Add { by, span_ms, .. } => {
                if was == 0 {
                    counter.span_ms = *span_ms;
                    counter.deadline = stamp.at.plus_ms(u64::from(*span_ms));
                }
                let mut strides = 0;
                for _ in 0..*by {
                    counter.value += 1;
                    strides += u64::from(counter.value.is_multiple_of(STRIDE));
                }
                counter.strides += strides;
                let value = counter.value;
                Outcome::Added { value, strides }
            }
            Message::Label { text, .. } => {
                counter.label.clone_from(text);
                Outcome::Labelled
            }
            Message::Clear { .. } | Message::Lapse { .. } => {
                counter.value = 0;
                Outcome::Cleared { was }
            }
            Message::Heard { strides, .. } => {
                counter.heard = *strides;
                Outcome::Heard
            }
        };
        self.quarantined.remove(&name);
        let told_back = matches!(message, Message::Heard { strides, .. } if *strides <= heard);
        let cleared_nothing = right == Outcome::Cleared { was: 0 };
        if right != *outcome || told_back || cleared_nothing {
            return Err(format!("{outcome:?}, where {right:?} is right"));
        }
        Ok(())
    }

    fn start(
        &mut self,
        Start {
            stamp: Stamp { at, .. },
            ..
        }: Start,
    ) {
        self.quarantined.clear();
        for counter in self.counters.values_mut() {
            counter.deadline = at.plus_ms(u64::from(counter.span_ms));
        }
    }

    fn poisoned(&mut self, message: &Message) {
        if let Message::Lapse { name } = message {
            self.quarantined.insert(*name);
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.first_due(at).map(|name| format!("counter {name}"))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        let nothing = match message {
            Message::Add { by, .. } => *by == 0,
            Message::Clear { name } | Message::Lapse { name } => self.value(*name) == 0,
            Message::Label { .. } | Message::Heard { .. } => false,
        };
        nothing.then_some(Reply::Nothing)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        match query {
            Query::Value(name) => Ok(Reply::Value(self.value(*name))),
            Query::Sum => Ok(Reply::Value(
                self.counters.values().map(|counter| counter.value).sum(),
            )),
            Query::Panic => Err(Failed),
        }
    }

    fn agrees(&self, machine: &CounterMachine<ID>) -> Result<(), String> {
        let view = machine.view();
        (view == self.counters)
            .then_some(())
            .ok_or_else(|| format!("counters are {view:?}, where {:?} is right", self.counters))
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Lapse { .. } => Origin::Tick,
            Message::Heard { .. } => Origin::Tell,
            Message::Add { .. } | Message::Label { .. } | Message::Clear { .. } => Origin::Client,
        }
    }

    /// A value answers an addition and a query alike: the caller knows which it was.
    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Value(_) | Reply::Labelled | Reply::Cleared(_) | Reply::Heard => true,
            Reply::Nothing | Reply::DiskFull | Reply::Reached { .. } => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        let (name, value) = (watch.name, self.value(watch.name));
        (value >= watch.at_least).then_some(Reply::Reached { name, value })
    }

    fn count(message: &Message, outcome: &Outcome, counted: &mut Coverage) {
        match (message, outcome) {
            (Message::Lapse { .. }, _) => counted.counter_lapses += 1,
            (_, Outcome::Heard) => counted.tells += 1,
            _ => counted.counter_changes += 1,
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(message, Message::Add { .. } | Message::Label { .. })
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::DiskFull
    }
}

fn name_of(message: &Message) -> u16 {
    match message {
        Message::Add { name, .. }
        | Message::Label { name, .. }
        | Message::Clear { name }
        | Message::Lapse { name }
        | Message::Heard { name, .. } => *name,
    }
}
