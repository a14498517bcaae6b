//! Calls to a host other than deliveries: they set new rules, tell the machine what to hold back, and restate its obligations. An
//! obligation is a message to another actor, or an action of a port, that the machine still needs; see `effect.rs`.

use super::Host;
use crate::ids::ActorId;
use crate::persist::journal::Room;
use crate::spine::delivery::{Flow, Stage};
use crate::spine::effect::Effect;
use crate::spine::guard::guard;
use crate::spine::ledger::Ledger;
use crate::spine::machine::{Actor, Effects, Now};

impl<M: Actor> Host<M> {
    /// Restates every obligation of the machine now.
    pub fn restate(&mut self, ledger: &mut Ledger) -> Flow {
        if let Err(cause) = self.resume() {
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        self.proceed(ledger)
    }

    /// Appends to `obligations` the messages that `resume` would send to the actor `to`. Nothing is sent.
    pub fn obligations_to(
        &mut self,
        ledger: &mut Ledger,
        to: ActorId,
        obligations: &mut Vec<Vec<u8>>,
    ) -> Flow {
        let (machine, mut effects) = (&mut self.machine, Effects::<M>::default());
        if let Err(cause) = guard(|| machine.resume(&mut effects)) {
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        obligations.extend(effects.take().into_iter().filter_map(|it| match it {
            Effect::Tell(actor, message) if actor == to => Some(message),
            Effect::Tell(..) | Effect::Wake(..) | Effect::Act(_) => None,
        }));
        self.proceed(ledger)
    }

    /// Informs the machine whether to hold back removals, while the wall clock is in doubt, and work that makes other actors add state,
    /// while the disk is low on space. When there is space again, a scheduled restatement becomes due at once.
    pub(super) fn update_holds(&mut self, ledger: &Ledger, now: Now) {
        let held = ledger.marked().believed.is_some();
        if std::mem::replace(&mut self.held, held) != held {
            self.machine.hold_removals(held);
        }
        let disk_low = ledger.room() != Room::Ample;
        if std::mem::replace(&mut self.disk_low, disk_low) != disk_low {
            self.machine.hold_for_space(disk_low);
            if !disk_low {
                self.restate.bring_forward(now.at);
            }
        }
    }

    /// Replaces the rules from here on, and records that in the log, so that each decision can be checked against the rules in force.
    pub fn set_rules(&mut self, ledger: &mut Ledger, rules: M::Rules) -> Flow {
        ledger.rules(M::ID, &rules);
        let machine = &mut self.machine;
        if let Err(cause) = guard(|| machine.set_rules(rules)) {
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        self.proceed(ledger)
    }
}
