//! Messages that must be carried out only once: if the key of a message has a receipt, the former answer is repeated, and nothing is
//! decided.

use super::{Host, MessageResult};
use crate::decode;
use crate::ids::{RequestKey, Ticket};
use crate::spine::delivery::{Item, Report, Stage};
use crate::spine::guard::guard;
use crate::spine::ledger::Ledger;
use crate::spine::machine::{Actor, Now, Refusal};

impl<M: Actor> Host<M> {
    /// Carries out a message, unless one was carried out before under the same key. In that case, returns the former answer, or refuses the
    /// message if its fingerprint differs from the earlier one's. Refuses a message with a new key if there is no room for its receipt.
    ///
    /// A repeated answer needs no separate wait for its entry: every answer of this actor waits until the entries with a key before it are
    /// durable.
    pub(super) fn once(
        &mut self,
        ledger: &mut Ledger,
        now: Now,
        (message, key): (&M::Message, &RequestKey),
        stage: Stage,
    ) -> Result<MessageResult<M>, Report> {
        let Some(receipt) = self.receipts.find(key, now.at) else {
            // The receipt of a message of which a part was carried out has its room.
            let running = self.backlog.as_ref().filter(|_| stage == Stage::Decide);
            let continues = running.is_some_and(|it| it.continues);
            let promised = self.parked.len();
            if !continues && !self.receipts.has_room((key.caller(), promised), now.at) {
                return Ok(MessageResult::Refused(Refusal::ReceiptsFull));
            }
            return self.message(ledger, now, (message, Some(key)), stage);
        };
        if !receipt.key.has_content_of(*key) {
            return Ok(MessageResult::Refused(Refusal::KeyReused));
        }
        let answered = guard(|| {
            let outcome = decode::from_slice(&receipt.outcome);
            let outcome = outcome.expect("an outcome of this journal should decode");
            let seq = receipt.entry.seq;
            self.machine.reply_again(seq, message, &outcome)
        });
        answered
            .map(MessageResult::Answered)
            .map_err(|cause| Self::report(ledger, now, Stage::Query, cause))
    }

    /// Returns whether any of these items was carried out before under its key. Messages with and without a key are never mixed in a
    /// delivery.
    pub(super) fn is_repetition(&self, ledger: &mut Ledger, items: &[Item<M>]) -> bool {
        let Some(Item::Keyed(..)) = items.first() else {
            return false;
        };
        let at = ledger.now();
        let is_known = |item: &Item<M>| match item {
            Item::Keyed(_, key) => self.receipts.find(key, at).is_some(),
            Item::Message(_) | Item::Query(_) => false,
        };
        items.iter().any(is_known)
    }

    /// Returns the ticket and the key of the wait that a tick answers; `None` if there is no such wait, or it has no key.
    pub(super) fn wait_with_key(&self, tick: &M::Message) -> Option<(Ticket, RequestKey)> {
        let ticket = M::acts_for(tick)?;
        let key = self.watches.get(&ticket)?.key.as_deref()?;
        Some((ticket, *key))
    }

    /// Carries out the tick of a wait, unless a message was carried out before under the key of the wait. In that case, the wait gets the
    /// former answer and ends.
    pub(super) fn tick_once(
        &mut self,
        ledger: &mut Ledger,
        now: Now,
        ticket: Ticket,
        (tick, key): (&M::Message, &RequestKey),
    ) -> Result<(), Report> {
        let is_repetition = self.receipts.find(key, now.at).is_some();
        let reply = match self.once(ledger, now, (tick, key), Stage::Tick)? {
            MessageResult::Refused(refusal) => refusal.into(),
            MessageResult::Answered(_) | MessageResult::Part(_) if !is_repetition => return Ok(()),
            MessageResult::Part(_) => unreachable!("a repetition has its answer"),
            MessageResult::Answered(reply) => reply,
        };
        let machine = &mut self.machine;
        if let Err(cause) = guard(|| machine.unwatch(ticket)) {
            return Err(self.spend(ledger, now, (Stage::Watch, cause)));
        }
        if let Some(wait) = self.watches.remove(&ticket) {
            self.outbox.hold(self.awaited, vec![Ok(reply)], wait.reply_to);
        }
        Ok(())
    }
}
