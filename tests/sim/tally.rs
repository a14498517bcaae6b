//! The rules of the tally a second time, and what its clients ask for.

use crate::actor::Ask;
use crate::chance::Chance;
use crate::each::Judged;
use crate::reference::{Clients, Origin, Reference};
use crate::setting::Setting;
use sexton::actors::tally::{
    Counter, Message, Name, Outcome, Query, Refused, Reply, Rules, TallyMachine,
};
use sexton::clock::Timestamp;
use sexton::ids::Slot;
use sexton::spine::delivery::Answer;
use sexton::spine::machine::{Never, Shown as _, Stamp, Start};
use std::collections::BTreeMap;

/// Fewer than there are names, so that a name is refused now and then.
const COUNTERS_MAX: u32 = 3;

/// Counters by slot, and whether time still acts on each.
#[derive(Clone, Default)]
pub(crate) struct Tally(BTreeMap<Slot, (Counter, bool)>);

impl Judged for TallyMachine {
    type Reference = Tally;
}

/// Clients of one run.
pub(crate) struct Counting;

impl Clients<Tally> for Counting {
    fn new(_: &Setting) -> Self {
        Self
    }

    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<Tally>> {
        let name = Name::try_from(format!("n{}", chance.below(5))).expect("a short name");
        let by = u32::try_from(chance.below(4)).expect("a small number");
        let ttl_ms = u32::try_from(chance.below(3) * 700).expect("a short span");
        vec![match chance.below(3) {
            0 => Ask::Query(Query::Read(name)),
            _ => Ask::Message(Message::Add { name, by, ttl_ms }),
        }]
    }
}

impl Tally {
    fn first_due(&self, at: Timestamp) -> Option<Slot> {
        let timed = self
            .0
            .iter()
            .filter(|(_, (it, acts))| *acts && it.ttl_ms > 0);
        let ends = timed.map(|(slot, (it, _))| (it.since.plus_ms(it.ttl_ms.into()), *slot));
        ends.filter(|(ends, _)| *ends <= at)
            .min()
            .map(|(_, slot)| slot)
    }

    fn slot(&self, name: &Name) -> Option<Slot> {
        let mut counters = self.0.iter();
        counters
            .find(|(_, (it, _))| it.name == *name)
            .map(|(slot, _)| *slot)
    }

    /// What an addition comes to.
    fn sum(&self, name: &Name, by: u32) -> Result<(Slot, u64), Refused> {
        let free = (0..COUNTERS_MAX)
            .map(Slot)
            .find(|slot| !self.0.contains_key(slot));
        let slot = match (by, self.slot(name)) {
            (0, _) => return Err(Refused::Nothing),
            (_, found) => found.or(free).ok_or(Refused::Full)?,
        };
        let before = self.0.get(&slot).map_or(0, |(it, _)| it.value);
        Ok((slot, before + u64::from(by)))
    }
}

impl Reference for Tally {
    type Clients = Counting;
    type Machine = TallyMachine;

    fn rules() -> Rules {
        let counters_max = COUNTERS_MAX;
        Rules { counters_max }
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, _): (&Outcome, &Reply),
    ) -> Result<(), String> {
        let due = self.first_due(stamp.at);
        let right = match message {
            Message::Lapse { slot } if due == Some(*slot) => {
                self.0.remove(slot);
                Outcome::Lapsed
            }
            Message::Add { name, by, ttl_ms } if due.is_none() => match self.sum(name, *by) {
                Err(refused) => Outcome::Refused(refused),
                Ok((slot, value)) => {
                    let counter = Counter {
                        name: name.clone(),
                        value,
                        since: stamp.at,
                        ttl_ms: *ttl_ms,
                    };
                    self.0.insert(slot, (counter, true));
                    Outcome::Counted { slot, value }
                }
            },
            Message::Add { .. } | Message::Lapse { .. } => {
                return Err(format!("it was ordered where {due:?} is due"));
            }
        };
        let is_right = right == *outcome && !matches!(right, Outcome::Refused(_));
        is_right
            .then_some(())
            .ok_or_else(|| format!("{outcome:?}, where {right:?} is right"))
    }

    fn start(&mut self, Start { stamp, .. }: Start) {
        for (counter, acts) in self.0.values_mut() {
            (counter.since, *acts) = (stamp.at, true);
        }
    }

    fn poisoned(&mut self, message: &Message) {
        if let Message::Lapse { slot } = message
            && let Some((_, acts)) = self.0.get_mut(slot)
        {
            *acts = false;
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.first_due(at).map(|slot| format!("counter {slot:?}"))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        match message {
            Message::Add { name, by, .. } => self.sum(name, *by).err().map(Reply::Refused),
            Message::Lapse { .. } => None,
        }
    }

    fn answer(&self, Query::Read(name): &Query) -> Answer<Reply> {
        let found = self.slot(name).and_then(|slot| self.0.get(&slot));
        Ok(Reply::Value(found.map_or(0, |(it, _)| it.value)))
    }

    fn agrees(&self, machine: &TallyMachine) -> Result<(), String> {
        let right: BTreeMap<Slot, Counter> = self
            .0
            .iter()
            .map(|(slot, (it, _))| (*slot, it.clone()))
            .collect();
        let view = machine.view();
        (view == right)
            .then_some(())
            .ok_or_else(|| format!("counters are {view:?}, where {right:?} is right"))
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Add { .. } => Origin::Client,
            Message::Lapse { .. } => Origin::Tick,
        }
    }

    fn changes(reply: &Reply) -> bool {
        matches!(reply, Reply::Counted(_))
    }

    fn wakes(&self, watch: &Never) -> Option<Reply> {
        match *watch {}
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(message, Message::Add { .. })
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}
