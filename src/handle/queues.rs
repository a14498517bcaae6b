//! Typed access to a node's queues: the API for programs that embed the node.
//!
//! Calls can be awaited in any runtime, and made from a plain thread through [`crate::block_on`]. A change is answered once it is in the
//! journal.

#![expect(clippy::wildcard_enum_match_arm, reason = "a reply of any other kind is an error")]

use crate::actors::binding::Binding;
use crate::actors::queue::{
    Body, Choice, Counts, ErrorText, JobSelection, JobView, Message, Phase, Put, Query,
    QueueMachine, QueueName, QueueSelection, QueueView, Reply, Right, Root, Totals,
};
use crate::handle::Drains;
use crate::handle::queue_error::{QueueError, refusal};
use crate::ids::{RequestKey, Slot};
use crate::spine::delivery::{Answer, Item};
use crate::spine::runtime::{Mailbox, Stopped};
use std::sync::Arc;
use tokio::sync::watch;

/// The maximum number of abandoned jobs made ready with one message.
const REPUSHED_IN_A_ROW: u32 = 100_000;

/// A handle to the queues of a node, usable from any thread. Clones share the node.
#[derive(Clone)]
pub struct Queues {
    pub(super) mailbox: Mailbox<QueueMachine>,
    /// The weights of the queues that a claim names, in the same order; `None` to claim the most urgent job of all these queues.
    pub(super) weights: Option<Arc<[u32]>>,
    /// The duration of a claim, in milliseconds. If 0, a claim bound to a process has no time limit, and any other claim lasts as long as
    /// its job or the job's type specifies.
    pub(super) claim_ms: u64,
    /// The process that claims are bound to; `None` if they are not bound to a process.
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
    /// The phase of the earlier job, if this one was not added; `None` if that job is done or removed. Also `None` for a job of a batch.
    pub phase: Option<Phase>,
}

impl Queues {
    pub(super) const fn new(
        mailbox: Mailbox<QueueMachine>,
        draining: watch::Receiver<Drains>,
    ) -> Self {
        Self { mailbox, draining, weights: None, claim_ms: 0, bound: None, key: None }
    }

    /// Returns a handle whose claims choose a queue at random, in proportion to the weights of the queues that have ready jobs, and take
    /// the most urgent job of that queue. By default, they take the most urgent job of all queues. Weights are given in the order of the
    /// queues that a claim names; a weight that is 0 or missing counts as 1. An empty list restores the default.
    #[must_use]
    pub fn weighted(&self, weights: &[u32]) -> Self {
        Self { weights: Some(weights.into()), ..self.clone() }
    }

    /// Returns a handle whose claims last `ms` milliseconds, whatever the job or its type specifies; 0 restores the default. A touch
    /// restarts the claim for the same duration.
    #[must_use]
    pub fn claiming_for(&self, ms: u64) -> Self {
        Self { claim_ms: ms, ..self.clone() }
    }

    /// Returns a handle whose claims are bound to a process: when the process, or its whole tree if the binding says so, has exited, the
    /// job is given back immediately, and the try counts. The claims have no time limit unless one is set by [`Queues::claiming_for`]. A
    /// touch binds a claim to this process, whatever it was bound to before.
    ///
    /// With [`Binding::fence`], which needs [`Until::Tree`](crate::actors::binding::Until), a claim that expires is over only when the
    /// process and its tree have been killed and are known to have exited. Until then, nothing can be done with the job.
    #[must_use]
    pub fn bound(&self, binding: Binding) -> Self {
        Self { bound: Some(binding), ..self.clone() }
    }

    /// Returns a handle that sends `key` with each change: a change that is repeated with the same key is carried out only once, and is
    /// answered as before, except that a claim that has ended is not returned again. Claims that could not be delivered are not given back,
    /// because the request can be repeated.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self { key: Some(key), ..self.clone() }
    }

    /// Returns the mailbox of the QueueActor, for protocols that deliver a client's commands in order and many at a time.
    pub const fn mailbox(&self) -> &Mailbox<QueueMachine> {
        &self.mailbox
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
            Reply::Put { id, duplicate } => {
                Ok(Added { id, new: duplicate.is_none(), phase: duplicate })
            }
            Reply::Remembered { id, phase } => Ok(Added { id, new: false, phase }),
            other => Err(refusal(&other)),
        }
    }

    /// Adds all of these jobs except duplicates, or none if one of them is refused. Returns the result for each job, in order. If several
    /// jobs of a queue have the same deduplication key, only the last of them is added.
    pub async fn put_all(&self, jobs: Vec<Put>) -> Result<Vec<Added>, QueueError> {
        match self.one(self.message(Message::Batch(jobs), 0)).await? {
            Reply::Batch(added) => {
                let phase = None;
                let added = added.into_iter();
                let added = added.map(|(id, new)| Added { id, new, phase });
                Ok(added.collect())
            }
            other => Err(refusal(&other)),
        }
    }

    /// Registers a root job. Jobs that come from an older root job with the same key are superfluous from now on: claims of such jobs are
    /// marked as duplicates. Returns whether the root job was new: `false` if it or a newer one was registered already.
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

    /// Makes up to `count` jobs of a queue ready, and returns their number. Takes buried jobs, then abandoned ones; only if there are
    /// neither, delayed jobs, then those that wait for a retry.
    pub async fn kick(&self, queue: &QueueName, count: u32) -> Result<u32, QueueError> {
        let queue = queue.clone();
        self.count(Message::Kick { queue, count }, 0).await
    }

    /// Makes a job ready, as if it had never been tried. Returns [`QueueError::Absent`] if the job is ready already, is claimed, or does
    /// not exist.
    pub async fn kick_job(&self, id: u64) -> Result<(), QueueError> {
        self.done(Message::KickJob { id }).await
    }

    /// Makes all abandoned jobs of a queue ready, as if they had never been tried, and returns their number. After every 100,000 jobs,
    /// other requests are served first.
    pub async fn repush(&self, queue: &QueueName) -> Result<u32, QueueError> {
        let mut repushed: u32 = 0;
        for turn in 0.. {
            let (queue, count) = (queue.clone(), REPUSHED_IN_A_ROW);
            let repush = Message::Repush { queue, count };
            let some = match self.one(self.message(repush, turn)).await? {
                Reply::Count(count) => count,
                // This request repeats an earlier one, which ended with the message below at this turn.
                Reply::Done => 0,
                other => return Err(refusal(&other)),
            };
            if some == 0 && turn > 0 && self.key.is_some() {
                // A turn that makes no job ready leaves no receipt (stored answer) for its key. If the request were repeated, that turn
                // would then make ready jobs that had been abandoned since. This message changes no job, but leaves a receipt.
                self.one(self.message(Message::Spoil, turn)).await?;
            }
            repushed = repushed.saturating_add(some);
            if some < REPUSHED_IN_A_ROW {
                break;
            }
        }
        Ok(repushed)
    }

    /// Cancels a job: the job is abandoned, with `reason`. If its claim is bound to a process, as with `sexton work`, the job is abandoned
    /// only when the process has ended or reports a failure, and not at all if the process reports first that the job is done. Until then,
    /// the claim cannot be renewed. Returns whether there was anything to cancel: `false` if the job is abandoned or cancelled already.
    pub async fn cancel(&self, id: u64, reason: Option<ErrorText>) -> Result<bool, QueueError> {
        let error = reason;
        match self.done(Message::Cancel { id, error }).await {
            Ok(()) => Ok(true),
            Err(QueueError::Absent) => self.job(id).await.map(|_| false),
            Err(error) => Err(error),
        }
    }

    /// Makes each of the given jobs ready, as if it had never been tried, unless it is ready already or claimed. Returns the number of jobs
    /// made ready.
    pub async fn kick_jobs(&self, ids: &[u64]) -> Result<u32, QueueError> {
        self.each(ids, |id| Message::KickJob { id }).await
    }

    /// Deletes each of the given jobs unless it is claimed, and returns the number of jobs deleted.
    pub async fn delete_jobs(&self, ids: &[u64]) -> Result<u32, QueueError> {
        let by = Right::Unclaimed;
        self.each(ids, |id| Message::Delete { id, by }).await
    }

    /// Sends one message for each job, all in one call to the actor, and returns how many succeeded.
    async fn each(&self, ids: &[u64], what: impl Fn(u64) -> Message) -> Result<u32, QueueError> {
        let items = ids.iter().zip(0..);
        let items = items.map(|(id, nth)| self.message(what(*id), nth));
        let mut count = 0;
        for answer in self.mailbox.call(items.collect()).await? {
            match answer? {
                Reply::Done => count += 1,
                // The job does not exist, or its phase does not allow the change.
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
        let questions = vec![Item::Query(Query::Job { id }), Item::Query(Query::Peek { id })];
        let mut answers = self.mailbox.call(questions).await?.into_iter();
        let (view, body) = (answers.next(), answers.next());
        match (view.ok_or(Stopped)??, body.ok_or(Stopped)??) {
            (Reply::Job(view), Reply::Found(_, body)) => Ok((*view, body)),
            (other, _) => Err(refusal(&other)),
        }
    }

    /// Returns a page of the jobs that match a filter, and the slot at which the next page begins, or `None` after the last page. Long
    /// lists are walked without delaying other requests, so the pages are not a consistent snapshot: a job that is added, removed or
    /// changed in the meantime may be missing, but every other job is listed exactly once.
    pub async fn select_jobs(
        &self,
        selection: JobSelection,
    ) -> Result<(Vec<JobView>, Option<Slot>), QueueError> {
        match self.scan(Query::SelectJobs(selection)).await? {
            Reply::JobPage { jobs, next } => Ok((jobs, next)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns a page of the queues that match a filter, as [`Queues::select_jobs`] does for jobs.
    pub async fn select_queues(
        &self,
        selection: QueueSelection,
    ) -> Result<(Vec<QueueView>, Option<Slot>), QueueError> {
        match self.scan(Query::SelectQueues(selection)).await? {
            Reply::QueuePage { queues, next } => Ok((queues, next)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns up to `most` of the busiest queues among those in the 8192 slots that begin at `from`, and the slot at which to continue, or
    /// `None` if no slots are left. Unless there have been more than 8192 queues at a time, one call considers them all.
    pub async fn busiest(
        &self,
        from: Slot,
        most: u32,
    ) -> Result<(Vec<QueueView>, Option<Slot>), QueueError> {
        match self.scan(Query::Busiest { from, most }).await? {
            Reply::Busiest { queues, next } => Ok((queues, next)),
            other => Err(refusal(&other)),
        }
    }

    /// Returns a random queue from which a job of one of these types, or of any type if `kinds` is empty, can be claimed now; `None` if
    /// there is no such queue. Queues that are paused, throttled or read-only are not considered.
    pub async fn next(&self, kinds: &[String]) -> Result<Option<QueueName>, QueueError> {
        // The number need not be unpredictable, only different in each call, and tickets are unique.
        let chance = self.mailbox.ticket().0;
        let kinds = kinds.iter().map(|kind| kind.clone().into_bytes());
        let kinds = Arc::new(kinds.collect());
        let (mut chosen, mut from, mut among) = (None, 0, 0);
        loop {
            let choice = Choice { chance, kinds: Arc::clone(&kinds), from, among };
            match self.scan(Query::Next(choice)).await? {
                Reply::Chosen { queue, among: so_far, next } => {
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

    /// Returns the number of jobs of a queue in each phase; all are zero if the queue does not exist.
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
            Reply::Totals(totals) => {
                Ok(Totals { draining: self.draining.borrow().jobs, ..*totals })
            }
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

    async fn scan(&self, query: Query) -> Result<Reply, QueueError> {
        let answer = self.mailbox.scan(vec![Item::Query(query)]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }

    async fn one(&self, item: Item<QueueMachine>) -> Result<Reply, QueueError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}
