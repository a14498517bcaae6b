//! Requests that wait for a condition.

use super::Host;
use super::planted::call_injector;
use crate::ids::Ticket;
use crate::spine::delivery::{Failed, Flow, Stage, Wait};
use crate::spine::guard::guard;
use crate::spine::ledger::Ledger;
use crate::spine::machine::{Actor, Request};

impl<M: Actor> Host<M> {
    /// Begins a wait on behalf of `ticket`; answers immediately if the condition is already true.
    pub fn watch(&mut self, ledger: &mut Ledger, ticket: Ticket, wait: Wait<M>) -> Flow {
        if let Some(Wait { watch, .. }) = self.watches.get(&ticket) {
            unreachable!("a ticket is handed out once, but this one already waits for {watch:?}");
        }
        if self.spent {
            self.watches.insert(ticket, wait);
            return Flow::Done;
        }
        let (machine, effects, injector) = (&mut self.machine, &mut self.effects, &self.injector);
        let begun = guard(|| {
            call_injector(injector.as_deref(), Stage::Watch, None);
            machine.watch(ticket, &wait.watch, effects);
        });
        if let Err(cause) = begun {
            self.outbox.hold(self.awaited, vec![Err(Failed::Unapplied)], wait.reply_to);
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Watch, cause)));
        }
        self.spent_in_a_row += M::cost(Request::Watch(&wait.watch));
        self.watches.insert(ticket, wait);
        self.hold_effects();
        self.proceed(ledger)
    }

    /// Ends a wait without an answer.
    pub fn unwatch(&mut self, ledger: &mut Ledger, ticket: Ticket) -> Flow {
        if self.watches.remove(&ticket).is_none() || self.spent {
            return Flow::Done;
        }
        let machine = &mut self.machine;
        match guard(|| machine.unwatch(ticket)) {
            Ok(()) => Flow::Done,
            Err(cause) => {
                let now = ledger.both();
                Flow::Panicked(self.spend(ledger, now, (Stage::Watch, cause)))
            }
        }
    }
}
