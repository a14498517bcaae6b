//! What is said of a claimed job, with the token of its claim: that it is done, failed, given back, or worked on still.

use crate::actors::queue::{ErrorText, JobView, Message, Progress, Right};
use crate::handle::queue_error::QueueError;
use crate::handle::queues::Queues;
use crate::ids::Token;

impl Queues {
    /// Ends a claimed job: it is done.
    pub async fn ack(&self, id: u64, token: Token) -> Result<(), QueueError> {
        let by = Right::Token(token);
        self.done(Message::Delete { id, by }).await
    }

    /// Gives a claimed job back, to be ready in so many milliseconds; with a priority of its own from now on, if one is
    /// given. Tells what is known of it then: if it was its last try, it is abandoned. Nothing, if this is a repetition and
    /// the job has ended since.
    pub async fn release(
        &self,
        id: u64,
        token: Token,
        (delay_ms, priority): (u64, Option<u32>),
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let release = Message::Release {
            id,
            by,
            priority,
            delay_ms,
        };
        self.change(id, release).await
    }

    /// Puts a job aside until it is kicked. Tells what is known of it then, as a release does.
    pub async fn bury(
        &self,
        id: u64,
        token: Token,
        priority: Option<u32>,
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        self.change(id, Message::Bury { id, by, priority }).await
    }

    /// Begins the span of a claim again. Tells what is known of the job then, as a release does.
    pub async fn touch(&self, id: u64, token: Token) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let touch = match self.bound {
            Some(to) => Message::Bind { id, by, to },
            None => Message::Touch { id, by },
        };
        self.change(id, touch).await
    }

    /// Says that a claimed job failed: it is tried again after so many milliseconds, else as the back-off of its type
    /// says, else when its claim would have ended; or abandoned, if that was its last try. Tells what is known of it: it
    /// belongs to nobody. Nothing, if it was to be run at most once: then it is gone. What went wrong is shown with the
    /// job until it fails again.
    pub async fn fail(
        &self,
        id: u64,
        token: Token,
        (retry_after_ms, error): (Option<u64>, Option<ErrorText>),
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let fail = Message::Fail {
            id,
            by,
            retry_after_ms,
            error,
        };
        self.change(id, fail).await
    }

    /// Says that a claimed job cannot be tried now: it belongs to nobody for so many milliseconds, else for a while which is the
    /// longer, the oftener it was given back, and the claim counts as no try. When the job is a day old this is a failure. Tells what is known of it.
    pub async fn defer(
        &self,
        id: u64,
        token: Token,
        (retry_after_ms, error): (Option<u64>, Option<ErrorText>),
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        let defer = Message::Defer {
            id,
            by,
            error,
            retry_after_ms,
        };
        self.change(id, defer).await
    }

    /// Notes how far the work on a claimed job has come, to be shown with it. It is not waited for until that is durable.
    pub async fn report(
        &self,
        id: u64,
        token: Token,
        progress: Progress,
    ) -> Result<Option<JobView>, QueueError> {
        let by = Right::Token(token);
        self.change(id, Message::Report { id, by, progress }).await
    }
}
