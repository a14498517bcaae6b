//! The model of queues as a reference: the required content of the log, of answers to clients, and what may be lost.

#![expect(clippy::wildcard_enum_match_arm, reason = "each rule names its messages")]

use crate::coverage::Coverage;
use crate::each::Judged;
use crate::jobs::Jobs;
use crate::queues::kinds::{
    JOBS_MAX, claim_passes, in_memory, is_in_memory, is_throttled, names, rules_of,
};
use crate::queues::model::{Due, Entry, Model};
use crate::reference::{AnsweredMessages, Origin, Reference};
use sexton::actors::queue::{
    Claimant, JobView, Message, Outcome, Phase, Pop, Query, QueueMachine, QueueName, Refused,
    Reply, Right, Rules, SharedRules, Watch,
};
use sexton::clock::{Offset, Timestamp};
use sexton::ids::Seq;
use sexton::persist::mark::Marked;
use sexton::spine::delivery::Answer;
use sexton::spine::machine::Observable as _;
use sexton::spine::machine::{Stamp, Start};
use std::collections::BTreeSet;

/// Queues, according to the model.
#[derive(Clone)]
pub(crate) struct Queues {
    model: Model,
    /// Every id that any job had.
    seen: BTreeSet<u64>,
    /// The last claim of a waiting client: its request and its reply.
    woken: Option<(Pop, Reply)>,
}

impl Default for Queues {
    fn default() -> Self {
        Self { model: Model::new(Queues::rules()), seen: BTreeSet::new(), woken: None }
    }
}

impl Queues {
    fn find(&self, id: u64) -> Option<&Entry> {
        self.model.jobs.iter().find(|job| job.view.id == id)
    }

    fn found(&self, id: Option<u64>) -> Reply {
        let job = id.and_then(|id| self.find(id));
        job.map_or(Reply::Absent, |job| Reply::Found(job.view.id, job.body.clone()))
    }

    fn tick(&mut self, at: Timestamp, message: &Message) -> Result<(), String> {
        let acted = match message {
            Message::Expire { slot } => Due::Job(*slot),
            Message::Unpause { queue } => Due::Pause(queue.clone()),
            Message::Forget { slot } => Due::Root(*slot),
            Message::DropResult { slot } => Due::Result(*slot),
            Message::ForgetKey { slot } => Due::Key(*slot),
            _ => unreachable!("only time ticks"),
        };
        let due = self.model.next_due(at);
        if due.as_ref() != Some(&acted) {
            return Err(format!("time acted on {acted:?}, but {due:?} is due"));
        }
        self.model.tick(&acted);
        Ok(())
    }
}

impl Judged for QueueMachine {
    type Reference = Queues;
}

impl Reference for Queues {
    const CALLS: u64 = 150;
    const WATCHES: u64 = 7;
    const TURNS: u64 = 170;

    type Clients = Jobs;
    type Machine = QueueMachine;

    fn rules() -> Rules {
        let types = names().map(|name| {
            let text = String::from_utf8(name.as_bytes().to_vec()).expect("names are text");
            (text, rules_of(&name))
        });
        Rules {
            jobs_max: JOBS_MAX,
            default: rules_of(&QueueName::parse(b"any").expect("a valid name")),
            types: types.into(),
            across: SharedRules { part: 3, ..SharedRules::default() },
            ..Rules::default()
        }
    }

    fn apply(
        &mut self,
        stamp: Stamp,
        message: &Message,
        (outcome, reply): (&Outcome, &Reply),
    ) -> Result<(), String> {
        self.woken = None;
        self.model.open(stamp.at);
        // The messages that the process actor would get are discarded: their effects on claims are checked instead.
        self.model.told.clear();
        if let Message::Expire { .. }
        | Message::Unpause { .. }
        | Message::Forget { .. }
        | Message::DropResult { .. }
        | Message::ForgetKey { .. } = message
        {
            return self.tick(stamp.at, message);
        }
        if let Some(due) = self.due(stamp.at) {
            return Err(format!("it was ordered before {due}, which was due"));
        }
        self.model.chosen = match reply {
            Reply::Claim(claim) => Some(claim.id),
            _ => None,
        };
        self.model.parked = match outcome {
            Outcome::Deferred { until, .. } => Some(*until),
            _ => None,
        };
        let right = self.model.message(message, (stamp.seq, stamp.at));
        if right != *reply || !Self::changes(reply) {
            return Err(format!("{reply:?}, expected {right:?}"));
        }
        if let Outcome::Put { slot, job } = outcome
            && self.find(job.id).is_none_or(|it| it.slot != *slot)
        {
            return Err(format!("{slot:?} is not the lowest free slot"));
        }
        self.seen.extend(self.model.jobs.iter().map(|job| job.view.id));
        if let Message::Pop(pop) = message
            && pop.ticket.is_some()
        {
            self.woken = Some((pop.clone(), right));
        }
        Ok(())
    }

    fn apply_marks(&mut self, marked: &Marked) {
        self.model.offset = Offset(marked.offset_ms);
        self.model.held = marked.believed.is_some();
    }

    fn start(&mut self, Start { stamp, skipped }: Start) {
        self.woken = None;
        self.model.start(stamp.at, skipped);
    }

    fn poisoned(&mut self, message: &Message) {
        let Model { jobs, pauses, results, keys, .. } = &mut self.model;
        match message {
            Message::Expire { slot } => {
                for job in jobs.iter_mut().filter(|job| job.slot == *slot) {
                    job.quarantined = true;
                }
            }
            Message::Unpause { queue } => {
                for pause in pauses.iter_mut().filter(|pause| pause.queue == *queue) {
                    pause.quarantined = true;
                }
            }
            Message::DropResult { slot } => {
                if let Some(Some(kept)) = results.get_mut(slot.index()) {
                    kept.quarantined = true;
                }
            }
            Message::ForgetKey { slot } => {
                if let Some(Some(known)) = keys.get_mut(slot.index()) {
                    known.quarantined = true;
                }
            }
            _ => {}
        }
    }

    fn due(&self, at: Timestamp) -> Option<String> {
        self.model.next_due(at).map(|due| format!("{due:?}"))
    }

    /// A throttled queue opens again as time passes, without an entry. So "nothing to claim" counts as right if it was
    /// right after the last entry. That queues open at all is checked when a run has settled.
    fn without_change(&self, message: &Message) -> Option<Reply> {
        let mut model = self.model.clone();
        (model.chosen, model.parked) = (None, None);
        let reply = model.message(message, (Seq(0), Timestamp(0)));
        (!Self::changes(&reply)).then_some(reply)
    }

    fn answer(&self, query: &Query) -> Answer<Reply> {
        Ok(match query {
            Query::Peek { id } => self.found(Some(*id)),
            Query::PeekNext { queue, phase } => match phase {
                Phase::Ready | Phase::Delayed | Phase::Buried => {
                    self.found(self.model.kickable(queue, *phase).first().copied())
                }
                Phase::Claimed | Phase::Abandoned | Phase::Retrying | Phase::Quarantined => {
                    Reply::Absent
                }
            },
            Query::Job { id } => self
                .find(*id)
                .map_or(Reply::Absent, |job| Reply::Job(Box::new(self.model.shown(job)))),
            Query::Result { id } => self.model.result(*id),
            Query::Queue { .. }
            | Query::Totals
            | Query::Queues { .. }
            | Query::SelectJobs(_)
            | Query::SelectQueues(_)
            | Query::Busiest { .. }
            | Query::Next(_) => {
                unreachable!("clients query neither volatile state nor pages")
            }
        })
    }

    fn agrees(&self, machine: &QueueMachine) -> Result<(), String> {
        let view = machine.view();
        let mut mine: Vec<&JobView> = self.model.jobs.iter().map(|job| &job.view).collect();
        mine.sort_by_key(|job| job.id);
        if view.jobs.iter().ne(mine.iter().copied()) {
            return Err(format!("jobs are {:?}, expected {mine:?}", view.jobs));
        }
        if (view.next_id, view.totals.draining) != (self.model.next_id, self.model.draining) {
            let (next, draining) = (view.next_id, view.totals.draining);
            return Err(format!("the next is {next}, and draining is {draining}"));
        }
        let mut mine: Vec<_> = self.model.results.iter().flatten().collect();
        mine.sort_by_key(|kept| kept.result.id);
        if view.results.iter().ne(mine.iter().map(|kept| &kept.result)) {
            return Err(format!("results are {:?}, not {mine:?}", view.results));
        }
        let mut mine: Vec<_> = self.model.keys.iter().flatten().map(|it| &it.key).collect();
        mine.sort_by_key(|known| known.id);
        if view.keys.iter().ne(mine.iter().copied()) {
            return Err(format!("keys are {:?}, not {mine:?}", view.keys));
        }
        let paused = view.queues.iter();
        let paused = paused.filter_map(|queue| Some((&queue.name, queue.paused_until?)));
        let mine = self.model.pauses.iter();
        let mine: BTreeSet<_> = mine.map(|pause| (&pause.queue, pause.until)).collect();
        if paused.clone().ne(mine.iter().copied()) {
            let paused: Vec<_> = paused.collect();
            return Err(format!("{paused:?}, expected {mine:?}"));
        }
        Ok(())
    }

    fn origin(message: &Message) -> Origin {
        match message {
            Message::Expire { .. }
            | Message::Unpause { .. }
            | Message::Forget { .. }
            | Message::DropResult { .. }
            | Message::ForgetKey { .. }
            | Message::Pop(Pop { ticket: Some(_), .. }) => Origin::Tick,
            Message::Gone(_) => Origin::Tell,
            _ => Origin::Client,
        }
    }

    fn changes(reply: &Reply) -> bool {
        match reply {
            Reply::Put { duplicate, .. } => duplicate.is_none(),
            Reply::Count(count) => *count > 0,
            Reply::Batch(_) | Reply::Claim(_) | Reply::Done | Reply::Abandoned => true,
            Reply::Nothing { .. }
            | Reply::Absent
            | Reply::Refused(_)
            | Reply::ReadOnly(_)
            | Reply::Found(..)
            | Reply::Job(_)
            | Reply::Queue(_)
            | Reply::Result(_)
            | Reply::Remembered { .. }
            | Reply::Totals(_)
            | Reply::Queues { .. }
            | Reply::JobPage { .. }
            | Reply::QueuePage { .. }
            | Reply::Busiest { .. }
            | Reply::Chosen { .. } => false,
        }
    }

    fn wakes(&self, watch: &Watch) -> Option<Reply> {
        let (Watch::Job(wanted), Some((pop, reply))) = (watch, &self.woken) else {
            return None;
        };
        let is_it =
            (&pop.queues, &pop.weights, pop.by) == (&wanted.queues, &wanted.weights, wanted.by);
        is_it.then(|| reply.clone())
    }

    /// Decision 0011: passing changes are claims and touches by connections while tries are not limited, the return of
    /// their jobs, and all changes of jobs that are kept in memory.
    fn may_pass<'a>(
        (message, reply): (&Message, &Reply),
        told: impl Fn() -> AnsweredMessages<'a, Self>,
    ) -> bool {
        let is_in_memory_by_id = |id: u64| told().any(|it| in_memory(it).contains(&id));
        match (message, reply) {
            (_, reply) if !Self::changes(reply) => true,
            // The key of an earlier put may outlive its job, so a put with a key or a group is not passing.
            (Message::Put(put), _) => {
                let is_single_threaded = put.registers().is_none() && put.unique_for_ms == 0;
                is_in_memory(&put.queue) && is_single_threaded
            }
            (Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. }, Reply::Claim(claim)) => {
                claim_passes(*by, claim)
            }
            (Message::Spoil | Message::Depart { .. } | Message::Report { .. }, _) => true,
            // The claim of a client that waited is not among the answers to calls, so it cannot be found there.
            (Message::Touch { id, by }, _) => {
                // What others claimed the job with before says nothing about this claim.
                let claimant = match by {
                    Right::Worker(worker) => Some(Claimant::Worker(*worker)),
                    Right::Token(_) | Right::Unclaimed => None,
                };
                let is_counted = |told: (&Message, &Reply)| match told {
                    (
                        Message::Pop(Pop { by, .. }) | Message::PopJob { by, .. },
                        Reply::Claim(claim),
                    ) => Some(*by) == claimant && claim.id == *id && !claim_passes(*by, claim),
                    _ => false,
                };
                claimant.is_some() && !told().any(is_counted) || is_in_memory_by_id(*id)
            }
            (Message::KeepResult(keep), _) => is_in_memory_by_id(keep.id),
            (
                Message::Delete { id, .. }
                | Message::Release { id, .. }
                | Message::Bury { id, .. }
                | Message::Fail { id, .. }
                | Message::Bind { id, .. }
                | Message::Defer { id, .. }
                | Message::Cancel { id, .. }
                | Message::KickJob { id },
                _,
            ) => is_in_memory_by_id(*id),
            _ => false,
        }
    }

    fn may_wake_pass(watch: &Watch, reply: &Reply) -> bool {
        match (watch, reply) {
            (Watch::Job(pop), Reply::Claim(claim)) => claim_passes(pop.by, claim),
            _ => false,
        }
    }

    /// A claim must not show a job whose put is not durable.
    fn has_seen(&self, reply: &Reply) -> bool {
        match reply {
            Reply::Claim(claim) => is_in_memory(&claim.queue) || self.seen.contains(&claim.id),
            _ => true,
        }
    }

    fn count(message: &Message, outcome: &Outcome, counted: &mut Coverage) {
        let waited = matches!(message, Message::Pop(pop) if pop.ticket.is_some());
        if let (Message::Pop(pop), Outcome::Claimed { .. }) = (message, outcome) {
            counted.claims_throttled += u64::from(pop.queues.iter().all(is_throttled));
        }
        match outcome {
            Outcome::Put { .. } => counted.jobs_put += 1,
            Outcome::Batch { .. } => counted.batches += 1,
            Outcome::Registered { .. } => counted.roots_registered += 1,
            Outcome::Claimed { .. } if waited => counted.claims_waited_for += 1,
            Outcome::Claimed { .. } => counted.claims += 1,
            Outcome::Touched { .. } => counted.touches += 1,
            Outcome::Deleted { .. } => counted.deletes += 1,
            Outcome::Released { .. } => counted.jobs_released += 1,
            Outcome::Buried { .. } => counted.burials += 1,
            Outcome::Failed { .. } => counted.failures += 1,
            Outcome::Kicked { .. } | Outcome::KickedJob { .. } => counted.kicks += 1,
            Outcome::KickedPart { .. } | Outcome::FlushedPart { .. } => counted.parts += 1,
            Outcome::Paused { .. } => counted.pauses += 1,
            Outcome::Flushed { .. } => counted.flushes += 1,
            Outcome::ClaimsEnded { .. } => counted.claims_ended_with_process += 1,
            Outcome::Attached { .. } => counted.claims_attached += 1,
            Outcome::Quarantined { .. } => counted.jobs_quarantined += 1,
            Outcome::Departed { .. } => counted.departures += 1,
            Outcome::Fenced { .. } => counted.claims_fenced += 1,
            Outcome::Deferred { .. } => counted.jobs_deferred += 1,
            Outcome::Cancelled { .. } => counted.jobs_cancelled += 1,
            Outcome::Reported { .. } => counted.reports += 1,
            Outcome::ResultKept { .. } => counted.results_kept += 1,
            Outcome::KeyForgotten { .. } => counted.keys_forgotten += 1,
            Outcome::Ready { .. } => counted.delays_over += 1,
            Outcome::TimedOut { .. } => counted.claims_over += 1,
            Outcome::Abandoned { .. } => counted.jobs_abandoned += 1,
            Outcome::Pruned { .. } => counted.jobs_pruned += 1,
            Outcome::Spoiled { .. }
            | Outcome::Forgotten { .. }
            | Outcome::ResultDropped { .. }
            | Outcome::Remembered { .. }
            | Outcome::Draining
            | Outcome::Duplicate { .. }
            | Outcome::Absent
            | Outcome::Refused(_) => {}
        }
    }

    fn may_be_refused(message: &Message) -> bool {
        matches!(
            message,
            Message::Put(_)
                | Message::Batch(_)
                | Message::Register(_)
                | Message::Pop(_)
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
                | Message::Pause { .. }
        )
    }

    fn is_disk_full(reply: &Reply) -> bool {
        *reply == Reply::Refused(Refused::DiskFull)
    }
}
