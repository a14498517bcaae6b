//! Replaces a spent machine: one that a panic has made unusable.

use super::Host;
use crate::spine::delivery::{Flow, Report, Stage};
use crate::spine::guard::guard;
use crate::spine::ledger::Ledger;
use crate::spine::machine::Actor;
use crate::spine::recovery::Recovered;

impl<M: Actor> Host<M> {
    /// Takes the spent machine out, and leaves an empty one. The rebuilding thread drops the spent machine, which may be large.
    pub fn take_spent(&mut self, rules: M::Rules) -> M {
        assert!(self.spent, "only a spent machine is taken out");
        let spent = std::mem::replace(&mut self.machine, M::new(rules));
        let by = self.spent_by.take();
        // An item that has changed since it was quarantined is no longer quarantined, even if it is due at the same time as before.
        let stays = |report: &Report| {
            let item = report.item.filter(|item| {
                Some(*item) == by || guard(|| spent.is_quarantined(*item)).unwrap_or(true)
            });
            item.is_some()
        };
        self.quarantined.retain(stays);
        spent
    }

    /// Replaces the spent machine with a rebuilt one, quarantines the same items and begins the same waits again, and restates obligations.
    /// If any of this panics, the new machine is spent as well.
    pub fn rebuilt(&mut self, ledger: &mut Ledger, rebuilt: Recovered<M>) -> Flow {
        (self.machine, self.receipts) = (rebuilt.machine, rebuilt.receipts);
        let (machine, effects) = (&mut self.machine, &mut self.effects);
        let (quarantined, watches) = (&self.quarantined, &self.watches);
        let restored = guard(|| {
            for report in quarantined {
                if let Some(item) = report.item {
                    machine.quarantine(item, report.now());
                }
            }
            for (ticket, wait) in watches {
                machine.watch(*ticket, &wait.watch, effects);
            }
        });
        (self.spent, self.held, self.disk_low) = (false, false, false);
        if let Err(cause) = restored.and_then(|()| self.resume()) {
            let now = ledger.both();
            return Flow::Panicked(self.spend(ledger, now, (Stage::Resume, cause)));
        }
        self.proceed(ledger)
    }
}
