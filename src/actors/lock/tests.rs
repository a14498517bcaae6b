//! Property tests that compare the lock machine with a simple model, a plain list without indexes.

use crate::actors::binding::ToProcesses;
use crate::actors::lock::model::{Model, ModelEntry};
use crate::actors::lock::steps::{HOLDER, Step, steps};
use crate::actors::lock::{
    EntryView, LinePosition, LockMachine, Message, Name, Outcome, Query, Reply, Rules, Selection,
    ToHolder, Watch,
};
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Seq, Slot, Ticket, Token};
use crate::spine::effect::Effect;
use crate::spine::machine::{
    Durability, Effects, Machine as _, Moment, Now, Observable as _, Paged as _, Stamp, Start,
    Timed as _,
};
use crate::spine::shelf::Shelf;
use proptest::prelude::*;

const BEGIN: Timestamp = Timestamp(1_000_000_000_000);
/// The maximum number of entries: small enough for the tests to reach it.
const ENTRIES_MAX: u32 = 8;

/// The machine under test, its model, and the log of committed entries.
struct Pair {
    machine: LockMachine,
    model: Model,
    rules: Rules,
    now: Timestamp,
    seq: Seq,
    log: Vec<Logged>,
    shelf: Shelf<LockMachine>,
    watching: u64,
    woken: u64,
}

enum Logged {
    Entry(Stamp, Message, Outcome),
    Start(Start),
}

impl Pair {
    fn new(high_first: bool) -> Self {
        let rules = Rules { high_first, entries_max: ENTRIES_MAX, part: 1 };
        Self {
            machine: LockMachine::new(rules.clone()),
            model: Model::new(&rules),
            now: BEGIN,
            seq: Seq(0),
            log: Vec::new(),
            shelf: Shelf::new(rules.clone(), shown),
            rules,
            watching: 0,
            woken: 0,
        }
    }

    /// Returns the moment at which a host would decide the next message.
    fn moment(&self) -> Moment {
        Moment { seq: Seq(self.seq.0 + 1), now: self.both(), ..Moment::default() }
    }

    fn both(&self) -> Now {
        Now { at: self.now, ..Now::default() }
    }

    /// Decides a message twice, asserting that both outcomes are equal. Then commits and logs it as the host does, unless the
    /// message changes nothing. Returns the reply.
    fn apply(&mut self, message: Message) -> (Reply, Option<Message>) {
        let outcome = self.machine.decide(&self.moment(), &message);
        assert_eq!(
            outcome,
            self.machine.decide(&self.moment(), &message),
            "a decision does not change the state"
        );
        if self.machine.durability(&message, &outcome) == Durability::Nothing {
            let rest = self.machine.rest(&message, &outcome);
            return (self.machine.reply(Seq(0), &message, &outcome), rest);
        }
        self.seq.0 += 1;
        let (seq, at) = (self.seq, self.now);
        let stamp = Stamp { seq, at };
        let kept = self.machine.kept(&message);
        let mut effects = Effects::<LockMachine>::default();
        self.machine.commit(stamp, &message, &outcome, &mut effects);
        self.machine.assert_kept(kept.as_ref(), &message);
        self.note_wakes(&mut effects);
        let reply = self.machine.reply(self.seq, &message, &outcome);
        let rest = self.machine.rest(&message, &outcome);
        self.log.push(Logged::Entry(stamp, message, outcome));
        (reply, rest)
    }

    /// Counts the waiting requests that are answered, and checks that each answer is `Due`: all of them wait until no entry
    /// is left. Also checks that the messages sent to other actors are those that the model expects.
    fn note_wakes(&mut self, effects: &mut Effects<LockMachine>) {
        let (mut told, mut held): (Vec<ToProcesses>, Vec<_>) = (Vec::new(), Vec::new());
        for effect in effects.take() {
            match effect {
                Effect::Wake(_, reply) => {
                    assert_eq!(reply, Reply::Due);
                    self.woken += 1;
                }
                Effect::Tell(to, message) if to == HOLDER => {
                    let ToHolder::Held(it) = rmp_serde::from_slice(&message)
                        .expect("the message decodes as the receiver's type");
                    held.push((to, it));
                }
                Effect::Tell(to, message) => {
                    assert_eq!(to, ActorId::PROCESS);
                    told.push(
                        rmp_serde::from_slice(&message)
                            .expect("the message decodes as the receiver's type"),
                    );
                }
                Effect::Act(_) => unreachable!("the lock machine requests no actions"),
            }
        }
        assert_eq!(told, std::mem::take(&mut self.model.requests));
        assert_eq!(held, std::mem::take(&mut self.model.notifications));
    }

    /// Compares the effects of `resume` with the messages that the model expects.
    fn resume(&mut self) {
        let mut effects = Effects::<LockMachine>::default();
        self.machine.resume(&mut effects);
        let mut bound: Vec<_> = self.model.entries.iter().collect();
        bound.sort_by_key(|it| (it.tie.binding().map(|it| it.process), it.slot));
        self.model.requests = bound.into_iter().flat_map(ModelEntry::requests).collect();
        let mut all: Vec<_> = self.model.entries.iter().collect();
        all.sort_by_key(|it| it.slot);
        let held = all.into_iter().filter_map(|it| self.model.held(&it.lock, &it.owner));
        self.model.notifications = held.collect();
        self.note_wakes(&mut effects);
    }

    fn let_time_act(&mut self) {
        while self.machine.deadline(Offset::default()).is_some_and(|deadline| deadline <= self.now)
        {
            let Some(item) = self.machine.due(self.both()) else {
                break;
            };
            let next = Seq(self.seq.0 + 1);
            let expected = self.model.next_due(self.now).map(|it| u64::from(it.slot.0));
            assert_eq!(Some(item), expected, "entries become due in order of deadline, then slot");
            self.model.tick(next, self.now);
            let (reply, rest) = self.apply(self.machine.tick(item));
            assert!(
                matches!((&reply, rest), (Reply::Ended(_), None)),
                "a tick ends or fences the due entry"
            );
            self.compare();
        }
        assert!(self.model.next_due(self.now).is_none(), "no due entry is left");
    }

    fn step(&mut self, step: Step) {
        self.let_time_act();
        match step {
            Step::Send(message) => self.send(&message),
            Step::SendWithToken(message, stale) => {
                let message = self.with_token(message, stale);
                self.send(&message);
            }
            Step::Pass(ms) => self.now = self.now.plus_ms(ms),
            Step::Start => {
                self.seq.0 += 1;
                let stamp = Stamp { seq: self.seq, at: self.now };
                let start = Start { stamp, skipped: 0 };
                self.machine.start(start);
                self.log.push(Logged::Start(start));
                self.model.start(self.now);
                self.resume();
            }
            Step::Watch => {
                self.watching += 1;
                let mut effects = Effects::<LockMachine>::default();
                self.machine.watch(Ticket(self.watching), &Watch::Empty, &mut effects);
                self.note_wakes(&mut effects);
            }
            Step::Checkpoint => self.shelf.step(&mut self.machine, self.seq),
            Step::Reload => self.reload(),
        }
        self.compare();
    }

    fn send(&mut self, message: &Message) {
        let expected = self.model.message(message, Seq(self.seq.0 + 1), self.now);
        let (reply, rest) = self.apply(message.clone());
        assert_eq!(reply, expected, "wrong reply to {message:?}");
        if let Some(rest) = rest {
            // Others may be served in between.
            self.let_time_act();
            self.send(&rest);
        }
    }

    /// Adds the entry's token to the message or, if `stale` is set, an outdated one. If the message names no owner, uses the token of the
    /// lock's holder.
    fn with_token(&self, mut message: Message, stale: bool) -> Message {
        if let Message::Renew { key, index, owner, token }
        | Message::Release { key, index: Some(index), owner, token } = &mut message
        {
            let line = self.model.line(&(key.clone(), index.clone()));
            let nameless = owner.as_bytes().is_empty();
            let mut line = line.iter();
            let found = line.find(|it| nameless || it.owner == *owner);
            *token = found.map(|it| Token(it.token.0.saturating_sub(stale.into())));
        }
        if let Message::Leave { key, index, token } = &mut message {
            let line = self.model.line(&(key.clone(), index.clone()));
            let held = line.first().map_or(0, |it| it.token.0);
            *token = Token(held.saturating_sub(stale.into()));
        }
        message
    }

    /// Compares the machine's answers to all queries with those of the model, and checks all invariants.
    fn compare(&mut self) {
        let list = self.model.list();
        self.machine.assert_whole();
        let ask = |query| self.machine.query(self.both(), &query);
        let entries_max = u32::MAX;
        assert_eq!(ask(Query::List { key: None, entries_max }), Reply::List(list.clone()));
        let owners = list.iter().filter(|it| it.place == 1).count();
        let counts = Reply::Counts {
            owners: u32::try_from(owners).expect("the model is small"),
            contenders: u32::try_from(list.len() - owners).expect("the model is small"),
        };
        assert_eq!(ask(Query::Counts), counts);
        for it in &list {
            let of_key = list.iter().filter(|other| other.key == it.key).cloned().collect();
            let key = Some(it.key.clone());
            assert_eq!(ask(Query::List { key, entries_max }), Reply::List(of_key));
            let [key, index, owner] = [&it.key, &it.index, &it.owner].map(Clone::clone);
            let standing = LinePosition { place: it.place, token: it.token, away: it.away };
            assert_eq!(ask(Query::Place { key, index, owner }), Reply::LinePosition(standing));
            if it.place == 1 {
                let [key, index] = [&it.key, &it.index].map(Clone::clone);
                assert_eq!(ask(Query::Owner { key, index }), Reply::Owner(Some(it.owner.clone())));
            }
        }
        self.compare_pages(&list);
        if let Some(first) = list.iter().filter_map(|it| it.deadline).min() {
            let said = self.machine.deadline(Offset::default());
            assert!(
                said.is_some_and(|said| said <= first),
                "no entry is due before the reported deadline"
            );
        }
        let waiting = if list.is_empty() { 0 } else { self.watching - self.woken };
        assert_eq!(
            self.watching - self.woken,
            waiting,
            "when no entry is left, all waiting requests are answered"
        );
    }

    /// Checks that all pages together equal the list, and that a filter returns only matching entries.
    fn compare_pages(&self, list: &[EntryView]) {
        let all = Selection { key: None, index: None, owner: None, from: Slot(0), entries_max: 2 };
        let mut filters = vec![all.clone()];
        if let Some(it) = list.first() {
            let (key, index, owner) = (&it.key, &it.index, &it.owner);
            filters.extend([
                Selection { key: Some(key.clone()), ..all.clone() },
                Selection { index: Some(index.clone()), ..all.clone() },
                Selection { owner: Some(owner.clone()), ..all },
            ]);
        }
        for mut selection in filters {
            let is =
                |wanted: &Option<Name>, it: &Name| wanted.as_ref().is_none_or(|name| name == it);
            let lets_through = |it: &&EntryView| {
                is(&selection.key, &it.key)
                    && is(&selection.index, &it.index)
                    && is(&selection.owner, &it.owner)
            };
            let mut expected: Vec<EntryView> = list.iter().filter(lets_through).cloned().collect();
            let mut found = Vec::new();
            let mut next = Some(Slot(0));
            while let Some(from) = next {
                selection.from = from;
                let query = Query::Select(selection.clone());
                let Reply::Page { entries, next: after } = self.machine.query(self.both(), &query)
                else {
                    panic!("expected a page of entries");
                };
                assert!(entries.len() <= 2 && after.is_none_or(|after| after > from));
                found.extend(entries);
                next = after;
            }
            let order = |it: &EntryView| (it.key.clone(), it.index.clone(), it.place);
            expected.sort_by_key(order);
            found.sort_by_key(order);
            assert_eq!(found, expected);
        }
    }

    fn reload(&mut self) {
        let (mut machine, upto) = self.shelf.load();
        for logged in &self.log {
            logged.repeat(&mut machine, upto);
        }
        let mut effects = Effects::<LockMachine>::default();
        for ticket in self.woken + 1..=self.watching {
            machine.watch(Ticket(ticket), &Watch::Empty, &mut effects);
        }
        assert!(effects.is_empty(), "no request is answered while entries are left");
        self.machine = machine;
        self.resume();
    }

    /// Checks that replaying the whole log, without a snapshot, into a machine with other rules gives the same state.
    fn replay(&self) {
        let rules = Rules { high_first: self.rules.high_first, entries_max: 0, ..Rules::default() };
        let mut fresh = LockMachine::new(rules);
        for logged in &self.log {
            logged.repeat(&mut fresh, Seq(0));
        }
        fresh.assert_whole();
        assert_eq!(fresh.digest(), self.machine.digest());
        assert_eq!(fresh.view().entries, self.machine.view().entries);
        assert_eq!(fresh.view().draining, self.machine.view().draining);
    }
}

fn shown(machine: &LockMachine) -> String {
    machine.assert_whole();
    format!("{:?}", machine.view())
}

impl Logged {
    /// Applies this record to a machine if its sequence number is greater than `after`.
    fn repeat(&self, machine: &mut LockMachine, after: Seq) {
        match self {
            Self::Entry(stamp, message, outcome) if stamp.seq > after => {
                machine.commit(*stamp, message, outcome, &mut Effects::<LockMachine>::default());
            }
            Self::Start(start) if start.stamp.seq > after => machine.start(*start),
            Self::Entry(..) | Self::Start(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn locks_are_as_a_plain_list_of_entries_has_them(steps in steps(), high_first: bool) {
        let mut pair = Pair::new(high_first);
        for step in steps {
            pair.step(step);
        }
        pair.replay();
    }
}

#[test]
fn the_model_meets_every_outcome_it_is_there_for() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let (mut heirs, mut shared_ends, mut renewed, mut queued, mut full) = (0, 0, 0, 0, 0);
    let (mut taken, mut early, mut parts) = (0, 0, 0);
    let (mut fenced, mut departed, mut fencing) = (0, 0, 0);
    let (mut passed_over, mut none_there) = (0, 0);
    for _ in 0..300 {
        let steps = steps().new_tree(&mut runner).expect("the strategy generates steps").current();
        let mut pair = Pair::new(true);
        for step in steps {
            fencing += u32::from(pair.model.list().iter().any(|it| it.fencing));
            full += u32::from(pair.model.entries.len() >= ENTRIES_MAX as usize);
            pair.step(step);
        }
        passed_over += pair.model.passed_over;
        none_there += pair.model.passed_to_absent;
        taken += pair.shelf.taken;
        early += pair.shelf.early;
        for logged in &pair.log {
            let Logged::Entry(_, message, outcome) = logged else {
                continue;
            };
            let ticked = matches!(message, Message::Expire { .. });
            match outcome {
                Outcome::EndedPart { gone, .. } => parts += u32::from(!gone.is_empty()),
                Outcome::Ended { gone } => {
                    let is_heir = gone.iter().any(|it| it.heir.is_some());
                    departed += u32::from(matches!(message, Message::Gone(_)) && is_heir);
                    heirs += u32::from(gone.iter().any(|it| it.heir.is_some()));
                    shared_ends += u32::from(ticked && gone.len() > 1);
                }
                Outcome::Renewed { .. } => renewed += 1,
                Outcome::Queued { .. } => queued += 1,
                Outcome::Fenced { .. } => fenced += 1,
                Outcome::Granted { .. }
                | Outcome::Draining
                | Outcome::Absent
                | Outcome::Refused(_) => {}
            }
        }
    }
    let seen = [heirs, shared_ends, renewed, queued, full, taken, early, parts];
    let bound = [fenced, departed, fencing];
    assert!(passed_over >= 5 && none_there >= 8, "{passed_over} {none_there}");
    assert!(bound.iter().all(|count| *count >= 20), "{bound:?}");
    assert!(seen.iter().all(|count| *count >= 20), "{seen:?}");
}
