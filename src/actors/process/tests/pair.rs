//! The machine with its model, and with a replica: a second machine that commits the same entries.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test matches only the cases it needs")]

use super::step::{BEGIN, RecordChoice, Step, identity, rules};
use crate::actors::process::model::{Entry, Model, Verdict, insertion_of};
use crate::actors::process::{
    LaunchAs, Message, Outcome, Parentage, ProcessMachine, RecordView, Rules, Watch,
};
use crate::clock::{Now, Offset};
use crate::ids::{ActorId, Chance, ProcessId, Seq, Ticket};
use crate::spine::machine::{
    Durability, Effects, Machine as _, Moment, Observable as _, Paged as _, Stamp, Start,
    Timed as _,
};
use crate::spine::shelf::Shelf;
use std::collections::BTreeMap;

enum Logged {
    Entry(Stamp, Message, Outcome),
    Start(Start),
}

impl Logged {
    fn repeat(&self, machine: &mut ProcessMachine, upto: Seq) {
        let mut effects = Effects::<ProcessMachine>::default();
        match self {
            Self::Entry(stamp, message, outcome) if stamp.seq > upto => {
                machine.commit(*stamp, message, outcome, &mut effects);
            }
            Self::Start(start) if start.stamp.seq > upto => machine.start(*start),
            Self::Entry(..) | Self::Start(_) => {}
        }
    }
}

/// The machine with its model and its replica, and the log of committed entries.
pub(super) struct Pair {
    pub(super) machine: ProcessMachine,
    /// A machine that commits the same entries, but has no waiting clients and is not queried.
    pub(super) replica: ProcessMachine,
    pub(super) model: Model,
    pub(super) now: Now,
    held: bool,
    pub(super) seq: Seq,
    log: Vec<Logged>,
    pub(super) shelf: Shelf<ProcessMachine>,
    pub(super) waits: BTreeMap<Ticket, Watch>,
    tickets: u64,
    pub(super) seen: BTreeMap<String, u32>,
    /// The records of ended processes, as they were when the processes ended.
    pub(super) ended: BTreeMap<ProcessId, RecordView>,
}

impl Pair {
    pub(super) fn new() -> Self {
        Self {
            machine: ProcessMachine::new(rules()),
            replica: ProcessMachine::new(rules()),
            model: Model { rules: rules(), ..Model::default() },
            now: Now { at: BEGIN, offset: Offset(0) },
            held: false,
            seq: Seq(0),
            log: Vec::new(),
            shelf: Shelf::new(rules(), shown),
            waits: BTreeMap::new(),
            tickets: 0,
            seen: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    pub(super) fn note(&mut self, what: &str) {
        *self.seen.entry(what.to_owned()).or_default() += 1;
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Serve(asked) => self.send(&Message::Service(asked)),
            Step::Send(which, message) => {
                let message = self.about(message, which);
                self.send(&message);
            }
            Step::Launch(which, line, mut launching) => {
                launching.parentage = self.parentage(which, line);
                self.send(&Message::Launch(Box::new(launching)));
            }
            Step::LaunchAs(by, which, mut launching) => {
                launching.parentage = self.parentage(which, by);
                let chosen = ProcessId::new(self.now.date().0, which.into());
                let id = match which % 2 {
                    0 => self.pick(which / 2),
                    _ => chosen,
                };
                let by = ActorId(by);
                let asked = LaunchAs { by, id, launching };
                self.send(&Message::LaunchAs(Box::new(asked)));
            }
            Step::Register(which, line, mut registering) => {
                registering.parentage = self.parentage(which, line);
                self.send(&Message::Register(Box::new(registering)));
            }
            Step::Pass(ms) => self.now.at = self.now.at.plus_ms(ms),
            Step::Wall(by) => self.now.offset.0 += by,
            Step::Hold(held) => {
                self.held = held;
                self.machine.hold_removals(held);
                self.replica.hold_removals(held);
            }
            Step::Start => self.start(),
            Step::Reload => self.reload(),
            Step::Checkpoint => self.shelf.step(&mut self.machine, self.seq),
            Step::Watch(which, what) => self.watch(which, what),
            Step::Unwatch => {
                if let Some((ticket, _)) = self.waits.pop_first() {
                    self.machine.unwatch(ticket);
                }
            }
        }
        self.let_time_act();
        self.compare();
    }

    fn pick(&self, which: RecordChoice) -> ProcessId {
        let records = &self.model.records;
        let found = records.get(usize::from(which) % (records.len() + 1));
        found.map_or(ProcessId(5), |it| it.view.id)
    }

    /// Inserts the id of the selected record into a message and, if the message reports that a signal was sent, the entry that may have
    /// requested it.
    fn about(&self, mut message: Message, which: RecordChoice) -> Message {
        let its = self.pick(which);
        match &mut message {
            Message::Begin { id } => *id = self.pick_deferred(which),
            Message::Finish { id, .. }
            | Message::Stop { id, .. }
            | Message::Signal { id, .. }
            | Message::Settle { id }
            | Message::Started { id, .. }
            | Message::Failed { id, .. }
            | Message::Ended { id, .. }
            | Message::Empty { id }
            | Message::Notice { id, .. }
            | Message::Stuck { id, .. }
            | Message::Fence(id) => *id = its,
            Message::Watch(watch) => watch.process = its,
            // The generated numbers are offsets from the number of processes handled so far: most children are the next one, and about half
            // of the `Found` reports count one more child than has been handled.
            Message::Child { of, child } => {
                *of = self.pick_hook(which);
                child.nth += self.handled(*of);
            }
            Message::Found { id, found } => {
                *id = self.pick_hook(which);
                found.children += self.handled(*id);
            }
            Message::Signalled { id, asked, .. } => {
                *id = its;
                *asked = Seq(self.seq.0.saturating_sub(asked.0));
            }
            _ => {}
        }
        message
    }

    /// Picks a hook whose output is to be read, if there is one; in one of eight cases, picks any record instead.
    fn pick_hook(&self, which: RecordChoice) -> ProcessId {
        let records = self.model.records.iter();
        let mut hooks = records.filter(|it| it.is_to_be_read());
        let hook = hooks.next().filter(|_| !which.is_multiple_of(8));
        hook.map_or_else(|| self.pick(which), |it| it.view.id)
    }

    /// Picks a process whose launch is deferred, if there is one; in one of four cases, picks any record instead.
    fn pick_deferred(&self, which: RecordChoice) -> ProcessId {
        let mut records = self.model.records.iter();
        let deferred = records.find(|it| it.view.deferred.is_some());
        let deferred = deferred.filter(|_| !which.is_multiple_of(4));
        deferred.map_or_else(|| self.pick(which), |it| it.view.id)
    }

    /// Returns how many processes in the output of this hook have been handled.
    fn handled(&self, id: ProcessId) -> u32 {
        let mut records = self.model.records.iter();
        records.find(|it| it.view.id == id).map_or(0, |it| it.handled)
    }

    fn parentage(&self, which: RecordChoice, line: u8) -> Parentage {
        Parentage {
            named: (!which.is_multiple_of(3)).then(|| self.pick(which / 3)),
            line: (line..line.saturating_add(2))
                .take(usize::from(line % 3))
                .map(identity)
                .collect(),
            bound: which.is_multiple_of(5),
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            seq: Seq(self.seq.0 + 1),
            now: self.now,
            chance: Chance([3; 32]),
            ..Moment::default()
        }
    }

    /// Decides, commits and logs a message, as the host does, and compares the result with the model.
    fn send(&mut self, message: &Message) {
        let moment = self.moment();
        let outcome = self.machine.decide(&moment, message);
        assert_eq!(outcome, self.replica.decide(&moment, message));
        let durability = self.machine.durability(message, &outcome);
        let stamp = moment.stamp();
        let new = insertion_of(&outcome).map(|it| (it.id, it.slot));
        let entry = Entry { seq: stamp.seq, now: self.now, new };
        // Noted before the model applies the message, since the record is needed as it was before.
        self.note_outcome(message, &outcome);
        let right = self.model.send(message, entry);
        let mut effects = Effects::<ProcessMachine>::default();
        if durability == Durability::Nothing {
            let said = match &outcome {
                Outcome::Refused(refused) => Verdict::Refused(*refused),
                _ => Verdict::Nothing,
            };
            assert_eq!(said, right.verdict, "{message:?}");
            self.machine.unchanged(&outcome);
            self.replica.unchanged(&outcome);
        } else {
            assert_eq!(right.verdict, Verdict::Changed, "{message:?} {outcome:?}");
            self.seq = stamp.seq;
            self.machine.commit(stamp, message, &outcome, &mut effects);
            let mut none = Effects::<ProcessMachine>::default();
            self.replica.commit(stamp, message, &outcome, &mut none);
            self.log.push(Logged::Entry(stamp, message.clone(), outcome.clone()));
        }
        self.compare_effects(effects, &right.actions, right.tells);
        let reply = self.machine.reply(stamp.seq, message, &outcome);
        assert_eq!(reply, right.reply, "{message:?}");
    }

    fn note_outcome(&mut self, message: &Message, outcome: &Outcome) {
        let name = |it: &dyn std::fmt::Debug| {
            let words = format!("{it:?}");
            let word = words.split([' ', '{', '(']).next().unwrap_or_default();
            word.to_owned()
        };
        self.note(&format!("{} {}", name(message), name(outcome)));
        if let Outcome::Service(turn) = outcome {
            for step in &turn.steps {
                self.note(&format!("service {}", name(step)));
            }
        }
        match (message, outcome) {
            (_, Outcome::Refused(refused)) => self.note(&format!("{refused:?}")),
            (Message::Empty { id }, Outcome::Emptied { .. }) => {
                let view = self.model.view(*id);
                let left = view.and_then(|it| it.remains);
                if left.is_some_and(|left| left.alive > 0) {
                    self.note("emptied of survivors");
                }
            }
            _ => {}
        }
    }

    fn watch(&mut self, which: RecordChoice, what: u8) {
        let id = self.pick(which);
        let watch = match what {
            0 => Watch::Start(id),
            1 => Watch::End(id),
            2 => Watch::Leader(id),
            4 => Watch::Services(None),
            5 => Watch::Services(Some("b".to_owned())),
            _ => Watch::Signal(id, self.seq),
        };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        let mut effects = Effects::<ProcessMachine>::default();
        self.machine.watch(ticket, &watch, &mut effects);
        if effects.is_empty() {
            self.waits.insert(ticket, watch);
        }
    }

    fn let_time_act(&mut self) {
        while let Some(due) = {
            let deadline = self.machine.deadline(self.now.offset);
            let is_due = deadline.is_some_and(|at| at <= self.now.at);
            is_due.then(|| self.machine.due(self.now)).flatten()
        } {
            let message = self.machine.tick(due);
            assert_eq!(Some(&message), self.model.due(self.now, self.held).as_ref());
            self.send(&message);
        }
        assert_eq!(self.model.due(self.now, self.held), None, "the model has nothing else due");
    }

    fn start(&mut self) {
        for ticket in std::mem::take(&mut self.waits).into_keys() {
            self.machine.unwatch(ticket);
        }
        self.seq.0 += 1;
        let stamp = Stamp { seq: self.seq, at: self.now.at };
        let start = Start { stamp, skipped: 0 };
        self.machine.start(start);
        self.replica.start(start);
        self.log.push(Logged::Start(start));
        self.model.start(stamp.at, stamp.seq);
        self.resume();
    }

    fn resume(&mut self) {
        let mut effects = Effects::<ProcessMachine>::default();
        self.machine.resume(&mut effects);
        let right = self.model.resume();
        self.compare_effects(effects, &right, Vec::new());
    }

    /// Rebuilds the machine as after a panic, from the last snapshot and the entries that follow it in the log.
    fn reload(&mut self) {
        let (mut machine, upto) = self.shelf.load();
        for logged in &self.log {
            logged.repeat(&mut machine, upto);
        }
        machine.hold_removals(self.held);
        self.machine = machine;
        (self.machine.contradictions, self.replica.contradictions) = (0, 0);
        self.model.contradictions = 0;
        self.resume();
        for (ticket, watch) in self.waits.clone() {
            let mut effects = Effects::<ProcessMachine>::default();
            self.machine.watch(ticket, &watch, &mut effects);
            assert!(
                effects.is_empty(),
                "a wait is registered again only if its condition is not met yet"
            );
        }
        self.note("reload");
    }

    /// Checks that a new machine with other rules reaches the same state by committing the log.
    pub(super) fn replay(&self) {
        let mut fresh = ProcessMachine::new(Rules {
            records_max: 0,
            live_max: 0,
            retention_ms: 0,
            bytes_max: 0,
            part: 0,
        });
        for logged in &self.log {
            logged.repeat(&mut fresh, Seq(0));
        }
        assert_eq!(fresh.digest(), self.machine.digest());
        assert_eq!(shown(&fresh), shown(&self.machine));
    }
}

/// Checks the invariants of a machine, and formats the part of its state that a snapshot contains.
fn shown(machine: &ProcessMachine) -> String {
    machine.assert_whole();
    format!("{:?}", machine.view())
}
