//! Property tests that compare the queue machine with a simple model, and with a replica that has no clients.

#![expect(clippy::wildcard_enum_match_arm, reason = "a test matches only the cases it needs")]

use crate::actors::binding::ToProcesses;
use crate::actors::queue::model::{Due, Entry, Model};
use crate::actors::queue::steps::{Authority, Step, order, rules, steps};
use crate::actors::queue::{
    Message, Order, Outcome, Pop, QueueMachine, QueueName, Reply, Right, View, Watch, Worker,
};
use crate::clock::Timestamp;
use crate::ids::{Seq, Ticket};
use crate::spine::effect::Effect;
use crate::spine::machine::{
    Durability, Effects, Machine as _, Moment, Never, Now, Observable as _, Paged as _, Stamp,
    Start, Timed as _,
};
use crate::spine::shelf::Shelf;
use proptest::prelude::*;
use std::collections::BTreeMap;

const BEGIN: Timestamp = Timestamp(1_000_000_000_000);

/// The machine under test, its model, a replica, and the log of committed entries.
pub(super) struct Pair {
    pub(super) machine: QueueMachine,
    /// A second machine, without waiting clients, which must make the same decisions.
    pub(super) replica: QueueMachine,
    pub(super) model: Model,
    now: Timestamp,
    seq: Seq,
    log: Vec<Logged>,
    shelf: Shelf<QueueMachine>,
    tickets: u64,
    /// Number of steps after which a closed queue had ready jobs.
    closed: u32,
    /// Messages sent to the `ProcessActor` since they were last compared.
    pub(super) told: Vec<ToProcesses>,
    /// Number of claims that did not close their throttled queue, because a newer root job had made the claimed job obsolete.
    spared: u32,
}

enum Logged {
    Entry(Stamp, Message, Outcome),
    Start(Start),
}

impl Pair {
    fn new(order: Order) -> Self {
        let rules = rules(order);
        Self {
            machine: QueueMachine::new(rules.clone()),
            replica: QueueMachine::new(rules.clone()),
            model: Model::new(rules.clone()),
            now: BEGIN,
            seq: Seq(0),
            log: Vec::new(),
            shelf: Shelf::new(rules, shown),
            tickets: 0,
            closed: 0,
            told: Vec::new(),
            spared: 0,
        }
    }

    /// Returns the moment at which a host would decide the next message.
    fn moment(&self) -> Moment {
        Moment { seq: Seq(self.seq.0 + 1), now: self.both(), ..Moment::default() }
    }

    pub(super) fn both(&self) -> Now {
        Now { at: self.now, offset: self.model.offset }
    }

    /// Decides, commits and logs a message, as the host does, and compares the result with the model.
    fn send(&mut self, message: &Message) -> Reply {
        let outcome = self.machine.decide(&self.moment(), message);
        assert_eq!(
            outcome,
            self.replica.decide(&self.moment(), message),
            "waiting and connected clients do not affect the decision about {message:?}"
        );
        let stamp = Stamp { seq: Seq(self.seq.0 + 1), at: self.now };
        let mut effects = Effects::<QueueMachine>::default();
        let mut seq = Seq(0);
        let durability = self.machine.durability(message, &outcome);
        assert_eq!(durability, self.replica.durability(message, &outcome));
        if durability != Durability::Nothing {
            seq = stamp.seq;
            self.seq.0 += QueueMachine::numbers(&outcome);
            self.machine.commit(stamp, message, &outcome, &mut effects);
            self.replica.commit(stamp, message, &outcome, &mut Effects::<QueueMachine>::default());
        }
        let reply = self.machine.reply(seq, message, &outcome);
        if let Reply::Claim(claim) = &reply
            && claim.duplicate
            && claim.queue.kind() == b"slow"
        {
            self.spared += 1;
        }
        self.model.chosen = match &reply {
            Reply::Claim(claim) => Some(claim.id),
            _ => None,
        };
        let said = matches!(
            message,
            Message::Fail { retry_after_ms: Some(_), .. } | Message::Fail { crashed: true, .. }
        );
        self.model.parked = match &outcome {
            Outcome::Failed { until, .. } if !said => Some(*until),
            Outcome::Deferred { until, .. } => Some(*until),
            _ => None,
        };
        self.compare_answers(stamp, message, &reply, effects.take());
        let rest = self.machine.rest(message, &outcome);
        assert_eq!(rest, self.replica.rest(message, &outcome));
        if durability != Durability::Nothing {
            self.log.push(Logged::Entry(stamp, message.clone(), outcome));
        }
        rest.map_or(reply, |rest| self.send(&rest))
    }

    /// Compares the reply, and the answers to waiting requests, with the model.
    fn compare_answers(
        &mut self,
        stamp: Stamp,
        message: &Message,
        reply: &Reply,
        effects: Vec<Effect<Reply, Never>>,
    ) {
        let waits = |ticket: Ticket| self.model.waiters.iter().any(|(other, _)| *other == ticket);
        let woken = match message {
            Message::Pop(Pop { ticket: Some(ticket), .. }) => {
                Some(*ticket).filter(|ticket| waits(*ticket))
            }
            _ => None,
        };
        if !matches!(
            message,
            Message::Expire { .. }
                | Message::Unpause { .. }
                | Message::Forget { .. }
                | Message::DropResult { .. }
                | Message::ForgetKey { .. }
        ) {
            let expected = self.model.message(message, (stamp.seq, stamp.at));
            assert_eq!(*reply, expected, "the machine replies to {message:?} as the model does");
        }
        let (mut woken_now, mut told) = (Vec::<(Ticket, Reply)>::new(), Vec::new());
        for effect in effects {
            match effect {
                Effect::Wake(ticket, reply) => woken_now.push((ticket, reply)),
                other => told.push(to_processes(other)),
            }
        }
        self.told.extend(told);
        let expected = woken.map(|ticket| (ticket, reply.clone()));
        assert_eq!(woken_now, expected.into_iter().collect::<Vec<_>>());
    }

    fn let_time_act(&mut self) {
        self.model.open(self.now);
        while self.machine.deadline(self.model.offset).is_some_and(|deadline| deadline <= self.now)
        {
            let Some(item) = self.machine.due(self.both()) else {
                break;
            };
            let message = self.machine.tick(item);
            let due = match &message {
                Message::Expire { slot } => Due::Job(*slot),
                Message::Unpause { queue } => Due::Pause(queue.clone()),
                Message::Forget { slot } => Due::Root(*slot),
                Message::DropResult { slot } => Due::Result(*slot),
                Message::ForgetKey { slot } => Due::Key(*slot),
                Message::Pop(pop) => {
                    Due::Waiter(pop.ticket.expect("the claim belongs to a waiting request"))
                }
                other => panic!("{other:?} is not a tick"),
            };
            // The model follows the random choice of the machine.
            self.model.chosen = match (&message, self.machine.decide(&self.moment(), &message)) {
                (Message::Pop(_), Outcome::Claimed { slot, .. }) => {
                    let job = self.model.jobs.iter().find(|job| job.slot == slot);
                    job.map(|job| job.view.id)
                }
                _ => None,
            };
            let next = self.model.next_due(self.now);
            assert!(
                next.as_ref() == Some(&due) || self.model.may_serve(&due, self.now),
                "the machine's next due item is {due:?}, but the model expects {next:?}"
            );
            let before = self.seq;
            let reply = self.send(&message);
            if matches!(due, Due::Waiter(_)) {
                assert!(matches!(reply, Reply::Claim(_)), "a request that is due receives a job");
            } else {
                self.model.tick(&due);
            }
            assert!(self.seq > before, "a tick must be committed; otherwise its item stays due");
            self.compare();
        }
        self.model.chosen = None;
        assert_eq!(self.model.next_due(self.now), None, "the model has nothing else due");
    }

    fn step(&mut self, step: Step) {
        self.let_time_act();
        match step {
            Step::Send(message) => drop(self.send(&message)),
            Step::About(message, whose) => {
                let message = self.about(message, whose);
                self.send(&message);
            }
            Step::Wait(pop) => {
                // Only a claim that finds no job waits.
                let pop = Pop { waits: true, ticket: None, ..pop };
                if let Reply::Nothing { waits, .. } = self.send(&Message::Pop(pop.clone())) {
                    assert!(
                        waits && QueueMachine::holds_up(&Reply::Nothing { waits, soonest: None })
                    );
                    self.tickets += 1;
                    let ticket = Ticket(self.tickets);
                    self.watch(ticket, &Watch::Job(pop.clone()));
                    self.model.waiters.push((ticket, pop));
                }
            }
            Step::Attend(using, watching) => self.attend(using, watching),
            Step::Leave(which) => self.leave(which),
            Step::Pass(ms) => self.now = self.now.plus_ms(ms),
            Step::Wall(ms) => self.model.offset.0 += ms,
            Step::Start(skipped) => self.start(skipped),
            Step::Checkpoint => self.shelf.step(&mut self.machine, self.seq),
            Step::Reload => self.reload(),
        }
        self.closed += u32::from(self.model.has_held_back_jobs());
        self.compare();
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch) {
        let mut effects = Effects::<QueueMachine>::default();
        self.machine.watch(ticket, watch, &mut effects);
        assert!(
            effects.is_empty(),
            "a request that starts to wait receives its job only in a later tick"
        );
    }

    /// Connects a client; if three are already connected, changes the queues of the first one instead.
    fn attend(&mut self, using: QueueName, watching: Vec<QueueName>) {
        let turns = self.model.present.len() > 2;
        let ticket = if turns {
            self.model.present.remove(0).0
        } else {
            self.tickets += 1;
            Ticket(self.tickets)
        };
        let watch = Watch::Presence { using: using.clone(), watching: watching.clone().into() };
        self.watch(ticket, &watch);
        self.model.present.push((ticket, using, watching));
    }

    fn leave(&mut self, which: usize) {
        let waiting = self.model.waiters.iter().map(|(ticket, _)| *ticket);
        let present = self.model.present.iter().map(|(ticket, ..)| *ticket);
        let tickets: Vec<Ticket> = waiting.chain(present).collect();
        if let Some(gone) = tickets.get(which % tickets.len().max(1)) {
            self.machine.unwatch(*gone);
            self.model.waiters.retain(|(ticket, _)| ticket != gone);
            self.model.present.retain(|(ticket, ..)| ticket != gone);
        }
    }

    /// Restarts the server: all clients disconnect, and the machines handle the start.
    fn start(&mut self, skipped: u64) {
        while !self.model.waiters.is_empty() || !self.model.present.is_empty() {
            self.leave(0);
        }
        self.seq.0 += 1 + skipped;
        let stamp = Stamp { seq: self.seq, at: self.now };
        let start = Start { stamp, skipped };
        self.machine.start(start);
        self.replica.start(start);
        self.log.push(Logged::Start(start));
        self.model.start(self.now, skipped);
        self.resume();
    }

    /// Checks that `resume` resends to the `ProcessActor` exactly the requests that the claims require.
    fn resume(&mut self) {
        let mut effects = Effects::<QueueMachine>::default();
        self.machine.resume(&mut effects);
        let mut told: Vec<_> = effects.take().into_iter().map(to_processes).collect();
        self.model.resume();
        let mut right = std::mem::take(&mut self.model.told);
        for list in [&mut told, &mut right] {
            list.sort_by_key(|said| format!("{said:?}"));
            list.dedup();
        }
        assert_eq!(told, right, "all requests about bound claims are sent again");
    }

    /// Replaces the job id in a message with that of an existing job or an unknown one and, if the message presents a right to
    /// the job, the right with that of `whose`.
    fn about(&self, mut message: Message, whose: Authority) -> Message {
        if let Message::PopJob { id, .. } | Message::KickJob { id } | Message::Cancel { id, .. } =
            &mut message
        {
            *id = self.pick(*id).map_or(u64::MAX, |job| job.view.id);
        }
        if let Message::KeepResult(keep) = &mut message {
            (keep.id, keep.by) = self.of_claim(keep.id, whose);
        }
        if let Message::Delete { id, by }
        | Message::Release { id, by, .. }
        | Message::Bury { id, by, .. }
        | Message::Touch { id, by }
        | Message::Bind { id, by, .. }
        | Message::Attach { id, by, .. }
        | Message::Defer { id, by, .. }
        | Message::Fail { id, by, .. } = &mut message
        {
            (*id, *by) = self.of_claim(*id, whose);
        }
        message
    }

    /// Returns the id of the job that `pick` selects, or an unknown id if it selects none, and the right to the job that `whose`
    /// describes.
    fn of_claim(&self, id: u64, whose: Authority) -> (u64, Right) {
        let job = self.pick(id);
        let token = job.and_then(|job| job.view.token).unwrap_or_default();
        let worker = job.and_then(|job| job.worker);
        let by = match (whose, worker) {
            (Authority::Claimant, Some(worker)) => Right::Worker(worker),
            (Authority::Claimant, None) => Right::Token(token),
            (Authority::Worker(worker), _) => Right::Worker(Worker(worker)),
            (Authority::Stale(by), _) => {
                Right::Token(crate::ids::Token(token.0.saturating_sub(by)))
            }
            (Authority::Nobody, _) => Right::Unclaimed,
        };
        (job.map_or(u64::MAX, |job| job.view.id), by)
    }

    /// Returns the job at position `id % (jobs + 1)`; `None` if that is one past the last job.
    fn pick(&self, id: u64) -> Option<&Entry> {
        let jobs = &self.model.jobs;
        let place = usize::try_from(id).expect("the id is small") % (jobs.len() + 1);
        jobs.get(place)
    }

    fn reload(&mut self) {
        let (mut machine, upto) = self.shelf.load();
        for logged in &self.log {
            logged.repeat(&mut machine, upto);
        }
        self.machine = machine;
        self.resume();
        // Like the host, calls `due` before the first decision, for its side effect: it opens the queues that were closed
        // in the snapshot and may be open by now.
        let _nothing = self.machine.due(self.both());
        self.replica.resume(&mut Effects::<QueueMachine>::default());
        for (ticket, pop) in self.model.waiters.clone() {
            self.watch(ticket, &Watch::Job(pop));
        }
        for (ticket, using, watching) in self.model.present.clone() {
            let watching = watching.into();
            self.watch(ticket, &Watch::Presence { using, watching });
        }
    }

    /// Checks that a machine with other rules reaches the same state if it only commits the logged entries.
    fn replay(&self) {
        let mut rules = rules(Order::Timestamp);
        (rules.jobs_max, rules.queues_max, rules.bytes_max) = (0, 0, 0);
        rules.types.clear();
        let mut fresh = QueueMachine::new(rules);
        for logged in &self.log {
            logged.repeat(&mut fresh, Seq(0));
        }
        assert_eq!(fresh.digest(), self.machine.digest());
        assert_eq!(shown(&fresh), shown(&self.machine));
    }
}

fn to_processes(effect: Effect<Reply, Never>) -> ToProcesses {
    let Effect::Tell(_, message) = effect else {
        panic!("{effect:?} is not a message to an actor");
    };
    rmp_serde::from_slice(&message).expect("the message is for the process actor")
}

/// Returns the part of the view that a snapshot preserves, as text.
fn shown(machine: &QueueMachine) -> String {
    machine.assert_whole();
    let View { totals, next_id, mut queues, jobs, results, keys } = machine.view();
    for queue in &mut queues {
        (queue.using, queue.watching, queue.waiting) = (0, 0, 0);
        (queue.total, queue.deletes, queue.pauses) = (0, 0, 0);
    }
    let (counts, bytes, draining) = (totals.jobs, totals.bytes, totals.draining);
    format!("{counts:?} {bytes} {draining} {next_id} {queues:?} {jobs:?} {results:?} {keys:?}")
}

impl Logged {
    /// Applies this record to a machine if its sequence number is greater than `after`.
    fn repeat(&self, machine: &mut QueueMachine, after: Seq) {
        match self {
            Self::Entry(stamp, message, outcome) if stamp.seq > after => {
                machine.commit(*stamp, message, outcome, &mut Effects::<QueueMachine>::default());
            }
            Self::Start(start) if start.stamp.seq > after => machine.start(*start),
            Self::Entry(..) | Self::Start(_) => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]
    #[test]
    fn queues_are_as_a_plain_list_of_jobs_has_them(steps in steps(), order in order()) {
        let mut pair = Pair::new(order);
        for step in steps {
            pair.step(step);
        }
        pair.replay();
    }
}

/// The combinations of messages and outcomes, and the other events, that the model test must produce at least ten times each.
const MET: &[&str] = &[
    "Put Put",
    "Batch Batch",
    "Register Registered",
    "Forget Forgotten",
    "Fail Deleted",
    "Fail Abandoned",
    "Pop Claimed",
    "PopJob Claimed",
    "Delete Deleted",
    "Release Released",
    "Release Abandoned",
    "Bury Buried",
    "Touch Touched",
    "Bind Touched",
    "Defer Deferred",
    "Defer Failed",
    "Attach Attached",
    "Depart ClaimsEnded",
    "Fail Quarantined",
    "Gone ClaimsEnded",
    "Expire Fenced",
    "Fail Failed",
    "Kick Kicked",
    "Repush Kicked",
    "KickJob KickedJob",
    "Pause Paused",
    "Unpause Paused",
    "Flush Flushed",
    "Depart Departed",
    "Expire Ready",
    "Expire TimedOut",
    "Expire Abandoned",
    "Expire Pruned",
    "Drain Draining",
    "KeepResult ResultKept",
    "DropResult ResultDropped",
    "ForgetKey KeyForgotten",
    "waited",
    "taken",
    "early",
    "backed off",
    "closed",
    "spared",
];

#[test]
fn the_model_meets_every_outcome_it_is_there_for() {
    use proptest::strategy::ValueTree as _;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..1500 {
        let steps = steps().new_tree(&mut runner).expect("the strategy generates steps").current();
        let mut pair = Pair::new(Order::Priority);
        for step in steps {
            pair.step(step);
        }
        for logged in &pair.log {
            let Logged::Entry(_, message, outcome) = logged else {
                continue;
            };
            let word = |text: String| text.split([' ', '(']).next().unwrap_or("").to_owned();
            let what = word(format!("{message:?}")) + " " + &word(format!("{outcome:?}"));
            *seen.entry(what).or_default() += 1;
            if let Message::Pop(Pop { ticket: Some(_), .. }) = message {
                *seen.entry("waited".to_owned()).or_default() += 1;
            }
        }
        *seen.entry("backed off".to_owned()).or_default() += pair.model.backed_off;
        *seen.entry("closed".to_owned()).or_default() += pair.closed;
        *seen.entry("spared".to_owned()).or_default() += pair.spared;
        *seen.entry("taken".to_owned()).or_default() += pair.shelf.taken;
        *seen.entry("early".to_owned()).or_default() += pair.shelf.early;
    }
    for what in MET {
        let count = seen.get(*what).copied().unwrap_or(0);
        assert!(count >= 10, "{what}: {seen:?}");
    }
}
