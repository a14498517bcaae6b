//! Typed access to a node's queues: the API for programs that embed it.
//!
//! Calls can be awaited in any runtime, and made from a plain thread through [`crate::block_on`]. A change is answered once it is in the
//! journal.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a reply of any other kind is a refusal"
)]

use crate::actors::binding::Binding;
use crate::actors::queue::{
    Body, Choice, Counts, ErrorText, JobSelection, JobView, Message, Put, Query, QueueMachine,
    QueueName, QueueSelection, QueueView, Reply, Right, Root, Totals,
};
use crate::handle::Drains;
use crate::handle::queue_error::{QueueError, refusal};
use crate::ids::{RequestKey, Slot};
use crate::spine::delivery::{Answer, Item};
use crate::spine::runtime::{Mailbox, Stopped};
use std::sync::Arc;
use tokio::sync::watch;

/// The number of abandoned jobs made ready in one turn of the actor.
const REPUSHED_IN_A_ROW: u32 = 100_000;

/// A handle to the queues of a node, usable from any thread. Clones share the node.
#[derive(Clone)]
pub struct Queues {
    pub(super) mailbox: Mailbox<QueueMachine>,
    /// The weight of each queue that a claim names, in order; `None` to claim the most urgent job of all.
    pub(super) weights: Option<Arc<[u32]>>,
    /// The duration of a claim, in milliseconds; 0 for that of the job or its type.
    pub(super) claim_ms: u64,
    /// The process that claims are bound to.
    pub(super) bound: Option<Binding>,
    pub(super) key: Option<RequestKey>,
    pub(super) draining: watch::Receiver<Drains>,
}

/// The result of adding a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// The id of the added job, or of the earlier job with the same deduplication key.
    pub id: u64,
    /// Whether the job was added; `false` if the queue has an unclaimed job with the same deduplication key, or the key of an earlier job
    /// is still remembered.
    pub new: bool,
}

impl Queues {
    pub(super) const fn new(
        mailbox: Mailbox<QueueMachine>,
        draining: watch::Receiver<Drains>,
    ) -> Self {
        Self {
            mailbox,
            draining,
            weights: None,
            claim_ms: 0,
            bound: None,
            key: None,
        }
    }

    /// Returns a handle whose claims draw one of the non-empty queues at random, in proportion to its weight, and take that
    /// queue's best job, instead of the most urgent job overall. Weights are given in the order of the queues that a claim
    /// names; a weight that is 0 or missing counts as 1. An empty list restores the default.
    #[must_use]
    pub fn weighted(&self, weights: &[u32]) -> Self {
        Self {
            weights: Some(weights.into()),
            ..self.clone()
        }
    }

    /// Returns a handle whose claims last `ms` milliseconds instead of the time that the job or its type specifies; 0 restores the latter.
    /// A touch restarts the same span.
    #[must_use]
    pub fn claiming_for(&self, ms: u64) -> Self {
        Self {
            claim_ms: ms,
            ..self.clone()
        }
    }

    /// Returns a handle whose claims end with a process: when it has exited, the job is given back immediately, and the try counts. The
    /// duration of the claims stays the same unless set by [`Queues::claiming_for`]. With [`Binding::fence`], which needs
    /// [`Until::Tree`](crate::actors::binding::Until), a claim that expires is over only when the process and its tree have been killed and
    /// are known to have exited; until then nothing can be done with the job. A touch binds a claim to this process, whatever it was bound
    /// to before.
    #[must_use]
    pub fn bound(&self, binding: Binding) -> Self {
        Self {
            bound: Some(binding),
            ..self.clone()
        }
    }

    /// Returns a handle whose changes are idempotent: repeating a request under `key` changes nothing further and returns the same answer;
    /// a claim is returned again only while it lasts. Claims that could not be delivered are not given back.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self {
            key: Some(key),
            ..self.clone()
        }
    }

    /// Carries out commands in order and returns their answers in the same order, with a single write, sync and wake-up for
    /// all of them. Commands after a waiting pop that finds nothing are not carried out and have no answer.
    pub async fn batch(
        &self,
        items: Vec<Item<QueueMachine>>,
    ) -> Result<Vec<Answer<Reply>>, Stopped> {
        self.mailbox.call(items).await
    }

    /// Adds a job.
    pub async fn put(&self, job: Put) -> Result<Added, QueueError> {
        match self.one(self.message(Message::Put(job), 0)).await? {
            Reply::Put { id, duplicate } => Ok(Added {
                id,
                new: duplicate.is_none(),
            }),
            Reply::Remembered { id } => Ok(Added { id, new: false }),
            other => Err(refusal(&other)),
        }
    }

    /// Adds all of the jobs or none, and returns the result for each, in order. If several have the same deduplication key,
    /// the last one counts.
    pub async fn put_all(&self, jobs: Vec<Put>) -> Result<Vec<Added>, QueueError> {
        match self.one(self.message(Message::Batch(jobs), 0)).await? {
            Reply::Batch(added) => {
                let added = added.into_iter().map(|(id, new)| Added { id, new });
                Ok(added.collect())
            }
            other => Err(refusal(&other)),
        }
    }

    /// Registers a root job, which makes jobs of older roots superfluous; their claims are marked as duplicates. Returns whether the root
    /// was new: `false` if this root or a newer one was registered already.
    pub async fn register(&self, root: Root) -> Result<bool, QueueError> {
        match self.one(self.message(Message::Register(root), 0)).await? {
            Reply::Done => Ok(true),
            Reply::Absent => Ok(false),
            other => Err(refusal(&other)),
        }
    }

    /// Deletes an unclaimed job.
    pub async fn delete(&self, id: u64) -> Result<(), QueueError> {
        let by = Right::Unclaimed;
        self.done(Message::Delete { id, by }).await
    }

    /// Makes up to `count` jobs ready and returns their number: buried jobs, then abandoned ones; if there are none of
    /// either, delayed jobs, then failed ones.
    pub async fn kick(&self, queue: &QueueName, count: u32) -> Result<u32, QueueError> {
        let queue = queue.clone();
        self.count(Message::Kick { queue, count }, 0).await
    }

    /// Makes one job ready that is neither ready nor claimed, as if it had never been tried.
    pub async fn kick_job(&self, id: u64) -> Result<(), QueueError> {
        self.done(Message::KickJob { id }).await
    }

    /// Makes the abandoned jobs of a queue ready, as if they had never been tried, and returns their number. If there are
    /// many, other requests are served in between.
    pub async fn repush(&self, queue: &QueueName) -> Result<u32, QueueError> {
        let mut repushed: u32 = 0;
        for turn in 0.. {
            let (queue, count) = (queue.clone(), REPUSHED_IN_A_ROW);
            let repush = Message::Repush { queue, count };
            let some = match self.one(self.message(repush, turn)).await? {
                Reply::Count(count) => count,
                // This repeats an earlier request, which marked this turn as its last.
                Reply::Done => 0,
                other => return Err(refusal(&other)),
            };
            if some == 0 && turn > 0 && self.key.is_some() {
                // A turn that does nothing leaves no receipt, and a repetition would make jobs ready that were abandoned later. This
                // message changes no job, but leaves a receipt.
                self.one(self.message(Message::Spoil, turn)).await?;
            }
            repushed = repushed.saturating_add(some);
            if some < REPUSHED_IN_A_ROW {
                break;
            }
        }
        Ok(repushed)
    }

    /// Cancels a job: it is abandoned, with `reason`. If its claim is bound to a process, as that of a `sexton work` command is, this
    /// happens when the process has ended or has reported on the job; until then the claim cannot be renewed. Returns whether there was
    /// anything to cancel: `false` if the job is abandoned or cancelled already.
    pub async fn cancel(&self, id: u64, reason: Option<ErrorText>) -> Result<bool, QueueError> {
        let error = reason;
        match self.done(Message::Cancel { id, error }).await {
            Ok(()) => Ok(true),
            Err(QueueError::Absent) => self.job(id).await.map(|_| false),
            Err(error) => Err(error),
        }
    }

    /// Makes ready those of the jobs that are neither ready nor claimed, as if they had never been tried, and returns their number.
    pub async fn kick_jobs(&self, ids: &[u64]) -> Result<u32, QueueError> {
        self.each(ids, |id| Message::KickJob { id }).await
    }

    /// Deletes those of the jobs that are not claimed, and returns their number.
    pub async fn delete_jobs(&self, ids: &[u64]) -> Result<u32, QueueError> {
        let by = Right::Unclaimed;
        self.each(ids, |id| Message::Delete { id, by }).await
    }

    /// Sends one message for each job, all in one turn, and returns how many succeeded.
    async fn each(&self, ids: &[u64], what: impl Fn(u64) -> Message) -> Result<u32, QueueError> {
        let items = ids.iter().map(|id| Item::Message(what(*id)));
        let mut count = 0;
        for answer in self.mailbox.call(items.collect()).await? {
            match answer? {
                Reply::Done => count += 1,
                // Another client has deleted or changed the job.
                Reply::Absent => {}
                other => return Err(refusal(&other)),
            }
        }
        Ok(count)
    }

    /// Prevents claims from a queue for `ms` milliseconds; 0 ends a pause.
    pub async fn pause(&self, queue: &QueueName, ms: u64) -> Result<(), QueueError> {
        let queue = queue.clone();
        self.done(Message::Pause { queue, ms }).await
    }

    /// Deletes every job of a queue, claimed ones too, and returns their number.
    pub async fn flush(&self, queue: &QueueName) -> Result<u32, QueueError> {
        let queue = queue.clone();
        self.count(Message::Flush { queue }, 0).await
    }

    /// Returns the state of a job.
    pub async fn job(&self, id: u64) -> Result<JobView, QueueError> {
        match self.one(Item::Query(Query::Job { id })).await? {
            Reply::Job(job) => Ok(*job),
            other => Err(refusal(&other)),
        }
    }

    /// Returns the state and the body of a job.
    pub async fn job_with_body(&self, id: u64) -> Result<(JobView, Body), QueueError> {
        let questions = vec![
            Item::Query(Query::Job { id }),
            Item::Query(Query::Peek { id }),
        ];
        let mut answers = self.mailbox.call(questions).await?.into_iter();
        let (view, body) = (answers.next(), answers.next());
        match (view.ok_or(Stopped)??, body.ok_or(Stopped)??) {
            (Reply::Job(view), Reply::Found(_, body)) => Ok((*view, body)),
            (other, _) => Err(refusal(&other)),
        }
    }

    /// Returns a page of the jobs that match a filter, and where to continue, or `None` after the last page. Many jobs are walked without
    /// delaying other requests, so the pages are not a consistent snapshot: a job that appears, goes away or changes meanwhile may be
    /// missing, and every other job is listed exactly once.
    pub async fn select_jobs(
        &self,
        selection: JobSelection,
    ) -> Result<(Vec<JobView>, Option<Slot>), QueueError> {
        match self.walk(Query::SelectJobs(selection)).await? {
            Reply::JobPage { jobs, next } => Ok((jobs, next)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns a page of the queues that match a filter, as [`Queues::select_jobs`] does of jobs.
    pub async fn select_queues(
        &self,
        selection: QueueSelection,
    ) -> Result<(Vec<QueueView>, Option<Slot>), QueueError> {
        match self.walk(Query::SelectQueues(selection)).await? {
            Reply::QueuePage { queues, next } => Ok((queues, next)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns up to `most` of the busiest queues in the share of all queues that begins at `from`, and where the next share begins, or
    /// `None` after the last. There is a single share unless there are more than a few thousand queues.
    pub async fn busiest(
        &self,
        from: Slot,
        most: u32,
    ) -> Result<(Vec<QueueView>, Option<Slot>), QueueError> {
        match self.walk(Query::Busiest { from, most }).await? {
            Reply::Busiest { queues, next } => Ok((queues, next)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns a random queue from which a job of one of these types, or of any type if `kinds` is empty, can be claimed now; `None` if
    /// there is no such queue. Queues that are paused, throttled or read-only are not considered.
    pub async fn next(&self, kinds: &[String]) -> Result<Option<QueueName>, QueueError> {
        // The choice need not be unpredictable. Tickets are unique, so it differs from call to call.
        let chance = self.mailbox.ticket().0;
        let kinds = kinds.iter().map(|kind| kind.clone().into_bytes());
        let kinds = Arc::new(kinds.collect());
        let (mut chosen, mut from, mut among) = (None, 0, 0);
        loop {
            let choice = Choice {
                chance,
                kinds: Arc::clone(&kinds),
                from,
                among,
            };
            match self.walk(Query::Next(choice)).await? {
                Reply::Chosen {
                    queue,
                    among: so_far,
                    next,
                } => {
                    chosen = queue.or(chosen);
                    among = so_far;
                    match next {
                        Some(looked_at) => from = looked_at,
                        None => return Ok(chosen),
                    }
                }
                other => return Err(refusal(&other)),
            }
        }
    }

    /// Returns the state of a queue. A queue exists while it has jobs or clients that use it.
    pub async fn queue(&self, queue: &QueueName) -> Result<QueueView, QueueError> {
        let queue = queue.clone();
        match self.one(Item::Query(Query::Queue { queue })).await? {
            Reply::Queue(queue) => Ok(*queue),
            other => Err(refusal(&other)),
        }
    }

    /// Returns the number of jobs of a queue, by phase.
    pub async fn counts(&self, queue: &QueueName) -> Result<Counts, QueueError> {
        match self.queue(queue).await {
            Ok(queue) => Ok(queue.jobs),
            Err(QueueError::Absent) => Ok(Counts::default()),
            Err(error) => Err(error),
        }
    }

    /// Returns the totals over all queues.
    pub async fn totals(&self) -> Result<Totals, QueueError> {
        match self.one(Item::Query(Query::Totals)).await? {
            Reply::Totals(totals) => Ok(Totals {
                draining: self.draining.borrow().jobs,
                ..*totals
            }),
            other => Err(refusal(&other)),
        }
    }

    /// Wraps message number `nth` of a request. Each message has its own idempotency key, so that a repetition of the request carries out
    /// only the messages that are missing.
    pub(super) fn message(&self, message: Message, nth: u64) -> Item<QueueMachine> {
        Item::once(message, self.key.map(|key| key.nth(nth)))
    }

    /// Changes a job and returns its state afterwards, if it still exists.
    pub(super) async fn change(
        &self,
        id: u64,
        message: Message,
    ) -> Result<Option<JobView>, QueueError> {
        let items = vec![self.message(message, 0), Item::Query(Query::Job { id })];
        let mut answers = self.mailbox.call(items).await?.into_iter();
        match answers.next().ok_or(Stopped)?? {
            Reply::Done | Reply::Abandoned => {}
            other => return Err(refusal(&other)),
        }
        match answers.next().ok_or(Stopped)?? {
            Reply::Job(view) => Ok(Some(*view)),
            Reply::Absent => Ok(None),
            other => Err(refusal(&other)),
        }
    }

    pub(super) async fn done(&self, message: Message) -> Result<(), QueueError> {
        match self.one(self.message(message, 0)).await? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        }
    }

    async fn count(&self, message: Message, nth: u64) -> Result<u32, QueueError> {
        match self.one(self.message(message, nth)).await? {
            Reply::Count(count) => Ok(count),
            other => Err(refusal(&other)),
        }
    }

    async fn walk(&self, query: Query) -> Result<Reply, QueueError> {
        let answer = self.mailbox.walk(vec![Item::Query(query)]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }

    async fn one(&self, item: Item<QueueMachine>) -> Result<Reply, QueueError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}
