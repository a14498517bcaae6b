//! Queries about jobs and queues, and the reply to a claim.

use crate::actors::queue::job::{Job, nonzero};
use crate::actors::queue::machine::QueueMachine;
use crate::actors::queue::message::{Message, Pop};
use crate::actors::queue::reply::{Claim, JobView, Query, QueueView, Reply, Totals, View};
use crate::actors::queue::right::Claimant;
use crate::clock::{Offset, Timestamp};
use crate::ids::Slot;
use sexton_api::queue::Phase;
use sexton_api::queue::QueueName;
use std::cmp::Ordering;

impl QueueMachine {
    /// Returns the reply to the client that claimed this job.
    pub(super) fn claim_reply(&self, slot: Slot) -> Reply {
        let job = self.state.job(slot).expect("a claimed job should exist");
        let details = job.details();
        Reply::Claim(Box::new(Claim {
            id: job.id,
            token: details.token,
            queue: self.state.queue_of(job).name.clone(),
            attempts: details.attempts,
            until: details.until,
            retries: job.retries,
            duplicate: self.state.is_duplicate(job),
            body: job.body().clone(),
        }))
    }

    /// Returns the reply to a message whose outcome is `Absent`.
    pub(super) fn absent(&self, message: &Message) -> Reply {
        if let Message::Pop(pop) = message {
            return self.nothing(pop);
        }
        if let Message::Kick { .. } | Message::Repush { .. } | Message::Flush { .. } = message {
            return Reply::Count(0);
        }
        Reply::Absent
    }

    fn nothing(&self, pop: &Pop) -> Reply {
        Reply::Nothing {
            waits: pop.waits,
            soonest: match pop.by {
                Claimant::Worker(worker) => self.state.soonest(worker),
                Claimant::Bearer | Claimant::Process(_) => None,
            },
        }
    }

    pub(super) fn look(&self, offset: Offset, query: &Query) -> Reply {
        match query {
            Query::Peek { id } => self.found(self.state.find(*id).map(|(slot, _)| slot)),
            Query::PeekNext { queue, phase } => self.found(self.next_of(queue, *phase)),
            Query::Job { id } => match self.state.find(*id) {
                Some((slot, job)) => Reply::Job(Box::new(self.job_view((slot, job), offset))),
                None => Reply::Absent,
            },
            Query::Result { id } => match self.state.results.of(*id) {
                Some(result) => Reply::Result(Box::new(result.clone())),
                None => Reply::Absent,
            },
            Query::Queue { queue } => match self.state.queue_named(queue) {
                Some((_, queue)) => Reply::Queue(Box::new(self.state.queue_view(queue, offset))),
                None => Reply::Absent,
            },
            Query::Totals => Reply::Totals(Box::new(self.totals())),
            Query::Queues { from } => self.names(*from),
            Query::SelectJobs(selection) => self.select_jobs(selection, offset),
            Query::SelectQueues(selection) => self.select_queues(selection, offset),
            Query::Busiest { from, most } => self.busiest((*from, *most), offset),
            Query::Next(choice) => self.choose(choice),
        }
    }

    fn found(&self, slot: Option<Slot>) -> Reply {
        match slot.and_then(|slot| self.state.job(slot)) {
            Some(job) => Reply::Found(job.id, job.body().clone()),
            None => Reply::Absent,
        }
    }

    fn next_of(&self, queue: &QueueName, phase: Phase) -> Option<Slot> {
        let (_, queue) = self.state.queue_named(queue)?;
        match phase {
            Phase::Ready => queue.ready.first(&self.state.jobs).map(|(_, _, slot)| slot),
            Phase::Delayed => {
                let delayed = queue.delayed.first().map(|(_, _, slot)| *slot);
                delayed.or_else(|| queue.retrying.first().map(|(_, slot)| *slot))
            }
            Phase::Buried => {
                let buried = queue.buried.first().map(|(_, _, slot)| *slot);
                buried.or_else(|| queue.quarantined.first().map(|(_, slot)| *slot))
            }
            Phase::Claimed | Phase::Abandoned | Phase::Retrying | Phase::Quarantined => None,
        }
    }

    pub(super) fn totals(&self) -> Totals {
        Totals {
            waiting: u32::try_from(self.waiting.len()).unwrap_or(u32::MAX),
            ..self.state.totals
        }
    }

    /// Returns a view of a job, with its deadline in node time.
    pub(super) fn job_view(&self, (slot, job): (Slot, &Job), offset: Offset) -> JobView {
        let details = job.details();
        JobView {
            id: job.id,
            queue: self.state.queue_of(job).name.clone(),
            phase: job.phase,
            priority: job.priority,
            created: job.created,
            claimed: Some(details.claimed).filter(|at| *at != Timestamp(0)),
            until: self.state.jobs.deadline_of(slot).map(|deadline| deadline.at(offset)),
            delay_ms: details.delay_ms,
            ttr_ms: job.ttr_ms,
            attempts: details.attempts,
            reserves: details.reserves,
            timeouts: details.timeouts,
            releases: details.releases,
            buries: details.buries,
            kicks: details.kicks,
            token: nonzero(details.token),
            retries: job.retries,
            passing: job.passing,
            bytes: job.body().as_bytes().len() as u64,
            error: details.error.clone(),
            bound: details.binding(),
            fencing: details.is_fencing(),
            cancelled: details.is_cancelled(),
            command: details.bound.as_ref().and_then(|bound| bound.command),
            crashes: details.crashes,
            progress: details.progress.as_deref().cloned(),
        }
    }

    /// Returns a view of the durable state with at most `most` items of each kind. Dates are not converted to node
    /// time, so the view depends on durable state alone.
    pub(super) fn show(&self, most: usize) -> View {
        let dates = Offset::default();
        let queues = self.state.queues.iter().map(|(_, queue)| queue);
        let queues = queues.filter(|queue| queue.is_durable());
        let queues = first(queues, most, |one, other| one.name.cmp(&other.name));
        let jobs =
            first(self.state.jobs.iter(), most, |(_, one), (_, other)| one.id.cmp(&other.id));
        let results = self.state.results.known.iter().map(|(_, it)| &it.result);
        let results = first(results, most, |one, other| one.id.cmp(&other.id));
        let keys = self.state.uniques.known.iter().map(|(_, it)| it);
        let keys = first(keys, most, |one, other| one.id.cmp(&other.id));
        let queue_view =
            |queue| QueueView { throttled_until: None, ..self.state.queue_view(queue, dates) };
        View {
            totals: self.totals(),
            next_id: self.state.head.next_id,
            queues: queues.into_iter().map(queue_view).collect(),
            jobs: jobs.into_iter().map(|of| self.job_view(of, dates)).collect(),
            results: results.into_iter().cloned().collect(),
            keys: keys.into_iter().cloned().collect(),
        }
    }
}

/// Returns the `most` smallest items by `order`, in ascending order; all of them if there are fewer.
fn first<T>(
    items: impl Iterator<Item = T>,
    most: usize,
    order: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    if most < items.len() {
        items.select_nth_unstable_by(most, &order);
        items.truncate(most);
    }
    items.sort_unstable_by(order);
    items
}
