//! The machine of the `LeaseActor`: the interface between the lease rules and the host, which runs the machine.

use crate::actors::lease::item::Current;
use crate::actors::lease::message::{Action, Message, Query, Reply, Rules, Watch};
use crate::actors::lease::outcome::{Outcome, Turn};
use crate::actors::lease::state::{Page, State};
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, PageId, Seq, Slot, Ticket, Token};
use crate::lookup::pages::Pages;
use crate::spine::machine::{
    Durability, Effects, Machine, Moment, Now, Paged, Request, SpaceEffect, Stamp, Start, Timed,
};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of leases in one listing.
pub(super) const LISTED_MAX: u32 = 1000;

/// The maximum number of leases that are considered for a listing of active leases.
pub(super) const ACTIVE_MAX: usize = 8192;

/// The lease rules, and the state to which they apply.
#[derive(Debug)]
pub struct LeaseMachine {
    pub(super) rules: Rules,
    pub(super) state: State,
    /// The conditions that requests wait for, except [`Watch::Idle`].
    waiting: BTreeMap<Ticket, Watch>,
    /// The requests in `waiting`, by the slot of the lease that each waits for.
    waiting_for: BTreeSet<(Slot, Ticket)>,
    /// The requests that wait until no pass is running ([`Watch::Idle`]).
    waiting_for_none: BTreeSet<Ticket>,
}

impl LeaseMachine {
    fn with_state(rules: Rules, state: State) -> Self {
        Self {
            rules,
            state,
            waiting: BTreeMap::new(),
            waiting_for: BTreeSet::new(),
            waiting_for_none: BTreeSet::new(),
        }
    }

    /// Answers the requests whose conditions hold now: those that wait for one of these leases, and those that wait until no pass is
    /// running.
    fn wake(&mut self, slots: &BTreeSet<Slot>, effects: &mut Effects<Self>) {
        if self.state.totals().running == 0 {
            for ticket in std::mem::take(&mut self.waiting_for_none) {
                effects.wake(ticket, Reply::Totals(self.state.totals()));
            }
        }
        if self.waiting.is_empty() {
            return;
        }
        for slot in slots {
            let range = (*slot, Ticket(0))..=(*slot, Ticket(u64::MAX));
            let tickets: Vec<Ticket> = self.waiting_for.range(range).map(|(_, it)| *it).collect();
            for ticket in tickets {
                let watch = self.waiting.get(&ticket);
                if let Some(reply) = watch.and_then(|watch| self.answer(watch)) {
                    self.waiting.remove(&ticket);
                    self.waiting_for.remove(&(*slot, ticket));
                    effects.wake(ticket, reply);
                }
            }
        }
    }

    /// Returns the answer to a wait whose condition holds, or whose lease does not exist; `None` if the condition does not hold yet.
    fn answer(&self, watch: &Watch) -> Option<Reply> {
        let found = watch.name().and_then(|name| self.state.find(name));
        let Some((slot, lease)) = found else {
            return Some(Reply::Absent);
        };
        let is_on_its_way =
            lease.next.is_some() || lease.is_owed() && lease.owed_command().is_some();
        let is_over = match watch {
            Watch::Begun { number, .. } => match lease.begun.cmp(number) {
                Ordering::Less => !is_on_its_way,
                Ordering::Equal => !lease.running().is_some_and(Current::is_launching),
                Ordering::Greater => true,
            },
            Watch::Whole { number, .. } => {
                lease.whole >= *number || lease.running().is_none() && !is_on_its_way
            }
            Watch::Ended { token, .. } => lease.running().is_none_or(|it| it.token != *token),
            Watch::Idle => true,
        };
        is_over.then(|| self.shown(slot))
    }

    fn shown(&self, slot: Slot) -> Reply {
        self.view_of(slot).map_or(Reply::Absent, |view| Reply::Lease(Box::new(view)))
    }
}

#[cfg(test)]
impl LeaseMachine {
    /// Asserts the invariants of the state.
    pub(super) fn assert_whole(&self) {
        self.state.assert_whole();
    }
}

impl Machine for LeaseMachine {
    const NAME: &'static str = "lease";
    const ID: ActorId = ActorId::LEASE;

    type Rules = Rules;
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Watch;
    type Action = Action;

    fn new(rules: Rules) -> Self {
        Self::with_state(rules, State::default())
    }

    fn set_rules(&mut self, rules: Rules) {
        self.rules = rules;
    }

    fn decide(&self, moment: &Moment, message: &Message) -> Outcome {
        self.decision(moment, message)
    }

    fn forbids(&self, message: &Message) -> bool {
        self.is_forbidden(message)
    }

    fn durability(&self, _message: &Message, outcome: &Outcome) -> Durability {
        match outcome {
            Outcome::Changed { .. } => Durability::Durable,
            Outcome::Turned { .. } | Outcome::Absent | Outcome::Unchanged | Outcome::Refused(_) => {
                Durability::Nothing
            }
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        let Outcome::Changed { steps, .. } = outcome else {
            return;
        };
        for (slot, step) in steps {
            self.apply(entry, message, (*slot, step), effects);
        }
        let slots: BTreeSet<Slot> = steps.iter().map(|(slot, _)| *slot).collect();
        self.wake(&slots, effects);
    }

    fn reply(&self, seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        match (outcome, message.name()) {
            (Outcome::Absent, _) => Reply::Absent,
            (Outcome::Refused(refused), _) => Reply::Refused(*refused),
            (
                Outcome::Turned { turn, .. } | Outcome::Changed { turn: Some(turn), .. },
                Some(name),
            ) => {
                let found = self.state.find(name);
                let view = found.and_then(|(slot, _)| self.view_of(slot));
                let has_place = matches!(turn, Turn::Current | Turn::Next);
                let place = if has_place { seq.into() } else { Token(0) };
                view.map_or(Reply::Absent, |view| Reply::Turned {
                    turn: *turn,
                    place,
                    pass: view.lease.begun + u64::from(*turn != Turn::Current),
                    lease: Box::new(view),
                })
            }
            (Outcome::Changed { .. } | Outcome::Unchanged, Some(name)) => {
                let found = self.state.find(name);
                found.map_or(Reply::Done, |(slot, _)| self.shown(slot))
            }
            (_, None) => Reply::Done,
        }
    }

    /// The lease is shown as it is by now. If a pass has begun since the request, none that is yet to come serves it.
    fn reply_again(&self, seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        let mut reply = self.reply(seq, message, outcome);
        if let Reply::Turned { pass, lease: view, .. } = &mut reply
            && view.lease.current.as_ref().is_some_and(|it| it.token > seq.into())
        {
            *pass = view.lease.begun;
        }
        reply
    }

    fn query(&self, _now: Now, query: &Query) -> Reply {
        match query {
            Query::Of(name) => {
                let found = self.state.find(name);
                found.map_or(Reply::Absent, |(slot, _)| self.shown(slot))
            }
            Query::List { prefix, after, limit } => {
                let listing = self.list(prefix, after.as_ref(), *limit);
                Reply::List(Box::new(listing))
            }
            Query::Active { most } => Reply::List(Box::new(self.active(*most))),
            Query::Failed { most } => Reply::List(Box::new(self.failed(*most))),
            Query::Unwell { most } => Reply::List(Box::new(self.unwell(*most))),
            Query::Totals => Reply::Totals(self.state.totals()),
        }
    }

    fn cost(asked: Request<'_, Self>) -> usize {
        match asked {
            Request::Query(Query::List { limit: most, .. } | Query::Failed { most }) => {
                (*most).min(LISTED_MAX) as usize
            }
            Request::Query(Query::Active { .. } | Query::Unwell { .. }) => ACTIVE_MAX / 8,
            Request::Query(_) | Request::Message(_) | Request::Watch(_) => 1,
        }
    }

    fn outcome_cost(outcome: &Outcome) -> usize {
        match outcome {
            Outcome::Changed { steps, .. } => steps.len(),
            Outcome::Turned { .. } | Outcome::Absent | Outcome::Unchanged | Outcome::Refused(_) => {
                0
            }
        }
    }

    fn rest(&self, message: &Message, outcome: &Outcome) -> Option<Message> {
        self.rest_of(message, outcome)
    }

    fn space_effect(&self, message: &Message) -> SpaceEffect {
        match message {
            Message::Request(_) | Message::Import { .. } => SpaceEffect::Adds,
            Message::Set { .. } | Message::Renew { .. } => SpaceEffect::Keeps,
            Message::Finish { .. }
            | Message::Withdraw { .. }
            | Message::Reset { .. }
            | Message::Gone(_)
            | Message::Launched(_)
            | Message::Started(_)
            | Message::Lapse { .. }
            | Message::Due { .. } => SpaceEffect::Frees,
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, effects: &mut Effects<Self>) {
        let Some(name) = watch.name() else {
            if self.state.totals().running == 0 {
                effects.wake(ticket, Reply::Totals(self.state.totals()));
            } else {
                self.waiting_for_none.insert(ticket);
            }
            return;
        };
        match (self.answer(watch), self.state.find(name)) {
            (None, Some((slot, _))) => {
                self.waiting.insert(ticket, watch.clone());
                self.waiting_for.insert((slot, ticket));
            }
            (reply, _) => {
                self.unwatch(ticket);
                effects.wake(ticket, reply.unwrap_or(Reply::Absent));
            }
        }
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.waiting_for_none.remove(&ticket);
        if let Some(watch) = self.waiting.remove(&ticket)
            && let Some((slot, _)) = watch.name().and_then(|name| self.state.find(name))
        {
            self.waiting_for.remove(&(slot, ticket));
        }
    }

    /// Handles the startup of the server. Passes and their periods continue while the server is down. A client that waited on a connection
    /// must repeat its request.
    fn start(&mut self, start: Start) {
        self.state.start(start);
    }

    /// Sends the outstanding requests to other actors again: while the server was down, a process may have ended, or a request may have
    /// been lost.
    fn resume(&mut self, effects: &mut Effects<Self>) {
        for slot in self.state.bound() {
            self.send_obligations(slot, effects);
        }
    }
}

/// The bit that is set in an item which is the slot of a schedule date. An item without it is the slot of a lease.
const DATES: u64 = 1 << 32;

impl Timed for LeaseMachine {
    fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        if self.state.outdated(offset).is_some() {
            return Some(Timestamp(0));
        }
        let both = [self.state.leases.deadline(offset), self.state.dues.deadline(offset)];
        both.into_iter().flatten().min()
    }

    /// Schedule dates that were determined by another clock come first, since they may be due already by this one.
    fn due(&mut self, now: Now) -> Option<u64> {
        if let Some(place) = self.state.outdated(now.offset) {
            return Some(DATES | u64::from(place.0));
        }
        let date = self.state.dues.due(now);
        let date = date.map(|(at, slot)| (at, DATES | u64::from(slot.0)));
        let lease = self.state.leases.due(now);
        let lease = lease.map(|(at, slot)| (at, u64::from(slot.0)));
        let first = [date, lease].into_iter().flatten().min();
        first.map(|(_, item)| item)
    }

    fn tick(&self, item: u64) -> Message {
        let slot = slot_of(item);
        if item >= DATES { Message::Due { slot } } else { Message::Lapse { slot } }
    }

    fn is_quarantined(&self, item: u64) -> bool {
        let slot = slot_of(item);
        if item >= DATES {
            self.state.dues.is_quarantined(slot)
        } else {
            self.state.leases.is_quarantined(slot)
        }
    }

    fn quarantine(&mut self, item: u64, now: Now) {
        let slot = slot_of(item);
        if item >= DATES {
            self.state.quarantine_date(slot, now);
        } else {
            self.state.leases.quarantine(slot, now);
        }
    }
}

fn slot_of(item: u64) -> Slot {
    Slot(u32::try_from(item & (DATES - 1)).expect("items should be slots"))
}

impl Paged for LeaseMachine {
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
        Self::with_state(rules, State::from_pages(pages))
    }

    fn digest(&self) -> Digest {
        self.state.digest()
    }
}
