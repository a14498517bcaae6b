//! The model of leases as a reference, and the requests of their clients.

#![expect(clippy::wildcard_enum_match_arm, reason = "each rule names its messages")]

use crate::actor::{Ask, Call};
use crate::chance::Chance;
use crate::coverage::Coverage;
use crate::each::Judged;
use crate::reference::{Clients, Origin, Reference};
use crate::setting::Setting;
use model::{Entry, Item, Model};
use sexton::actors::binding::{Binding, Until};
use sexton::actors::lease::{
    Claim, Command, LeaseMachine, Message, Outcome, PassRequest, Query, Refused, Reply, Rules,
    Setting as Set, Step, Turn, Watch,
};
use sexton::actors::lock::Name;
use sexton::actors::process::{Launching, Spec};
use sexton::bytes::Bytes;
use sexton::clock::{Now, Offset, Timestamp};
use sexton::ids::{ProcessId, Seq, Token};
use sexton::persist::mark::Marked;
use sexton::schedule::Schedule;
use sexton::spine::delivery::Answer;
use sexton::spine::machine::{Observable as _, Stamp, Start};
use std::sync::Arc;

#[path = "../../src/actors/lease/model/mod.rs"]
mod model;

/// Leases, according to the model.
#[derive(Clone)]
pub(crate) struct Leases {
    model: Model,
    offset: Offset,
}

impl Default for Leases {
    fn default() -> Self {
        let model = Model { rules: Leases::rules(), ..Model::default() };
        let offset = Offset(0);
        Self { model, offset }
    }
}

impl Leases {
    const fn now(&self, at: Timestamp) -> Now {
        let offset = self.offset;
        Now { at, offset }
    }
}

/// Returns the item on which a tick acts, or `None` if the message is not a tick.
const fn item(message: &Message) -> Option<Item> {
    match message {
        Message::Lapse { slot } => Some(Item::Lease(*slot)),
        Message::Due { slot } => Some(Item::Date(*slot)),
        _ => None,
    }
}

/// Returns the id of the process that an outcome launches, or `None` if it launches none.
fn launched(outcome: &Outcome) -> Option<ProcessId> {
    let Outcome::Changed { steps, .. } = outcome else {
        return None;
    };
    steps.iter().find_map(|(_, step)| match step {
        Step::Began { process, .. } => *process,
        Step::Relaunched { process } => Some(*process),
        _ => None,
    })
}

impl Judged for LeaseMachine {
    type Reference = Leases;
}

impl Reference for Leases {
    const CALLS: u64 = 30;
    const WATCHES: u64 = 6;
    const TURNS: u64 = 60;

    type Clients = LeaseClients;
    type Machine = LeaseMachine;

    /// Returns rules with so few leases that the limit is reached.
    fn rules() -> Rules {
        Rules { leases_max: 3, part: 2, ..Rules::default() }
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, reply): (&Outcome, &Reply),
    ) -> Result<(), String> {
        let now = self.now(stamp.at);
        let due = self.model.due(now);
        if due != item(message) {
            return Err(format!("time acted on {:?}, but {due:?} is due", item(message)));
        }
        let process = launched(outcome);
        let seq = stamp.seq;
        let right = self.model.send(message, Entry { seq, now, process });
        if right != (reply.clone(), true) {
            return Err(format!("{reply:?}, expected {right:?}"));
        }
        Ok(())
    }

    fn apply_marks(&mut self, marked: &Marked) {
        self.offset = Offset(marked.offset_ms);
    }

    fn start(&mut self, start: Start) {
        self.model.start(start.stamp.at);
    }

    fn poisoned(&mut self, message: &Message) {
        if let Some(item) = item(message) {
            self.model.quarantine(item);
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.model.due(self.now(at)).map(|it| format!("{it:?}"))
    }

    fn without_change(&self, message: &Message) -> Option<Reply> {
        let entry = Entry { seq: Seq(0), now: self.now(Timestamp(0)), process: None };
        let (reply, changed) = self.model.clone().send(message, entry);
        (!changed).then_some(reply)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        Ok(self.model.answer(query))
    }

    fn agrees(&self, machine: &LeaseMachine) -> Result<(), String> {
        let mut mine: Vec<_> = self.model.all.iter().collect();
        mine.sort_by_key(|it| it.slot);
        let mine: Vec<_> = mine.into_iter().map(model::ModelLease::view).collect();
        let view = machine.view();
        (view == mine)
            .then_some(())
            .ok_or_else(|| format!("leases are {view:?}, expected {mine:?}"))
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Lapse { .. } | Message::Due { .. } => Origin::Tick,
            Message::Gone(_) | Message::Launched(_) | Message::Started(_) => Origin::Tell,
            _ => Origin::Client,
        }
    }

    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Turned { turn, .. } => !matches!(turn, Turn::NotNeeded | Turn::NoDelay),
            Reply::Lease(_) | Reply::Done => true,
            Reply::List(_) | Reply::Totals(_) | Reply::Absent | Reply::Refused(_) => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        self.model.wakes(watch)
    }

    fn count(_: &Message, outcome: &Outcome, counted: &mut Coverage) {
        let Outcome::Changed { steps, .. } = outcome else {
            return;
        };
        for (_, step) in steps {
            match step {
                Step::Began { .. } => counted.passes_begun += 1,
                Step::Ended { whole: true, .. } => counted.passes_whole += 1,
                Step::Ended { whole: false, .. } => counted.passes_broken += 1,
                Step::Placed { .. } => counted.passes_waited_for += 1,
                Step::Started { .. } => counted.passes_started += 1,
                Step::Missed(_) => counted.dates_missed += 1,
                Step::Relaunched { .. } => counted.passes_relaunched += 1,
                Step::Stopping => counted.passes_stopped += 1,
                Step::Owed(_) => counted.passes_owed += 1,
                _ => {}
            }
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(
            message,
            Message::Request(_)
                | Message::Import { .. }
                | Message::Set { .. }
                | Message::Renew { .. }
        )
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}

/// Clients of one run.
pub(crate) struct LeaseClients {
    names: Vec<Name>,
    /// Tokens of passes and of positions in line that clients received, the latest last.
    tokens: Vec<Token>,
    /// Processes to which a pass may be bound.
    processes: Vec<ProcessId>,
}

impl LeaseClients {
    /// Sets the processes that have a record, or had one, to which passes may be bound.
    pub(crate) fn see(&mut self, processes: Vec<ProcessId>) {
        self.processes = processes;
    }

    fn token(&self, chance: &mut Chance) -> Token {
        if self.tokens.is_empty() { Token(1) } else { *chance.pick(&self.tokens) }
    }

    fn binding(&self, chance: &mut Chance) -> Option<Binding> {
        let is_bound = chance.per_mille(500) && !self.processes.is_empty();
        is_bound.then(|| Binding {
            process: *chance.pick(&self.processes),
            until: *chance.pick(&[Until::Process, Until::Tree]),
            fence: false,
        })
    }

    fn message(&self, chance: &mut Chance) -> Message {
        let name = chance.pick(&self.names).clone();
        let token = self.token(chance);
        match chance.weighted(&[(60, 0), (20, 1), (10, 2), (8, 3), (6, 4), (14, 5), (2, 6)]) {
            0 => {
                let asked = PassRequest {
                    name,
                    command: chance.per_mille(900).then(|| command(chance)),
                    no_delay: chance.per_mille(150),
                    period_ms: *chance.pick(&[None, None, Some(900), Some(0)]),
                    max_run_ms: *chance.pick(&[None, None, None, Some(2500)]),
                    ..PassRequest::default()
                };
                Message::Request(Box::new(asked))
            }
            1 => {
                let claim = Claim {
                    process: self.binding(chance),
                    pid: 7,
                    ttl_ms: *chance.pick(&[1000, 5000]),
                    waits: chance.per_mille(500),
                };
                let asked = PassRequest { name, claim: Some(claim), ..PassRequest::default() };
                Message::Request(Box::new(asked))
            }
            2 => {
                let code = u8::try_from(chance.below(2)).expect("a small number");
                Message::Finish { name, token, code }
            }
            3 => {
                let process = self.binding(chance);
                Message::Renew { name, token, process }
            }
            4 => Message::Withdraw { name, place: token },
            5 => {
                let setting = setting(chance);
                Message::Set { name, setting }
            }
            _ => {
                let force = chance.per_mille(500);
                Message::Reset { name, force }
            }
        }
    }
}

fn command(chance: &mut Chance) -> Command {
    let argv = chance.pick(&["true", "work", ""]);
    let spec = Spec {
        argv: vec![Bytes::new(argv.as_bytes())],
        parcel: chance.per_mille(200).then_some(7),
        ..Spec::default()
    };
    Arc::new(Launching { spec, ..Launching::default() })
}

/// Schedules: of every minute, of which a date is always recent; of every hour, and of some times of day, of which the clock may pass over
/// dates, or show them again.
const SCHEDULES: [&str; 4] = ["* * * * *", "* * * * *", "17 * * * *", "40 2,9,15,21 * * *"];

fn setting(chance: &mut Chance) -> Set {
    match chance.below(7) {
        0 => Set::Period(*chance.pick(&[500, 2000, 0])),
        1 => Set::NoDelay(chance.per_mille(200)),
        2 => Set::Disabled(chance.per_mille(300)),
        3 => Set::MaxRun(*chance.pick(&[0, 3000])),
        4 => Set::Command(chance.per_mille(800).then(|| command(chance))),
        5 => {
            let expression: &str = chance.pick::<&str>(&SCHEDULES);
            let schedule = Schedule::new(expression, None).ok();
            Set::Schedule(schedule.filter(|_| chance.per_mille(700)))
        }
        _ => Set::CatchesUp(chance.per_mille(500)),
    }
}

impl Clients<Leases> for LeaseClients {
    fn new(_: &Setting) -> Self {
        let names = ["a", "b", "c", "d"];
        Self {
            names: names.map(|it| Name::try_from(it).expect("the name is short")).to_vec(),
            tokens: Vec::new(),
            processes: Vec::new(),
        }
    }

    fn call(&mut self, chance: &mut Chance) -> Vec<Ask<Leases>> {
        (0..*chance.pick(&[1, 1, 1, 2, 3]))
            .map(|_| {
                if chance.per_mille(200) {
                    Ask::Query(Query::Of(chance.pick(&self.names).clone()))
                } else {
                    Ask::Message(self.message(chance))
                }
            })
            .collect()
    }

    fn watch(&self, chance: &mut Chance) -> Watch {
        let name = chance.pick(&self.names).clone();
        let number = chance.within(1, 8);
        match chance.below(3) {
            0 => Watch::Begun { name, number },
            1 => Watch::Whole { name, number },
            _ => {
                let token = self.token(chance);
                Watch::Ended { name, token }
            }
        }
    }

    fn note(&mut self, call: &Call<Leases>) {
        for answer in call.answers.iter().flatten().flatten() {
            if let Reply::Turned { lease: view, .. } | Reply::Lease(view) = answer {
                let current = view.lease.current.as_ref().map(|it| it.token);
                let next = view.lease.next.as_ref().map(|it| it.token);
                self.tokens.extend(current.into_iter().chain(next));
            }
        }
        let old = self.tokens.len().saturating_sub(6);
        self.tokens.drain(..old);
    }
}
