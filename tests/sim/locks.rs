//! The model of locks as a reference: the required content of the log and of answers to clients.

use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{Origin, Reference};
use crate::violation::{Promise, Violation, ensure};
use crate::workload::Workload;
use model::Model;
use sexton::actors::lock::{
    Hold, LinePosition, LockMachine, Message, Name, Outcome, Query, Refused, Removal, Reply, Rules,
    Watch,
};
use sexton::clock::Timestamp;
use sexton::ids::{Seq, Slot};
use sexton::spine::delivery::Answer;
use sexton::spine::machine::Observable as _;
use sexton::spine::machine::{Stamp, Start};

#[path = "../../src/actors/lock/model.rs"]
mod model;

/// Locks, according to the model.
#[derive(Clone)]
pub(crate) struct Locks {
    model: Model,
}

impl Default for Locks {
    fn default() -> Self {
        let rules = Locks::rules();
        Self { model: Model::new(&rules) }
    }
}

impl Locks {
    fn standing(&self, [key, index, owner]: [&Name; 3]) -> Option<LinePosition> {
        let lock = (key.clone(), index.clone());
        let (place, it) = self.model.position(&lock, owner)?;
        let token = it.owns().then_some(it.token);
        Some(LinePosition { place, token, away: it.away })
    }

    /// Returns the slot of the entry that a request is about, before the request is applied. Returns `None` if there is
    /// no such entry.
    fn slot(&self, message: &Message) -> Option<Slot> {
        let (Message::Request { key, index, owner, .. }
        | Message::Acquire { key, index, owner, .. }
        | Message::Renew { key, index, owner, .. }
        | Message::Hold(Hold { key, index, owner, .. })) = message
        else {
            return None;
        };
        let lock = (key.clone(), index.clone());
        if owner.as_bytes().is_empty() {
            return self.model.line(&lock).first().map(|it| it.slot);
        }
        let found = self.model.position(&lock, owner);
        found.map(|(_, it)| it.slot)
    }

    /// Returns the entries that no longer exist, by slot. If such an entry owned its lock, the lock's new owner is given
    /// too.
    fn gone(&self, after: &Model) -> Vec<Removal> {
        let is_there = |slot: Slot| after.entries.iter().any(|it| it.slot == slot);
        let entries = self.model.entries.iter();
        let gone = entries.filter(|it| !is_there(it.slot)).map(|it| {
            let line = after.line(&it.lock);
            let heir = line.first().map(|heir| heir.slot);
            Removal { slot: it.slot, heir: heir.filter(|_| it.owns()) }
        });
        let mut gone: Vec<Removal> = gone.collect();
        gone.sort_by_key(|it| it.slot);
        gone
    }

    /// Checks that no lock passes to a contender whose client is away while the client of another one is there.
    fn check_heir(&self, gone: &[Removal], heir: Slot) -> Result<(), Violation> {
        let its = |slot: Slot| self.model.entries.iter().find(move |it| it.slot == slot);
        let Some(granted) = its(heir) else {
            return Ok(());
        };
        let stays = |slot: Slot| !gone.iter().any(|gone| gone.slot == slot);
        let mut waiting = self.model.entries.iter().filter(|it| it.lock == granted.lock);
        let there = waiting.find(|it| !it.owns() && !it.away && stays(it.slot));
        ensure(!granted.away || there.is_none(), Promise::PresentFirst, || {
            let owners = (&granted.owner, there.map(|it| &it.owner));
            format!("{:?} is away, and {:?} waits for it", owners.0, owners.1)
        })
    }

    /// Returns the model after a message, and the reply to it.
    fn follow(&self, stamp: Stamp, message: &Message) -> Result<(Model, Option<Reply>), String> {
        let mut after = self.model.clone();
        let first = after.next_due(stamp.at).map(|it| it.slot);
        if let Message::Expire { slot } = message {
            if first != Some(*slot) {
                return Err(format!("time acted on {slot:?}, but {first:?} is due"));
            }
            after.tick(stamp.seq, stamp.at);
            return Ok((after, None));
        }
        if let Some(due) = self.due(stamp.at) {
            return Err(format!("it was ordered before {due}, which was due"));
        }
        let reply = after.message(message, stamp.seq, stamp.at);
        Ok((after, Some(reply)))
    }
}

impl Judged for LockMachine {
    type Reference = Locks;
}

impl Reference for Locks {
    const CALLS: u64 = 150;
    const WATCHES: u64 = 17;
    const TURNS: u64 = 170;

    type Clients = Workload;
    type Machine = LockMachine;

    fn rules() -> Rules {
        Rules { part: 2, ..Rules::default() }
    }

    fn promised(&mut self, _: Stamp, _: &Message, outcome: &Outcome) -> Result<(), Violation> {
        let gone = outcome.gone();
        gone.iter().filter_map(|it| it.heir).try_for_each(|heir| self.check_heir(gone, heir))
    }

    fn tally(&mut self, counted: &mut Coverage) {
        counted.passed_over += std::mem::take(&mut self.model.passed_over);
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, reply): (&Outcome, &Reply),
    ) -> Result<(), String> {
        let (after, right) = self.follow(stamp, message)?;
        if !Self::changes(reply) || right.as_ref().is_some_and(|right| right != reply) {
            return Err(format!("{reply:?}, expected {right:?}"));
        }
        let gone = self.gone(&after);
        self.model = after;
        let slot = self.slot(message);
        match outcome {
            Outcome::Granted { slot: given }
            | Outcome::Queued { slot: given, .. }
            | Outcome::Renewed { slot: given, .. }
                if slot != Some(*given) =>
            {
                Err(format!("{given:?}, expected {slot:?}"))
            }
            Outcome::Ended { gone: ended } | Outcome::EndedPart { gone: ended, .. } => {
                let mut ended = ended.clone();
                ended.sort_by_key(|it| it.slot);
                (ended == gone)
                    .then_some(())
                    .ok_or_else(|| format!("{ended:?} ended, expected {gone:?}"))
            }
            Outcome::Granted { .. }
            | Outcome::Queued { .. }
            | Outcome::Renewed { .. }
            | Outcome::Fenced { .. }
            | Outcome::Draining
            | Outcome::Absent
            | Outcome::Refused(_) => Ok(()),
        }
    }

    fn start(&mut self, start: Start) {
        self.model.start(start.stamp.at);
    }

    fn poisoned(&mut self, message: &Message) {
        if let Message::Expire { slot } = message {
            let entries = self.model.entries.iter_mut();
            for it in entries.filter(|it| it.slot == *slot) {
                it.quarantined = true;
            }
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.model.next_due(at).map(|it| format!("{it:?}"))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        let mut model = self.model.clone();
        model.part = usize::MAX;
        let reply = model.message(message, Seq(0), Timestamp(0));
        (!Self::changes(&reply)).then_some(reply)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        let list = self.model.list();
        Ok(match query {
            Query::Owner { key, index } => {
                let is = |lock: &(Name, Name)| (&lock.0, &lock.1) == (key, index);
                let mut entries = self.model.entries.iter();
                let owner = entries.find(|it| it.owns() && is(&it.lock));
                Reply::Owner(owner.map(|it| it.owner.clone()))
            }
            Query::Place { key, index, owner } => {
                self.standing([key, index, owner]).map_or(Reply::Absent, Reply::LinePosition)
            }
            Query::List { key, entries_max } => Reply::List(
                list.into_iter()
                    .filter(|it| key.as_ref().is_none_or(|key| it.key == *key))
                    .take(*entries_max as usize)
                    .collect(),
            ),
            Query::Select(_) | Query::Contended { .. } => unreachable!("clients request no pages"),
            Query::Counts => {
                let owners = list.iter().filter(|it| it.token.is_some()).count();
                let count = |count| u32::try_from(count).expect("worlds are small");
                Reply::Counts { owners: count(owners), contenders: count(list.len() - owners) }
            }
        })
    }

    fn agrees(&self, machine: &LockMachine) -> Result<(), String> {
        let (view, mine) = (machine.view(), self.model.list());
        if view.draining != self.model.draining {
            return Err(format!("draining is {}", view.draining));
        }
        (view.entries == mine)
            .then_some(())
            .ok_or_else(|| format!("entries are {:?}, expected {mine:?}", view.entries))
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Expire { .. } => Origin::Tick,
            Message::Gone(_) | Message::Hold(_) | Message::Yield(_) => Origin::Tell,
            Message::Request { .. }
            | Message::Acquire { .. }
            | Message::Renew { .. }
            | Message::Release { .. }
            | Message::Leave { .. }
            | Message::ReleaseAll { .. }
            | Message::EndMore(_)
            | Message::Force { .. }
            | Message::Drain => Origin::Client,
        }
    }

    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::LinePosition(_) | Reply::Ended(_) | Reply::Draining => true,
            Reply::Absent
            | Reply::Refused(_)
            | Reply::Owner(_)
            | Reply::List(_)
            | Reply::Page { .. }
            | Reply::Contended { .. }
            | Reply::Counts { .. }
            | Reply::Due => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        match watch {
            Watch::Empty => self.model.entries.is_empty().then_some(Reply::Due),
            Watch::Granted { key, index, owner } => match self.standing([key, index, owner]) {
                None => Some(Reply::Absent),
                Some(standing) => standing.token.map(|_| Reply::LinePosition(standing)),
            },
            Watch::Lost { key, index, owner, token } => {
                let lock = (key.clone(), index.clone());
                let line = self.model.line(&lock);
                let holds = line.first().is_some_and(|it| {
                    let is_held = it.token == *token && !it.fencing;
                    is_held && (owner.as_bytes().is_empty() || it.owner == *owner)
                });
                (!holds).then_some(Reply::Absent)
            }
        }
    }

    fn count(message: &Message, outcome: &Outcome, counted: &mut Coverage) {
        match outcome {
            Outcome::Granted { .. } => counted.grants += 1,
            Outcome::Queued { .. } => counted.queued += 1,
            Outcome::Renewed { .. } => counted.renewals += 1,
            Outcome::EndedPart { .. } => counted.parts += 1,
            Outcome::Ended { gone } => {
                let heirs = gone.iter().filter(|gone| gone.heir.is_some()).count() as u64;
                counted.promotions += heirs;
                if matches!(message, Message::Expire { .. }) {
                    counted.expiries += 1;
                } else if matches!(message, Message::Gone(_)) {
                    counted.owners_gone += 1;
                } else {
                    counted.releases += 1;
                }
            }
            Outcome::Fenced { .. } => counted.fenced += 1,
            Outcome::Draining => counted.drains += 1,
            Outcome::Absent | Outcome::Refused(_) => {}
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(message, Message::Request { .. } | Message::Acquire { .. } | Message::Renew { .. })
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}
