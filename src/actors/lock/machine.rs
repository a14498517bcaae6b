//! The lock rules: which client gets a lock, when, and for how long.
//!
//! Follows LockServer 0.9b. Points that its documentation leaves open are settled in `docs/protocols/lockserver.md`, whose
//! rows are cited here as "row n". The decide step changes no state, and the commit step makes no decisions.

use crate::actors::lock::entry::{Entry, requested};
use crate::actors::lock::message::{
    LinePosition, Message, Name, Outcome, Query, Refused, Removal, Reply, Rules, Watch,
};
use crate::actors::lock::pages::Page;
use crate::actors::lock::state::State;
use crate::actors::lock::waiting::Waiting;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, PageId, Seq, Slot, Ticket, Token};
use crate::lookup::pages::Pages;
use crate::spine::machine::{
    Draining, Durability, Effects, Machine, Moment, Never, Now, Paged, Request, SpaceEffect, Stamp,
    Start, Timed,
};

/// The prefix of keys that are reserved for the server. Their locks are listed like others, but clients cannot change them.
const RESERVED_PREFIX: &[u8] = b"wip-pool-lock-";

/// The maximum number of slots that one `Select` query visits, or of contended locks that one `Contended` query considers: less
/// than a millisecond of work.
pub(super) const SLOTS_IN_A_ROW: u32 = 8192;

/// The lock rules, and the state to which they apply.
#[derive(Debug)]
pub struct LockMachine {
    pub(super) rules: Rules,
    pub(super) state: State,
    pub(super) waiting: Waiting,
}

impl LockMachine {
    fn decide_request(
        &self,
        (key, index, owner): (&Name, &Name, &Name),
        priority: u8,
        draining: Draining,
    ) -> Outcome {
        let [key, index, owner] = [key, index, owner].map(Name::as_bytes);
        if owner.is_empty() {
            return Outcome::Refused(Refused::NoOwner); // row 2
        }
        if key.starts_with(RESERVED_PREFIX) {
            return Outcome::Refused(Refused::Reserved);
        }
        if let Some(slot) = self.state.find(key, index, owner) {
            return self.renewed(slot); // rows 8 and 9: a renewal, also while draining
        }
        if draining.has_begun() || self.state.head.draining {
            return Outcome::Refused(Refused::Draining);
        }
        if self.state.entries.len() >= self.rules.entries_max as usize {
            return Outcome::Refused(Refused::Full);
        }
        let slot = self.state.entries.next_free();
        match self.state.holder(key, index) {
            None => Outcome::Granted { slot },
            Some(holder) => {
                // Row 11: a contender never pre-empts the owner, but may overtake other contenders.
                let place =
                    self.state.place_of_new_contender(holder, priority, self.rules.high_first);
                Outcome::Queued { slot, place }
            }
        }
    }

    fn decide_renew(&self, slot: Option<Slot>, token: Option<Token>) -> Outcome {
        let Some(entry) = slot.and_then(|slot| self.state.entries.get(slot)) else {
            return Outcome::Absent;
        };
        if token.is_some_and(|token| token != entry.token()) {
            return Outcome::Refused(Refused::StaleToken);
        }
        if entry.key().starts_with(RESERVED_PREFIX) {
            return Outcome::Refused(Refused::Reserved);
        }
        slot.map_or(Outcome::Absent, |slot| self.renewed(slot))
    }

    pub(super) fn renewed(&self, slot: Slot) -> Outcome {
        let entry = self.state.entries.get(slot);
        if entry.is_some_and(Entry::is_fencing) {
            return Outcome::Refused(Refused::Fencing);
        }
        let token = entry.map_or(Token(0), Entry::token);
        Outcome::Renewed { slot, place: self.state.place(slot, self.rules.high_first), token }
    }

    /// Decides to end these entries, in the order given, except those that are being fenced or have a reserved key.
    /// Each lock that an ended entry owned passes to its first heir. If a token is given and one of the entries does
    /// not have it, the message is refused and no entry ends. If none of them can end, the outcome is `Refused` if one
    /// of them is being fenced, otherwise `Absent`.
    pub(super) fn decide_end(
        &self,
        slots: impl Iterator<Item = Slot>,
        token: Option<Token>,
    ) -> Outcome {
        let mut gone = Vec::new();
        let mut is_fencing = false;
        for slot in slots {
            let Some(entry) = self.state.entries.get(slot) else {
                continue;
            };
            if token.is_some_and(|token| token != entry.token()) {
                return Outcome::Refused(Refused::StaleToken);
            }
            if entry.is_fencing() {
                is_fencing = true;
                continue;
            }
            if entry.key().starts_with(RESERVED_PREFIX) {
                continue;
            }
            gone.push(Removal { slot, heir: self.heirs(slot).next() });
        }
        match gone.is_empty() {
            true if is_fencing => Outcome::Refused(Refused::Fencing),
            true => Outcome::Absent,
            false => Outcome::Ended { gone },
        }
    }

    /// Decides to end the entry that owns a lock, whether or not its process is still alive. The outcome is `Absent` if
    /// the lock is free, and `Refused` if its key is reserved.
    fn decide_force(&self, key: &Name, index: &Name) -> Outcome {
        let (key, index) = (key.as_bytes(), index.as_bytes());
        let Some(slot) = self.state.holder(key, index) else {
            return Outcome::Absent;
        };
        if key.starts_with(RESERVED_PREFIX) {
            return Outcome::Refused(Refused::Reserved);
        }
        let heir = self.heirs(slot).next();
        let gone = vec![Removal { slot, heir }];
        Outcome::Ended { gone }
    }

    /// Decides what happens to an entry that has timed out: an owner that is bound with `fence` is fenced, any other entry
    /// ends. A contender that has timed out by the same instant ends, too, instead of becoming the owner (row 15).
    ///
    /// Contenders that come after the heir, in the order of [`Self::heirs`], are not examined: each of them that has timed out gets a tick of
    /// its own, before the next command.
    fn decide_expire(&self, slot: Slot) -> Outcome {
        let Some(entry) = self.state.entries.get(slot) else {
            return Outcome::Absent;
        };
        if entry.is_owner() && entry.bound().is_some_and(|bound| bound.fence) {
            return Outcome::Fenced { slot };
        }
        let deadline = self.state.deadline_of(entry);
        let dead = |slot: &Slot| {
            let contender = self.state.entries.get(*slot);
            let ends = contender.and_then(|contender| self.state.deadline_of(contender));
            ends.is_some_and(|ends| Some(ends) <= deadline)
        };
        let mut line = self.heirs(slot).peekable();
        let mut gone = Vec::new();
        while gone.len() < self.rules.part.max(1) as usize
            && let Some(slot) = line.next_if(dead)
        {
            gone.push(Removal { slot, heir: None });
        }
        // The owner of a longer line is still due, and goes when the contenders that time out with it have gone.
        if line.peek().is_none_or(|slot| !dead(slot)) {
            let heir = line.next();
            gone.push(Removal { slot, heir });
        }
        Outcome::Ended { gone }
    }

    /// Returns the contenders for an owner's lock, in order; none if the entry is a contender.
    pub(super) fn in_line(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        self.state.contenders(slot, self.rules.high_first)
    }

    /// Returns the contenders for an owner's lock in the order in which it passes to them: nobody who is there waits for one who is
    /// away (`docs/decisions/0073-a-grant-waits-for-nobody.md`). None if the entry is a contender.
    pub(super) fn heirs(&self, slot: Slot) -> impl Iterator<Item = Slot> + '_ {
        self.state.heirs(slot, self.rules.high_first)
    }

    pub(super) fn counts(&self) -> (u32, u32) {
        let all = u32::try_from(self.state.entries.len()).unwrap_or(u32::MAX);
        let contenders = self.state.contenders;
        (all - contenders, contenders)
    }

    pub(super) fn position_reply(&self, slot: Slot) -> Reply {
        let entry = self.state.entries.get(slot);
        let token = entry.map(Entry::token);
        Reply::LinePosition(LinePosition {
            place: self.state.place(slot, self.rules.high_first),
            token: token.filter(|token| *token != Token(0)),
            away: entry.is_some_and(Entry::is_away),
        })
    }

    fn find(&self, names: [&Name; 3]) -> Option<(Slot, &Entry)> {
        let [key, index, owner] = names.map(Name::as_bytes);
        let slot = self.state.find(key, index, owner)?;
        Some((slot, self.state.entries.get(slot)?))
    }

    /// Returns the entry that a message names, or `None` if there is no such entry. No entry has an empty owner, so an
    /// empty owner with a token means the current holder of the lock; the caller then compares the token with the
    /// holder's.
    pub(super) fn named_entry(&self, names: [&Name; 3], token: Option<Token>) -> Option<Slot> {
        let [key, index, owner] = names.map(Name::as_bytes);
        if owner.is_empty() && token.is_some() {
            self.state.holder(key, index)
        } else {
            self.state.find(key, index, owner)
        }
    }
}

#[cfg(test)]
impl LockMachine {
    /// Asserts the invariants of the whole state.
    pub(super) fn assert_whole(&self) {
        self.state.assert_whole(self.rules.high_first);
        self.state.assert_bound();
    }
}

impl Machine for LockMachine {
    const NAME: &'static str = "lock";
    const ID: ActorId = ActorId::LOCK;

    type Rules = Rules;
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Watch;
    type Action = Never;

    fn new(rules: Rules) -> Self {
        Self { rules, state: State::default(), waiting: Waiting::default() }
    }

    fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    fn decide(&self, moment: &Moment, message: &Message) -> Outcome {
        match message {
            Message::Request { .. } | Message::Acquire { .. } => {
                let (names, terms) = requested(message).expect("the message should be a request");
                self.decide_request(names, terms.priority, moment.draining)
            }
            Message::Renew { key, index, owner, token } => {
                self.decide_renew(self.named_entry([key, index, owner], *token), *token)
            }
            Message::Release { key, index: Some(index), owner, token } => {
                let slot = self.named_entry([key, index, owner], *token);
                self.decide_end(slot.into_iter(), *token)
            }
            // Row 24: ends every entry of this owner under the key, whether it owns its lock or waits for it.
            Message::Release { key, index: None, owner, token } => {
                self.decide_end_all((owner, Some(key)), *token, moment.seq)
            }
            Message::Leave { key, index, token } => {
                let slot = self.state.holder(key.as_bytes(), index.as_bytes());
                self.decide_end(slot.into_iter(), Some(*token))
            }
            // Row 25: ends contending entries, too, because a client that has left must not be granted a lock later.
            Message::ReleaseAll { owner } => self.decide_end_all((owner, None), None, moment.seq),
            Message::EndMore(more) => {
                self.decide_part((&more.owner, more.key.as_ref()), more.token, more.part)
            }
            Message::Force { key, index } => self.decide_force(key, index),
            Message::Gone(gone) => self.decide_gone(*gone),
            Message::Expire { slot } => self.decide_expire(*slot),
            Message::Hold(hold) => self.decide_hold(hold),
            Message::Yield(hold) => self.decide_yield(hold),
            Message::Drain if self.state.head.draining => Outcome::Absent,
            Message::Drain => Outcome::Draining,
        }
    }

    fn forbids(&self, message: &Message) -> bool {
        self.is_forbidden(message)
    }

    fn durability(&self, message: &Message, outcome: &Outcome) -> Durability {
        match outcome {
            Outcome::Ended { gone } if matches!(message, Message::Leave { .. }) => {
                // A grant to an heir must be durable. The end of an entry must be durable unless the entry would end
                // with its process anyway.
                let ends_anyway = |gone: &Removal| {
                    let entry = self.state.entries.get(gone.slot);
                    gone.heir.is_none() && entry.is_some_and(|entry| entry.bound().is_some())
                };
                if gone.iter().all(ends_anyway) {
                    Durability::Transient
                } else {
                    Durability::Durable
                }
            }
            // The last part has the answer, which a repeated request gets again.
            Outcome::EndedPart { gone, part } if gone.is_empty() => match part.next {
                Some(_) => Durability::Transient,
                None if part.ended == 0 => Durability::Nothing,
                None => Durability::Durable,
            },
            Outcome::Granted { .. }
            | Outcome::Queued { .. }
            | Outcome::Renewed { .. }
            | Outcome::Ended { .. }
            | Outcome::EndedPart { .. }
            | Outcome::Fenced { .. }
            | Outcome::Draining => Durability::Durable,
            Outcome::Absent | Outcome::Refused(_) => Durability::Nothing,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        match outcome {
            Outcome::Granted { slot } | Outcome::Queued { slot, .. } => {
                let (names, terms) =
                    requested(message).expect("only a request should add an entry");
                self.state.insert(*slot, entry, names, terms);
                self.send_binding(*slot, effects);
                self.tell_holder(*slot, effects);
            }
            Outcome::Renewed { slot, .. } => match requested(message) {
                Some((_, terms)) if matches!(message, Message::Acquire { .. }) => {
                    self.state.extend(*slot, entry, terms);
                    self.send_binding(*slot, effects);
                }
                _ => {
                    self.state.renew(*slot, entry);
                    self.tell_holder(*slot, effects);
                }
            },
            Outcome::Ended { gone } | Outcome::EndedPart { gone, .. } => {
                for Removal { slot, heir } in gone {
                    self.state.remove(*slot, *heir, entry);
                    if let Some(heir) = heir {
                        self.tell_holder(*heir, effects);
                    }
                }
                self.wake(gone, effects);
            }
            Outcome::Fenced { slot } => {
                self.state.fence(*slot, entry);
                self.wake_lost(*slot, effects);
                self.send_binding(*slot, effects);
            }
            Outcome::Draining => self.state.drain(entry.seq),
            Outcome::Absent | Outcome::Refused(_) => {}
        }
    }

    fn reply(&self, seq: Seq, _message: &Message, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Granted { .. } => {
                Reply::LinePosition(LinePosition { place: 1, token: Some(seq.into()), away: false })
            }
            Outcome::Queued { place, .. } => {
                Reply::LinePosition(LinePosition { place: *place, token: None, away: false })
            }
            Outcome::Renewed { place, token, .. } => Reply::LinePosition(LinePosition {
                place: *place,
                token: Some(*token).filter(|token| *token != Token(0)),
                away: false,
            }),
            Outcome::Ended { gone } => Reply::Ended(u32::try_from(gone.len()).unwrap_or(u32::MAX)),
            Outcome::EndedPart { gone, part } => Self::part_reply(part, gone),
            Outcome::Draining => Reply::Draining,
            Outcome::Fenced { .. } => Reply::Ended(0),
            Outcome::Absent => Reply::Absent,
            Outcome::Refused(refused) => Reply::Refused(*refused),
        }
    }

    fn query(&self, _now: Now, query: &Query) -> Reply {
        match query {
            Query::Owner { key, index } => {
                let holder = self.state.holder(key.as_bytes(), index.as_bytes());
                let entry = holder.and_then(|slot| self.state.entries.get(slot));
                Reply::Owner(entry.and_then(|entry| Name::new(entry.owner())))
            }
            Query::Place { key, index, owner } => self
                .find([key, index, owner])
                .map_or(Reply::Absent, |(slot, _)| self.position_reply(slot)),
            Query::List { key, entries_max } => Reply::List(self.list(key.as_ref(), *entries_max)),
            Query::Select(selection) => self.select(selection),
            Query::Contended { most, by } => self.contended(*most, *by),
            Query::Counts => {
                let (owners, contenders) = self.counts();
                Reply::Counts { owners, contenders }
            }
        }
    }

    fn cost(asked: Request<'_, Self>) -> usize {
        match asked {
            Request::Query(Query::List { entries_max, .. }) => (*entries_max).min(1 << 16) as usize,
            Request::Query(Query::Select(_) | Query::Contended { .. }) => {
                SLOTS_IN_A_ROW as usize / 8
            }
            Request::Query(_) | Request::Message(_) | Request::Watch(_) => 1,
        }
    }

    fn outcome_cost(outcome: &Outcome) -> usize {
        outcome.gone().len()
    }

    fn rest(&self, message: &Message, outcome: &Outcome) -> Option<Message> {
        self.rest_of(message, outcome)
    }

    fn space_effect(&self, message: &Message) -> SpaceEffect {
        match message {
            Message::Request {
                key, index, owner, ..
            }
            | Message::Acquire {
                key, index, owner, ..
            } => {
                if self.find([key, index, owner]).is_some() {
                    SpaceEffect::Keeps
                } else {
                    SpaceEffect::Adds
                }
            }
            Message::Renew { .. } => SpaceEffect::Keeps,
            Message::Release { .. }
            | Message::Leave { .. }
            | Message::ReleaseAll { .. }
            | Message::EndMore(_)
            | Message::Force { .. }
            | Message::Gone(_)
            | Message::Expire { .. }
            | Message::Drain
            | Message::Yield(_)
            // Refusing a hold would gain nothing: it would be sent again, and the work that the lock guards may already have begun.
            | Message::Hold(_) => SpaceEffect::Frees,
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, effects: &mut Effects<Self>) {
        match watch {
            Watch::Empty => {
                self.waiting.until_empty(ticket);
                self.wake_if_empty(effects);
            }
            Watch::Granted { key, index, owner } => match self.find([key, index, owner]) {
                Some((slot, entry)) if entry.is_owner() => {
                    effects.wake(ticket, self.position_reply(slot));
                }
                Some((slot, _)) => self.waiting.on_slot(ticket, slot),
                None => effects.wake(ticket, Reply::Absent),
            },
            Watch::Lost { key, index, owner, token } => {
                match self.named_entry([key, index, owner], Some(*token)) {
                    Some(slot) if self.state.is_held_with(slot, *token) => {
                        self.waiting.on_slot(ticket, slot);
                    }
                    Some(_) | None => effects.wake(ticket, Reply::Absent),
                }
            }
        }
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.waiting.forget(ticket);
    }

    /// Restarts all timeouts, without changing order or ownership (row 34). New entries are accepted again, contenders
    /// that were tied to connections are removed, and the clients of others that waited for an answer are away.
    fn start(&mut self, start: Start) {
        self.state.start(start.stamp);
    }

    /// Repeats the requests to the `ProcessActor` about each bound process, since the process may have ended while this
    /// actor was down. Also sends the state of every lock that another actor requested to that actor, since the previous
    /// notification may have been lost.
    fn resume(&mut self, effects: &mut Effects<Self>) {
        for slot in self.state.all_bound() {
            self.send_binding(slot, effects);
        }
        for slot in &self.state.of_actors {
            self.tell_holder(*slot, effects);
        }
    }
}

impl Timed for LockMachine {
    fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        self.state.entries.deadline(offset)
    }

    fn due(&mut self, now: Now) -> Option<u64> {
        let due = self.state.entries.due(now);
        due.map(|(_, slot)| slot.0.into())
    }

    fn tick(&self, item: u64) -> Message {
        Message::Expire { slot: Slot(u32::try_from(item).expect("items should be slots")) }
    }

    fn is_quarantined(&self, item: u64) -> bool {
        let slot = Slot(u32::try_from(item).expect("items should be slots"));
        self.state.entries.is_quarantined(slot)
    }

    fn quarantine(&mut self, item: u64, now: Now) {
        let slot = Slot(u32::try_from(item).expect("items should be slots"));
        self.state.entries.quarantine(slot, now);
    }
}

impl Paged for LockMachine {
    type Page = Page;

    fn pages(&mut self) -> &mut Pages {
        &mut self.state.pages
    }

    fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        self.state.encode_page(page, content);
    }

    fn decode_page(page: PageId, content: &[u8]) -> Result<Page, String> {
        Page::decode(page, content)
    }

    fn from_pages(rules: Rules, pages: &mut dyn Iterator<Item = Page>) -> Self {
        Self { state: State::from_pages(pages), ..Self::new(rules) }
    }

    fn digest(&self) -> Digest {
        self.state.digest()
    }
}
