//! Queues of a node, typed: what a program that embeds it calls.
//!
//! A call can be awaited in any runtime, and from a plain thread through [`crate::block_on`]. One that changes something
//! is answered when the journal has it.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "an answer is the one hoped for, or says why not"
)]

use crate::actors::host::{Answer, Failed, Item};
use crate::actors::queue::{
    Claim, Claimant, Counts, JobView, Message, Pop, Put, Query, QueueMachine, QueueName, QueueView,
    Refused, Reply, Right, Totals, Watch,
};
use crate::actors::runtime::{Mailbox, Stopped};
use crate::ids::Token;

/// Why something was not done with a job or a queue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueueError {
    /// There is no such job, or no such queue.
    #[error("there is no such job or queue")]
    Absent,
    /// Not done, and why.
    #[error("{}", words(*.0))]
    Refused(Refused),
    /// The command panicked and was not applied. The actor goes on.
    #[error(transparent)]
    Failed(#[from] Failed),
    /// The node has stopped, or halted.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

const fn words(refused: Refused) -> &'static str {
    match refused {
        Refused::Draining => "the coordinator drains and takes no new jobs",
        Refused::StaleToken => "the token is stale: the claim has passed on",
        Refused::Full => "there are as many jobs, or bytes of them, as are allowed",
        Refused::QueuesFull => "there are as many queues as are allowed",
        Refused::RootsFull => "there are as many root jobs as are allowed",
        Refused::TooBig => "the body is longer than is allowed",
        Refused::ReadOnly => "the queue takes no jobs",
        Refused::DiskFull => "the disk is full",
    }
}

/// The queues of a node, from any thread. Cloning gives another handle.
#[derive(Clone)]
pub struct Queues {
    mailbox: Mailbox<QueueMachine>,
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
    pub(super) const fn new(mailbox: Mailbox<QueueMachine>) -> Self {
        Self { mailbox }
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
        match self.one(Item::Message(Message::Put(job))).await? {
            Reply::Put { id, duplicate } => Ok(Added {
                id,
                new: duplicate.is_none(),
            }),
            other => Err(refusal(&other)),
        }
    }

    /// Claims the most urgent job of these queues, among equals the oldest; none if there is none now.
    pub async fn pop(&self, queues: &[QueueName]) -> Result<Option<Claim>, QueueError> {
        let pop = Item::Message(Message::Pop(Self::claim_of(queues)));
        match self.one(pop).await? {
            Reply::Claim(claim) => Ok(Some(*claim)),
            Reply::Nothing { .. } => Ok(None),
            other => Err(refusal(&other)),
        }
    }

    /// The same, and waits until there is one. A job that is claimed in the moment in which the future is dropped comes
    /// back when its claim runs out.
    pub async fn pop_waiting(&self, queues: &[QueueName]) -> Result<Claim, QueueError> {
        if let Some(claim) = self.pop(queues).await? {
            return Ok(claim);
        }
        let watch = Watch::Job(Self::claim_of(queues));
        match self.mailbox.watch(watch).await?? {
            Reply::Claim(claim) => Ok(*claim),
            other => Err(refusal(&other)),
        }
    }

    fn claim_of(queues: &[QueueName]) -> Pop {
        Pop {
            queues: queues.into(),
            weights: [].into(),
            by: Claimant::Bearer,
            waits: false,
            ticket: None,
        }
    }

    /// Ends a claimed job: it is done.
    pub async fn ack(&self, id: u64, token: Token) -> Result<(), QueueError> {
        let by = Right::Token(token);
        self.done(Message::Delete { id, by }).await
    }

    /// Ends a job that nobody has claimed.
    pub async fn delete(&self, id: u64) -> Result<(), QueueError> {
        let by = Right::Unclaimed;
        self.done(Message::Delete { id, by }).await
    }

    /// Gives a claimed job back, to be ready in so many milliseconds.
    pub async fn release(&self, id: u64, token: Token, delay_ms: u64) -> Result<(), QueueError> {
        self.done(Message::Release {
            id,
            by: Right::Token(token),
            priority: None,
            delay_ms,
        })
        .await
    }

    /// Puts a claimed job aside until it is kicked.
    pub async fn bury(&self, id: u64, token: Token) -> Result<(), QueueError> {
        self.done(Message::Bury {
            id,
            by: Right::Token(token),
            priority: None,
        })
        .await
    }

    /// Begins the span of a claim again.
    pub async fn touch(&self, id: u64, token: Token) -> Result<(), QueueError> {
        let by = Right::Token(token);
        self.done(Message::Touch { id, by }).await
    }

    /// Says that a claimed job failed: it is tried again after so many milliseconds, or when its claim would have
    /// ended; or abandoned, if that was its last try.
    pub async fn fail(
        &self,
        id: u64,
        token: Token,
        retry_after_ms: Option<u64>,
    ) -> Result<(), QueueError> {
        self.done(Message::Fail {
            id,
            by: Right::Token(token),
            retry_after_ms,
        })
        .await
    }

    /// Makes up to so many buried jobs ready, or delayed ones if none is buried; how many.
    pub async fn kick(&self, queue: &QueueName, count: u32) -> Result<u32, QueueError> {
        let queue = queue.clone();
        self.count(Message::Kick { queue, count }).await
    }

    /// Lets nothing be claimed from a queue for so many milliseconds; 0 ends a pause.
    pub async fn pause(&self, queue: &QueueName, ms: u64) -> Result<(), QueueError> {
        let queue = queue.clone();
        self.done(Message::Pause { queue, ms }).await
    }

    /// Ends every job of a queue, claimed ones too; how many.
    pub async fn flush(&self, queue: &QueueName) -> Result<u32, QueueError> {
        let queue = queue.clone();
        self.count(Message::Flush { queue }).await
    }

    /// What is known of a job.
    pub async fn job(&self, id: u64) -> Result<JobView, QueueError> {
        match self.one(Item::Query(Query::Job { id })).await? {
            Reply::Job(job) => Ok(*job),
            other => Err(refusal(&other)),
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
            Reply::Totals(totals) => Ok(*totals),
            other => Err(refusal(&other)),
        }
    }

    async fn done(&self, message: Message) -> Result<(), QueueError> {
        match self.one(Item::Message(message)).await? {
            Reply::Done => Ok(()),
            other => Err(refusal(&other)),
        }
    }

    async fn count(&self, message: Message) -> Result<u32, QueueError> {
        match self.one(Item::Message(message)).await? {
            Reply::Count(count) => Ok(count),
            other => Err(refusal(&other)),
        }
    }

    async fn one(&self, item: Item<QueueMachine>) -> Result<Reply, QueueError> {
        let answer = self.mailbox.call(vec![item]).await?.pop();
        Ok(answer.ok_or(Stopped)??)
    }
}

/// What an answer means that is not the one hoped for.
fn refusal(reply: &Reply) -> QueueError {
    if let Reply::Refused(refused) = reply {
        QueueError::Refused(*refused)
    } else {
        QueueError::Absent
    }
}
