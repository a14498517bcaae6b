//! A machine with a replica that commits the same entries, and a simulated world in which processes start immediately and end on request.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test matches only the cases it needs")]

use crate::actors::process::service::{Definition, Message as Request, ServiceView, Status};
use crate::actors::process::{
    Action, End, Failure, Identity, Message, Outcome, ProcessMachine, Query, Reach, Remains, Reply,
    Rules, Step, Watch,
};
use crate::bytes::Bytes;
use crate::clock::{Date, Now, Offset, Timestamp};
use crate::ids::{ActorId, Chance, ProcessId, Seq, Ticket};
use crate::spine::effect::Effect;
use crate::spine::machine::{
    Durability, Effects, Machine as _, Moment, Paged as _, Stamp, Start, Timed as _,
};
use crate::spine::shelf::Shelf;
use std::collections::BTreeMap;

const BEGIN: Timestamp = Timestamp(1_000_000_000_000);

pub(super) struct Bench {
    pub(super) machine: ProcessMachine,
    replica: ProcessMachine,
    pub(super) now: Now,
    seq: Seq,
    shelf: Shelf<ProcessMachine>,
    /// Processes that were launched and have not started.
    pub(super) launched: Vec<ProcessId>,
    /// Processes that are running, with their PIDs.
    pub(super) running: BTreeMap<ProcessId, u32>,
    /// Processes that were sent a signal to end and have not ended yet, in the order of the signals.
    pub(super) told: Vec<ProcessId>,
    /// Processes that the port was requested to follow, in order.
    pub(super) followed: Vec<ProcessId>,
    /// The actors that were notified, in order.
    pub(super) notified: Vec<ActorId>,
    /// The tickets of answered waits, with the replies.
    pub(super) woken: Vec<(Ticket, Reply)>,
    /// Whether requested launches and stops are performed immediately.
    pub(super) is_prompt: bool,
    /// The outcome of the last message.
    pub(super) newest: Option<Outcome>,
    pids: u32,
}

pub(super) fn defined(name: &str) -> Definition {
    let mut definition = Definition { name: name.to_owned(), ..Definition::default() };
    definition.spec.argv = vec![Bytes::new(name.as_bytes())];
    definition
}

pub(super) fn after(name: &str, others: &[&str]) -> Definition {
    Definition { after: others.iter().map(|name| (*name).to_owned()).collect(), ..defined(name) }
}

fn shown(machine: &ProcessMachine) -> String {
    machine.assert_whole();
    format!("{:?}", machine.state.services.indexes())
}

impl Bench {
    pub(super) fn new() -> Self {
        let rules = Rules { live_max: 12, ..Rules::default() };
        Self {
            machine: ProcessMachine::new(rules),
            replica: ProcessMachine::new(rules),
            now: Now { at: BEGIN, offset: Offset(0) },
            seq: Seq(0),
            shelf: Shelf::new(rules, shown),
            launched: Vec::new(),
            running: BTreeMap::new(),
            told: Vec::new(),
            notified: Vec::new(),
            followed: Vec::new(),
            woken: Vec::new(),
            is_prompt: true,
            newest: None,
            pids: 100,
        }
    }

    /// Creates a bench with these services configured.
    pub(super) fn with(definitions: &[Definition]) -> Self {
        let mut bench = Self::new();
        bench.configure(definitions);
        bench
    }

    pub(super) fn configure(&mut self, definitions: &[Definition]) {
        let reply = self.ask(Request::Configure(definitions.to_vec()));
        assert_eq!(reply, Reply::Done);
    }

    pub(super) fn ask(&mut self, asked: Request) -> Reply {
        let reply = self.send(&Message::Service(asked));
        self.go_on();
        reply
    }

    /// Decides and commits a message in both the machine and the replica, asserting that they agree, and returns the reply.
    pub(super) fn send(&mut self, message: &Message) -> Reply {
        let moment = Moment {
            seq: Seq(self.seq.0 + 1),
            now: self.now,
            chance: Chance([3; 32]),
            ..Moment::default()
        };
        let outcome = self.machine.decide(&moment, message);
        assert_eq!(outcome, self.replica.decide(&moment, message));
        if self.machine.durability(message, &outcome) != Durability::Nothing {
            self.seq = moment.seq;
            let mut effects = Effects::<ProcessMachine>::default();
            self.machine.commit(moment.stamp(), message, &outcome, &mut effects);
            let mut none = Effects::<ProcessMachine>::default();
            self.replica.commit(moment.stamp(), message, &outcome, &mut none);
            assert_eq!(self.machine.digest(), self.replica.digest());
            self.take(effects);
        }
        let reply = self.machine.reply(moment.seq, message, &outcome);
        self.newest = Some(outcome);
        reply
    }

    fn take(&mut self, mut effects: Effects<ProcessMachine>) {
        for effect in effects.take() {
            match effect {
                Effect::Act(action) => self.act(&action.what),
                Effect::Wake(ticket, reply) => self.woken.push((ticket, reply)),
                Effect::Tell(to, _) => self.notified.push(to),
            }
        }
    }

    fn act(&mut self, action: &Action) {
        match action {
            Action::Launch { id, .. } => self.launched.push(*id),
            Action::Signal { id, reach, .. } => {
                assert_eq!(*reach, Reach::Tree, "a service is stopped with its whole tree");
                self.told.push(*id);
            }
            Action::Kill { id, .. } => self.told.push(*id),
            Action::Follow { id, .. } => self.followed.push(*id),
            Action::Await { .. }
            | Action::Read { .. }
            | Action::Forget { .. }
            | Action::ForgetOthers => {}
        }
    }

    /// Performs due steps and, if `is_prompt`, requested launches and stops, until nothing is left to do.
    pub(super) fn go_on(&mut self) {
        for round in 0.. {
            assert!(round < 10_000, "services settle eventually");
            if let Some(item) = self.due() {
                let message = self.machine.tick(item);
                self.send(&message);
            } else if self.is_prompt && !self.launched.is_empty() {
                self.start(0);
            } else if self.is_prompt && !self.told.is_empty() {
                let id = self.told.remove(0);
                self.end(id, End::Code(0));
            } else {
                break;
            }
        }
        self.shelf.step(&mut self.machine, self.seq);
    }

    fn due(&mut self) -> Option<u64> {
        let deadline = self.machine.deadline(self.now.offset);
        let is_due = deadline.is_some_and(|at| at <= self.now.at);
        is_due.then(|| self.machine.due(self.now)).flatten()
    }

    /// Lets a launched process start.
    pub(super) fn start(&mut self, nth: usize) {
        let id = self.launched.remove(nth);
        self.pids += 1;
        self.running.insert(id, self.pids);
        self.send(&Message::Started {
            id,
            identity: Identity {
                pid: self.pids,
                ticks: u64::from(self.pids),
                ..Identity::default()
            },
            at: Date(self.now.at.0),
            contained: false,
        });
    }

    /// Lets a launched process fail to start.
    pub(super) fn fail(&mut self, nth: usize) {
        let id = self.launched.remove(nth);
        self.told.retain(|told| *told != id);
        let failure = Failure { step: Step::Exec, errno: 2, about: None };
        self.send(&Message::Failed { id, failure });
    }

    /// Ends a process with its whole tree. Does nothing if the process is not running.
    pub(super) fn end(&mut self, id: ProcessId, end: End) {
        if self.running.remove(&id).is_none() {
            return;
        }
        self.told.retain(|told| *told != id);
        self.send(&Message::Ended {
            id,
            end,
            at: Date(self.now.at.0),
            left: Box::new(Remains { empty: true, ..Remains::default() }),
        });
        let is_live = |machine: &ProcessMachine| machine.state.record_of(id).is_live();
        if is_live(&self.machine) {
            self.send(&Message::Empty { id });
        }
    }

    /// Ends the process of a service's first instance, and applies the consequences.
    pub(super) fn ends(&mut self, name: &str, end: End) {
        let id = self.process(name).expect("the service has a process");
        self.end(id, end);
        self.go_on();
    }

    pub(super) fn wait_ms(&mut self, ms: u64) {
        self.now.at = self.now.at.plus_ms(ms);
        self.go_on();
    }

    /// Kills the server and starts it again. All processes keep running.
    pub(super) fn start_again(&mut self) {
        self.seq.0 += 1;
        let stamp = Stamp { seq: self.seq, at: self.now.at };
        let start = Start { stamp, skipped: 0 };
        self.machine.start(start);
        self.replica.start(start);
        let mut effects = Effects::<ProcessMachine>::default();
        self.machine.resume(&mut effects);
        self.launched.clear();
        self.told.clear();
        self.take(effects);
        self.go_on();
    }

    pub(super) fn watch(&mut self, ticket: u64, name: Option<&str>) {
        let mut effects = Effects::<ProcessMachine>::default();
        let watch = Watch::Services(name.map(str::to_owned));
        self.machine.watch(Ticket(ticket), &watch, &mut effects);
        self.take(effects);
    }

    pub(super) fn view(&self, name: &str) -> Option<ServiceView> {
        let asked = Query::Services(Some(name.to_owned()));
        match self.machine.query(self.now, &asked) {
            Reply::Services(mut views) => views.pop(),
            _ => None,
        }
    }

    pub(super) fn status(&self, name: &str) -> Status {
        self.view(name).expect("the service exists").status
    }

    /// Returns the id of the process of a service's first instance; `None` if the service or the process does not exist.
    pub(super) fn process(&self, name: &str) -> Option<ProcessId> {
        self.view(name)?.instances.first()?.process
    }
}
