//! The view, gauges and events of locks. No decision depends on them.

use crate::actors::lock::event;
use crate::actors::lock::machine::LockMachine;
use crate::actors::lock::message::{Message, Outcome, View};
use crate::ids::Slot;
use crate::spine::event::EventBody;
use crate::spine::machine::{About, Gauge, Observable, Stamp};

impl Observable for LockMachine {
    const KINDS: &'static [&'static str] = &[
        "draining",
        "expired",
        "fencing",
        "granted",
        "released",
        "timed-out",
        "waiting",
        "withdrawn",
    ];

    type View = View;

    fn sample(&self, most: usize) -> View {
        let (owners, contenders) = self.counts();
        let draining = self.state.head.draining;
        View {
            owners,
            contenders,
            draining,
            entries: self.list(None, u32::try_from(most).unwrap_or(u32::MAX)),
        }
    }

    fn gauges(&self) -> Vec<Gauge> {
        let (owners, contenders) = self.counts();
        vec![
            Gauge { name: "owners", help: "owners of locks", value: owners.into() },
            Gauge { name: "contenders", help: "contenders for locks", value: contenders.into() },
        ]
    }

    fn events(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        event::events(&self.state, entry, (message, outcome), publish);
    }

    fn history(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        event::renewed((message, outcome), publish);
        self.events(entry, message, outcome, publish);
    }

    fn about(&self, outcome: &Outcome) -> Vec<About> {
        let slots = outcome.gone().iter().flat_map(|gone| [Some(gone.slot), gone.heir]);
        let about = |slot: Slot| Some(self.state.entries.get(slot)?.about(slot));
        slots.flatten().filter_map(about).collect()
    }
}
