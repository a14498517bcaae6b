//! Queues of a node, typed: what a program that embeds it calls.
//!
//! A call can be awaited in any runtime, and from a plain thread through [`crate::block_on`]. One that changes something
//! is answered when the journal has it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer is the one hoped for, or says why not"
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

/// Abandoned jobs that are made ready in one turn.
const REPUSHED_IN_A_ROW: u32 = 100_000;

/// The queues of a node, from any thread. Cloning gives another handle.
#[derive(Clone)]
pub struct Queues {
    pub(super) mailbox: Mailbox<QueueMachine>,
    /// How often each queue of a claim comes first, in their order, if that is left to chance.
    pub(super) weights: Option<Arc<[u32]>>,
    /// Milliseconds that a claim lasts; if 0, as the job or its type says.
    pub(super) claim_ms: u64,
    /// The process that claims are bound to.
    pub(super) bound: Option<Binding>,
    pub(super) key: Option<RequestKey>,
    pub(super) draining: watch::Receiver<Drains>,
}

/// What became of a job that was to be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Added {
    /// Its number, or that of the one that was there.
    pub id: u64,
    /// Whether it was added: not, if an unclaimed job of the queue has the same key.
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

    /// A handle whose claims do not go by the most urgent job: chance draws one of the queues that have any, each as often
    /// as its weight says, and that queue gives its best. Weights stand in the order of the queues that a claim names; 0
    /// counts as 1, and so does one that is missing. Without any, all is as before.
    #[must_use]
    pub fn weighted(&self, weights: &[u32]) -> Self {
        Self {
            weights: Some(weights.into()),
            ..self.clone()
        }
    }

    /// A handle whose claims last for so many milliseconds, whatever jobs and their types say; if 0, as they say. A touch
    /// begins the same span again.
    #[must_use]
    pub fn claiming_for(&self, ms: u64) -> Self {
        Self {
            claim_ms: ms,
            ..self.clone()
        }
    }

    /// A handle whose claims end with a process: the job is given back at once when that is gone, with the try counted. They
    /// last no shorter, unless [`Queues::claiming_for`] says how long. With [`Binding::fence`], which needs
    /// [`Until::Tree`](crate::actors::binding::Until), a claim whose time runs out is over only when the process and its
    /// tree have been killed and are proved gone; until then nothing can be done with the job. A touch binds a claim to
    /// this process, whatever it was bound to before.
    #[must_use]
    pub fn bound(&self, binding: Binding) -> Self {
        Self {
            bound: Some(binding),
            ..self.clone()
        }
    }

    /// A handle for one request: what it changes is changed once, however often the request is made under this key. What
    /// was done is answered again; a claim only as long as it lasts. What nobody hears of is not given back.
    #[must_use]
    pub fn once(&self, key: RequestKey) -> Self {
        Self {
            key: Some(key),
            ..self.clone()
        }
    }

    /// Carries out commands in order, and gives their answers in the same order: one write, one sync, one wake-up for
    /// all of them. What stands behind a pop that waits and finds nothing is not done, and has no answer.
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

    /// Adds jobs, all of them or none; what became of each, in order. Of those that are one with each other the last
    /// counts.
    pub async fn put_all(&self, jobs: Vec<Put>) -> Result<Vec<Added>, QueueError> {
        match self.one(self.message(Message::Batch(jobs), 0)).await? {
            Reply::Batch(added) => {
                let added = added.into_iter().map(|(id, new)| Added { id, new });
                Ok(added.collect())
            }
            other => Err(refusal(&other)),
        }
    }

    /// Makes jobs that come from an older root job than this superfluous: whoever claims one is told so. Whether
    /// neither this nor a newer one was known.
    pub async fn register(&self, root: Root) -> Result<bool, QueueError> {
        match self.one(self.message(Message::Register(root), 0)).await? {
            Reply::Done => Ok(true),
            Reply::Absent => Ok(false),
            other => Err(refusal(&other)),
        }
    }

    /// Ends a job that nobody has claimed.
    pub async fn delete(&self, id: u64) -> Result<(), QueueError> {
        let by = Right::Unclaimed;
        self.done(Message::Delete { id, by }).await
    }

    /// Makes up to so many jobs ready: buried ones and after them abandoned ones, or if there are none delayed ones and
    /// after them those that failed; how many.
    pub async fn kick(&self, queue: &QueueName, count: u32) -> Result<u32, QueueError> {
        let queue = queue.clone();
        self.count(Message::Kick { queue, count }, 0).await
    }

    /// Makes one job ready that is neither ready nor claimed, as if it had never been tried.
    pub async fn kick_job(&self, id: u64) -> Result<(), QueueError> {
        self.done(Message::KickJob { id }).await
    }

    /// Makes the abandoned jobs of a queue ready, as if they had never been tried; how many. Others get their turn in
    /// between, if they are many.
    pub async fn repush(&self, queue: &QueueName) -> Result<u32, QueueError> {
        let mut repushed: u32 = 0;
        for turn in 0.. {
            let (queue, count) = (queue.clone(), REPUSHED_IN_A_ROW);
            let repush = Message::Repush { queue, count };
            let some = match self.one(self.message(repush, turn)).await? {
                Reply::Count(count) => count,
                // The end of what this repeats.
                Reply::Done => 0,
                other => return Err(refusal(&other)),
            };
            if some == 0 && turn > 0 && self.key.is_some() {
                // What does nothing leaves no receipt, and a repetition would go on with jobs that were abandoned since.
                self.one(self.message(Message::Spoil, turn)).await?;
            }
            repushed = repushed.saturating_add(some);
            if some < REPUSHED_IN_A_ROW {
                break;
            }
        }
        Ok(repushed)
    }

    /// Cancels a job: it is abandoned, with this reason. If its claim is bound to a process, as that of a command of `sexton work` is,
    /// when that has ended or has said what became of the job: it is refused to be kept any longer. False if there is nothing
    /// to cancel: it is abandoned, or cancelled, already.
    pub async fn cancel(&self, id: u64, reason: Option<ErrorText>) -> Result<bool, QueueError> {
        let error = reason;
        match self.done(Message::Cancel { id, error }).await {
            Ok(()) => Ok(true),
            Err(QueueError::Absent) => self.job(id).await.map(|_| false),
            Err(error) => Err(error),
        }
    }

    /// Makes those of some jobs ready that are neither ready nor claimed, as if they had never been tried; how many.
    pub async fn kick_jobs(&self, ids: &[u64]) -> Result<u32, QueueError> {
        self.each(ids, |id| Message::KickJob { id }).await
    }

    /// Ends those of some jobs that nobody has claimed; how many.
    pub async fn delete_jobs(&self, ids: &[u64]) -> Result<u32, QueueError> {
        let by = Right::Unclaimed;
        self.each(ids, |id| Message::Delete { id, by }).await
    }

    /// Does something to each of some jobs in one turn; to how many it was done.
    async fn each(&self, ids: &[u64], what: impl Fn(u64) -> Message) -> Result<u32, QueueError> {
        let items = ids.iter().map(|id| Item::Message(what(*id)));
        let mut count = 0;
        for answer in self.mailbox.call(items.collect()).await? {
            match answer? {
                Reply::Done => count += 1,
                // Somebody was faster.
                Reply::Absent => {}
                other => return Err(refusal(&other)),
            }
        }
        Ok(count)
    }

    /// Lets nothing be claimed from a queue for so many milliseconds; 0 ends a pause.
    pub async fn pause(&self, queue: &QueueName, ms: u64) -> Result<(), QueueError> {
        let queue = queue.clone();
        self.done(Message::Pause { queue, ms }).await
    }

    /// Ends every job of a queue, claimed ones too; how many.
    pub async fn flush(&self, queue: &QueueName) -> Result<u32, QueueError> {
        let queue = queue.clone();
        self.count(Message::Flush { queue }, 0).await
    }

    /// What is known of a job.
    pub async fn job(&self, id: u64) -> Result<JobView, QueueError> {
        match self.one(Item::Query(Query::Job { id })).await? {
            Reply::Job(job) => Ok(*job),
            other => Err(refusal(&other)),
        }
    }

    /// What is known of a job, and what it says.
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

    /// Some of the jobs that a filter lets through, and where to go on; nowhere if that was the last. Many jobs are
    /// walked without holding up others, so it is not a picture of one moment: a job that comes, goes or changes
    /// meanwhile may or may not be in it, one that stays as it is is in it once.
    pub async fn select_jobs(
        &self,
        selection: JobSelection,
    ) -> Result<(Vec<JobView>, Option<Slot>), QueueError> {
        match self.walk(Query::SelectJobs(selection)).await? {
            Reply::JobPage { jobs, next } => Ok((jobs, next)),
            other => Err(refusal(&other)),
        }
    }

    /// Some of the queues that a filter lets through, in the same way.
    pub async fn select_queues(
        &self,
        selection: QueueSelection,
    ) -> Result<(Vec<QueueView>, Option<Slot>), QueueError> {
        match self.walk(Query::SelectQueues(selection)).await? {
            Reply::QueuePage { queues, next } => Ok((queues, next)),
            other => Err(refusal(&other)),
        }
    }

    /// The queues that have the most to do, the busiest first, of a share that begins there; and where the next share
    /// begins. All queues are one share, unless they are more than some thousands.
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

    /// A queue from which something can be claimed now, by chance, with jobs of one of these types; of any, if none is
    /// given. Neither paused or throttled ones nor those that take no jobs are among them.
    pub async fn next(&self, kinds: &[String]) -> Result<Option<QueueName>, QueueError> {
        // No two have the same: as good as chance, for whom they are told.
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

    /// What is known of a queue. One that has neither jobs nor anybody who has to do with it is not there.
    pub async fn queue(&self, queue: &QueueName) -> Result<QueueView, QueueError> {
        let queue = queue.clone();
        match self.one(Item::Query(Query::Queue { queue })).await? {
            Reply::Queue(queue) => Ok(*queue),
            other => Err(refusal(&other)),
        }
    }

    /// Jobs of a queue, by phase.
    pub async fn counts(&self, queue: &QueueName) -> Result<Counts, QueueError> {
        match self.queue(queue).await {
            Ok(queue) => Ok(queue.jobs),
            Err(QueueError::Absent) => Ok(Counts::default()),
            Err(error) => Err(error),
        }
    }

    /// What is known of all queues together.
    pub async fn totals(&self) -> Result<Totals, QueueError> {
        match self.one(Item::Query(Query::Totals)).await? {
            Reply::Totals(totals) => Ok(Totals {
                draining: self.draining.borrow().jobs,
                ..*totals
            }),
            other => Err(refusal(&other)),
        }
    }

    /// A message of a request, which may have several: each has a key of its own, so that a repetition does what is
    /// missing.
    pub(super) fn message(&self, message: Message, nth: u64) -> Item<QueueMachine> {
        Item::once(message, self.key.map(|key| key.nth(nth)))
    }

    /// Changes a job; what is known of it then, if it is still there.
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
