//! The rules of the counters a second time.

use crate::counter::{
    Counter, CounterMachine, Message, Outcome, Query, Reply, SILENCE_MS, STRIDE, Watch,
};
use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{Origin, Reference};
use sexton::clock::{Date, Timestamp};
use sexton::spine::delivery::{Answer, Failed};
use sexton::spine::machine::{Shown as _, Stamp, Start};
use std::collections::{BTreeMap, BTreeSet};

/// Counters, as their module's text has them.
#[derive(Clone, Default)]
pub(crate) struct Counters<const ID: u8> {
    counters: BTreeMap<u16, Counter>,
    /// Names whose time no longer acts: on the counter, or on its bell.
    quarantined: BTreeSet<(u16, bool)>,
}

impl<const ID: u8> Judged for CounterMachine<ID> {
    type Reference = Counters<ID>;
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

    fn first_due(&self, at: Timestamp) -> Option<(u16, bool)> {
        let lapses = self
            .counters
            .iter()
            .filter(|(_, counter)| counter.value > 0);
        let lapses = lapses.map(|(name, counter)| (counter.deadline, *name, false));
        let bells = self
            .counters
            .iter()
            .filter(|(_, counter)| counter.silent_until.0 > 0);
        let bells = bells.map(|(name, counter)| (counter.silent_until, *name, true));
        let due = lapses.chain(bells).filter(|(deadline, name, bell)| {
            *deadline <= at && !self.quarantined.contains(&(*name, *bell))
        });
        due.min().map(|(_, name, bell)| (name, bell))
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
        let acts = match message {
            Message::Lapse { name } => Some((*name, false)),
            Message::Remind { name } => Some((*name, true)),
            _ => None,
        };
        if acts.is_some() && due != acts {
            return Err(format!("time acted on {acts:?}, where {due:?} is due"));
        }
        if let (None, Some(due)) = (acts, due) {
            return Err(format!("it was ordered before {due:?}, which was due"));
        }
        let soon = stamp.at.plus_ms(SILENCE_MS);
        let name = message.name();
        let counter = self.counters.entry(name).or_default();
        let (was, before) = (counter.value, counter.clone());
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
                if strides > 0 {
                    counter.attempt = stamp.seq;
                    counter.silent_until = soon;
                }
                // Chance and date are what the log has them from: that is for who decides again.
                let (luck, on) = match outcome {
                    Outcome::Added { luck, on, .. } => (*luck, *on),
                    _ => (0, Date(0)),
                };
                let value = counter.value;
                Outcome::Added {
                    value,
                    strides,
                    luck,
                    on,
                }
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
            Message::Rung {
                attempt, refused, ..
            } => {
                if !before.is_silent(*attempt) {
                    return Err(format!("attempt {attempt} was not waited for"));
                }
                if *refused {
                    (counter.attempt, counter.silent_until) = (stamp.seq, soon);
                } else {
                    counter.silent_until = Timestamp(0);
                }
                Outcome::Rung
            }
            Message::Remind { .. } => {
                counter.silent_until = soon;
                Outcome::Reminded
            }
        };
        self.quarantined.retain(|(of, _)| *of != name);
        let told_back =
            matches!(message, Message::Heard { strides, .. } if *strides <= before.heard);
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
            if counter.silent_until.0 > 0 {
                counter.silent_until = at.plus_ms(SILENCE_MS);
            }
        }
    }

    fn poisoned(&mut self, message: &Message) {
        match message {
            Message::Lapse { name } => drop(self.quarantined.insert((*name, false))),
            Message::Remind { name } => drop(self.quarantined.insert((*name, true))),
            _ => {}
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.first_due(at).map(|due| format!("counter {due:?}"))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        let nothing = match message {
            Message::Add { by, .. } => *by == 0,
            Message::Clear { name } | Message::Lapse { name } => self.value(*name) == 0,
            _ => false,
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
            Message::Lapse { .. } | Message::Remind { .. } => Origin::Tick,
            Message::Heard { .. } | Message::Rung { .. } => Origin::Tell,
            Message::Add { .. } | Message::Label { .. } | Message::Clear { .. } => Origin::Client,
        }
    }

    /// A value answers an addition and a query alike: the caller knows which it was.
    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Value(_) | Reply::Labelled | Reply::Cleared(_) | Reply::Done => true,
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
            (Message::Rung { refused: true, .. }, _) => counted.actions_refused += 1,
            (Message::Rung { .. }, _) => counted.actions_done += 1,
            (Message::Remind { .. }, _) => counted.actions_restated += 1,
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
