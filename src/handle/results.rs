//! Results of jobs: workers store them, and others look them up afterwards.

use crate::actors::queue::{
    JobEnd, JobResult, JobView, KeepResult, Message, Query, Reply, Right, Watch,
};
use crate::handle::queue_error::{QueueError, refusal};
use crate::handle::queues::Queues;
use crate::ids::Token;
use crate::spine::delivery::Item;
use crate::spine::runtime::Stopped;

/// What is known about the end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The job has not ended.
    Open(Box<JobView>),
    /// The job is over, and its worker stored a result.
    Known(Box<JobResult>),
    /// The job is abandoned or quarantined, and no result was stored.
    Abandoned(Box<JobView>),
}

impl Queues {
    /// Stores the result of a claimed job, to be kept for `ms` milliseconds but at most [`Message::RESULT_MS_MAX`]. Must be called before
    /// the claim ends. If the results exceed the configured limit on their number or on their total size, the oldest are dropped.
    pub async fn keep_result(
        &self,
        id: u64,
        token: Token,
        (ms, end): (u64, JobEnd),
    ) -> Result<(), QueueError> {
        let by = Right::Token(token);
        let ms = ms.min(Message::RESULT_MS_MAX);
        let keep = KeepResult { id, by, ms, end };
        self.done(Message::KeepResult(Box::new(keep))).await
    }

    /// Returns how a job ended, or [`QueueError::Absent`] if nothing is known about it: it never existed, or it is over
    /// and its result is not kept.
    pub async fn result(&self, id: u64) -> Result<Ending, QueueError> {
        let questions = vec![Item::Query(Query::Job { id }), Item::Query(Query::Result { id })];
        let mut answers = self.mailbox.call(questions).await?.into_iter();
        let (job, kept) = (answers.next(), answers.next());
        match (job.ok_or(Stopped)??, kept.ok_or(Stopped)??) {
            // The stored result may be that of an earlier try, in which case the numbers of tries differ.
            (Reply::Job(job), Reply::Result(kept))
                if job.phase.is_over() && job.attempts == kept.attempts =>
            {
                Ok(Ending::Known(kept))
            }
            (Reply::Job(job), _) if job.phase.is_over() => Ok(Ending::Abandoned(job)),
            (Reply::Job(job), _) => Ok(Ending::Open(job)),
            (Reply::Absent, Reply::Result(kept)) => Ok(Ending::Known(kept)),
            (other, _) => Err(refusal(&other)),
        }
    }

    /// Waits until a job is over, and returns how it ended.
    pub async fn result_waiting(&self, id: u64) -> Result<Ending, QueueError> {
        self.mailbox.watch(Watch::Over { id }).await??;
        self.result(id).await
    }
}
