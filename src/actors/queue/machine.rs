//! The machine: the interface between the queue rules and the host, and the order in which items are due.
//!
//! Jobs are modelled on MediaWiki's `JobQueue`, and the operations on them on beanstalkd's protocol. Deciding (`decide.rs`)
//! changes nothing, and committing (`commit.rs`) decides nothing.

use crate::actors::queue::message::{Message, Pop, Put};
use crate::actors::queue::outcome::{Outcome, Placed};
use crate::actors::queue::pages::Page;
use crate::actors::queue::refused::Refused;
use crate::actors::queue::reply::{Query, Reply, View, Watch};
use crate::actors::queue::right::Claimant;
use crate::actors::queue::rules::Rules;
use crate::actors::queue::state::State;
use crate::actors::queue::waiting::Waiting;
use crate::clock::{Offset, Timestamp};
use crate::ids::{ActorId, Digest, PageId, ProcessId, Seq, Slot, Ticket};
use crate::lookup::pages::Pages;
use crate::spine::event::EventBody;
use crate::spine::machine::{
    Durability, Effects, Gauge, Machine, Moment, Never, Now, Observable, Paged, Request,
    SpaceEffect, Stamp, Start, Timed,
};

/// The kinds of items that can be due, as the upper bits of the item number; a job has none of them set. The lower bits
/// are the slot of a job, root job, result or key, the number of a paused queue, or the ticket of a request that waits
/// for a job and can be given one.
const QUEUE: u64 = 1 << 62;
const WAITER: u64 = 2 << 62;
const ROOT: u64 = 3 << 62;
const RESULT: u64 = 7 << 61;
const KEY: u64 = 3 << 61;
const KINDS: u64 = 7 << 61;

/// The queue rules and the state that they act on.
#[derive(Debug)]
pub struct QueueMachine {
    pub(super) state: State,
    pub(super) waiting: Waiting,
}

impl QueueMachine {
    /// Returns why the queue of the first job that may not be added is read-only. The reason is not part of the outcome: it is that of the
    /// rules in force when the request is answered.
    fn read_only_reason(&self, message: &Message) -> String {
        let puts: &[Put] = if let Message::Put(put) = message {
            std::slice::from_ref(put)
        } else if let Message::Batch(puts) = message {
            puts
        } else {
            &[]
        };
        let mut reasons =
            puts.iter().filter_map(|put| self.state.rules.of(&put.queue).read_only.clone());
        reasons.next().unwrap_or_default()
    }

    /// Returns the number of jobs that are kept in memory only, and that the next start of a server therefore removes.
    pub fn memory_jobs(&self) -> u64 {
        let jobs = self.state.jobs.iter();
        jobs.filter(|(_, job)| job.passing).count() as u64
    }

    fn item_of(&mut self, now: Now) -> Option<u64> {
        self.state.open(now.at);
        let state = &mut self.state;
        let item =
            |kind: u64| move |(end, slot): (Timestamp, Slot)| (end, kind | u64::from(slot.0));
        let job = state.jobs.due(now).map(item(0));
        let pause = state.numbers.due(now).map(item(QUEUE));
        let root = if state.is_held() { None } else { state.roots.known.due(now).map(item(ROOT)) };
        let result = state.results.known.due(now).map(item(RESULT));
        let key = state.uniques.known.due(now).map(item(KEY));
        let timed = [job, pause, key, root, result].into_iter().flatten().min();
        timed.map(|(_, item)| item).or_else(|| {
            let named = self.state.wanted();
            let ticket = named.or_else(|| self.waiting.next_turn(&mut self.state, now.at));
            ticket.map(|ticket| WAITER | ticket.0)
        })
    }
}

impl QueueMachine {
    /// Returns whether a message makes or touches a claim that belongs to a connection, on a job that may be tried any number
    /// of times. Such a claim ends with the server process anyway, so nothing is lost if a crash loses its record.
    fn ends_with_connection(&self, slot: Slot, message: &Message) -> bool {
        let Some(job) = self.state.job(slot) else {
            return false;
        };
        // A claim that becomes bound to a process outlives the connection.
        if let Message::Bind { .. } = message {
            return false;
        }
        let worker = if let Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. } = message {
            matches!(by, Claimant::Worker(_))
        } else {
            job.details().worker.is_some()
        };
        worker && job.retries && self.rules_of(job).tries(job.tube) == 0
    }
}

impl QueueMachine {
    /// If no job is claimed, answers the requests that are waiting for that.
    fn wake_if_unclaimed(&mut self, effects: &mut Effects<Self>) {
        if self.state.totals.jobs.claimed == 0 {
            for ticket in self.waiting.take_unclaimed() {
                effects.wake(ticket, Reply::Done);
            }
        }
    }
}

impl QueueMachine {
    /// Answers the requests that wait for a job on behalf of a process, then `ticket`, with which that was requested. Their connections are
    /// answered in this order, too, and nothing is claimed for them later.
    fn withdraw(&mut self, process: ProcessId, ticket: Ticket, effects: &mut Effects<Self>) {
        for waiting in self.waiting.of_process(process) {
            self.waiting.forget(&mut self.state, waiting);
            let nothing = Reply::Nothing { waits: false, soonest: None };
            effects.wake(waiting, nothing);
        }
        effects.wake(ticket, Reply::Done);
    }
}

impl QueueMachine {
    /// Answers the requests that were waiting for jobs that are now over.
    fn wake_of_over(&mut self, effects: &mut Effects<Self>) {
        for id in std::mem::take(&mut self.state.over) {
            for ticket in self.waiting.take_ends(id) {
                effects.wake(ticket, Reply::Done);
            }
        }
    }
}

impl Machine for QueueMachine {
    const NAME: &'static str = "queue";
    const ID: ActorId = ActorId::QUEUE;

    type Rules = Rules;
    type Message = Message;
    type Outcome = Outcome;
    type Query = Query;
    type Reply = Reply;
    type Watch = Watch;
    type Action = Never;

    fn new(rules: Rules) -> Self {
        Self { state: State::new(rules), waiting: Waiting::default() }
    }

    fn set_rules(&mut self, rules: Rules) {
        self.state.set_rules(rules);
    }

    fn decide(&self, moment: &Moment, message: &Message) -> Outcome {
        self.decision(moment, message)
    }

    fn forbids(&self, message: &Message) -> bool {
        self.is_forbidden(message)
    }

    /// Changes that the end of the server process would undo anyway are `Transient`: changes to jobs kept only in memory and,
    /// for other jobs, claims by connections, unless the number of tries is limited. So are changes that can be lost
    /// without harm, such as progress reports.
    fn durability(&self, message: &Message, outcome: &Outcome) -> Durability {
        let passes = |slot: Slot| self.state.job(slot).is_some_and(|job| job.passing);
        let passing = match outcome {
            Outcome::Duplicate { .. }
            | Outcome::Remembered { .. }
            | Outcome::Absent
            | Outcome::Refused(_) => {
                return Durability::Nothing;
            }
            Outcome::FlushedPart { .. } if outcome.is_without_change() => {
                return Durability::Nothing;
            }
            // A registered root job or a remembered key is durable, even if the job is not.
            Outcome::Put { job, .. } => {
                let registers = matches!(message, Message::Put(put) if put.registers().is_some());
                job.passing && !registers && job.unique_until.is_none()
            }
            Outcome::ClaimsEnded { ends, .. } => ends.iter().all(|(slot, _)| passes(*slot)),
            Outcome::Claimed { slot, .. } | Outcome::Touched { slot, .. } => {
                passes(*slot) || self.ends_with_connection(*slot, message)
            }
            Outcome::Deleted { slot, key: None }
            | Outcome::Attached { slot, .. }
            | Outcome::Quarantined { slot }
            | Outcome::Released { slot, .. }
            | Outcome::Buried { slot }
            | Outcome::Fenced { slot }
            | Outcome::Deferred { slot, .. }
            | Outcome::Failed { slot, .. }
            | Outcome::KickedJob { slot }
            | Outcome::Abandoned { slot }
            | Outcome::Cancelled { slot, .. }
            | Outcome::ResultKept { slot, .. }
            | Outcome::Pruned { slot, .. } => passes(*slot),
            Outcome::Departed { back, abandoned, .. } => {
                let comes_back = |slot: &Slot| self.state.job(*slot).is_some_and(|job| job.retries);
                let all_come_back = back.iter().all(|slot| comes_back(slot) || passes(*slot));
                all_come_back && abandoned.iter().all(|slot| passes(*slot))
            }
            // After a crash, a progress report would be outdated, unused ids are skipped anyway, and lost ticks become due again.
            Outcome::Reported { .. }
            | Outcome::Spoiled { .. }
            | Outcome::Ready { .. }
            | Outcome::TimedOut { .. }
            | Outcome::ResultDropped { .. }
            | Outcome::KeyForgotten { .. }
            | Outcome::Forgotten { .. } => true,
            Outcome::Batch { .. }
            | Outcome::Deleted { key: Some(_), .. }
            | Outcome::Registered { .. }
            | Outcome::Kicked { .. }
            | Outcome::KickedPart { .. }
            | Outcome::Paused { .. }
            | Outcome::Flushed { .. }
            | Outcome::FlushedPart { .. }
            | Outcome::Draining => false,
        };
        if passing { Durability::Transient } else { Durability::Durable }
    }

    fn numbers(outcome: &Outcome) -> u64 {
        if let Outcome::Batch { placed } = outcome { (placed.len() as u64).max(1) } else { 1 }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Self>,
    ) {
        self.state.entry = entry.seq;
        // In a replay, `due` is not called, so only this opens queues.
        self.state.open(entry.at);
        self.apply(entry, message, outcome, effects);
        self.state.settle_turns();
        self.wake_if_unclaimed(effects);
        self.wake_of_over(effects);
    }

    fn unchanged(&mut self, outcome: &Outcome) {
        if let Outcome::Duplicate { .. } | Outcome::Remembered { .. } = outcome {
            self.state.totals.duplicates += 1;
        }
    }

    fn reply(&self, _seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Put { job, .. } => Reply::Put { id: job.id, duplicate: None },
            Outcome::Batch { placed } => {
                let told = placed.iter().map(|placed| match placed {
                    Placed::New(job) => (job.id, true),
                    Placed::Twin(id) => (*id, false),
                });
                Reply::Batch(told.collect())
            }
            Outcome::Duplicate { slot } => {
                let job = self.state.job(*slot);
                Reply::Put { id: job.map_or(0, |job| job.id), duplicate: job.map(|job| job.phase) }
            }
            Outcome::Remembered { id } => {
                Reply::Remembered { id: *id, phase: self.state.find(*id).map(|(_, job)| job.phase) }
            }
            Outcome::Claimed { slot, .. } => self.claim_reply(*slot),
            Outcome::Kicked { .. }
            | Outcome::KickedPart { .. }
            | Outcome::Flushed { .. }
            | Outcome::FlushedPart { .. } => Reply::Count(outcome.total().0),
            Outcome::Touched { .. }
            | Outcome::Attached { .. }
            | Outcome::ClaimsEnded { .. }
            | Outcome::Reported { .. }
            | Outcome::Fenced { .. }
            | Outcome::Deferred { .. }
            | Outcome::Deleted { .. }
            | Outcome::Released { .. }
            | Outcome::Buried { .. }
            | Outcome::Failed { .. }
            | Outcome::KickedJob { .. }
            | Outcome::Paused { .. }
            | Outcome::Departed { .. }
            | Outcome::Ready { .. }
            | Outcome::TimedOut { .. }
            | Outcome::Pruned { .. }
            | Outcome::Spoiled { .. }
            | Outcome::Registered { .. }
            | Outcome::Forgotten { .. }
            | Outcome::Draining
            | Outcome::ResultKept { .. }
            | Outcome::ResultDropped { .. }
            | Outcome::KeyForgotten { .. }
            | Outcome::Cancelled { .. } => Reply::Done,
            Outcome::Abandoned { .. } | Outcome::Quarantined { .. } => Reply::Abandoned,
            Outcome::Absent => self.absent(message),
            Outcome::Refused(Refused::ReadOnly) => Reply::ReadOnly(self.read_only_reason(message)),
            Outcome::Refused(refused) => Reply::Refused(*refused),
        }
    }

    /// Refuses to repeat the reply to a claim that has ended or whose job is over.
    fn reply_again(&self, seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        if let Outcome::Claimed { slot, .. } = outcome {
            let job = self.state.job(*slot);
            if job.is_none_or(|job| job.details().token != seq.into()) {
                return Reply::Refused(Refused::StaleToken);
            }
        }
        self.reply(seq, message, outcome)
    }

    fn holds_up(reply: &Reply) -> bool {
        matches!(reply, Reply::Nothing { waits: true, .. })
    }

    fn query(&self, now: Now, query: &Query) -> Reply {
        self.look(now.offset, query)
    }

    fn cost(asked: Request<'_, Self>) -> usize {
        Self::cost_of(&asked)
    }

    fn outcome_cost(outcome: &Outcome) -> usize {
        outcome.weight()
    }

    fn rest(&self, message: &Message, outcome: &Outcome) -> Option<Message> {
        self.rest_of(message, outcome)
    }

    fn space_effect(&self, message: &Message) -> SpaceEffect {
        match message {
            Message::Put(_) | Message::Batch(_) | Message::Register(_) => SpaceEffect::Adds,
            Message::Pop(Pop { ticket: None, .. })
            | Message::PopJob { .. }
            | Message::Spoil
            | Message::Touch { .. }
            | Message::Report { .. }
            | Message::Bind { .. }
            | Message::Attach { .. }
            | Message::Kick { .. }
            | Message::Repush { .. }
            | Message::KickJob { .. }
            | Message::KeepResult(_)
            | Message::Pause { .. } => SpaceEffect::Keeps,
            // A waiting request stays due until it is answered: if its tick were refused, it would be sent again and again.
            Message::Pop(Pop {
                ticket: Some(_), ..
            })
            | Message::Delete { .. }
            | Message::Release { .. }
            | Message::Bury { .. }
            | Message::Fail { .. }
            | Message::Defer { .. }
            | Message::Flush { .. }
            | Message::FlushMore(_)
            // What was begun is not refused.
            | Message::KickMore(_)
            | Message::Depart { .. }
            | Message::Gone(_)
            | Message::Expire { .. }
            | Message::Unpause { .. }
            | Message::Forget { .. }
            | Message::Drain
            | Message::DropResult { .. }
            | Message::ForgetKey { .. }
            | Message::Cancel { .. } => SpaceEffect::Frees,
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, effects: &mut Effects<Self>) {
        if let Watch::Withdraw(process) = watch {
            self.withdraw(*process, ticket, effects);
        }
        self.waiting.watch(&mut self.state, ticket, watch);
        self.wake_if_unclaimed(effects);
        self.wake_of_over(effects);
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.waiting.forget(&mut self.state, ticket);
    }

    fn acts_for(message: &Message) -> Option<Ticket> {
        if let Message::Pop(pop) = message { pop.ticket } else { None }
    }

    fn start(&mut self, start: Start) {
        self.state.start(start);
    }

    /// Sends the requests about bound claims to the `ProcessActor` again.
    fn resume(&mut self, effects: &mut Effects<Self>) {
        self.send_bindings(effects);
    }
}

impl Timed for QueueMachine {
    fn deadline(&self, offset: Offset) -> Option<Timestamp> {
        if self.state.is_wanted() || self.waiting.may_have_turn(&self.state) {
            return Some(Timestamp(0));
        }
        let state = &self.state;
        let (job, pause) = (state.jobs.deadline(offset), state.numbers.deadline(offset));
        let root = state.roots.known.deadline(offset);
        let root = root.filter(|_| !state.is_held());
        let result = state.results.known.deadline(offset);
        let key = state.uniques.known.deadline(offset);
        let times = [job, state.opens_at(), pause, key, root, result];
        times.into_iter().flatten().min()
    }

    fn due(&mut self, now: Now) -> Option<u64> {
        self.item_of(now)
    }

    fn tick(&self, item: u64) -> Message {
        match item & KINDS {
            WAITER => {
                let pop = self.waiting.pop(Ticket(item & !KINDS));
                Message::Pop(
                    pop.expect("a ticket that is due should belong to a waiting request").clone(),
                )
            }
            ROOT => Message::Forget { slot: slot_of(item) },
            RESULT => Message::DropResult { slot: slot_of(item) },
            KEY => Message::ForgetKey { slot: slot_of(item) },
            QUEUE => {
                let queue = self.state.numbers.get(slot_of(item));
                let queue = queue.expect("a paused queue should have a number");
                Message::Unpause { queue: queue.name.clone() }
            }
            _ => Message::Expire { slot: slot_of(item) },
        }
    }

    fn is_quarantined(&self, item: u64) -> bool {
        let state = &self.state;
        match item & KINDS {
            WAITER => true,
            QUEUE => state.numbers.is_quarantined(slot_of(item)),
            ROOT => state.roots.known.is_quarantined(slot_of(item)),
            RESULT => state.results.known.is_quarantined(slot_of(item)),
            KEY => state.uniques.known.is_quarantined(slot_of(item)),
            _ => state.jobs.is_quarantined(slot_of(item)),
        }
    }

    fn hold_removals(&mut self, held: bool) {
        self.state.hold_removals(held);
    }

    fn quarantine(&mut self, item: u64, now: Now) {
        match item & KINDS {
            WAITER => self.waiting.forget(&mut self.state, Ticket(item & !KINDS)),
            QUEUE => self.state.numbers.quarantine(slot_of(item), now),
            ROOT => self.state.roots.known.quarantine(slot_of(item), now),
            RESULT => (self.state.results.known).quarantine(slot_of(item), now),
            KEY => (self.state.uniques.known).quarantine(slot_of(item), now),
            _ => self.state.jobs.quarantine(slot_of(item), now),
        }
    }
}

impl Paged for QueueMachine {
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
        Self { state: State::from_pages(rules, pages), waiting: Waiting::default() }
    }

    fn digest(&self) -> Digest {
        self.state.digest()
    }

    fn former_digest(&self) -> Option<Digest> {
        let (mut digest, jobs) = (self.digest(), &self.state.jobs);
        digest.exchange(jobs.digest(), jobs.former_digest());
        Some(digest)
    }
}

impl Observable for QueueMachine {
    const KINDS: &'static [&'static str] = &[
        "abandoned",
        "added",
        "buried",
        "cancelled",
        "claimed",
        "crashed",
        "deferred",
        "deleted",
        "done",
        "draining",
        "expired",
        "failed",
        "fencing",
        "flushed",
        "kicked",
        "paused",
        "progress",
        "pruned",
        "quarantined",
        "ready",
        "released",
        "resumed",
        "returned",
        "spent",
    ];

    type View = View;

    fn sample(&self, most: usize) -> View {
        self.show(most)
    }

    fn gauges(&self) -> Vec<Gauge> {
        let totals = self.totals();
        let gauge = |name, help, value| Gauge { name, help, value };
        let jobs = totals.jobs;
        vec![
            gauge("queues", "queues that exist", totals.queues.into()),
            gauge("ready", "jobs that can be claimed", jobs.ready.into()),
            gauge("delayed", "jobs that are delayed", jobs.delayed.into()),
            gauge("claimed", "jobs that are claimed", jobs.claimed.into()),
            gauge(
                "retrying",
                "jobs that failed or were deferred and will be tried again",
                jobs.retrying.into(),
            ),
            gauge("buried", "jobs that were buried", jobs.buried.into()),
            gauge(
                "abandoned",
                "jobs that were abandoned after their last try or cancelled",
                jobs.abandoned.into(),
            ),
            gauge(
                "quarantined",
                "jobs that were set aside after too many crashes",
                jobs.quarantined.into(),
            ),
            gauge(
                "bytes",
                "total size of job bodies, errors and progress reports in bytes",
                totals.bytes,
            ),
        ]
    }

    fn events(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        self.emit(entry.seq, (message, outcome), publish);
    }

    fn history(
        &self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        publish: &mut dyn FnMut(EventBody),
    ) {
        self.emit_kept((message, outcome), publish);
        self.emit(entry.seq, (message, outcome), publish);
    }

    fn fingerprint(&self, item: u64) -> Option<String> {
        let view = self.state.find(item).map(|it| self.job_view(it, Offset::default()))?;
        Some(format!("{view:?}"))
    }
}

/// Returns the slot or queue number in an item number.
fn slot_of(item: u64) -> Slot {
    Slot(u32::try_from(item & !KINDS).expect("items other than tickets should have 32 bits"))
}
