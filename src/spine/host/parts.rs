//! Messages that are carried out in parts, because they change more items than one outcome may: between the parts, other deliveries are
//! carried out. See [`Machine::rest`].

use super::{Host, MessageResult, Running};
use crate::ids::{RequestKey, Seq};
use crate::spine::delivery::{Delivery, Flow, Item};
use crate::spine::ledger::Ledger;
use crate::spine::machine::{Actor, Machine};

/// A delivery that goes on after others.
pub(super) enum Parked<M: Machine> {
    /// A part of one of its messages was carried out.
    Begun(Running<M>),
    /// It repeats a request that is being carried out, so that it begins after that one.
    Waiting(Delivery<M>),
}

impl<M: Actor> Host<M> {
    /// Returns whether a delivery has been carried out in part. Its other parts follow by [`carry_on`](Self::carry_on), which is called
    /// when other deliveries and other actors have had their turn.
    pub fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Carries out the next part of the delivery that was parked first. No delivery may be under way.
    pub fn carry_on(&mut self, ledger: &mut Ledger) -> Flow {
        assert!(self.backlog.is_none(), "a parked delivery goes on when no other one is under way");
        let next = match self.parked.pop_front() {
            None => return Flow::Done,
            Some(Parked::Begun(running)) => running,
            Some(Parked::Waiting(delivery)) => self.begin(ledger, delivery),
        };
        self.backlog = Some(Running { goes_first: true, ..next });
        self.proceed(ledger)
    }

    pub(super) fn begin(&self, ledger: &mut Ledger, delivery: Delivery<M>) -> Running<M> {
        Running {
            is_repetition: self.is_repetition(ledger, &delivery.items),
            answers: Vec::with_capacity(delivery.items.len()),
            items: delivery.items.into_iter(),
            rest: None,
            continues: false,
            goes_first: false,
            reply_to: delivery.reply_to,
            sender: delivery.sender,
            authority: delivery.authority,
        }
    }

    /// If only a part of a message was carried out, parks its delivery until others have had their turn. Otherwise returns the result.
    pub(super) fn parked<E>(
        &mut self,
        done: Result<MessageResult<M>, E>,
        key: Option<Box<RequestKey>>,
    ) -> Option<Result<MessageResult<M>, E>> {
        let Ok(MessageResult::Part(rest)) = done else {
            return Some(done);
        };
        if let Some(mut running) = self.backlog.take() {
            running.rest = Some(Item::once(rest, key.map(|key| *key)));
            // Long requests are carried out one after the other, so that a repetition finds the result of what it repeats.
            if running.goes_first {
                self.parked.push_front(Parked::Begun(running));
            } else {
                self.parked.push_back(Parked::Begun(running));
            }
        }
        None
    }

    /// Returns whether one of these items repeats a request of a parked delivery.
    pub(super) fn repeats_parked(&self, items: &[Item<M>]) -> bool {
        fn id<M: Machine>(item: &Item<M>) -> Option<u128> {
            match item {
                Item::Keyed(_, key) => Some(key.id),
                Item::Message(_) | Item::Query(_) => None,
            }
        }
        let is_its = |parked: &Parked<M>, wanted: u128| {
            let (rest, items) = match parked {
                Parked::Begun(running) => (running.rest.as_ref(), running.items.as_slice()),
                Parked::Waiting(delivery) => (None, delivery.items.as_slice()),
            };
            let mut ids = rest.into_iter().chain(items).filter_map(id);
            ids.any(|it| it == wanted)
        };
        let mut ids = items.iter().filter_map(id);
        !self.parked.is_empty()
            && ids.any(|wanted| self.parked.iter().any(|parked| is_its(parked, wanted)))
    }
}

/// Returns the result of a message with this outcome.
pub(super) fn result_of<M: Machine>(
    machine: &M,
    seq: Seq,
    message: &M::Message,
    outcome: &M::Outcome,
) -> MessageResult<M> {
    match machine.rest(message, outcome) {
        Some(rest) => MessageResult::Part(rest),
        None => MessageResult::Answered(machine.reply(seq, message, outcome)),
    }
}
