//! How jobs ended: what a worker notes of it, and what is known of it afterwards.

use crate::actors::queue::{
    JobEnd, JobResult, JobView, KeepResult, Message, Phase, Query, Reply, Right, Watch,
};
use crate::handle::queue_error::{QueueError, refusal};
use crate::handle::queues::Queues;
use crate::ids::Token;
use crate::spine::delivery::Item;
use crate::spine::runtime::Stopped;

/// What is known of the end of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// There is none yet.
    Open(Box<JobView>),
    /// It is over, and its worker said how.
    Known(Box<JobResult>),
    /// It is abandoned, and nobody noted a result.
    Abandoned(Box<JobView>),
}

impl Queues {
    /// Notes how the work on a claimed job ended, to be known for so many milliseconds, at most [`Message::RESULT_MS_MAX`], once the
    /// job is over: what ends it comes after this. The oldest results give way where there are too many.
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

    /// How a job ended. [`QueueError::Absent`] if nothing is known of it: there was no such job, or it is over and no result of it is
    /// kept.
    pub async fn result(&self, id: u64) -> Result<Ending, QueueError> {
        let questions = vec![
            Item::Query(Query::Job { id }),
            Item::Query(Query::Result { id }),
        ];
        let mut answers = self.mailbox.call(questions).await?.into_iter();
        let (job, kept) = (answers.next(), answers.next());
        match (job.ok_or(Stopped)??, kept.ok_or(Stopped)??) {
            // That of an earlier try may be there still.
            (Reply::Job(job), Reply::Result(kept))
                if job.phase == Phase::Abandoned && job.attempts == kept.attempts =>
            {
                Ok(Ending::Known(kept))
            }
            (Reply::Job(job), _) if job.phase == Phase::Abandoned => Ok(Ending::Abandoned(job)),
            (Reply::Job(job), _) => Ok(Ending::Open(job)),
            (Reply::Absent, Reply::Result(kept)) => Ok(Ending::Known(kept)),
            (other, _) => Err(refusal(&other)),
        }
    }

    /// The same once the job is over: at once, if it is.
    pub async fn result_waiting(&self, id: u64) -> Result<Ending, QueueError> {
        self.mailbox.watch(Watch::Over { id }).await??;
        self.result(id).await
    }
}
