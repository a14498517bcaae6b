//! What is asked of a host from outside, beside messages: other rules, and what it has other actors do.

use super::Host;
use crate::ids::ActorId;
use crate::spine::delivery::{Flow, Stage};
use crate::spine::effect::Effect;
use crate::spine::guard::guard;
use crate::spine::ledger::Ledger;
use crate::spine::machine::{Actor, Effects};

impl<M: Actor> Host<M> {
    /// States every standing obligation again, now.
    pub fn restate(&mut self, ledger: &mut Ledger) -> Flow {
        if let Err(cause) = self.resume() {
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        self.proceed(ledger)
    }

    /// What of its standing obligations is another actor's to know, as messages. Nothing is told.
    pub fn stated(&mut self, ledger: &mut Ledger, to: ActorId, stated: &mut Vec<Vec<u8>>) -> Flow {
        let (machine, mut effects) = (&mut self.machine, Effects::<M>::default());
        if let Err(cause) = guard(|| machine.resume(&mut effects)) {
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        stated.extend(effects.take().into_iter().filter_map(|it| match it {
            Effect::Tell(actor, message) if actor == to => Some(message),
            Effect::Tell(..) | Effect::Wake(..) | Effect::Act(_) => None,
        }));
        self.proceed(ledger)
    }

    /// Goes by other rules from here on. That is noted in the log, so that each decision can be checked by the rules of its
    /// time.
    pub fn go_by(&mut self, ledger: &mut Ledger, rules: M::Rules) -> Flow {
        ledger.rules(M::ID, &rules);
        let machine = &mut self.machine;
        if let Err(cause) = guard(|| machine.set_rules(rules)) {
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        self.proceed(ledger)
    }
}
