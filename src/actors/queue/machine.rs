//! The queue rules: which job goes to whom, and what becomes of it.
//!
//! Follows MediaWiki's JobQueue for what a job is, and beanstalkd's protocol for what is done with it. Decides without
//! changing anything, and commits without deciding anything.

use crate::actors::machine::{Effects, Keeping, Machine, Refusal, Stamp, Start, Weight};
use crate::actors::pages::Pages;
use crate::actors::queue::job::{Job, Phase};
use crate::actors::queue::message::{
    Claimant, Message, Outcome, Pop, Put, Query, Refused, Reply, Right, View, Watch, Worker,
};
use crate::actors::queue::name::QueueName;
use crate::actors::queue::pages::{self, Page, Place};
use crate::actors::queue::queue::Pause;
use crate::actors::queue::rules::Rules;
use crate::actors::queue::state::{State, end_claim};
use crate::actors::queue::waiting::Waiting;
use crate::clock::Timestamp;
use crate::ids::{ActorId, Digest, PageId, Seq, Slot, Ticket, Token};

/// What is due: a job, a queue whose pause is over, or somebody who waits for a job that is there.
const QUEUE: u64 = 1 << 62;
const WAITER: u64 = 2 << 62;
const KINDS: u64 = 3 << 62;

/// The rules of queues, over their state.
#[derive(Debug)]
pub struct QueueMachine {
    pub(super) rules: Rules,
    pub(super) state: State,
    pub(super) waiting: Waiting,
}

impl QueueMachine {
    fn decide_put(&self, at: Timestamp, put: &Put) -> Outcome {
        let totals = &self.state.totals;
        let len = put.body.as_bytes().len();
        let rules = &self.rules;
        if len > rules.body_bytes_max as usize {
            return Outcome::Refused(Refused::TooBig);
        }
        if self.state.head.draining {
            return Outcome::Refused(Refused::Draining);
        }
        if rules.of(&put.queue).read_only.is_some() {
            return Outcome::Refused(Refused::ReadOnly);
        }
        if let Some(slot) = put.dedup.and_then(|key| self.state.twin(&put.queue, key)) {
            return Outcome::Duplicate { slot };
        }
        if totals.jobs.all() >= rules.jobs_max || totals.bytes + len as u64 > rules.bytes_max {
            return Outcome::Refused(Refused::Full);
        }
        if totals.queues >= rules.queues_max && self.state.queue_named(&put.queue).is_none() {
            return Outcome::Refused(Refused::QueuesFull);
        }
        Outcome::Put {
            id: self.state.head.next_id,
            slot: self.state.jobs.next_free(),
            until: after(at, put.delay_ms),
        }
    }

    fn decide_pop(&self, at: Timestamp, pop: &Pop) -> Outcome {
        let chance = self.state.head.next_id ^ at.0.rotate_left(32);
        let best = |queue: &QueueName| self.state.best(queue, chance);
        let best = pop.queues.iter().filter_map(best).min();
        best.map_or(Outcome::Absent, |(_, _, slot)| self.claim(at, slot, pop.by))
    }

    fn decide_pop_job(&self, at: Timestamp, id: u64, by: Claimant) -> Outcome {
        match self.state.find(id) {
            Some((slot, job)) if job.phase != Phase::Claimed => self.claim(at, slot, by),
            Some(_) | None => Outcome::Absent,
        }
    }

    fn claim(&self, at: Timestamp, slot: Slot, by: Claimant) -> Outcome {
        let Some(job) = self.state.job(slot) else {
            return Outcome::Absent;
        };
        let rules = self.rules.of(&self.state.queue(job.queue).name);
        let prune = at.plus_ms(rules.prune_ms).plus_ms(1);
        let until = match (job.ttr_ms, rules.claim_ttl_ms) {
            (0, 0) => prune,
            // Due at the first instant later than that, as MediaWiki has it.
            (0, ttl) => at.plus_ms(ttl).plus_ms(1),
            (ttr, _) => at.plus_ms(ttr),
        };
        let last = rules.max_tries > 0 && job.story().attempts + 1 >= rules.max_tries;
        Outcome::Claimed {
            slot,
            until,
            prune: if last { prune } else { Timestamp(0) },
            passing: rules.max_tries == 0 && matches!(by, Claimant::Worker(_)),
        }
    }

    /// The job that is claimed by this right.
    fn claimed(&self, id: u64, by: Right) -> Result<(Slot, &Job), Outcome> {
        let (slot, job) = self.state.find(id).ok_or(Outcome::Absent)?;
        let story = job.story();
        let claimed = job.phase == Phase::Claimed;
        match by {
            Right::Worker(worker) if claimed && story.worker == Some(worker) => Ok((slot, job)),
            Right::Token(token) if claimed && story.token == token => Ok((slot, job)),
            Right::Token(_) => Err(Outcome::Refused(Refused::StaleToken)),
            Right::Worker(_) | Right::Unclaimed => Err(Outcome::Absent),
        }
    }

    fn decide_delete(&self, id: u64, by: Right) -> Outcome {
        let found = self.state.find(id);
        match (self.claimed(id, by), found, by) {
            (Ok((slot, _)), ..) => Outcome::Deleted { slot },
            (Err(_), Some((slot, job)), Right::Worker(_) | Right::Unclaimed)
                if job.phase != Phase::Claimed =>
            {
                Outcome::Deleted { slot }
            }
            (Err(outcome), ..) => outcome,
        }
    }

    fn decide_touch(&self, at: Timestamp, id: u64, by: Right) -> Outcome {
        let (slot, job) = match self.claimed(id, by) {
            Ok(claimed) => claimed,
            Err(outcome) => return outcome,
        };
        let claimant = job
            .story()
            .worker
            .map_or(Claimant::Bearer, Claimant::Worker);
        match self.claim(at, slot, claimant) {
            Outcome::Claimed {
                slot,
                until,
                passing,
                ..
            } => Outcome::Touched {
                slot,
                until,
                passing,
            },
            outcome => outcome,
        }
    }

    fn decide_fail(&self, at: Timestamp, id: u64, by: Right, retry: Option<u64>) -> Outcome {
        match self.claimed(id, by) {
            Ok((slot, job)) => {
                let left = self.state.deadline_of(slot).unwrap_or(job.story().until);
                let until = retry.map_or(left, |ms| at.plus_ms(ms));
                Outcome::Failed { slot, until }
            }
            Err(outcome) => outcome,
        }
    }

    fn decide_kick(&self, queue: &QueueName, count: u32) -> Outcome {
        let Some((_, queue)) = self.state.queue_named(queue) else {
            return Outcome::Absent;
        };
        let (buried, delayed) = (queue.buried.len(), queue.delayed.len());
        let there = if buried > 0 { buried } else { delayed };
        let count = count.min(u32::try_from(there).unwrap_or(u32::MAX));
        if count == 0 {
            return Outcome::Absent;
        }
        Outcome::Kicked {
            buried: buried > 0,
            count,
        }
    }

    fn decide_pause(&self, at: Timestamp, queue: &QueueName, ms: u64) -> Outcome {
        if self.state.queue_named(queue).is_none() {
            return Outcome::Absent;
        }
        Outcome::Paused {
            until: after(at, ms),
        }
    }

    fn decide_depart(&self, worker: Worker) -> Outcome {
        let (mut back, mut abandoned) = (Vec::new(), Vec::new());
        for slot in self.state.claims(worker) {
            let last = self
                .state
                .job(slot)
                .is_some_and(|job| job.story().prune != Timestamp(0));
            if last { &mut abandoned } else { &mut back }.push(slot);
        }
        if back.is_empty() && abandoned.is_empty() {
            Outcome::Absent
        } else {
            Outcome::Departed { back, abandoned }
        }
    }

    fn decide_expire(&self, slot: Slot) -> Outcome {
        let Some(job) = self.state.job(slot) else {
            return Outcome::Absent;
        };
        let rules = self.rules.of(&self.state.queue(job.queue).name);
        let story = job.story();
        match job.phase {
            Phase::Delayed => Outcome::Ready { slot },
            Phase::Claimed if story.prune != Timestamp(0) => Outcome::Abandoned { slot },
            Phase::Claimed if job.ttr_ms == 0 && rules.claim_ttl_ms == 0 => {
                Outcome::Pruned { slot }
            }
            Phase::Claimed => Outcome::TimedOut { slot },
            Phase::Abandoned => Outcome::Pruned { slot },
            Phase::Ready | Phase::Buried => Outcome::Absent,
        }
    }

    fn commit_claim(&mut self, slot: Slot, stamp: Stamp, by: Claimant, outcome: &Outcome) {
        let Outcome::Claimed { until, prune, .. } = *outcome else {
            unreachable!("only a claim is committed as one")
        };
        self.state.change(slot, stamp.seq, |job| {
            job.phase = Phase::Claimed;
            let story = job.story_mut();
            story.since = stamp.at;
            story.until = until;
            story.prune = prune;
            story.token = stamp.seq.into();
            story.worker = match by {
                Claimant::Worker(worker) => Some(worker),
                Claimant::Bearer => None,
            };
            story.attempts = story.attempts.saturating_add(1);
            story.reserves = story.reserves.saturating_add(1);
        });
    }

    fn commit_release(&mut self, slot: Slot, stamp: Stamp, until: Timestamp, message: &Message) {
        let Message::Release {
            priority, delay_ms, ..
        } = message
        else {
            unreachable!("only a release gives a job back so")
        };
        self.state.change(slot, stamp.seq, |job| {
            job.priority = priority.unwrap_or(job.priority);
            let story = job.story_mut();
            end_claim(story, stamp.at);
            story.releases = story.releases.saturating_add(1);
            story.delay_ms = *delay_ms;
            story.until = until;
            job.phase = if until == Timestamp(0) {
                Phase::Ready
            } else {
                Phase::Delayed
            };
        });
    }

    fn commit_bury(&mut self, slot: Slot, stamp: Stamp, message: &Message) {
        let Message::Bury { priority, .. } = message else {
            unreachable!("only a burial buries")
        };
        self.state.change(slot, stamp.seq, |job| {
            job.priority = priority.unwrap_or(job.priority);
            let story = job.story_mut();
            end_claim(story, stamp.at);
            story.buries = story.buries.saturating_add(1);
            story.buried = stamp.seq;
            job.phase = Phase::Buried;
        });
    }

    fn commit_kick(&mut self, stamp: Stamp, message: &Message, buried: bool, count: u32) {
        let Message::Kick { queue, .. } = message else {
            unreachable!("only a kick kicks")
        };
        let Some((_, queue)) = self.state.queue_named(queue) else {
            unreachable!("a queue with jobs is there")
        };
        let count = count as usize;
        let slots: Vec<Slot> = if buried {
            queue
                .buried
                .iter()
                .take(count)
                .map(|(_, _, slot)| *slot)
                .collect()
        } else {
            queue
                .delayed
                .iter()
                .take(count)
                .map(|(_, _, slot)| *slot)
                .collect()
        };
        for slot in slots {
            self.kick(slot, stamp);
        }
    }

    fn kick(&mut self, slot: Slot, stamp: Stamp) {
        self.state.change(slot, stamp.seq, |job| {
            let story = job.story_mut();
            end_claim(story, stamp.at);
            story.kicks = story.kicks.saturating_add(1);
            story.attempts = 0;
            job.phase = Phase::Ready;
        });
    }

    fn commit_touch(&mut self, slot: Slot, stamp: Stamp, until: Timestamp) {
        self.state.change(slot, stamp.seq, |job| {
            let story = job.story_mut();
            story.since = stamp.at;
            story.until = until;
        });
    }

    /// A failed job keeps its phase, and belongs to nobody.
    fn commit_fail(&mut self, slot: Slot, stamp: Stamp, until: Timestamp) {
        self.state.change(slot, stamp.seq, |job| {
            let story = job.story_mut();
            let prune = story.prune;
            end_claim(story, stamp.at);
            (story.until, story.prune) = (until, prune);
        });
    }

    fn commit_ready(&mut self, slot: Slot, stamp: Stamp) {
        self.state.change(slot, stamp.seq, |job| {
            job.phase = Phase::Ready;
            end_claim(job.story_mut(), stamp.at);
        });
    }

    fn commit_time_out(&mut self, slot: Slot, stamp: Stamp) {
        self.state.totals.timeouts += 1;
        self.state.change(slot, stamp.seq, |job| {
            let story = job.story_mut();
            story.timeouts = story.timeouts.saturating_add(1);
        });
        self.state.give_back(slot, stamp);
    }

    fn commit_pause(&mut self, stamp: Stamp, message: &Message, until: Timestamp) {
        let (Message::Pause { queue, .. } | Message::Unpause { queue }) = message else {
            unreachable!("only a pause begins or ends one")
        };
        let pause = (until != Timestamp(0)).then_some(Pause {
            since: stamp.at,
            until,
        });
        if matches!(message, Message::Pause { .. }) {
            let slot = self.state.queue_for(queue);
            self.state.attend(slot, |queue| queue.pauses += 1);
        }
        self.state.pause(queue, stamp, pause);
    }

    fn commit_flush(&mut self, stamp: Stamp, message: &Message) {
        let Message::Flush { queue } = message else {
            unreachable!("only a flush flushes")
        };
        let Some((queue, _)) = self.state.queue_named(queue) else {
            unreachable!("a queue with jobs is there")
        };
        let all = self.state.jobs.iter();
        let of_queue = all.filter(|(_, job)| job.queue == queue);
        let slots: Vec<Slot> = of_queue.map(|(slot, _)| slot).collect();
        for slot in slots {
            self.state.delete(slot, stamp.seq);
        }
    }

    fn item_of(&mut self, at: Timestamp) -> Option<u64> {
        let (jobs, epoch) = (&self.state.jobs, self.state.head.epoch);
        let deadline = |slot| {
            let job: Option<&Job> = jobs.get(slot);
            job.and_then(|job| job.deadline(epoch)).unwrap_or_default()
        };
        let job = self.state.wheel.due(at, deadline);
        let job = job.map(|slot| (deadline(slot), u64::from(slot.0)));
        let pause = self.state.pause_ends().filter(|(until, _)| *until <= at);
        let pause = pause.map(|(until, slot)| (until, QUEUE | u64::from(slot.0)));
        let timed = job.into_iter().chain(pause).min();
        timed
            .map(|(_, item)| item)
            .or_else(|| self.state.wanted().map(|ticket| WAITER | ticket.0))
    }
}

/// The moment so much later; zero if that is at once.
fn after(at: Timestamp, ms: u64) -> Timestamp {
    if ms == 0 {
        Timestamp(0)
    } else {
        at.plus_ms(ms)
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
    type View = View;
    type Page = Page;

    fn new(rules: Rules) -> Self {
        Self {
            state: State::new(rules.clone()),
            rules,
            waiting: Waiting::default(),
        }
    }

    fn decide(&self, at: Timestamp, message: &Message) -> Outcome {
        match message {
            Message::Put(put) => self.decide_put(at, put),
            Message::Spoil => Outcome::Spoiled {
                id: self.state.head.next_id,
            },
            Message::Pop(pop) => self.decide_pop(at, pop),
            Message::PopJob { id, by } => self.decide_pop_job(at, *id, *by),
            Message::Delete { id, by } => self.decide_delete(*id, *by),
            Message::Release {
                id, by, delay_ms, ..
            } => match self.claimed(*id, *by) {
                Ok((slot, _)) => Outcome::Released {
                    slot,
                    until: after(at, *delay_ms),
                },
                Err(outcome) => outcome,
            },
            Message::Bury { id, by, .. } => match self.claimed(*id, *by) {
                Ok((slot, _)) => Outcome::Buried { slot },
                Err(outcome) => outcome,
            },
            Message::Touch { id, by } => self.decide_touch(at, *id, *by),
            Message::Fail {
                id,
                by,
                retry_after_ms,
            } => self.decide_fail(at, *id, *by, *retry_after_ms),
            Message::Kick { queue, count } => self.decide_kick(queue, *count),
            Message::KickJob { id } => match self.state.find(*id) {
                Some((slot, job))
                    if matches!(job.phase, Phase::Buried | Phase::Abandoned | Phase::Delayed) =>
                {
                    Outcome::KickedJob { slot }
                }
                Some(_) | None => Outcome::Absent,
            },
            Message::Pause { queue, ms } => self.decide_pause(at, queue, *ms),
            Message::Unpause { .. } => Outcome::Paused {
                until: Timestamp(0),
            },
            Message::Flush { queue } => match self.state.queue_named(queue) {
                Some((_, queue)) if queue.counts.all() > 0 => Outcome::Flushed {
                    count: queue.counts.all(),
                },
                Some(_) | None => Outcome::Absent,
            },
            Message::Depart { worker } => self.decide_depart(*worker),
            Message::Expire { slot } => self.decide_expire(*slot),
            Message::Drain if self.state.head.draining => Outcome::Absent,
            Message::Drain => Outcome::Draining,
        }
    }

    fn keeping(outcome: &Outcome) -> Keeping {
        match outcome {
            Outcome::Claimed { passing: true, .. }
            | Outcome::Touched { passing: true, .. }
            | Outcome::Spoiled { .. }
            | Outcome::Ready { .. }
            | Outcome::TimedOut { .. } => Keeping::Passing,
            Outcome::Departed { abandoned, .. } if abandoned.is_empty() => Keeping::Passing,
            Outcome::Duplicate { .. } | Outcome::Absent | Outcome::Refused(_) => Keeping::Nothing,
            Outcome::Put { .. }
            | Outcome::Claimed { .. }
            | Outcome::Touched { .. }
            | Outcome::Deleted { .. }
            | Outcome::Released { .. }
            | Outcome::Buried { .. }
            | Outcome::Failed { .. }
            | Outcome::Kicked { .. }
            | Outcome::KickedJob { .. }
            | Outcome::Paused { .. }
            | Outcome::Flushed { .. }
            | Outcome::Departed { .. }
            | Outcome::Abandoned { .. }
            | Outcome::Pruned { .. }
            | Outcome::Draining => Keeping::Durable,
        }
    }

    fn commit(
        &mut self,
        entry: Stamp,
        message: &Message,
        outcome: &Outcome,
        effects: &mut Effects<Reply>,
    ) {
        match outcome {
            Outcome::Put { id, slot, until } => {
                let Message::Put(put) = message else {
                    unreachable!("only a put adds a job")
                };
                self.state.put(*slot, entry, put, (*id, *until));
            }
            Outcome::Spoiled { id } => {
                self.state.touch(Place::Head, entry.seq);
                self.state.head.next_id = self.state.head.next_id.max(id + 1);
            }
            Outcome::Claimed { slot, .. } => {
                let (by, ticket) = match message {
                    Message::Pop(pop) => (pop.by, pop.ticket),
                    Message::PopJob { by, .. } => (*by, None),
                    other => unreachable!("{other:?} claims nothing"),
                };
                self.commit_claim(*slot, entry, by, outcome);
                if let Some(ticket) = ticket
                    && self.waiting.pop(ticket).is_some()
                {
                    self.waiting.forget(&mut self.state, ticket);
                    effects.wake(ticket, self.claim_reply(*slot));
                }
            }
            Outcome::Touched { slot, until, .. } => self.commit_touch(*slot, entry, *until),
            Outcome::Deleted { slot } | Outcome::Pruned { slot } => {
                self.state.delete(*slot, entry.seq);
            }
            Outcome::Released { slot, until } => self.commit_release(*slot, entry, *until, message),
            Outcome::Buried { slot } => self.commit_bury(*slot, entry, message),
            Outcome::Failed { slot, until } => self.commit_fail(*slot, entry, *until),
            Outcome::Kicked { buried, count } => self.commit_kick(entry, message, *buried, *count),
            Outcome::KickedJob { slot } => self.kick(*slot, entry),
            Outcome::Paused { until } => self.commit_pause(entry, message, *until),
            Outcome::Flushed { .. } => self.commit_flush(entry, message),
            Outcome::Departed { back, abandoned } => {
                for slot in back.iter().chain(abandoned) {
                    self.state.give_back(*slot, entry);
                }
            }
            Outcome::Ready { slot } => self.commit_ready(*slot, entry),
            Outcome::TimedOut { slot } | Outcome::Abandoned { slot } => {
                self.commit_time_out(*slot, entry);
            }
            Outcome::Draining => {
                self.state.touch(Place::Head, entry.seq);
                self.state.head.draining = true;
                self.state.totals.draining = true;
            }
            Outcome::Duplicate { .. } | Outcome::Absent | Outcome::Refused(_) => {}
        }
    }

    fn reply(&self, _seq: Seq, message: &Message, outcome: &Outcome) -> Reply {
        match outcome {
            Outcome::Put { id, .. } => Reply::Put {
                id: *id,
                duplicate: None,
            },
            Outcome::Duplicate { slot } => {
                let job = self.state.job(*slot);
                Reply::Put {
                    id: job.map_or(0, |job| job.id),
                    duplicate: job.map(|job| job.phase),
                }
            }
            Outcome::Claimed { slot, .. } => self.claim_reply(*slot),
            Outcome::Kicked { count, .. } | Outcome::Flushed { count } => Reply::Count(*count),
            Outcome::Touched { .. }
            | Outcome::Deleted { .. }
            | Outcome::Released { .. }
            | Outcome::Buried { .. }
            | Outcome::Failed { .. }
            | Outcome::KickedJob { .. }
            | Outcome::Paused { .. }
            | Outcome::Departed { .. }
            | Outcome::Ready { .. }
            | Outcome::TimedOut { .. }
            | Outcome::Abandoned { .. }
            | Outcome::Pruned { .. }
            | Outcome::Spoiled { .. }
            | Outcome::Draining => Reply::Done,
            Outcome::Absent => match message {
                Message::Pop(pop) => self.nothing(pop),
                Message::Kick { .. } | Message::Flush { .. } => Reply::Count(0),
                _ => Reply::Absent,
            },
            Outcome::Refused(refused) => Reply::Refused(*refused),
        }
    }

    fn holds_up(reply: &Reply) -> bool {
        matches!(reply, Reply::Nothing { waits: true, .. })
    }

    fn query(&self, _at: Timestamp, query: &Query) -> Reply {
        self.look(query)
    }

    fn weight(&self, message: &Message) -> Weight {
        match message {
            Message::Put(_) => Weight::Adds,
            Message::Pop(_)
            | Message::PopJob { .. }
            | Message::Spoil
            | Message::Touch { .. }
            | Message::Kick { .. }
            | Message::KickJob { .. }
            | Message::Pause { .. } => Weight::Keeps,
            Message::Delete { .. }
            | Message::Release { .. }
            | Message::Bury { .. }
            | Message::Fail { .. }
            | Message::Flush { .. }
            | Message::Depart { .. }
            | Message::Expire { .. }
            | Message::Unpause { .. }
            | Message::Drain => Weight::Frees,
        }
    }

    fn refuse(_message: &Message, refusal: Refusal) -> Reply {
        Reply::Refused(refusal.into())
    }

    fn deadline(&self) -> Option<Timestamp> {
        if self.state.is_wanted() {
            return Some(Timestamp(0));
        }
        let pause = self.state.pause_ends().map(|(until, _)| until);
        self.state.wheel.deadline().into_iter().chain(pause).min()
    }

    fn due(&mut self, at: Timestamp) -> Option<u64> {
        self.item_of(at)
    }

    fn tick(&self, item: u64) -> Message {
        let slot = || Slot(u32::try_from(item & !KINDS).expect("items are slots"));
        match item & KINDS {
            WAITER => {
                let pop = self.waiting.pop(Ticket(item & !KINDS));
                Message::Pop(pop.expect("who is waited for waits").clone())
            }
            QUEUE => Message::Unpause {
                queue: self.state.queue(slot()).name.clone(),
            },
            _ => Message::Expire { slot: slot() },
        }
    }

    fn quarantine(&mut self, item: u64, at: Timestamp) {
        match item & KINDS {
            WAITER => self.waiting.forget(&mut self.state, Ticket(item & !KINDS)),
            QUEUE => self
                .state
                .forget_pause(Slot(u32::try_from(item & !KINDS).unwrap_or(0))),
            _ => self
                .state
                .forget_deadline(Slot(u32::try_from(item).unwrap_or(u32::MAX)), at),
        }
    }

    fn watch(&mut self, ticket: Ticket, watch: &Watch, _effects: &mut Effects<Reply>) {
        self.waiting.watch(&mut self.state, ticket, watch);
    }

    fn unwatch(&mut self, ticket: Ticket) {
        self.waiting.forget(&mut self.state, ticket);
    }

    fn start(&mut self, start: Start) {
        self.state.start(start);
    }

    fn resume(&mut self, _effects: &mut Effects<Reply>) {}

    fn pages(&mut self) -> &mut Pages {
        &mut self.state.pages
    }

    fn encode_page(&self, page: PageId, content: &mut Vec<u8>) {
        let state = &self.state;
        let slabs = (&state.jobs, &state.queues, &state.numbers);
        pages::encode(page, state.head, slabs, content);
    }

    fn decode_page(page: PageId, content: &[u8]) -> Result<Page, String> {
        pages::decode(page, content)
    }

    fn from_pages(rules: Rules, pages: Vec<Page>) -> Self {
        Self {
            state: State::from_pages(rules.clone(), pages),
            rules,
            waiting: Waiting::default(),
        }
    }

    fn digest(&self) -> Digest {
        let mut digest = self.state.digest;
        digest.add(&self.state.head.canonical());
        digest
    }

    fn view(&self) -> View {
        self.show()
    }
}

/// The token of a claim that there is none of.
pub(super) fn shown(token: Token) -> Option<Token> {
    Some(token).filter(|token| *token != Token(0))
}
